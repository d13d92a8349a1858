"""Find or install what makes and runs ESP32-S3 code here: an Xtensa compiler and an emulator.

Nothing is installed into the system: Debian's packages are unpacked into `$XDG_CACHE_HOME/gossamer/toolchain`.
"""

from gossamer.toolchain._build import Image, Target, build_image
from gossamer.toolchain._emulate import run_image
from gossamer.toolchain._find import Source, Toolchain, find, status
from gossamer.toolchain._install import ToolchainError, install

__all__ = [
    "Image",
    "Source",
    "Target",
    "Toolchain",
    "ToolchainError",
    "build_image",
    "find",
    "install",
    "run_image",
    "status",
]
