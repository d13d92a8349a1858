"""Build the firmware's C for this machine and call it from Python.

A build is kept in `$XDG_CACHE_HOME/gossamer` under a hash of everything that decides its bytes, so it happens once a
machine and never goes stale.
"""

from gossamer.native._build import CHECKED, FAST, FIRMWARE, core_sources, executable, shared_library, shared_object
from gossamer.native._compiler import NATIVE, BuildError, Compiler, available, find_compiler

__all__ = [
    "CHECKED",
    "FAST",
    "FIRMWARE",
    "NATIVE",
    "BuildError",
    "Compiler",
    "available",
    "core_sources",
    "executable",
    "find_compiler",
    "shared_library",
    "shared_object",
]
