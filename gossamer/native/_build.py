"""Compile C sources into a cache and load them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gossamer
from gossamer.native._compiler import NATIVE, BuildError, Compiler, find_compiler

FIRMWARE = Path(gossamer.__file__).resolve().parents[1] / "firmware"

# -fno-math-errno and -fno-trapping-math change no result: one is about errno, the other about exception flags.
FAST: tuple[str, ...] = ("-O3", NATIVE, "-fno-math-errno", "-fno-trapping-math")
CHECKED: tuple[str, ...] = (
    *("-O1", "-g", "-fno-omit-frame-pointer"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)

_ALWAYS = ("-std=c11", "-ffp-contract=off")
_TIMEOUT_S = 300
_ERROR_LINES = 20


def core_sources() -> tuple[Path, ...]:
    """List the C files of the firmware core that a node is made of: all but the kernels of int8 inference."""
    found = tuple(path for path in sorted((FIRMWARE / "core").glob("*.c")) if not path.name.startswith("gs_q8"))
    if not found:
        raise BuildError(
            "the firmware's sources are not there", str(FIRMWARE / "core"), "install from a clone: pip install -e ."
        )
    return found


def shared_library(
    name: str,
    sources: Sequence[Path],
    cdef: str,
    flags: Sequence[str] = FAST,
    *,
    sanitize: bool = False,
    compiler: Compiler | None = None,
    base: Sequence[Path] | None = None,
) -> tuple[Any, Any]:
    """Build and load a shared library; returns cffi's (ffi, lib), whose calls release the interpreter's lock.

    `cdef` declares what is called. `sanitize` builds with CHECKED instead of `flags`; the address sanitizer's run time
    must then have been loaded before Python (LD_PRELOAD). With `base`, only those sources are built for good, as a
    library that the rest is linked to; the rest is built each time and forgotten. Raises BuildError.
    """
    import cffi  # here, so that building an executable works without it

    flags = ("-shared", "-fPIC", *(CHECKED if sanitize else flags))
    ffi = cffi.FFI()
    ffi.cdef(cdef)
    with contextlib.ExitStack() as stack:
        if base is None:
            path = _build(f"{name}.so", sources, flags, compiler)
        else:
            known = _build("base.so", base, flags, compiler)
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gossamer-"))) / f"{name}.so"
            compiler = compiler or find_compiler()
            _compile(name, _command(compiler, sources, (*_ALWAYS, *flags), path, (known,)))
        try:
            return ffi, ffi.dlopen(str(path))
        except OSError as error:
            raise BuildError(f"cannot be loaded: {error}", str(path), "delete the file to build it again") from error


def shared_object(name: str, sources: Sequence[Path], compiler: Compiler | None = None) -> Path:
    """Build a shared object that another program loads, and return its path. Raises BuildError."""
    return _build(f"{name}.so", sources, ("-shared", "-fPIC", "-O1"), compiler)


def executable(
    name: str,
    sources: Sequence[Path],
    flags: Sequence[str] = FAST,
    *,
    sanitize: bool = False,
    compiler: Compiler | None = None,
) -> Path:
    """Build a program and return its path. `sanitize` builds with CHECKED instead of `flags`. Raises BuildError."""
    return _build(name, sources, tuple(CHECKED if sanitize else flags), compiler)


def _build(name: str, sources: Sequence[Path], flags: tuple[str, ...], compiler: Compiler | None) -> Path:
    compiler = compiler or find_compiler()
    flags = (*_ALWAYS, *flags)
    folders = _include_folders(sources)
    digest = hashlib.sha256("\0".join((*compiler.command, *flags, compiler.identity(flags))).encode())
    for path in (*sources, *_headers(folders)):
        digest.update(f"\0{path}\0".encode())
        digest.update(path.read_bytes())
    cache = _cache_folder()
    target = cache / f"{digest.hexdigest()[:24]}-{name}"
    if target.exists():
        return target

    # Under a name of its own first: another process may be building or loading the same target.
    handle, partial = tempfile.mkstemp(prefix=f".{name}-", dir=cache)
    os.close(handle)
    try:
        _compile(name, _command(compiler, sources, flags, Path(partial)))
        os.replace(partial, target)
    finally:
        Path(partial).unlink(missing_ok=True)
    return target


def _command(
    compiler: Compiler, sources: Sequence[Path], flags: tuple[str, ...], output: Path, libraries: Sequence[Path] = ()
) -> list[str]:
    includes = (f"-I{folder}" for folder in _include_folders(sources))
    inputs = map(str, (*sources, *libraries))  # libraries last: linkers take from them what is missing so far
    return [*compiler.command, *compiler.resolve(flags), *includes, *inputs, "-o", str(output)]


def _compile(name: str, command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"building {name} failed: {error}", command[0], "set CC to gcc or clang") from error
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[:_ERROR_LINES])
        raise BuildError(f"building {name} failed:\n{said}\n", shlex.join(command), "set CC to another gcc or clang")


def _include_folders(sources: Iterable[Path]) -> list[Path]:
    return sorted({FIRMWARE / "core", *(source.resolve().parent for source in sources)})


def _headers(folders: Iterable[Path]) -> list[Path]:
    return sorted(header for folder in folders for header in folder.glob("*.h"))


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "gossamer"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BuildError(
            f"cannot keep builds here: {error.strerror}", str(folder), "set XDG_CACHE_HOME to a folder you can write to"
        ) from error
    return folder
