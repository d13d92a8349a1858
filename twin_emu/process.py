"""Run one QEMU a node: the cross-compiled firmware, its UART a socket, its flash files."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from gossamer.job import Job
from gossamer.link import Patience
from gossamer.link.processes import ProcessPlace, Program
from gossamer.toolchain import MACHINE, find_emulator
from twin_emu.firmware import identity, node_image
from twin_emu.monitor import Monitor

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
        self._monitors: list[Monitor] = []

    @property
    def facts(self) -> dict[str, Any]:
        """Describe the nodes."""
        image = self._firmware
        return {
            "engine": "emu",
            "arena_bytes": self.arena_bytes,
            "program": image.elf.name,
            "firmware_bytes": image.text_bytes + image.constant_bytes + image.data_bytes,
            "static_bytes": image.data_bytes + image.bss_bytes,
            "stack_bytes": image.stack_bytes,
            "node_mib": round(sum(_resident_mib(process.pid) for process in self.processes) / self._nodes, 1),
        }

    def program(self, node: int, line: int, key: bytes) -> Program:
        """Say how to start a node. Its identity, with the run key, is in a file that has no name."""
        secret = os.memfd_create(f"identity-{node}")
        os.write(secret, identity(node, self._image, key))
        ours, theirs = socket.socketpair()
        self._monitors.append(Monitor(ours, f"node {node}"))
        control = theirs.detach()
        flash = [(f"/proc/self/fd/{secret}", self._at("gs_identity")), (self._image, self._at("gs_experiment"))]
        flash += [(path, self._slot(number)) for number, path in enumerate(self._slots(node)) if path.exists()]
        command = [self._emulator, *MACHINE, "-nodefaults", "-display", "none", "-no-reboot"]
        command += ["-chardev", f"socket,id=line,fd={line}", "-serial", "chardev:line"]
        command += ["-chardev", f"socket,id=control,fd={control}", "-mon", "chardev=control,mode=control"]
        command += ["-kernel", str(self._firmware.elf)]
        for path, address in flash:
            command += ["-device", f"loader,file={path},addr={address:#x},force-raw=on"]
        return Program(command, files=[secret, control], ends_with_line=False, on_start=self._die_with_us)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            for monitor in self._monitors:
                monitor.close()

    def forget(self) -> None:
        """Remove the checkpoints of an older run."""
        for old in self._state.glob("flash-*"):
            shutil.rmtree(old)

    def save(self) -> None:
        """Write the checkpoints in the nodes' flash to files: all of them, then they replace those before."""
        before = set(self._state.glob("flash-*"))
        partial = self._state / "flash.tmp"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for node, monitor in enumerate(self._monitors):
            for number, path in enumerate(self._slots(node, partial)):
                # A checkpoint is a part of the arena, behind its length.
                monitor.save_memory(self._slot(number), 4 + self.arena_bytes, path)
        self.keep()
        folder = self._state / f"flash-{self._rounds}"
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
        for old in before - {folder}:
            shutil.rmtree(old)

    def _at(self, symbol: str) -> int:
        return self._firmware.symbols[symbol][0]

    def _slot(self, number: int) -> int:
        """Return the address of a checkpoint: each slot takes half of that part of the flash."""
        begin, end = self._at("gs_checkpoints"), self._at("gs_checkpoints_end")
        return begin + number * (end - begin) // 2

    def _slots(self, node: int, folder: Path | None = None) -> list[Path]:
        if folder is None:  # of several, the newest: the others were about to be removed
            saved = [path for path in self._state.glob("flash-*")]
            folder = max(saved, key=lambda path: path.stat().st_mtime_ns, default=self._state)
        return [folder / f"node-{node:05}.{number}" for number in range(2)]


def _resident_mib(pid: int) -> float:
    """Return the memory that a process takes, of shared memory its part; 0 where the system does not tell."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("Pss:"))
    return 0.0


def _die_with(parent: int) -> Callable[[], None]:
    """Return what makes the kernel end a new process when `parent` does, however that ends."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def on_start() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before
            os._exit(1)

    return on_start
