"""Compile and link C for the ESP32-S3's processor.

Where the compiler knows the chip it does everything. Debian's knows a smaller relative: it is told the processor by a
shared object (firmware/toolchain/core_config.c), and the assembler gets the missing instructions as macros
(esp32s3.inc) in front of every file that the compiler made.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from gossamer.native import FIRMWARE, shared_object
from gossamer.toolchain._find import Toolchain
from gossamer.toolchain._install import ToolchainError, cache_folder

# -mauto-litpools: constants come by `movi`; loads of float constants from memory make GCC 13 fail in some functions.
FLAGS: Final = (
    *("-std=c11", "-O2", "-mabi=call0", "-mlongcalls", "-mauto-litpools", "-ffp-contract=off", "-ffreestanding"),
    *("-ffunction-sections", "-fdata-sections", "-fno-common", "-fno-math-errno", "-fno-trapping-math"),
    *("-Wall", "-Wextra", "-Werror"),
)
# --no-relax: the linker must not take bytes out of code over which a macro counted the distance of a branch.
_LINK_FLAGS: Final = ("--gc-sections", "--no-relax")
_TOOLCHAIN: Final = FIRMWARE / "toolchain"
_TIMEOUT_S: Final = 300
_LINES_SHOWN: Final = 12


class Target(StrEnum):
    """Processors to compile for; what is compiled for QEMU also runs on the chip, a little slower."""

    ESP32S3 = "esp32s3"
    QEMU = "qemu"


@dataclass(frozen=True)
class Image:
    """Hold a linked program."""

    elf: Path
    text_bytes: int  # code
    constant_bytes: int
    data_bytes: int  # what starts as something; a copy is in flash
    bss_bytes: int  # what starts as zeros
    stack_bytes: int
    symbols: Mapping[str, tuple[int, int]]  # name -> (address, bytes)


def build_image(
    toolchain: Toolchain,
    sources: Sequence[Path],
    script: Path,
    output: Path,
    *,
    target: Target = Target.QEMU,
    include: Sequence[Path] = (),
    flags: Sequence[str] = (),
) -> Image:
    """Compile C and assembler sources and link them with a linker script.

    Objects are kept in the cache under a hash of everything that decides their bytes. Raises ToolchainError: what the
    compiler, the assembler or the linker said; of an image too large the largest symbols.
    """
    folders = [_TOOLCHAIN / "include", FIRMWARE / "core", *include]
    headers = _digest(path for folder in folders for path in sorted(folder.glob("*.h")))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda path: _object(toolchain, target, path, folders, headers, tuple(flags)), sources))
    output.parent.mkdir(parents=True, exist_ok=True)
    library = _run([toolchain.tool("gcc"), "-mabi=call0", "-print-libgcc-file-name"], "compiler").strip()
    command = [toolchain.linker, *_LINK_FLAGS, "-T", str(script), *map(str, objects), library, "-o", str(output)]
    try:
        _run(command, output.name)
    except ToolchainError as error:
        if "will not fit" in str(error) or "overflowed" in str(error):
            raise _too_large(toolchain, error, objects) from error
        raise
    return _image(toolchain, output)


def build_cached(
    toolchain: Toolchain,
    sources: Sequence[Path],
    script: Path,
    name: str,
    *,
    target: Target = Target.QEMU,
    include: Sequence[Path] = (),
) -> Image:
    """Build a program into the cache, under a hash of everything that decides its bytes. Raises ToolchainError."""
    folders = [*include, FIRMWARE / "core", _TOOLCHAIN, _TOOLCHAIN / "include"]
    headers = [path for folder in folders for path in sorted(folder.glob("*.*"))]
    key = hashlib.sha256("\0".join([toolchain.prefix, toolchain.version(), target, *FLAGS, *_LINK_FLAGS]).encode())
    key.update(_digest([script, *sources, *headers]).encode())
    kept = cache_folder().parent / "images" / f"{key.hexdigest()[:24]}-{name}"
    if kept.exists():
        return _image(toolchain, kept)
    partial = kept.with_name(f".{os.getpid()}-{kept.name}")
    try:
        build_image(toolchain, sources, script, partial, target=target, include=include)
        partial.replace(kept)
    finally:
        partial.unlink(missing_ok=True)
    return _image(toolchain, kept)


def _object(
    toolchain: Toolchain, target: Target, source: Path, folders: Sequence[Path], headers: str, flags: tuple[str, ...]
) -> Path:
    words = [*FLAGS, *flags]
    own = _digest([source, *sorted(_TOOLCHAIN.glob("*.*"))])
    key = hashlib.sha256(
        "\0".join([toolchain.prefix, toolchain.version(), target, *words, *map(str, folders), headers, own]).encode()
    )
    kept = cache_folder().parent / "objects" / f"{key.hexdigest()[:24]}-{source.stem}.o"
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_name(f".{os.getpid()}-{kept.name}")
    includes = [f"-I{folder}" for folder in folders]
    try:
        if toolchain.knows_chip:
            _run([toolchain.tool("gcc"), *words, *includes, "-c", str(source), "-o", str(partial)], source.name)
        else:
            assembly = partial.with_suffix(".s")
            _to_assembly(toolchain, target, source, [*words, *includes], assembly)
            _run(
                [toolchain.tool("as"), "--auto-litpools", f"-I{_TOOLCHAIN}", str(assembly), "-o", str(partial)],
                source.name,
            )
            assembly.unlink()
        partial.replace(kept)
    finally:
        partial.unlink(missing_ok=True)
    return kept


def _to_assembly(toolchain: Toolchain, target: Target, source: Path, words: Sequence[str], output: Path) -> None:
    """Compile to assembler text and put the macros in front; the compiler alone may see the processor's description."""
    kind = "-E" if source.suffix == ".S" else "-S"
    description = "core_config_qemu.c" if target is Target.QEMU else "core_config.c"
    config = shared_object("xtensa-config", [_TOOLCHAIN / description])
    command = [toolchain.tool("gcc"), *words, kind, str(source), "-o", str(output)]
    _run(command, source.name, {"XTENSA_GNU_CONFIG": str(config)})
    output.write_text(f'.include "esp32s3.inc"\n{output.read_text("utf-8")}', "utf-8")


def _image(toolchain: Toolchain, elf: Path) -> Image:
    sections = {}
    for line in _run([toolchain.tool("size"), "-A", str(elf)], elf.name).splitlines():
        words = line.split()
        if len(words) == 3 and words[0].startswith("."):
            sections[words[0]] = int(words[1])
    symbols = {}
    for line in _run([toolchain.tool("nm"), "--print-size", str(elf)], elf.name).splitlines():
        words = line.split()
        if len(words) >= 3:
            symbols[words[-1]] = (int(words[0], 16), int(words[1], 16) if len(words) == 4 else 0)
    text, constants, data, bss = (sections.get(name, 0) for name in (".text", ".rodata", ".data", ".bss"))
    stack = symbols.get("GS_STACK_BYTES", (0, 0))[0]
    return Image(elf, text, constants, data, bss - stack, stack, symbols)


def _too_large(toolchain: Toolchain, error: ToolchainError, objects: Sequence[Path]) -> ToolchainError:
    sizes = []
    for path in objects:
        for line in _run([toolchain.tool("nm"), "--print-size", str(path)], path.name).splitlines():
            words = line.split()
            if len(words) == 4:
                sizes.append((int(words[1], 16), words[3]))
    shown = ", ".join(f"{name} {size:,}" for size, name in sorted(sizes, reverse=True)[:6])
    first = next(
        (line for line in error.what.splitlines() if "overflowed" in line or "will not fit" in line), error.what
    )
    first = re.sub(r"^\S*: \S* (?=section)", "", first.strip())
    return ToolchainError(f"{first}; the largest symbols: {shown}", error.where, "make these smaller")


def _digest(paths: object) -> str:
    digest = hashlib.sha256()
    for path in paths:  # type: ignore[attr-defined]
        digest.update(f"\0{path}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _run(command: Sequence[str], where: str, environment: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, env=os.environ | dict(environment or {})
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{Path(command[0]).name} does not run: {error}", where) from error
    if done.returncode:
        said = "\n".join(re.sub(r"^\S*/", "", line) for line in done.stderr.strip().splitlines()[:_LINES_SHOWN])
        raise ToolchainError(f"{Path(command[0]).name} failed:\n{said}\n", where, shlex.join(command))
    return done.stdout
