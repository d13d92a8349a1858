"""Build the node's firmware for the emulator, and the contents of its flash."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Final

from gossamer import toolchain
from gossamer.native import FIRMWARE, core_sources
from gossamer.toolchain import Image

PORT: Final = FIRMWARE / "port" / "xtensa_qemu"
_IDENTITY: Final = struct.Struct("<4sII32s")  # identity_t of firmware/port/xtensa_qemu/main.c
_MAGIC: Final = b"GSID"


@cache
def node_image() -> Image:
    """Build (once a machine) the node as a bare-metal program, the same for every experiment. Raises ToolchainError."""
    sources = [*sorted(PORT.glob("*.[cS]")), *core_sources()]
    # In the cache, under a hash of its parts: processes that run it must not see it change.
    return toolchain.build_cached(toolchain.find(), sources, PORT / "link.ld", "gossamer-node.elf", include=[PORT])


def identity(node: int, image: Path, key: bytes) -> bytes:
    """Return what tells a node who it is: its id, the bytes of its experiment image, and the run key [32]."""
    return _IDENTITY.pack(_MAGIC, node, image.stat().st_size, key)
