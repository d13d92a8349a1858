"""Find which files of the firmware core a kernel needs, by reading their declarations and includes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from gossamer.native import FIRMWARE

CORE = FIRMWARE / "core"


@cache
def header_of(kernel: str) -> Path:
    """Return the header of the core that declares a function. Raises KeyError."""
    return _declarations()[kernel]


@cache
def files_of(headers: frozenset[Path]) -> tuple[Path, ...]:
    """List the headers and sources that these headers need, themselves included, sorted."""
    found: set[Path] = set()
    waiting = list(headers)
    while waiting:
        path = waiting.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        waiting += (CORE / name for name in re.findall(r'^#include "([^"]+)"', path.read_text("utf-8"), re.MULTILINE))
        waiting.append(path.with_suffix(".c"))
    return tuple(sorted(found))


def sources_of(kernels: Iterable[str]) -> tuple[Path, ...]:
    """List the C files to compile for these kernels."""
    files = files_of(frozenset(header_of(kernel) for kernel in kernels))
    return tuple(path for path in files if path.suffix == ".c")


def kernel_sources() -> tuple[Path, ...]:
    """List the C files of all kernels."""
    return tuple(path for path in files_of(frozenset(CORE.glob("gs_q8*.h"))) if path.suffix == ".c")


@cache
def _declarations() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for header in sorted(CORE.glob("gs_q8*.h")):
        for name in re.findall(r"^[a-z][\w ]*?\**(gs_q8_\w+)\(", header.read_text("utf-8"), re.MULTILINE):
            found.setdefault(name, header)
    return found
