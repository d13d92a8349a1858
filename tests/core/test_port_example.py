"""The port in firmware/README.md compiles without a warning, and links against the core."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gossamer.native import FIRMWARE, core_sources, find_compiler, shared_library
from gossamer.spec.constants import CORE_ERRORS

STRICT = ("-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror")
BOARD = """
#include <stddef.h>
#include <stdint.h>
extern const uint8_t experiment_image[];
extern const size_t experiment_image_len;
int uart_read(void);
void uart_write(const uint8_t *data, size_t len);
const uint8_t experiment_image[4] = {1, 2, 3, 4};
const size_t experiment_image_len = sizeof experiment_image;
int uart_read(void)
{
    return -1;
}
void uart_write(const uint8_t *data, size_t len)
{
    (void)data;
    (void)len;
}
"""


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_port_of_the_readme_builds_and_starts(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler} here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _, _, rest = (FIRMWARE / "README.md").read_text().partition("```c\n")
    code, _, _ = rest.partition("```")
    header, found, body = code.partition("gs_err_t run(uint16_t id, const uint8_t key[GS_KEY_BYTES])")
    (tmp_path / "port.c").write_text(f"{header}{found};\n{found}{body}")
    (tmp_path / "board.c").write_text(BOARD)
    sources = [*core_sources(), tmp_path / "port.c", tmp_path / "board.c"]
    declared = "int run(uint16_t id, const uint8_t *key);"
    _, lib = shared_library("port", sources, declared, STRICT, compiler=find_compiler(compiler))
    assert lib.run(1, bytes(32)) == CORE_ERRORS["IMAGE_MAGIC"][0]  # four bytes are no image
