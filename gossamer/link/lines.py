"""Speak with nodes over byte streams, as over boards' serial lines, whatever the nodes run in."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from gossamer.errors import NodeLostError
from gossamer.spec.wire import CobsStream, cobs_encode

_READ_BYTES: Final = 1 << 16
_NOISE_BYTES_MAX: Final = 1 << 20  # of what one node says besides frames, in its log
_LOG_LINES: Final = 5  # of a dead node's words, in the error


class Body(Protocol):
    """Be what a node runs in: a process, a container."""

    @property
    def pid(self) -> int:
        """Return the number of its process on this machine; 0 if it has none here."""
        ...

    def ending(self) -> str | None:
        """Say how it ended, such as `ended with status 1`; None while it runs. May wait a moment for the end."""
        ...

    def end(self) -> None:
        """Ask it to end; its line is closed already."""
        ...

    def wait(self, deadline_s: float) -> None:
        """Give it until then (by `time.monotonic`) to end."""
        ...

    def kill(self) -> None:
        """End it by force, if it has not ended, and leave nothing of it."""
        ...

    def pause(self) -> None:
        """Stop it where it stands, until `resume`."""
        ...

    def resume(self) -> None:
        """Let it go on."""
        ...


class NodeLog:
    """Keep what a node says to people: from here on, behind the words of older bodies in the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._from = path.stat().st_size if path.exists() else 0
        self._noise_bytes = 0

    def note(self, garbage: bytes) -> None:
        """Keep what came over the line and is no frame: a boot log, or words of the node. A flood is cut off."""
        if self._noise_bytes > _NOISE_BYTES_MAX:
            return
        self._noise_bytes += len(garbage)
        text = garbage.strip(b"\xff\r\n").decode("utf-8", "replace")
        if self._noise_bytes > _NOISE_BYTES_MAX:
            text += "\n(more such is not kept)"
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as log:
            log.write(f"{text}\n")

    def words(self) -> list[str]:
        """Return the lines of this body."""
        with contextlib.suppress(OSError), self.path.open("rb") as log:
            log.seek(self._from)
            return log.read().decode("utf-8", "replace").strip().splitlines()
        return []


class Line:
    """Own one node's end of the line, what it runs in, and its log.

    `greeting` is what the node reads ahead of all frames; `mtu` bounds the bytes of a frame.
    """

    def __init__(
        self, node: int, line: socket.socket, body: Body, log: NodeLog, mtu: int, greeting: bytes = b""
    ) -> None:
        line.setblocking(False)
        self.node = node
        self.socket = line
        self.body = body
        self.log = log
        self.stream = CobsStream(mtu, on_garbage=log.note)
        self.unsent = bytearray(greeting)

    def send(self, frame: bytes) -> None:
        """Queue a frame; `write` sends it."""
        self.unsent += b"\0" + cobs_encode(frame) + b"\0"

    def write(self) -> None:
        """Send what the socket takes."""
        with contextlib.suppress(BlockingIOError):
            while self.unsent:
                del self.unsent[: self.socket.send(self.unsent)]

    def read(self) -> list[bytes]:
        """Return the frames that came. Raises NodeLostError: the other end is closed."""
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise self.death()
        return self.stream.feed(data)

    def death(self) -> NodeLostError:
        """Describe how the node ended."""
        how = self.body.ending() or "closed its line"
        said = self.log.words()[-_LOG_LINES:]
        return NodeLostError(
            [self.node],
            f"it {how}" + (f"; it said: {' / '.join(said)}" if said else ""),
            mend=f"see {self.log.path}; --resume continues from the last committed round",
        )

    def hang_up(self) -> None:
        """Close the line and ask the node to end."""
        self.socket.close()
        self.body.end()


class Lines:
    """Carry frames over the nodes' lines (`gossamer.link.Transport`); what is for a node without one is lost."""

    def __init__(self) -> None:
        self._lines: dict[int, Line] = {}
        self._selector = selectors.DefaultSelector()

    def __iter__(self) -> Iterator[Line]:
        return iter([self._lines[node] for node in sorted(self._lines)])

    def __getitem__(self, node: int) -> Line:
        return self._lines[node]

    def __contains__(self, node: int) -> bool:
        return node in self._lines

    def add(self, line: Line) -> None:
        """Take the line of a node that has none."""
        self._lines[line.node] = line
        self._selector.register(line.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, line)

    def cut(self, node: int) -> None:
        """End a node by force; nothing happens if it has no line."""
        line = self._lines.pop(node, None)
        if line is not None:
            self._forget(line)
            line.body.kill()
            line.hang_up()

    def send(self, node: int, frames: Sequence[bytes]) -> None:
        """Queue frames; they leave when the socket takes them."""
        line = self._lines.get(node)
        if line is not None:
            for frame in frames:
                line.send(frame)
            self._watch(line)

    def receive(self, timeout_s: float) -> Sequence[tuple[int, bytes]]:
        """Return frames that came, waiting for the first. Raises NodeLostError: once a node; it has no line then."""
        deadline_s = time.monotonic() + timeout_s
        came: list[tuple[int, bytes]] = []
        while not came and time.monotonic() < deadline_s:
            for line, events in self._ready(deadline_s):
                try:
                    came += self._serve(line, events)
                except NodeLostError:
                    if came:
                        break  # the socket stays ready: it is told next time
                    self.cut(line.node)
                    raise
        return came

    def hear_out(self, timeout_s: float) -> None:
        """Send what waits, and listen to what nodes have to say until they close their lines."""
        deadline_s = time.monotonic() + timeout_s
        while self._selector.get_map() and time.monotonic() < deadline_s:
            for line, events in self._ready(deadline_s):
                try:
                    self._serve(line, events)
                except NodeLostError:
                    self._forget(line)

    def stop(self, timeout_s: float) -> None:
        """End all nodes, whatever they do and whatever happens meanwhile."""
        lines = list(self)
        try:
            self._selector.close()
            for line in lines:
                line.hang_up()
            deadline_s = time.monotonic() + timeout_s
            for line in lines:
                line.body.wait(deadline_s)
        finally:
            for line in lines:
                line.body.kill()
            self._lines = {}

    def _ready(self, deadline_s: float) -> list[tuple[Line, int]]:
        ready = self._selector.select(max(0.0, deadline_s - time.monotonic()))
        return [(key.data, events) for key, events in ready]

    def _serve(self, line: Line, events: int) -> list[tuple[int, bytes]]:
        try:
            if events & selectors.EVENT_WRITE:
                line.write()
                self._watch(line)
            return [(line.node, frame) for frame in line.read()] if events & selectors.EVENT_READ else []
        except ConnectionError as error:
            raise line.death() from error

    def _watch(self, line: Line) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.unsent else 0)
        if self._selector.get_key(line.socket).events != wanted:
            self._selector.modify(line.socket, wanted, line)

    def _forget(self, line: Line) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(line.socket)
