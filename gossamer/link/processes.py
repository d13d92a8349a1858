"""Run one process a node and speak with it over a socket, as over a board's serial line."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import secrets
import selectors
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import RunError
from gossamer.job import Job
from gossamer.link.coordinator import Coordinator
from gossamer.link.dialogue import Patience
from gossamer.place import Row
from gossamer.spec.constants import KEY_BYTES
from gossamer.spec.wire import CobsStream, cobs_encode

STOP_TIMEOUT_S: Final = 5.0
_READ_BYTES: Final = 1 << 16
_NOISE_BYTES_MAX: Final = 1 << 20  # of what one process says besides frames, in its log
_LOG_LINES: Final = 5  # of a dead node's words, in the error
_FILES_OF_OURS: Final = 64


@dataclass(frozen=True)
class Program:
    """Say how a node's process is started.

    `files` become its own, besides its end of the line; `greeting` is what it reads from the line ahead of all frames.
    `ends_with_line`: it ends by itself when the line is closed.
    """

    command: Sequence[str | Path]
    files: Sequence[int] = ()
    greeting: bytes = b""
    ends_with_line: bool = True
    on_start: Callable[[], None] | None = None  # run in the process, ahead of the program


class NodeProcess:
    """Own one node's process, its end of the line, and its log."""

    def __init__(self, node: int, start: Callable[[int], Program], log: Path, mtu: int) -> None:
        self.node = node
        self._log = log
        self._log_from = log.stat().st_size if log.exists() else 0  # a continued run has an older process's words
        self.socket, theirs = socket.socketpair()
        try:
            with theirs, log.open("ab") as words:
                program = start(theirs.fileno())
                try:
                    self._process = subprocess.Popen(
                        program.command,
                        stdin=subprocess.DEVNULL,
                        stdout=words,
                        stderr=words,
                        pass_fds=[theirs.fileno(), *program.files],
                        start_new_session=True,  # Ctrl-C on the terminal is for us alone
                        preexec_fn=program.on_start,
                    )
                finally:
                    for file in program.files:
                        os.close(file)
        except BaseException:
            self.socket.close()
            raise
        self.socket.setblocking(False)
        self.stream = CobsStream(mtu, on_garbage=self._note)
        self.unsent = bytearray(program.greeting)
        self._ends_with_line = program.ends_with_line
        self._noise_bytes = 0

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return self._process.pid

    def send(self, frame: bytes) -> None:
        """Queue a frame; `write` sends it."""
        self.unsent += b"\0" + cobs_encode(frame) + b"\0"

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
            self._process.wait(STOP_TIMEOUT_S)
        status = self._process.returncode
        how = "closed its socket" if status is None else f"ended with status {status}"
        if status is not None and status < 0:
            how = f"was ended by {_signal_name(-status)}"
        said = self.words()[-_LOG_LINES:]
        return RunError(
            f"the process {how}" + (f"; it said: {' / '.join(said)}" if said else ""),
            f"node {self.node}",
            f"see {self._log}; --resume continues from the last committed round",
        )

    def words(self) -> list[str]:
        """Return the lines that this process wrote to its log."""
        with self._log.open("rb") as log:
            log.seek(self._log_from)
            return log.read().decode("utf-8", "replace").strip().splitlines()

    def hang_up(self) -> None:
        """Close the line: a node ends when nobody is there."""
        self.socket.close()
        if not self._ends_with_line and self._process.poll() is None:
            self._process.terminate()

    def wait(self, deadline_s: float) -> None:
        """Give the process until then to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline_s - time.monotonic()))

    def kill(self) -> None:
        """End the process by force, if it has not ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _note(self, garbage: bytes) -> None:
        """Keep what came and is no frame: a boot log, or words of the node. A flood is cut off."""
        if self._noise_bytes > _NOISE_BYTES_MAX:
            return
        self._noise_bytes += len(garbage)
        text = garbage.strip(b"\xff\r\n").decode("utf-8", "replace")
        if self._noise_bytes > _NOISE_BYTES_MAX:
            text += "\n(more such is not kept)"
        with contextlib.suppress(OSError), self._log.open("a", encoding="utf-8") as log:
            log.write(f"{text}\n")


class NodeProcesses:
    """Carry frames to the nodes' sockets (`gossamer.link.Transport`)."""

    def __init__(self) -> None:
        self._processes: list[NodeProcess] = []
        self._selector = selectors.DefaultSelector()

    def __iter__(self) -> Iterator[NodeProcess]:
        return iter(self._processes)

    def add(self, process: NodeProcess) -> None:
        """Watch the process of a node, the next or one that was cut off."""
        self._processes[process.node : process.node + 1] = [process]
        self._selector.register(process.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, process)

    def cut(self, node: int) -> None:
        """End a node's process by force."""
        process = self._processes[node]
        self._selector.unregister(process.socket)
        process.kill()
        process.hang_up()

    def send(self, node: int, frames: Sequence[bytes]) -> None:
        """Queue frames; they leave when the socket takes them."""
        process = self._processes[node]
        for frame in frames:
            process.send(frame)
        self._watch(process)

    def receive(self, timeout_s: float) -> Sequence[tuple[int, bytes]]:
        """Return frames that came, waiting for the first."""
        deadline_s = time.monotonic() + timeout_s
        came: list[tuple[int, bytes]] = []
        while not came and time.monotonic() < deadline_s:
            for key, events in self._selector.select(max(0.0, deadline_s - time.monotonic())):
                process: NodeProcess = key.data
                try:
                    if events & selectors.EVENT_WRITE:
                        process.write()
                        self._watch(process)
                    if events & selectors.EVENT_READ:
                        came += [(process.node, frame) for frame in process.read()]
                except ConnectionError as error:
                    raise process.death() from error
        return came

    def _watch(self, process: NodeProcess) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if process.unsent else 0)
        if self._selector.get_key(process.socket).events != wanted:
            self._selector.modify(process.socket, wanted, process)

    def hear_out(self, timeout_s: float) -> None:
        """Send what waits, and listen to what nodes have to say until they close their lines."""
        deadline_s = time.monotonic() + timeout_s
        while self._selector.get_map() and time.monotonic() < deadline_s:
            for key, events in self._selector.select(max(0.0, deadline_s - time.monotonic())):
                process: NodeProcess = key.data
                try:
                    if events & selectors.EVENT_WRITE:
                        process.write()
                        self._watch(process)
                    if events & selectors.EVENT_READ:
                        process.read()
                except (ConnectionError, RunError):
                    self._selector.unregister(process.socket)

    def stop(self) -> None:
        """End all processes, whatever they do and whatever happens meanwhile."""
        try:
            self._selector.close()
            for process in self._processes:
                process.hang_up()
            deadline_s = time.monotonic() + STOP_TIMEOUT_S
            for process in self._processes:
                process.wait(deadline_s)
        finally:
            for process in self._processes:
                process.kill()
            self._processes = []


class ProcessPlace(ABC):
    """Run every node as a process of its own (`gossamer.place.Place`)."""

    def __init__(self, job: Job, run_dir: Path, patience: Patience | None = None) -> None:
        self._job = job
        self._folder = run_dir
        self._state = run_dir / "state"
        self._image = self._state / "experiment.image"
        self._crcs = self._state / "coordinator.json"
        self._nodes = job.experiment.experiment.nodes
        self._key = b""
        self._rounds = 0
        self._patience = patience
        self._processes = NodeProcesses()
        self._coordinator: Coordinator | None = None

    @abstractmethod
    def program(self, node: int, line: int, key: bytes) -> Program:
        """Say how to start a node whose end of the line is the open file `line`."""

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Describe the nodes."""

    @property
    def arena_bytes(self) -> int:
        """Return what the nodes named, once they did."""
        return 0 if self._coordinator is None else self._coordinator.arena_bytes

    @property
    def processes(self) -> list[NodeProcess]:
        """List the nodes' processes."""
        return list(self._processes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._coordinator is not None:
                self._coordinator.stop()
                self._processes.hear_out(STOP_TIMEOUT_S)
        finally:
            self._processes.stop()

    def start(self, committed: int) -> int:
        """Start the processes; continue from the newest round that all of them kept."""
        self._state.mkdir(parents=True, exist_ok=True)
        (self._folder / "nodes").mkdir(exist_ok=True)
        self._image.write_bytes(self._job.image)
        if not committed:
            self.forget()
        self._key = secrets.token_bytes(KEY_BYTES)
        _allow_files(self._nodes)
        for node in range(self._nodes):
            self._start(node)
        self._coordinator = Coordinator(self._job, self._processes, self._key, self._patience)
        rounds = self._coordinator.start(committed)
        if rounds:
            self._coordinator.restore_crcs(self._kept(rounds))
        self._rounds = rounds
        return rounds

    def restart(self, node: int) -> None:
        """Cut a node off between two rounds and start it anew; it goes on from its checkpoint, to the same bits.

        Raises RunError: it does not come back, or has no checkpoint.
        """
        assert self._coordinator is not None
        self._processes.cut(node)
        self._start(node)
        self._coordinator.rejoin(node, self._rounds)

    def _start(self, node: int) -> None:
        def program(line: int) -> Program:
            return self.program(node, line, self._key)

        log = self._folder / "nodes" / f"node-{node:05}.log"
        try:
            self._processes.add(NodeProcess(node, program, log, int(self._job.config["mtu"])))
        except OSError as error:
            raise RunError(
                f"its process cannot be started: {error}", f"node {node}", "use fewer nodes, or --on sim"
            ) from error

    def _kept(self, rounds: int) -> Any:
        try:
            return json.loads(self._crcs.read_text("utf-8"))[str(rounds)]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"nothing is kept of round {rounds}",
                str(self._crcs),
                f"delete {self._state}; --resume then starts anew",
            ) from error

    def round(self, r: int) -> list[Row]:
        """Run one round."""
        assert self._coordinator is not None
        rows = self._coordinator.round(r)
        self._rounds = r + 1
        return rows

    def keep(self) -> None:
        """Write down what the coordinator needs to continue from here, or from where it was called before."""
        assert self._coordinator is not None
        before = json.loads(self._crcs.read_text("utf-8")) if self._crcs.exists() else {}
        older = max((int(rounds) for rounds in before if int(rounds) < self._rounds), default=None)
        kept = {} if older is None else {str(older): before[str(older)]}
        partial = self._crcs.with_suffix(".tmp")
        partial.write_text(json.dumps(kept | {str(self._rounds): self._coordinator.crcs()}), "utf-8")
        partial.replace(self._crcs)

    @abstractmethod
    def forget(self) -> None:
        """Remove what the nodes of an older run kept."""

    @abstractmethod
    def save(self) -> None:
        """Make the rounds run so far survive the end of this process."""

    def weights(self) -> NDArray[np.float32] | None:
        """Return None: a process keeps its weights to itself."""
        return None


def _allow_files(nodes: int) -> None:
    """Raise the limit of open files, as far as this process may, to a few a node."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * nodes + _FILES_OF_OURS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
