"""Run one QEMU a node: the cross-compiled firmware, its UART a socket, its flash files."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gossamer.job import Job
from gossamer.link import Patience
from gossamer.link.processes import ProcessPlace, Program
from gossamer.toolchain import MACHINE, find_emulator
from twin_emu.firmware import identity, node_image

# An emulated node is some thirty times slower than a native one, and shares its core with dozens.
PATIENCE: Final = Patience(timeout_s=600.0)
_PR_SET_PDEATHSIG: Final = 1


class EmuPlace(ProcessPlace):
    """Run every node on an emulated processor of its own (`gossamer.place.Place`)."""

    def __init__(self, job: Job, run_dir: Path, patience: Patience | None = None) -> None:
        super().__init__(job, run_dir, patience or PATIENCE)
        self._emulator = find_emulator()
        self._firmware = node_image()
        self._die_with_us = _die_with(os.getpid())

    @property
    def facts(self) -> dict[str, Any]:
        """Describe the nodes."""
        image = self._firmware
        return {
            "engine": "emu",
            "arena_bytes": self.arena_bytes,
            "program": image.elf.name,
            "firmware_bytes": image.text_bytes + image.data_bytes,
            "static_bytes": image.data_bytes + image.bss_bytes,
            "node_mib": round(sum(map(resident_mib, (process.pid for process in self._processes))) / self._nodes, 1),
        }

    def program(self, node: int, line: int, key: bytes) -> Program:
        """Say how to start a node. Its identity, with the run key, is in a file that has no name."""
        symbols = self._firmware.symbols
        secret = os.memfd_create(f"identity-{node}")
        os.write(secret, identity(node, self._image, key))
        command = [self._emulator, *MACHINE, "-nodefaults", "-display", "none", "-no-reboot"]
        command += ["-chardev", f"socket,id=line,fd={line}", "-serial", "chardev:line"]
        command += ["-kernel", str(self._firmware.elf)]
        for path, place in ((f"/proc/self/fd/{secret}", "gs_identity"), (self._image, "gs_experiment")):
            command += ["-device", f"loader,file={path},addr={symbols[place][0]:#x},force-raw=on"]
        return Program(command, files=[secret], ends_with_line=False, on_start=self._die_with_us)

    def save(self) -> None:
        """Do nothing: the nodes' flash ends with them, and an interrupted run starts anew."""


def resident_mib(pid: int) -> float:
    """Return the memory that a process takes, of shared memory its part."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("Pss:"))


def _die_with(parent: int) -> Callable[[], None]:
    """Return what makes the kernel end a new process when `parent` does, however that ends."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def on_start() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before
            os._exit(1)

    return on_start
