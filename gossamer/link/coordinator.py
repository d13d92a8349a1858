"""Drive nodes through a run in lockstep (SPEC.md 7, 10): the test harness, not part of any algorithm.

The coordinator neither knows nor cares what carries its frames: function calls, sockets, a UART, a broker.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import RunError
from gossamer.job import Job
from gossamer.link.server import Server
from gossamer.place import Row
from gossamer.spec.constants import (
    COORDINATOR,
    DATA_TYPE_MIN,
    HEADER_BYTES,
    METRIC_WORDS,
    SERVER,
    SPEC_VERSION,
    TAG_BYTES,
    WIRE_VERSION,
    MessageType,
    PolicyKind,
)
from gossamer.spec.errors import FrameError, MalformedError
from gossamer.spec.image import shard_bytes
from gossamer.spec.messages import Ack, Done, Failure, Hello, Metrics, Peers, Provision, Welcome
from gossamer.spec.nn import Model
from gossamer.spec.settings import Settings
from gossamer.spec.wire import Frame, Reassembler, fragment_message, pack_frame, parse_frame

_ROUTE = struct.Struct("<xBxxHHII")  # type, src, dst, round, seq of a header
_ABSENT: dict[str, Any] = {
    name: float("nan") if kind == "f" else 0
    for name, kind in METRIC_WORDS.items()
    if name not in ("round", "weights_crc")
}


class Transport(Protocol):
    """Carry frames between the coordinator and its nodes."""

    def send(self, node: int, frames: Sequence[bytes]) -> None:
        """Give frames to a node, in this order."""
        ...

    def receive(self) -> Sequence[tuple[int, bytes]]:
        """Return frames that came, each with the node it came from; wait for the first a bounded time.

        Nothing: the time is over. Raises RunError for a node that is gone for good.
        """
        ...


@dataclass
class _Data:
    """Collect the data frames of a round, not yet delivered."""

    frames: list[bytes] = field(default_factory=list)

    def fields(self) -> tuple[NDArray[np.int64], ...]:
        """Return type, source, destination, round and sequence of every frame, [frames] each."""
        rows = [_ROUTE.unpack_from(frame) for frame in self.frames]
        return tuple(np.array(rows, np.int64).reshape(-1, 5).T)


class Coordinator:
    """Run a job's rounds over a transport; every answer is awaited, everything unexpected is counted or named."""

    def __init__(self, job: Job, transport: Transport, key: bytes, tries: int = 1) -> None:
        """Drive `job`; `key` is the run key of 32 bytes.

        `tries`: how often a control message is sent before a silent node ends the run; 1 where nothing is ever lost.
        """
        self._job = job
        self._transport = transport
        self._settings = settings = Settings.from_words(job.config)
        self._key = key if settings.auth else None
        self._tries = tries
        self._seq = [0] * settings.nodes
        self._told: list[NDArray[Any] | None] = [None] * settings.nodes
        self._reassembler = Reassembler(settings.nodes)
        self._data = _Data()
        self._server = Server(settings, self._key) if settings.policy is PolicyKind.FEDAVG else None
        model = Model(settings.dims)
        initial = model.initial(settings.seed, settings.init)
        crcs = [zlib.crc32(initial[place].tobytes()) for _, place in model.tensors]
        self._last_crcs = [(zlib.crc32(initial.tobytes()), crcs)] * settings.nodes
        self.dropped = 0  # frames from nodes that were none, or not for us
        self.arena_bytes = 0

    # --- starting ----------------------------------------------------------------------------------------------

    def start(self, committed: int) -> int:
        """Wait for all nodes, then start them; return the round they continue from, the newest that all still hold.

        `committed` bounds it: the rounds that are on record.
        """
        everyone = range(self._settings.nodes)
        came = self._await(MessageType.HELLO, everyone, None)
        hellos = {node: Hello.parse(message) for node, message in came.items()}
        for node, hello in hellos.items():
            self._check_hello(node, hello)
        self.arena_bytes = max(hello.arena_bytes for hello in hellos.values())
        held = [{0, hellos[node].newest_rounds, hellos[node].older_rounds} for node in everyone]
        rounds, from_ = self._common_round(held, committed)
        for node in everyone:
            self._tell(node, MessageType.WELCOME, Welcome(from_[node]).pack())
            self._provision(node)
        return rounds

    def _common_round(self, held: list[set[int]], committed: int) -> tuple[int, list[int]]:
        """Find the newest round to continue from, and for each node the round it was last present before it, plus one.

        A node that was away then holds the checkpoint of an earlier round; one that never was present begins at 0.
        """
        last = np.zeros((committed + 1, len(held)), np.int64)
        for number in range(committed):
            last[number + 1] = np.where(self._job.plan.present(number), number + 1, last[number])
        for rounds in range(committed, 0, -1):
            if all(number in own for number, own in zip(last[rounds].tolist(), held, strict=True)):
                return rounds, last[rounds].tolist()
        return 0, [0] * len(held)

    def _check_hello(self, node: int, hello: Hello) -> None:
        expected = (SPEC_VERSION, WIRE_VERSION, int.from_bytes(self._job.image[12:16], "little"))
        found = (hello.spec_version, hello.wire_version, hello.image_crc)
        names = ("spec version", "wire version", "experiment image (CRC)")
        for name, mine, its in zip(names, expected, found, strict=True):
            if mine != its:
                mend = "build and start it from this version"
                raise RunError(f"{name} {its} instead of {mine}", f"node {node}", mend)

    def _provision(self, node: int) -> None:
        x, y = self._job.shards[node]
        shard = shard_bytes(node, x, y, int(self._job.config["feature_type"]))
        room = self._settings.mtu - HEADER_BYTES - TAG_BYTES - 8
        held = 0
        while held < len(shard):
            piece = Provision(len(shard), held, shard[held : held + room]).pack()
            answer = self._ask(MessageType.PROVISION, [node], MessageType.ACK, 0, piece)[node]
            now = Ack.parse(answer).held_bytes
            if now <= held:
                raise RunError(f"holds {now} bytes of its shard after being sent {held + room}", f"node {node}")
            held = now

    # --- a round -----------------------------------------------------------------------------------------------

    def round(self, number: int) -> list[Row]:
        """Run one round; return a row a node."""
        settings, plan = self._settings, self._job.plan
        here = plan.present(number)
        present = np.nonzero(here)[0].tolist()
        self._tell_peers(number, present)
        self._data = _Data()
        lost = np.zeros(settings.nodes, np.int64)
        self._ask(MessageType.ROUND, present, MessageType.DONE, number)
        if settings.policy is PolicyKind.SEGMENTED_GOSSIP:
            self._deliver(number, here, lost)
            self._ask(MessageType.SYNC, present, MessageType.DONE, number, phase=1)
        if self._server is not None:
            self._data.frames = self._server.serve(number, self._through(number, here, lost)[0], present)
        self._deliver(number, here, lost)
        reports = self._ask(MessageType.COMMIT, present, MessageType.METRICS, number)
        return [self._row(node, reports.get(node), int(lost[node])) for node in range(settings.nodes)]

    def _tell_peers(self, number: int, present: list[int]) -> None:
        plan = self._job.plan
        if plan.constant and all(self._told[node] is not None for node in present):
            return
        peers = plan.peers(number)
        for node in present:
            known, now = self._told[node], peers[node]
            if known is None or not np.array_equal(known, now):
                self._tell(node, MessageType.PEERS, Peers(tuple(now.tolist())).pack(), number)
                self._told[node] = now

    def _through(
        self, number: int, here: NDArray[np.bool_], lost: NDArray[np.int64]
    ) -> tuple[list[bytes], NDArray[np.int64]]:
        """Let the links lose what they lose (SPEC.md 7.5).

        Returns what is left and its destinations, in order of delivery.
        """
        frames = self._data.frames
        self._data = _Data()
        if not frames:
            return [], np.zeros(0, np.int64)
        _, src, dst, round_, seq = _Data(frames).fields()
        reached = np.append(here, np.ones(SERVER + 1 - len(here), np.bool_))
        gone = self._job.plan.lost(src, dst, number, seq) | ~reached[dst] | (round_ != number)
        nodes = src < len(here)
        lost += np.bincount(src[gone & nodes], minlength=len(here))
        key = self._job.plan.delivery_key(src, number)
        order = np.lexsort((seq, key))
        order = order[~gone[order]]
        return [frames[i] for i in order], dst[order]

    def _deliver(self, number: int, here: NDArray[np.bool_], lost: NDArray[np.int64]) -> None:
        frames, dst = self._through(number, here, lost)
        by_node: dict[int, list[bytes]] = {}
        for frame, node in zip(frames, dst.tolist(), strict=True):
            by_node.setdefault(node, []).append(frame)
        for node, own in by_node.items():
            self._transport.send(node, own)

    def _row(self, node: int, message: bytes | None, lost: int) -> Row:
        row: dict[str, Any] = {"node": node, "present": message is not None}
        if message is None:
            row |= _ABSENT
        else:
            report = Metrics.parse(message)
            row |= report.words
            del row["round"]
            self._last_crcs[node] = int(report.words["weights_crc"]), list(report.tensor_crcs)
        crc, tensors = self._last_crcs[node]
        row |= {"weights_crc": crc, "tensor_crcs": tensors, "frames_lost": lost}
        return row  # type: ignore[return-value]

    def crcs(self) -> list[tuple[int, list[int]]]:
        """Return what a later run needs to go on reporting absent nodes: CRCs of weights and tensors by node."""
        return list(self._last_crcs)

    def restore_crcs(self, crcs: Iterable[tuple[int, list[int]]]) -> None:
        """Take back what `crcs` returned."""
        self._last_crcs = [(crc, list(tensors)) for crc, tensors in crcs]

    def stop(self) -> None:
        """Tell all nodes to end."""
        for node in range(self._settings.nodes):
            self._tell(node, MessageType.STOP, b"")

    # --- control messages --------------------------------------------------------------------------------------

    def _tell(self, node: int, type_: MessageType, payload: bytes, round_: int = 0) -> None:
        settings = self._settings
        frames = fragment_message(
            type_, COORDINATOR, node, round_, self._seq[node] + 1, payload, settings.mtu, settings.auth
        )
        self._seq[node] += len(frames)
        self._transport.send(node, [pack_frame(frame, self._key) for frame in frames])

    def _ask(
        self,
        question: MessageType,
        nodes: Sequence[int],
        answer: MessageType,
        round_: int,
        payload: bytes = b"",
        phase: int = 0,
    ) -> dict[int, bytes]:
        """Send a message to nodes and wait for the answer of each."""

        def ask(waiting: Iterable[int]) -> None:
            for node in waiting:
                self._tell(node, question, payload, round_)

        ask(nodes)
        return self._await(answer, nodes, round_, ask, phase)

    def _await(
        self,
        answer: MessageType,
        nodes: Sequence[int],
        round_: int | None,
        again: Callable[[Iterable[int]], None] | None = None,
        phase: int = 0,
    ) -> dict[int, bytes]:
        waiting, answers = set(nodes), {}
        tries = 1
        while waiting:
            came = self._transport.receive()
            if not came:
                if again is None or tries >= self._tries:
                    raise self._silence(answer, waiting)
                tries += 1
                again(sorted(waiting))
            for node, type_, number, message in self._messages(came):
                fits = type_ == answer and (round_ is None or number == round_ or answer is MessageType.ACK)
                if fits and answer is MessageType.DONE:
                    fits = Done.parse(message).phase == phase
                if fits and node in waiting:
                    answers[node] = message
                    waiting.discard(node)
                elif type_ == MessageType.ERROR:
                    failure = Failure.parse(message)
                    raise RunError(f"{failure.text} (code {failure.code})", f"node {node}, round {number}")
        return answers

    def _silence(self, answer: MessageType, waiting: set[int]) -> RunError:
        silent = ", ".join(map(str, sorted(waiting)[:8])) + (", ..." if len(waiting) > 8 else "")
        return RunError(
            f"no {answer.name} from node {silent} ({len(waiting)} of {self._settings.nodes} are silent; {self.dropped} "
            "frames were unreadable)",
            None,
            "look at the nodes' own output in the run folder; --resume continues from the last committed round",
        )

    def _messages(self, came: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, int, int, bytes]]:
        """Keep data frames for delivery; give the control messages as (node, type, round, payload)."""
        for node, data in came:
            if len(data) >= HEADER_BYTES and data[1] >= DATA_TYPE_MIN:
                _, src, dst, _, _ = _ROUTE.unpack_from(data)
                if src == node and (dst < self._settings.nodes or dst == SERVER):
                    self._data.frames.append(data)
                else:
                    self.dropped += 1
                continue
            try:
                frame = parse_frame(data, self._key)
            except FrameError:
                self.dropped += 1
                continue
            message = self._take(node, frame)
            if message is not None:
                yield node, frame.type, frame.round, message

    def _take(self, node: int, frame: Frame) -> bytes | None:
        if frame.src != node or frame.dst != COORDINATOR:
            self.dropped += 1
            return None
        try:
            return self._reassembler.take(frame)
        except MalformedError:
            self.dropped += 1
            return None
