"""Find the tools that make and run ESP32-S3 code on this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from gossamer.toolchain._install import PACKAGES, STAMP, ToolchainError, cache_folder

_TIMEOUT_S: Final = 30
_OLDEST_GCC: Final = 13  # reads a description of the processor at run time


class Source(StrEnum):
    """Where tools come from."""

    ESPRESSIF = "espressif"  # xtensa-esp32s3-elf-gcc on PATH: knows the whole chip
    SYSTEM = "system"  # the distribution's own packages
    CACHE = "cache"  # what `install` unpacked


@dataclass(frozen=True)
class Toolchain:
    """Name the programs of one compiler."""

    source: Source
    prefix: str  # path of a program without its own name: .../xtensa-lx106-elf-

    @property
    def linker(self) -> str:
        """Name the linker."""
        bare = self.prefix + "ld.bfd"
        return bare if Path(bare).exists() else self.prefix + "ld"

    @property
    def knows_chip(self) -> bool:
        """Tell whether compiler and assembler know the ESP32-S3 by themselves."""
        return self.source is Source.ESPRESSIF

    def tool(self, name: str) -> str:
        """Return the path of gcc, as, nm, size, objcopy, ..."""
        return self.prefix + name

    def version(self) -> str:
        """Return the compiler's version."""
        return _first_line([self.tool("gcc"), "-dumpfullversion"])


def find(prefer: Source | None = None) -> Toolchain:
    """Return the toolchain to use: Espressif's, the system's, or the cached one. Raises ToolchainError."""
    found = {chain.source: chain for chain in _toolchains()}
    if prefer is not None and prefer not in found:
        raise ToolchainError(
            f"there is no compiler of source {prefer.value}", "--prefer", "see `gossamer toolchain status`"
        )
    order = [prefer] if prefer else list(Source)
    for source in order:
        if source in found:
            return found[source]
    raise ToolchainError("no Xtensa compiler is installed", "toolchain", "gossamer toolchain install")


def find_emulator() -> str:
    """Return the path of qemu-system-xtensa: the cached one, else the system's. Raises ToolchainError."""
    cached = cache_folder() / "usr/bin/qemu-system-xtensa"
    if cached.exists() and (cache_folder() / STAMP).exists():
        return str(cached)
    found = shutil.which("qemu-system-xtensa")
    if found is None:
        raise ToolchainError("qemu-system-xtensa is not installed", "toolchain", "gossamer toolchain install")
    return found


def status() -> list[tuple[str, str]]:
    """List (what, where and which version) of everything that was found."""
    rows = [(f"compiler ({chain.source.value})", f"{chain.tool('gcc')} {chain.version()}") for chain in _toolchains()]
    try:
        emulator = find_emulator()
        rows.append(("emulator", f"{emulator} {_version_in(_first_line([emulator, '--version']))}"))
    except ToolchainError as missing:
        rows.append(("emulator", str(missing)))
    if not any(what.startswith("compiler") for what, _ in rows):
        rows.insert(0, ("compiler", "none: gossamer toolchain install"))
    rows.append(("cache", f"{cache_folder()} {'(complete)' if (cache_folder() / STAMP).exists() else '(empty)'}"))
    rows.append(("packages", ", ".join(f"{name} {series}*" for name, series in PACKAGES.items())))
    return rows


def _toolchains() -> Iterator[Toolchain]:
    espressif = shutil.which("xtensa-esp32s3-elf-gcc")
    if espressif:
        yield Toolchain(Source.ESPRESSIF, espressif.removesuffix("gcc"))
    system = shutil.which("xtensa-lx106-elf-gcc")
    if system:
        chain = Toolchain(Source.SYSTEM, system.removesuffix("gcc"))
        if int(_version_in(chain.version()).split(".")[0] or 0) >= _OLDEST_GCC:
            yield chain
    cached = cache_folder() / "usr/bin/xtensa-lx106-elf-gcc"
    if cached.exists() and (cache_folder() / STAMP).exists():
        yield Toolchain(Source.CACHE, str(cached).removesuffix("gcc"))


def _version_in(text: str) -> str:
    found = re.search(r"\d+(\.\d+)+", text)
    return found[0] if found else "0"


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"(does not run: {error})"
    return (done.stdout.splitlines() or [""])[0]
