"""Run one process a node and speak with it over a socket, as over a board's serial line."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gossamer.link.lines import Line, NodeLog

_END_TIMEOUT_S: Final = 5.0  # for a process whose line is closed


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
    """Be a node's process (`gossamer.link.lines.Body`)."""

    def __init__(self, process: subprocess.Popen[bytes], ends_with_line: bool) -> None:
        self._process = process
        self._ends_with_line = ends_with_line

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return self._process.pid

    def ending(self) -> str | None:
        """Say how it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT_S)
        status = self._process.returncode
        if status is None:
            return None
        return f"was ended by {_signal_name(-status)}" if status < 0 else f"ended with status {status}"

    def end(self) -> None:
        """Ask it to end, if it does not see that its line is closed."""
        if not self._ends_with_line and self._process.poll() is None:
            self._process.terminate()

    def wait(self, deadline_s: float) -> None:
        """Give it until then to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline_s - time.monotonic()))

    def kill(self) -> None:
        """End it by force, if it has not ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Stop it where it stands."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)


def start_process(node: int, program: Callable[[int], Program], log: NodeLog, mtu: int) -> Line:
    """Start a node's process; `program` is given the open file that is its end of the line. Raises OSError."""
    ours, theirs = socket.socketpair()
    try:
        with theirs, log.path.open("ab") as words:
            wanted = program(theirs.fileno())
            try:
                process = subprocess.Popen(
                    wanted.command,
                    stdin=subprocess.DEVNULL,
                    stdout=words,
                    stderr=words,
                    pass_fds=[theirs.fileno(), *wanted.files],
                    start_new_session=True,  # Ctrl-C on the terminal is for us alone
                    preexec_fn=wanted.on_start,
                )
            finally:
                for file in wanted.files:
                    os.close(file)
    except BaseException:
        ours.close()
        raise
    return Line(node, ours, NodeProcess(process, wanted.ends_with_line), log, mtu, wanted.greeting)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
