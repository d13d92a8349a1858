"""Ask nodes and await their answers over any transport: what comes is checked, counted, and named when it fails."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from gossamer.errors import CoreError, NodeLostError, RunError
from gossamer.spec.constants import (
    COORDINATOR,
    CORE_ERRORS,
    DATA_TYPE_MIN,
    HEADER_BYTES,
    SERVER,
    TAG_BYTES,
    MessageType,
)
from gossamer.spec.errors import FrameError, MalformedError
from gossamer.spec.messages import Failure
from gossamer.spec.settings import Settings
from gossamer.spec.wire import Frame, Reassembler, fragment_message, pack_frame, parse_frame

Answer = TypeVar("Answer")

_ROUTE = struct.Struct("<2xBxHHI8xH")  # flags, src, dst, round, payload bytes of a header
_CONTROL_MESSAGE_BYTES_MAX = 4096  # of what nodes say; the longest is METRICS of LAYERS_MAX layers
_FLOOD_BYTES_MIN = 1 << 24
_NAMED = 4  # silent nodes that an error describes
_MENDS = {CORE_ERRORS["ARENA"][0]: "choose a smaller model, batch, shard or FIFO, or nodes with more memory"}
_OF_A_ROUND = (MessageType.DONE, MessageType.METRICS)  # a node may say the others in any round


class Transport(Protocol):
    """Carry frames between the coordinator and its nodes: in order, some perhaps lost, never one changed unnoticed."""

    def send(self, node: int, frames: Sequence[bytes]) -> None:
        """Give frames to a node, in this order; does not wait until they have arrived."""
        ...

    def receive(self, timeout_s: float) -> Sequence[tuple[int, bytes]]:
        """Return frames that came, each with the node it came from; wait so long for the first.

        Nothing: nothing came, and without a further `send` nothing will. Raises NodeLostError, once, for a node that is
        gone; the others can be heard on. Raises RunError when none can.
        """
        ...


@dataclass(frozen=True)
class Patience:
    """Say when a silent node ends the run.

    A question is put `tries` times, `timeout_s` apart; every answer of any node begins the time anew, so that a slow
    crowd is not taken for a silent one. A message without an answer (WELCOME, PEERS, STOP) is sent `tries` times at
    once.
    """

    timeout_s: float = 120.0
    tries: int = 1  # more for transports that lose frames


class Dialogue:
    """Speak with nodes as the coordinator; hold the data frames that they send meanwhile.

    `round` is the one whose data frames are taken; `data` are those, in order of arrival. `dropped` counts by reason
    the frames that were none of ours: noise, another run's, an impostor's.

    A node that falls silent, ends, fails, floods or starts again in the middle of a round is lost: with `on_lost` that
    is told and the node is among `gone`, whom nothing is asked; without, the error is raised. `returned` are those of
    them who said HELLO since.
    """

    def __init__(
        self,
        settings: Settings,
        transport: Transport,
        key: bytes,
        patience: Patience,
        clock_s: Callable[[], float] = time.monotonic,
        on_lost: Callable[[NodeLostError], None] | None = None,
    ) -> None:
        self.gone: set[int] = set()
        self.returned: dict[int, bytes] = {}  # by node: its HELLO
        self.key = key if settings.auth else None
        self.round = 0
        self.data: list[bytes] = []
        self.dropped: Counter[str] = Counter()
        self._settings = settings
        self._transport = transport
        self._patience = patience
        self._clock_s = clock_s
        self._on_lost = on_lost
        self._seq = [0] * settings.nodes
        self._flood_bytes = _flood_bytes(settings)
        self._data_bytes = [0] * settings.nodes  # of this round
        self._heard: dict[int, str] = {}  # by node: its last control message, in words
        self._reassembler = Reassembler(settings.nodes, _CONTROL_MESSAGE_BYTES_MAX)

    def tell(self, node: int, type_: MessageType, payload: bytes = b"") -> None:
        """Send a message that has no answer."""
        if node in self.gone:
            return
        for _ in range(self._patience.tries):
            self._send(node, type_, payload)

    def ask(
        self,
        type_: MessageType,
        payloads: Mapping[int, bytes],
        answer: MessageType,
        parse: Callable[[bytes], Answer],
        fits: Callable[[int, Answer], bool] = lambda node, answer: True,
    ) -> dict[int, Answer]:
        """Put a question, its payload by node, and return each node's answer; a lost node has none.

        An answer for which `fits` is false is late (to a question put twice) and passed over. Raises NodeLostError:
        naming the nodes that stay silent, or what a node could not do.
        """

        def put(nodes: Sequence[int]) -> None:
            for node in nodes:
                self._send(node, type_, payloads[node])

        nodes = [node for node in payloads if node not in self.gone]
        put(nodes)
        return self._await(nodes, answer, parse, fits, put)

    def listen(self, nodes: Sequence[int], answer: MessageType, parse: Callable[[bytes], Answer]) -> dict[int, Answer]:
        """Wait for a message that nodes send unasked."""
        return self._await(nodes, answer, parse, lambda node, answer: True, lambda nodes: None)

    def deliver(self, node: int, frames: Sequence[bytes]) -> None:
        """Hand data frames to a node, as they came."""
        self._transport.send(node, frames)

    def begin_round(self, number: int) -> None:
        """Take this round's data frames from now on."""
        self.round = number
        self.data.clear()
        self._data_bytes = [0] * len(self._data_bytes)

    def take_back(self, node: int, parse: Callable[[bytes], Answer]) -> Answer | None:
        """Speak again with a node that starts anew; return its HELLO, or None if it stays silent."""
        self.gone.discard(node)
        message = self.returned.pop(node, None)
        if message is not None:
            with suppress(MalformedError):
                return parse(message)
        return self.listen([node], MessageType.HELLO, parse).get(node)

    def lose(self, error: NodeLostError) -> None:
        """Go on without nodes. Raises the error if nobody wants to, RunError if none is left."""
        if self._on_lost is None:
            raise error
        new = [node for node in error.nodes if node not in self.gone]
        self.gone.update(new)
        if new:
            self._on_lost(error)
        if len(self.gone) == self._settings.nodes:
            raise RunError("no node is left", f"round {self.round}", f"the last one lost was {error}") from error

    def _send(self, node: int, type_: MessageType, payload: bytes) -> None:
        settings = self._settings
        frames = fragment_message(
            type_, COORDINATOR, node, self.round, self._seq[node] + 1, payload, settings.mtu, settings.auth
        )
        self._seq[node] += len(frames)
        self._transport.send(node, [pack_frame(frame, self.key) for frame in frames])

    def _await(
        self,
        nodes: Sequence[int],
        answer: MessageType,
        parse: Callable[[bytes], Answer],
        fits: Callable[[int, Answer], bool],
        put: Callable[[Sequence[int]], None],
    ) -> dict[int, Answer]:
        waiting = set(nodes)
        answers: dict[int, Answer] = {}
        in_round = answer in _OF_A_ROUND
        tries, deadline_s = 1, self._clock_s() + self._patience.timeout_s
        while waiting:
            # The clock is asked, too: noise can keep a line busy for ever.
            left_s = deadline_s - self._clock_s()
            try:
                came = self._transport.receive(left_s) if left_s > 0 else ()
            except NodeLostError as error:
                self.lose(error)
                waiting -= self.gone
                continue
            for node, frame, message in self._control(came):
                if in_round and frame.type == MessageType.HELLO and self._on_lost is not None:
                    self.returned[node] = message
                    self.lose(NodeLostError([node], "it started again", f"node {node}, round {self.round}"))
                late = in_round and frame.round != self.round
                if frame.type != answer or late or node not in waiting:
                    continue
                try:
                    parsed = parse(message)
                except MalformedError:
                    self.dropped["malformed"] += 1
                    continue
                if fits(node, parsed):
                    answers[node] = parsed
                    waiting.discard(node)
                    deadline_s = self._clock_s() + self._patience.timeout_s
            waiting -= self.gone
            if waiting and not came:
                if tries >= self._patience.tries:
                    self.lose(self._silence(answer, sorted(waiting)))
                    break
                tries, deadline_s = tries + 1, self._clock_s() + self._patience.timeout_s
                put(sorted(waiting))
        return answers

    def _control(self, came: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, Frame, bytes]]:
        """Put data frames aside; yield the complete control messages. An ERROR is raised."""
        for node, data in came:
            if len(data) >= HEADER_BYTES and data[1] >= DATA_TYPE_MIN:
                self._put_aside(node, data)
                continue
            try:
                frame = parse_frame(data, self.key)
            except FrameError as error:
                self.dropped[error.reason] += 1
                continue
            if frame.src != node or frame.dst != COORDINATOR:
                self.dropped["peer"] += 1
                continue
            dropped = self._reassembler.dropped
            message = self._reassembler.take(frame)
            if self._reassembler.dropped > dropped:
                self.dropped["reassembly"] += self._reassembler.dropped - dropped
            if message is None:
                continue
            self._heard[node] = f"{_name(frame.type)} of round {frame.round}"
            if node in self.gone:
                if frame.type == MessageType.HELLO:
                    self.returned[node] = message
                continue
            if frame.type == MessageType.ERROR:
                self._fail(node, frame.round, message)
            yield node, frame, message

    def _put_aside(self, node: int, data: bytes) -> None:
        """Keep a data frame by what its header says; whether it is true, its receiver checks."""
        flags, src, dst, round_, len_bytes = _ROUTE.unpack_from(data)
        if len(data) != HEADER_BYTES + len_bytes + (TAG_BYTES if flags & 1 else 0):
            self.dropped["length"] += 1
        elif src != node or not (dst < self._settings.nodes or dst == SERVER):
            self.dropped["peer"] += 1
        elif round_ != self.round:
            self.dropped["stale"] += 1
        elif node not in self.gone:
            self._data_bytes[node] += len(data)
            if self._data_bytes[node] > self._flood_bytes:
                what = f"it floods its line: more than {self._flood_bytes:,} bytes of data in a round"
                self.lose(NodeLostError([node], what, f"node {node}, round {self.round}"))
                return
            self.data.append(data)

    def _fail(self, node: int, round_: int, message: bytes) -> None:
        try:
            failure = Failure.parse(message)
        except MalformedError:
            self.dropped["malformed"] += 1
            return
        mend = _MENDS.get(failure.code, "--resume continues from the last committed round")
        error = CoreError(failure.code, f"node {node}, round {round_}", mend, failure.text)
        if self._on_lost is None:
            raise error
        self.lose(NodeLostError([node], error.what, error.where, error.mend))

    def _silence(self, answer: MessageType, silent: Sequence[int]) -> NodeLostError:
        patience = self._patience
        waited = f"{patience.timeout_s:g} s" + (f", asked {patience.tries} times" if patience.tries > 1 else "")
        last = "; ".join(f"node {node}: {self._heard.get(node, 'nothing, ever')}" for node in silent[:_NAMED])
        noise = ", ".join(f"{count} {reason}" for reason, count in sorted(self.dropped.items()))
        return NodeLostError(
            silent,
            f"no {answer.name} within {waited}; {len(silent)} of {self._settings.nodes} nodes are silent; last heard "
            f"of {last}" + ("; ..." if len(silent) > _NAMED else "") + f"; frames dropped: {noise or 'none'}",
            f"node {', '.join(map(str, silent[:_NAMED]))}, round {self.round}",
            "see what the nodes say themselves (a HELLO heard last: it started again; dropped by tag: it has another "
            "run key); --resume continues from the last committed round",
        )


def _flood_bytes(settings: Settings) -> int:
    """Return more data than any policy lets a node send in a round, or a few mebibytes: above is a flood."""
    messages = settings.nodes * max(settings.segments, settings.sends, settings.pulls, 1)
    return max(_FLOOD_BYTES_MIN, 8 * messages * 4 * settings.model.parameters)


def _name(type_: int) -> str:
    try:
        return MessageType(type_).name
    except ValueError:
        return f"message type {type_}"
