"""Run a program on an emulated Xtensa processor."""

from __future__ import annotations

import subprocess
from typing import Final

from gossamer.toolchain._build import Image
from gossamer.toolchain._find import find_emulator
from gossamer.toolchain._install import ToolchainError

MACHINE: Final = ("-M", "kc705-nommu", "-cpu", "de233_fpu")
# One instruction a nanosecond of virtual time: cycles then count instructions, the same in every run.
COUNTED: Final = ("-icount", "shift=0,sleep=off")
INSTRUCTIONS_A_CYCLE: Final = 25  # counted so: the processor's clock has 40 MHz of that time


def run_image(image: Image, *, timeout_s: float, counted: bool = False) -> bytes:
    """Run a program until it powers off, and return what it wrote to its serial line.

    Raises ToolchainError when it does not end in time or the emulator fails.
    """
    command = [find_emulator(), *MACHINE, *(COUNTED if counted else ()), "-display", "none", "-monitor", "none"]
    command += ["-serial", "stdio", "-no-reboot", "-kernel", str(image.elf)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"")[-200:].decode("utf-8", "replace")
        raise ToolchainError(f"did not end within {timeout_s:g} s; it wrote {said!r}", image.elf.name) from error
    if done.returncode:
        raise ToolchainError(f"the emulator failed: {done.stderr.decode(errors='replace').strip()}", image.elf.name)
    return done.stdout
