from __future__ import annotations

import pytest

from gossamer import toolchain
from gossamer.toolchain import Toolchain, ToolchainError


@pytest.fixture(scope="session")
def chain() -> Toolchain:
    """Return the compiler; installs it, and the emulator, where that is possible."""
    try:
        toolchain.install()
        return toolchain.find()
    except ToolchainError as missing:
        pytest.skip(str(missing))
