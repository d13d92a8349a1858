"""The generated header: up to date, and what a C compiler reads in it is what Python holds."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest

from codegen import spec_headers
from gossamer.native import FIRMWARE, find_compiler
from gossamer.spec import constants

CORE = FIRMWARE / "core"

# Name in C -> its value, from the tables of SPEC.md 2.3, 6, 9 and 10, not from constants.py.
SPECIFIED = {
    "GS_SPEC_VERSION": 2, "GS_WIRE_VERSION": 1, "GS_SERVER": 65534, "GS_COORDINATOR": 65535, "GS_HEADER_BYTES": 22,
    "GS_TAG_BYTES": 16, "GS_KEY_BYTES": 32, "GS_MTU_MIN": 64, "GS_MTU_MAX": 65535, "GS_REPLAY_WINDOW": 64,
    "GS_IMAGE_MAGIC": 0x4D495347, "GS_CANONICAL_NAN": 0x7FC00000, "GS_DATA_TYPE_MIN": 16, "GS_NODE_ID_MAX": 65533,
    "GS_STREAM_INIT": 1, "GS_STREAM_SPLIT": 2, "GS_STREAM_BATCH": 3, "GS_STREAM_SHARE": 4, "GS_STREAM_MASK": 5,
    "GS_MESSAGE_HELLO": 1, "GS_MESSAGE_METRICS": 10, "GS_MESSAGE_STOP": 12, "GS_MESSAGE_SEGMENT": 16,
    "GS_MESSAGE_PULL": 17, "GS_CODING_RANGE": 0, "GS_CODING_BITMAP": 1, "GS_CODING_DELTA": 2, "GS_CODING_MASK": 3,
    "GS_CFG_SEED_LO": 0, "GS_CFG_LAYERS": 7, "GS_CFG_LAYER0": 8, "GS_CFG_INIT": 8 + 32 * 12, "GS_CFG_LR": 396,
    "GS_CFG_TEST_COUNT": 456, "GS_CFG_WORDS": 457, "GS_LAYER_KIND": 0, "GS_LAYER_FROZEN": 11, "GS_LAYER_WORDS": 12,
    "GS_KIND_DENSE": 0, "GS_KIND_DROPOUT": 7, "GS_STREAM_DROPOUT": 12, "GS_INIT_GIVEN": 2, "GS_OPTIMIZER_ADAM": 1,
    "GS_METRIC_ROUND": 0, "GS_METRIC_WEIGHTS_CRC": 1, "GS_METRIC_DIVERGED": 26, "GS_METRIC_WORDS": 27,
}  # fmt: skip

PLAIN_WORDS = [name for name in constants.CONFIG_WORDS if not re.match(r"layer\d+_", name)]

PROGRAM = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "gs_err.h"
#include "gs_spec.h"
static void print_float(const char *name, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    printf("%s %lu\\n", name, (unsigned long)bits);
}
int main(void)
{
#define PRINT_ERROR(name, code, text) printf("GS_" #name " %d %s\\n", GS_##name, gs_err_text(GS_##name));
    GS_ERRORS(PRINT_ERROR)
%s
    return 0;
}
"""


def read_by_c(folder: Path, integers: list[str], floats: list[str]) -> dict[str, str]:
    """Compile a program that prints what the header holds, strictly; return value by name."""
    lines = [f'    printf("{name} %lu\\n", (unsigned long){name});' for name in integers]
    lines += [f'    print_float("{name}", {name});' for name in floats]
    source, program = folder / "read.c", folder / "read"
    source.write_text(PROGRAM.replace("%s\n    return", "\n".join(lines) + "\n    return"), "utf-8")
    flags = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror", f"-I{CORE}")
    command = [*find_compiler().command, *flags, str(source), str(CORE / "gs_err.c"), "-o", str(program)]
    subprocess.run(command, check=True, timeout=60)
    out = subprocess.run([program], check=True, capture_output=True, text=True, timeout=10).stdout
    return dict(line.split(" ", 1) for line in out.splitlines())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    names = [*SPECIFIED, *(f"GS_CFG_{name.upper()}" for name in PLAIN_WORDS)]
    names += [f"GS_LAYER_{name.upper()}" for name in constants.LAYER_WORDS]
    names += [f"GS_METRIC_{name.upper()}" for name in constants.METRIC_WORDS]
    return read_by_c(tmp_path_factory.mktemp("header"), names, [f"GS_FMATH_{name}" for name in constants.FMATH])


def test_it_is_up_to_date() -> None:
    assert spec_headers.HEADER == CORE / "gs_spec.h"
    assert spec_headers.HEADER.read_text("utf-8") == spec_headers.header(), "run: python -m codegen.spec_headers"


def test_numbers_are_those_of_the_specification(found: dict[str, str]) -> None:
    assert {name: int(found[name]) for name in SPECIFIED} == SPECIFIED


def test_words_have_the_places_of_the_image_and_of_metrics(found: dict[str, str]) -> None:
    for prefix, words in (("GS_LAYER", constants.LAYER_WORDS), ("GS_METRIC", constants.METRIC_WORDS)):
        assert [int(found[f"{prefix}_{name.upper()}"]) for name in words] == list(range(len(words)))
    places = {name: place for place, name in enumerate(constants.CONFIG_WORDS)}
    assert {name: int(found[f"GS_CFG_{name.upper()}"]) for name in PLAIN_WORDS} == {n: places[n] for n in PLAIN_WORDS}
    layers, size = int(found["GS_CFG_LAYER0"]), int(found["GS_LAYER_WORDS"])
    for layer in range(constants.LAYERS_MAX):
        for word, name in enumerate(constants.LAYER_WORDS):
            assert places[f"layer{layer}_{name}"] == layers + layer * size + word


def test_constants_of_exp_and_log_have_the_same_bits(found: dict[str, str]) -> None:
    for name, text in constants.FMATH.items():
        assert int(found[f"GS_FMATH_{name}"]) == struct.unpack("<I", struct.pack("<f", float.fromhex(text)))[0]


def test_errors_have_code_and_text(found: dict[str, str]) -> None:
    assert found["GS_OK"] == "0 success"
    for name, (code, text) in constants.CORE_ERRORS.items():
        assert found["GS_OK" if name == "OK" else f"GS_ERR_{name}"] == f"{code} {text}"
    codes = [code for code, _ in constants.CORE_ERRORS.values()]
    assert codes == list(range(0, -len(codes), -1))


def test_check_tells_a_stale_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = tmp_path / "core" / "gs_spec.h"
    monkeypatch.setattr(spec_headers, "HEADER", header)
    monkeypatch.setattr("sys.argv", ["spec_headers", "--check"])
    assert spec_headers.main() == 1 and not header.exists()
    monkeypatch.setattr("sys.argv", ["spec_headers"])
    assert spec_headers.main() == 0
    monkeypatch.setattr("sys.argv", ["spec_headers", "--check"])
    assert spec_headers.main() == 0
    header.write_text(header.read_text("utf-8").replace("GS_MTU_MIN 64u", "GS_MTU_MIN 65u"), "utf-8")
    assert spec_headers.main() == 1
