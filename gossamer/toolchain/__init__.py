"""Find or install what makes and runs ESP32-S3 code here: an Xtensa compiler and an emulator.

Nothing is installed into the system: Debian's packages are unpacked into `$XDG_CACHE_HOME/gossamer/toolchain`.
"""

from gossamer.toolchain._build import Image, Target, build_cached, build_image
from gossamer.toolchain._emulate import INSTRUCTIONS_A_CYCLE, MACHINE, run_image
from gossamer.toolchain._find import Source, Toolchain, find, find_emulator, status
from gossamer.toolchain._install import ToolchainError, install

__all__ = [
    "INSTRUCTIONS_A_CYCLE",
    "MACHINE",
    "Image",
    "Source",
    "Target",
    "Toolchain",
    "ToolchainError",
    "build_cached",
    "build_image",
    "find",
    "find_emulator",
    "install",
    "run_image",
    "status",
]
