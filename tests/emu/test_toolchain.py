"""The compiler makes code that an emulated processor runs, with the results that the numbers themselves have."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gossamer import toolchain
from gossamer.cli import main
from gossamer.native import FIRMWARE
from gossamer.toolchain import Toolchain, ToolchainError, build_image, run_image
from tests.emu.conftest import PORT, RUN_TIME
from tests.link_fakes import small_job

HERE = Path(__file__).parent
NAN = 0x7FC00000


def int32(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def truncated(a: int, b: int) -> tuple[int, int]:
    """Divide as C does, towards zero, in integers."""
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - quotient * b


def expected(a: int, b: int) -> Iterator[int]:
    x, y = int32(a), int32(b)
    yield (a * b) >> 32
    yield (x * y) >> 32
    yield a // (b | 1)
    yield a % (b | 1)
    yield from truncated(x, y >> 1 | 1)
    yield from (min(a, b), max(a, b), min(x, y), max(x, y))
    yield (a + 128) % 256 - 128
    yield (a + 32768) % 65536 - 32768
    yield max(-128, min(127, x))
    with np.errstate(all="ignore"):
        f, g = np.array([a, b], np.uint32).view(np.float32)
        for value in (f + g, f - g, f * g):
            yield NAN if np.isnan(value) else int(value.view(np.uint32))
        yield a ^ 0x80000000
        yield a & 0x7FFFFFFF
        yield (
            int(f < g) | int(f <= g) << 1 | int(f == g) << 2 | int(f != g) << 3
            | int(np.isnan(f) or np.isnan(g)) << 4 | int(not f < g) << 5 | int(not f <= g) << 6
        )  # fmt: skip
        yield a if f < g else b
        yield int(np.float32(x).view(np.uint32))
        yield int(np.float32(a).view(np.uint32))
        if -2147483648.0 < f < 2147483648.0:
            yield math.trunc(float(f))
        if 0 <= f < 4294967296.0:
            yield math.trunc(float(f))


def test_every_instruction_means_what_it_should(chain: Toolchain, tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    words = draw.integers(0, 1 << 32, (150, 2), np.uint32)
    # Floats of everyday size, and the ends of everything.
    everyday = draw.normal(0, 100, (150, 2)).astype(np.float32).view(np.uint32)
    ends = [0, 1, 0x7F800000, 0xFF800000, NAN, 0x80000000, 0x7FFFFFFF, 0xFFFFFFFF, 0x3F800000, 0x00800000, 0x4F000000]
    pairs = [*words.tolist(), *everyday.tolist(), *([a, b] for a in ends for b in ends)]
    rows = ", ".join(f"{{{a}u, {b}u}}" for a, b in pairs)
    (tmp_path / "pairs.h").write_text(f"static const uint32_t pairs[][2] = {{{rows}}};\n")
    image = build_image(
        chain,
        [HERE / "arithmetic.c", *RUN_TIME],
        PORT / "link.ld",
        tmp_path / "arithmetic.elf",
        include=[PORT, tmp_path],
    )
    found = [int(line, 16) for line in run_image(image, timeout_s=20).decode().split()]
    wanted = [value & 0xFFFFFFFF for a, b in pairs for value in expected(a, b)]
    # The standard leaves the bits of a NaN open: the sign and the payload are the processor's.
    quiet = [NAN if (value & 0x7FFFFFFF) > 0x7F800000 else value for value in found]
    assert [NAN if (value & 0x7FFFFFFF) > 0x7F800000 else value for value in wanted] == quiet


def test_the_whole_core_compiles(chain: Toolchain, tmp_path: Path) -> None:
    """Every file, with warnings as errors, for the processor that has no vectors; nothing is missing but mem*."""
    main_c = tmp_path / "main.c"
    main_c.write_text("int main(void);\nint main(void)\n{\n    return 0;\n}\n")
    sources = [main_c, *RUN_TIME, *sorted((FIRMWARE / "core").glob("*.c"))]
    image = build_image(chain, sources, PORT / "link.ld", tmp_path / "all.elf")
    assert 0 < image.text_bytes < 4096 and "main" in image.symbols  # what main does not need is left out


def test_what_does_not_fit_names_the_largest(chain: Toolchain, tmp_path: Path) -> None:
    main_c = tmp_path / "main.c"
    main_c.write_text(
        "int main(void);\nstatic volatile char vast_buffer[200000];\nint main(void)\n{\n    return vast_buffer[5];\n}\n"
    )
    with pytest.raises(
        ToolchainError, match=r"will not fit in region `data'; the largest symbols: vast_buffer 200,000"
    ):
        build_image(chain, [main_c, *RUN_TIME], PORT / "link.ld", tmp_path / "x.elf")


def test_a_mistake_is_shown_as_the_compiler_says_it(chain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text("int main(void) { return missing; }\n")
    with pytest.raises(ToolchainError, match="'missing' undeclared"):
        build_image(chain, [tmp_path / "bad.c"], PORT / "link.ld", tmp_path / "x.elf")


def test_a_second_install_does_nothing(chain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    if chain.source is not toolchain.Source.CACHE:
        pytest.skip(f"the compiler is of source {chain.source.value}")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("ran a program"))
    toolchain.install()


def test_without_a_network_the_mend_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GOSSAMER_DEBIAN_MIRROR", "http://127.0.0.1:9/debian")
    assert main(["toolchain", "install"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and len(said.splitlines()) == 1
    assert "GOSSAMER_DEBIAN_MIRROR" in said or "apt-get" in said or "keys are missing" in said
    assert main(["toolchain", "status"]) == 0


def test_a_run_without_the_tools_begins_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_job(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["run", str(tmp_path / "small.toml"), "--on", "emu", "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert said == "error: toolchain: no Xtensa compiler is installed; gossamer toolchain install\n"
    assert not (tmp_path / "run").exists()


def test_status_names_what_there_is(chain: Toolchain, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toolchain", "status"]) == 0
    said = capsys.readouterr().out
    assert chain.tool("gcc") in said and "emulator" in said
    assert main(["toolchain", "path"]) == 0
    assert capsys.readouterr().out.strip() == chain.tool("gcc")
