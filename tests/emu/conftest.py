from __future__ import annotations

import pytest

from gossamer import toolchain
from gossamer.native import FIRMWARE
from gossamer.toolchain import Toolchain, ToolchainError

PORT = FIRMWARE / "port" / "xtensa_qemu"
RUN_TIME = [PORT / name for name in ("start.S", "vectors.S", "gs_board.c", "gs_libc.c")]  # all but the node itself


@pytest.fixture(scope="session")
def chain() -> Toolchain:
    """Return the compiler; installs it, and the emulator, where that is possible."""
    try:
        toolchain.install()
        return toolchain.find()
    except ToolchainError as missing:
        pytest.skip(str(missing))
