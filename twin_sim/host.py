"""Run one process a node: the firmware core as on a board, its UART a socket."""

from __future__ import annotations

import contextlib
import json
import resource
import secrets
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import RunError
from gossamer.job import Job
from gossamer.link import Coordinator
from gossamer.native import FIRMWARE, core_sources, executable
from gossamer.place import Row
from gossamer.spec.constants import KEY_BYTES
from gossamer.spec.wire import CobsStream, cobs_encode

_STOP_TIMEOUT_S = 5.0
_READ_BYTES = 1 << 16
_LOG_LINES = 5  # of a dead node's words, in the error
_FILES_OF_OURS = 64


@cache
def node_program() -> Path:
    """Build (once a machine) the node as a program."""
    return executable("gossamer-node", [*core_sources(), FIRMWARE / "port" / "host" / "main.c"])


class _Process:
    """Own one node's process and its socket."""

    def __init__(self, node: int, program: Path, image: Path, state: Path, log: Path, key: bytes, mtu: int) -> None:
        self.node = node
        self._log = log
        self._log_from = log.stat().st_size if log.exists() else 0  # a continued run has an older process's words
        self.socket, theirs = socket.socketpair()
        try:
            with theirs, log.open("ab") as errors:
                self._process = subprocess.Popen(
                    [program, str(node), image, str(theirs.fileno()), state],
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C on the terminal is for us alone
                )
        except BaseException:
            self.socket.close()
            raise
        self.socket.setblocking(False)
        self.stream = CobsStream(mtu)
        self.unsent = bytearray(key)

    def write(self) -> None:
        """Send what the socket takes."""
        with contextlib.suppress(BlockingIOError):
            while self.unsent:
                del self.unsent[: self.socket.send(self.unsent)]

    def read(self) -> list[bytes]:
        """Return the frames that came."""
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise self.death()
        return self.stream.feed(data)

    def death(self) -> RunError:
        """Describe how the process ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_TIMEOUT_S)
        status = self._process.returncode
        how = "closed its socket" if status is None else f"ended with status {status}"
        if status is not None and status < 0:
            how = f"was ended by {_signal_name(-status)}"
        with self._log.open("rb") as log:
            log.seek(self._log_from)
            said = log.read().decode("utf-8", "replace").strip().splitlines()[-_LOG_LINES:]
        return RunError(
            f"the process {how}" + (f"; it said: {' / '.join(said)}" if said else ""),
            f"node {self.node}",
            f"see {self._log}; --resume continues from the last committed round",
        )

    def hang_up(self) -> None:
        """Close the socket: a node ends when nobody is there."""
        self.socket.close()

    def wait(self, deadline_s: float) -> None:
        """Give the process until then to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline_s - time.monotonic()))

    def kill(self) -> None:
        """End the process by force, if it has not ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class _Processes:
    """Carry frames to the nodes' sockets (`gossamer.link.Transport`)."""

    def __init__(self) -> None:
        self._processes: list[_Process] = []
        self._selector = selectors.DefaultSelector()

    def add(self, process: _Process) -> None:
        """Watch one more process."""
        self._processes.append(process)
        self._selector.register(process.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, process)

    def send(self, node: int, frames: Sequence[bytes]) -> None:
        """Queue frames; they leave when the socket takes them."""
        process = self._processes[node]
        for frame in frames:
            process.unsent += cobs_encode(frame) + b"\0"
        self._watch(process)

    def receive(self, timeout_s: float) -> Sequence[tuple[int, bytes]]:
        """Return frames that came, waiting for the first."""
        deadline_s = time.monotonic() + timeout_s
        came: list[tuple[int, bytes]] = []
        while not came and time.monotonic() < deadline_s:
            for key, events in self._selector.select(max(0.0, deadline_s - time.monotonic())):
                process: _Process = key.data
                try:
                    if events & selectors.EVENT_WRITE:
                        process.write()
                        self._watch(process)
                    if events & selectors.EVENT_READ:
                        came += [(process.node, frame) for frame in process.read()]
                except ConnectionError as error:
                    raise process.death() from error
        return came

    def _watch(self, process: _Process) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if process.unsent else 0)
        if self._selector.get_key(process.socket).events != wanted:
            self._selector.modify(process.socket, wanted, process)

    def stop(self) -> None:
        """End all processes, whatever they do and whatever happens meanwhile."""
        try:
            self._selector.close()
            for process in self._processes:
                process.hang_up()
            deadline_s = time.monotonic() + _STOP_TIMEOUT_S
            for process in self._processes:
                process.wait(deadline_s)
        finally:
            for process in self._processes:
                process.kill()
            self._processes = []


class HostPlace:
    """Run every node as a process of its own (`gossamer.place.Place`)."""

    def __init__(self, job: Job, run_dir: Path) -> None:
        self._job = job
        self._folder = run_dir
        self._state = run_dir / "state"
        self._crcs = self._state / "coordinator.json"
        self._processes = _Processes()
        self._coordinator: Coordinator | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Describe the nodes."""
        arena = 0 if self._coordinator is None else self._coordinator.arena_bytes
        return {"engine": "host", "arena_bytes": arena, "program": node_program().name}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.stop()

    def start(self, committed: int) -> int:
        """Start the processes; continue from the newest round that all of them kept."""
        program, logs = node_program(), self._folder / "nodes"
        self._state.mkdir(parents=True, exist_ok=True)
        logs.mkdir(exist_ok=True)
        image = self._state / "experiment.image"
        image.write_bytes(self._job.image)
        if not committed:
            for old in self._state.glob("node-*"):
                old.unlink()
        key = secrets.token_bytes(KEY_BYTES)
        mtu = int(self._job.config["mtu"])
        nodes = self._job.experiment.experiment.nodes
        _allow_files(nodes)
        for node in range(nodes):
            log = logs / f"node-{node:05}.log"
            try:
                self._processes.add(_Process(node, program, image, self._state, log, key, mtu))
            except OSError as error:
                raise RunError(
                    f"its process cannot be started: {error}", f"node {node}", "use fewer nodes, or --on sim"
                ) from error
        self._coordinator = Coordinator(self._job, self._processes, key)
        rounds = self._coordinator.start(committed)
        if rounds:
            try:
                kept = json.loads(self._crcs.read_text("utf-8"))[str(rounds)]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise RunError(
                    f"nothing is kept of round {rounds}",
                    str(self._crcs),
                    f"delete {self._state}; --resume then starts anew",
                ) from error
            self._coordinator.restore_crcs(kept)
        return rounds

    def round(self, r: int) -> list[Row]:
        """Run one round; the nodes keep it themselves."""
        assert self._coordinator is not None
        crcs = {}
        if r and self._crcs.exists():
            crcs = {str(r): json.loads(self._crcs.read_text("utf-8")).get(str(r))}
        rows = self._coordinator.round(r)
        partial = self._crcs.with_suffix(".tmp")
        partial.write_text(json.dumps(crcs | {str(r + 1): self._coordinator.crcs()}), "utf-8")
        partial.replace(self._crcs)
        return rows

    def save(self) -> None:
        """Do nothing: every committed round is already on disk."""

    def weights(self) -> NDArray[np.float32] | None:
        """Return None: a process keeps its weights to itself."""
        return None


def _allow_files(nodes: int) -> None:
    """Raise the limit of open files, as far as this process may, to a socket a node."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = nodes + _FILES_OF_OURS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
