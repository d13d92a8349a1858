"""Find a C compiler and learn what it makes code for."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from gossamer.errors import GossamerError

NATIVE = "@native"  # stands for the compiler's flag that allows every instruction of this machine
_NATIVE_FLAGS = ("-march=native", "-mcpu=native")  # which of them, if any, differs by compiler and processor
_PROBE_TIMEOUT_S = 30


class BuildError(GossamerError):
    """Report that C code could not be built for this machine."""


@dataclass(frozen=True)
class Compiler:
    """Name a C compiler by the words that start its command line."""

    command: tuple[str, ...]

    def resolve(self, flags: tuple[str, ...]) -> tuple[str, ...]:
        """Replace NATIVE by what this compiler calls it."""
        native = _native_flag(self) if NATIVE in flags else ()
        return tuple(word for flag in flags for word in (native if flag == NATIVE else (flag,)))

    def identity(self, flags: tuple[str, ...]) -> str:
        """Describe compiler, target and processor under `flags`: every macro that is defined before the first line."""
        found = _macros(self, self.resolve(flags))
        if found is None:
            raise BuildError(
                f"{self} refuses the flags {shlex.join(self.resolve(flags))}", "native", "set CC to gcc or clang"
            )
        return found

    def __str__(self) -> str:
        return shlex.join(self.command)


def find_compiler(name: str | None = None) -> Compiler:
    """Return the compiler called `name`, else the one that $CC names, else cc, gcc or clang.

    Raises BuildError where there is none.
    """
    wanted = name or os.environ.get("CC", "")
    try:
        candidates = [tuple(shlex.split(wanted))] if wanted.strip() else [("cc",), ("gcc",), ("clang",)]
    except ValueError as error:
        raise BuildError(f"{wanted!r} is no command line: {error}", "CC", "set CC to gcc or clang") from error
    for command in candidates:
        path = shutil.which(command[0])
        if path:
            return Compiler((path, *command[1:]))
    tried = ", ".join(command[0] for command in candidates)
    raise BuildError(
        f"no C compiler found (tried {tried})",
        "CC" if wanted and not name else "native",
        "install gcc or clang (Debian, Ubuntu: apt install gcc), set CC, or run with --on sim --engine numpy",
    )


def available() -> bool:
    """Tell whether a C compiler is installed."""
    try:
        find_compiler()
    except BuildError:
        return False
    return True


@cache
def _native_flag(compiler: Compiler) -> tuple[str, ...]:
    return next(((flag,) for flag in _NATIVE_FLAGS if _macros(compiler, (flag,)) is not None), ())


@cache
def _macros(compiler: Compiler, flags: tuple[str, ...]) -> str | None:
    """Return the predefined macros: they hold the compiler's version and the processor's abilities. None: refused."""
    command = [*compiler.command, *flags, "-w", "-dM", "-E", "-x", "c", "-"]
    try:
        done = subprocess.run(command, input="", capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
