"""Traps and interrupts of the bare machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.toolchain import INSTRUCTIONS_A_CYCLE, Toolchain, build_image, run_image
from tests.emu.conftest import PORT, RUN_TIME

HERE = Path(__file__).parent


def reported(chain: Toolchain, folder: Path, kind: int, counted: bool = False) -> tuple[dict[str, int], int]:
    """Return what a program of tests/emu/faults.c printed, and the address of the guilty instruction."""
    elf = folder / f"fault{kind}.elf"
    sources = [HERE / "faults.c", *RUN_TIME]
    image = build_image(chain, sources, PORT / "link.ld", elf, include=[PORT], flags=[f"-DKIND={kind}"])
    words = [line.rsplit(" ", 1) for line in run_image(image, timeout_s=20, counted=counted).decode().splitlines()]
    return {name: int(value, 16) for name, value in words}, image.symbols.get("gs_guilty", (0, 0))[0]


@pytest.mark.parametrize(
    ("kind", "cause", "a2"),
    [
        (0, 0, 0x222),  # IllegalInstruction
        (1, 9, 0x221),  # LoadStoreAlignment
        (2, 65, 0x222),  # of the double fault when registers are saved
    ],
)
def test_a_fault_is_reported_with_its_place_and_registers(
    kind: int, cause: int, a2: int, chain: Toolchain, tmp_path: Path
) -> None:
    report, guilty = reported(chain, tmp_path, kind)
    assert report["cause"] == cause
    assert (report["a2"], report["a12"]) == (a2, 0x777)
    if kind != 2:
        assert report["pc"] == guilty
    if kind == 1:
        assert report["address"] == 0x221


def test_interrupts_leave_no_trace(chain: Toolchain, tmp_path: Path) -> None:
    report, _ = reported(chain, tmp_path, 3)
    assert report == {"sum": 0, "stack": 1}


def test_cycles_count_instructions(chain: Toolchain, tmp_path: Path) -> None:
    first, second = (reported(chain, tmp_path, 4, counted=True)[0]["cycles"] for _ in range(2))
    assert first == second
    assert abs(first * INSTRUCTIONS_A_CYCLE - 1_000_000) <= 2 * INSTRUCTIONS_A_CYCLE
