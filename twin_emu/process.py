"""Run one QEMU a node: the cross-compiled firmware, its UART a socket, its flash files."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from gossamer.errors import RunError
from gossamer.job import Job
from gossamer.link import Patience
from gossamer.link.line_place import LinePlace
from gossamer.link.lines import Line, NodeLog
from gossamer.link.processes import Program, start_process
from gossamer.place import Tell, tell_nobody
from gossamer.toolchain import MACHINE, find_emulator
from twin_emu.firmware import identity, node_image
from twin_emu.monitor import TIMEOUT_S, Monitor

LAST_WORDS_S: Final = 10.0  # for an emulator that may hang
_PR_SET_PDEATHSIG: Final = 1


class EmuPlace(LinePlace):
    """Run every node on an emulated processor of its own (`gossamer.place.Place`)."""

    def __init__(self, job: Job, run_dir: Path, patience: Patience | None = None, tell: Tell = tell_nobody) -> None:
        options = job.experiment.emu
        super().__init__(job, run_dir, patience or Patience(options.patience_s), tell)
        self.tolerant = options.on_loss == "continue"
        self._emulator = find_emulator()
        self._firmware = node_image()
        self._die_with_us = _die_with(os.getpid())
        self._monitors: dict[int, Monitor] = {}
        self._saved: Path | None = None  # the flash of all nodes, after some round
        self._cut = self._state / "cut"  # that of nodes without power, as long as they have none

    @property
    def facts(self) -> dict[str, Any]:
        """Describe the nodes."""
        image = self._firmware
        return {
            "engine": "emu",
            "lost": self.lost,
            "arena_bytes": self.arena_bytes,
            "program": image.elf.name,
            "firmware_bytes": image.text_bytes + image.constant_bytes + image.data_bytes,
            "static_bytes": image.data_bytes + image.bss_bytes,
            "stack_bytes": image.stack_bytes,
            "node_mib": round(sum(_resident_mib(line.body.pid) for line in self.lines) / self._nodes, 1),
        }

    def open_line(self, node: int, log: NodeLog) -> Line:
        """Start a node."""
        return start_process(node, lambda line: self._program(node, line), log, int(self._job.config["mtu"]))

    def _program(self, node: int, line: int) -> Program:
        """Say how to start a node. Its identity, with the run key, is in a file that has no name."""
        secret = os.memfd_create(f"identity-{node}")
        os.write(secret, identity(node, self._image, self._key))
        ours, theirs = socket.socketpair()
        self._monitors[node] = Monitor(ours, f"node {node}")
        control = theirs.detach()
        command = [self._emulator, *MACHINE, "-nodefaults", "-display", "none", "-no-reboot"]
        command += ["-chardev", f"socket,id=line,fd={line}", "-serial", "chardev:line"]
        command += ["-chardev", f"socket,id=control,fd={control}", "-mon", "chardev=control,mode=control"]
        command += ["-kernel", str(self._firmware.elf)]
        for path, address in self._contents(node, Path(f"/proc/self/fd/{secret}")):
            file = str(path).replace(",", ",,")  # as QEMU wants commas within an option
            command += ["-device", f"loader,file={file},addr={address:#x},force-raw=on"]
        return Program(command, files=[secret, control], ends_with_line=False, on_start=self._die_with_us)

    def start(self, committed: int) -> int:
        """Start the emulators; continue from what was saved."""
        shutil.rmtree(self._cut, ignore_errors=True)
        self._cut.mkdir(parents=True)
        if committed:  # of several, the newest: the others were about to be removed
            saved = list(self._state.glob("flash-*"))
            self._saved = max(saved, key=lambda path: path.stat().st_mtime_ns, default=None)
        return super().start(committed)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            for monitor in self._monitors.values():
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
        for node in range(self._nodes):
            self._take_flash(node, partial)
        self.keep()
        folder = self._state / f"flash-{self._rounds}"
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
        self._saved = folder
        for old in before - {folder}:
            shutil.rmtree(old)

    def cut(self, node: int) -> None:
        """Take a node's power: what is in its flash stays."""
        self._keep_flash(node, LAST_WORDS_S)
        if node in self._monitors:
            self._monitors.pop(node).close()
        super().cut(node)

    def pause(self, node: int) -> None:
        """Stop a node's emulator; what is in its flash can be read all the same."""
        self._keep_flash(node)
        super().pause(node)

    def resume(self, node: int) -> None:
        """Let it go on."""
        self._drop_kept(node)
        super().resume(node)

    def _contents(self, node: int, secret: Path) -> Iterator[tuple[Path, int]]:
        """List what is in a node's flash besides its program: files and addresses."""
        yield secret, self._at("gs_identity")
        yield self._image, self._at("gs_experiment")
        for number, path in enumerate(self._stored(node)):
            if path.exists():
                yield path, self._slot(number)

    def _stored(self, node: int) -> list[Path]:
        """Name the files of a node's checkpoints: those since its power was cut, else those saved last."""
        kept = _slots(self._cut, node)
        return kept if self._saved is None or any(path.exists() for path in kept) else _slots(self._saved, node)

    def _take_flash(self, node: int, folder: Path) -> None:
        """Write a node's checkpoints to files: of a node that does not run, those it had."""
        if node in self._monitors and node not in self._paused:
            with contextlib.suppress(RunError):  # it ended just now, which the next round tells
                self._read_flash(node, folder)
                return
        for old, new in zip(self._stored(node), _slots(folder, node), strict=True):
            if old.exists():
                shutil.copyfile(old, new)

    def _keep_flash(self, node: int, timeout_s: float = TIMEOUT_S) -> None:
        """Read a node's flash while it can be read."""
        if node in self._monitors and node not in self._paused:
            self._drop_kept(node)
            with contextlib.suppress(RunError):  # of a node that ended, what was saved last is left
                self._read_flash(node, self._cut, timeout_s)

    def _drop_kept(self, node: int) -> None:
        for path in _slots(self._cut, node):
            path.unlink(missing_ok=True)

    def _read_flash(self, node: int, folder: Path, timeout_s: float = TIMEOUT_S) -> None:
        for number, path in enumerate(_slots(folder, node)):
            # A checkpoint is a part of the arena, behind its length.
            self._monitors[node].save_memory(self._slot(number), 4 + self.arena_bytes, path, timeout_s)

    def _at(self, symbol: str) -> int:
        return self._firmware.symbols[symbol][0]

    def _slot(self, number: int) -> int:
        """Return the address of a checkpoint: each slot takes half of that part of the flash."""
        begin, end = self._at("gs_checkpoints"), self._at("gs_checkpoints_end")
        return begin + number * (end - begin) // 2


def _slots(folder: Path, node: int) -> list[Path]:
    """Name the files of a node's checkpoints."""
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
