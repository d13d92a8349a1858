"""Drive nodes through a run in lockstep (SPEC.md 7, 10): the test harness, not part of any algorithm.

The coordinator neither knows nor cares what carries its frames: function calls, sockets, a UART, a broker.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import NodeLostError
from gossamer.job import Job
from gossamer.link.dialogue import Dialogue, Patience, Transport
from gossamer.link.server import Server
from gossamer.link.shaping import ROUTE, corrupt
from gossamer.place import Row
from gossamer.spec.constants import (
    HEADER_BYTES,
    METRIC_WORDS,
    SERVER,
    SPEC_VERSION,
    TAG_BYTES,
    WIRE_VERSION,
    MessageType,
    PolicyKind,
)
from gossamer.spec.image import shard_bytes
from gossamer.spec.messages import Ack, Done, Hello, Metrics, Peers, Provision, Welcome
from gossamer.spec.plan import Absence
from gossamer.spec.settings import Settings

FOREVER: Final = 1 << 32  # as the end of an absence
Crcs = tuple[int, list[int]]  # of a node's weights, and of each tensor

_PROVISION_HEADER_BYTES = 8
_ABSENT: dict[str, Any] = {
    name: float("nan") if kind == "f" else 0
    for name, kind in METRIC_WORDS.items()
    if name not in ("round", "weights_crc")
}


class Coordinator:
    """Run a job's rounds over a transport.

    With `on_lost` the others go on without a node that is lost (`Dialogue`); it is told each. A lost node is absent
    until it says HELLO again, or `rejoin` is called. `absences` are those times, to hand to a later run: one with the
    end `FOREVER` lasts.
    """

    def __init__(
        self,
        job: Job,
        transport: Transport,
        key: bytes,
        patience: Patience | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        on_lost: Callable[[NodeLostError], None] | None = None,
        absences: Iterable[Absence] = (),
    ) -> None:
        self.absences = list(absences)
        self._on_lost = on_lost
        self._job = job
        self._settings = settings = Settings.from_words(job.config)
        self._dialogue = Dialogue(settings, transport, key, patience or Patience(), clock_s, on_lost and self._lost)
        self._told: list[NDArray[np.uint16] | None] = [None] * settings.nodes
        self._server = Server(settings, self._dialogue.key) if settings.policy is PolicyKind.FEDAVG else None
        self._crcs = [_initial_crcs(settings, job.given)] * settings.nodes
        self.arena_bytes = 0

    @property
    def dropped(self) -> Counter[str]:
        """Count the frames from nodes that were none for us, by reason."""
        return self._dialogue.dropped

    # --- starting ----------------------------------------------------------------------------------------------------

    def start(self, committed: int) -> int:
        """Wait for all nodes and start them; continue from the newest round that all hold, at most `committed`.

        Returns how many rounds that are. Raises RunError: a node is silent, or was built from something else.
        """
        everyone = range(self._settings.nodes)
        hellos = self._dialogue.listen(everyone, MessageType.HELLO, Hello.parse)
        for node, hello in hellos.items():
            self._check_hello(node, hello)
        self.arena_bytes = max(hello.arena_bytes for hello in hellos.values())
        held = {node: {0, hello.newest_rounds, hello.older_rounds} for node, hello in hellos.items()}
        away = {absence.node for absence in self.absences if absence.end == FOREVER}
        rounds, from_ = self._common_round(held, committed, away)
        self._forget_absences_from(rounds)
        for node in everyone:
            if node in held and from_[node] in held[node]:
                self._end_absence(node, rounds)
                self._dialogue.tell(node, MessageType.WELCOME, Welcome(from_[node]).pack())
            else:
                self._dialogue.gone.add(node)
                self._begin_absence(node, rounds)
        self._provision([node for node in held if node not in self._dialogue.gone])
        return rounds

    def rejoin(self, node: int, committed: int) -> None:
        """Take back a node that started again after so many rounds; it continues as if nothing had been.

        Raises NodeLostError: it is silent, was built from something else, or has lost its checkpoint.
        """
        hello = self._dialogue.take_back(node, Hello.parse)
        if hello is None:
            return
        try:
            self._check_hello(node, hello)
        except NodeLostError as error:
            self._dialogue.lose(error)
            return
        rounds = int(self._present_before(committed)[committed, node])
        held = {0, hello.newest_rounds, hello.older_rounds}
        if rounds not in held:
            kept = ", ".join(map(str, sorted(held - {0}))) or "none"
            what = f"it started again without its checkpoint of {rounds} rounds; it has: {kept}"
            mend = "--resume continues from the newest round that all nodes hold"
            self._dialogue.lose(NodeLostError([node], what, f"node {node}, round {committed}", mend))
            return
        self._dialogue.tell(node, MessageType.WELCOME, Welcome(rounds).pack())
        self._provision([node])
        self._told[node] = None
        if node not in self._dialogue.gone:
            self._end_absence(node, committed)

    # --- who is here -------------------------------------------------------------------------------------------------

    @property
    def gone(self) -> set[int]:
        """Return the nodes that are lost."""
        return set(self._dialogue.gone)

    @property
    def returned(self) -> set[int]:
        """Return those of them who said HELLO since."""
        return set(self._dialogue.returned)

    def lose(self, error: NodeLostError) -> None:
        """Go on without nodes. Raises the error where that is not wanted."""
        self._dialogue.lose(error)

    def _lost(self, error: NodeLostError) -> None:
        assert self._on_lost is not None
        for node in error.nodes:
            self._begin_absence(node, self._dialogue.round)
        self._on_lost(error)

    def _begin_absence(self, node: int, first: int) -> None:
        if not any(absence.node == node and absence.end == FOREVER for absence in self.absences):
            self.absences.append(Absence(node, first, FOREVER))

    def _end_absence(self, node: int, end: int) -> None:
        self.absences = [
            replace(absence, end=end) if absence.node == node and absence.end == FOREVER else absence
            for absence in self.absences
        ]

    def _forget_absences_from(self, rounds: int) -> None:
        """Drop what happened in rounds that are run again."""
        self.absences = [
            absence if absence.end <= rounds else replace(absence, end=FOREVER)
            for absence in self.absences
            if absence.first < rounds
        ]

    def _present(self, number: int) -> NDArray[np.bool_]:
        """Return who takes part in a round, [N]: who should, and is not lost."""
        here = self._job.plan.present(number)
        for absence in self.absences:
            if absence.first <= number < absence.end:
                here[absence.node] = False
        return here

    def _present_before(self, committed: int) -> NDArray[np.int64]:
        """Return [r, node]: the round in which a node was last present before round r, plus one; 0 for never."""
        last = np.zeros((committed + 1, self._settings.nodes), np.int64)
        for number in range(committed):
            last[number + 1] = np.where(self._present(number), number + 1, last[number])
        return last

    def _common_round(self, held: dict[int, set[int]], committed: int, away: set[int]) -> tuple[int, list[int]]:
        """Find the newest round to continue from, and for each node the round it was last present before it, plus one.

        A node that was away then holds the checkpoint of an earlier round; one that never was present begins at 0. The
        nodes `away`, who were lost, need not hold theirs.
        """
        last = self._present_before(committed)
        for rounds in range(committed, 0, -1):
            from_: list[int] = last[rounds].tolist()
            if all(from_[node] in own or node in away for node, own in held.items()):
                return rounds, from_
        return 0, [0] * self._settings.nodes

    def _check_hello(self, node: int, hello: Hello) -> None:
        expected = (SPEC_VERSION, WIRE_VERSION, int.from_bytes(self._job.image[12:16], "little"))
        found = (hello.spec_version, hello.wire_version, hello.image_crc)
        names = ("spec version", "wire version", "experiment image (CRC)")
        for name, mine, its in zip(names, expected, found, strict=True):
            if mine != its:
                what = f"{name} {its} instead of {mine}"
                raise NodeLostError([node], what, mend="build and start it from this version")

    def _provision(self, nodes: Iterable[int]) -> None:
        """Give nodes their shards: to all at once, to each chunk by chunk."""
        feature_type = int(self._job.config["feature_type"])
        room = self._settings.mtu - HEADER_BYTES - TAG_BYTES - _PROVISION_HEADER_BYTES
        shards = {node: shard_bytes(node, *self._job.shards[node], feature_type) for node in nodes}
        missing = dict.fromkeys(shards, 0)
        while missing:
            missing = self._provide(shards, missing, room)

    def _provide(self, shards: dict[int, bytes], held: dict[int, int], room: int) -> dict[int, int]:
        """Send one chunk to every node of `held`; return the bytes that those hold who need more."""
        chunks = {node: Provision(len(shards[node]), at, shards[node][at : at + room]) for node, at in held.items()}
        acks = self._dialogue.ask(
            MessageType.PROVISION,
            {node: chunk.pack() for node, chunk in chunks.items()},
            MessageType.ACK,
            Ack.parse,
            lambda node, ack: ack.held_bytes > held[node],
        )
        return {node: ack.held_bytes for node, ack in acks.items() if ack.held_bytes < len(shards[node])}

    # --- a round -----------------------------------------------------------------------------------------------------

    def round(self, number: int) -> list[Row]:
        """Run one round; return a row a node. Raises RunError and CoreError, which name the node."""
        for node in sorted(self._dialogue.returned):
            self.rejoin(node, number)
        present = np.nonzero(self._present(number))[0].tolist()
        lost = np.zeros(self._settings.nodes, np.int64)
        self._dialogue.begin_round(number)
        self._tell_peers(number, present)
        self._ask_done(MessageType.ROUND, present, 0)
        if self._settings.policy is PolicyKind.SEGMENTED_GOSSIP:
            self._deliver(self._present(number), lost)
            self._ask_done(MessageType.SYNC, present, 1)
        here = self._present(number)
        if self._server is not None:
            left = np.nonzero(here)[0].tolist()
            self._dialogue.data += self._server.serve(number, self._through(here, lost)[0], left)
        self._deliver(here, lost)
        nothing = dict.fromkeys(present, b"")
        reports = self._dialogue.ask(MessageType.COMMIT, nothing, MessageType.METRICS, Metrics.parse)
        return [self._row(node, reports.get(node), int(lost[node])) for node in range(self._settings.nodes)]

    def _ask_done(self, question: MessageType, present: Sequence[int], phase: int) -> None:
        self._dialogue.ask(
            question, dict.fromkeys(present, b""), MessageType.DONE, Done.parse, lambda node, done: done.phase == phase
        )

    def _tell_peers(self, number: int, present: list[int]) -> None:
        plan = self._job.plan
        if plan.constant and all(self._told[node] is not None for node in present):
            return
        peers = plan.peers(number)
        for node in present:
            known, now = self._told[node], peers[node]
            if known is None or not np.array_equal(known, now):
                self._dialogue.tell(node, MessageType.PEERS, Peers(tuple(now.tolist())).pack())
                self._told[node] = now

    def _through(self, here: NDArray[np.bool_], lost: NDArray[np.int64]) -> tuple[list[bytes], NDArray[np.int64]]:
        """Let the links lose, corrupt and repeat frames (SPEC.md 7.5) of those put aside.

        Returns what arrives and where, in order of delivery (SPEC.md 7.6); adds to `lost`, by source.
        """
        frames, plan, nodes = list(self._dialogue.data), self._job.plan, self._settings.nodes
        self._dialogue.data.clear()
        if not frames:
            return [], np.zeros(0, np.int64)
        src, dst, round_, seq = np.array([ROUTE.unpack_from(frame) for frame in frames], np.int64).T
        reached = np.append(here, np.ones(SERVER + 1 - nodes, np.bool_))
        number = int(round_[0])  # of all: the others were not put aside
        gone = plan.lost(src, dst, number, seq) | ~reached[dst]
        lost += np.bincount(src[gone & (src < nodes)], minlength=nodes)
        corrupted = plan.corrupted(src, dst, number, seq)
        copies = 1 + (plan.duplicated(src, dst, number, seq) & ~corrupted & (dst != SERVER))
        order = np.lexsort((seq, plan.delivery_key(src, number)))
        order = np.repeat(order, np.where(gone, 0, copies)[order])
        return [corrupt(frames[i]) if corrupted[i] else frames[i] for i in order], dst[order]

    def _deliver(self, here: NDArray[np.bool_], lost: NDArray[np.int64]) -> None:
        by_node: dict[int, list[bytes]] = {}
        frames, dst = self._through(here, lost)
        for frame, node in zip(frames, dst.tolist(), strict=True):
            by_node.setdefault(node, []).append(frame)
        for node, own in by_node.items():
            if node != SERVER:
                self._dialogue.deliver(node, own)

    def _row(self, node: int, report: Metrics | None, lost: int) -> Row:
        row: dict[str, Any] = {"node": node, "present": report is not None}
        if report is None:
            row |= _ABSENT
        else:
            row |= report.words
            del row["round"]
            self._crcs[node] = int(report.words["weights_crc"]), list(report.tensor_crcs)
        crc, tensors = self._crcs[node]
        row |= {"weights_crc": crc, "tensor_crcs": tensors, "frames_lost": lost}
        return row  # type: ignore[return-value]

    # --- what a later run needs --------------------------------------------------------------------------------------

    def crcs(self) -> list[Crcs]:
        """Return what rows of absent nodes repeat."""
        return list(self._crcs)

    def restore_crcs(self, crcs: Iterable[Crcs]) -> None:
        """Take back what `crcs` returned."""
        self._crcs = [(crc, list(tensors)) for crc, tensors in crcs]

    def stop(self) -> None:
        """Tell all nodes to end."""
        for node in range(self._settings.nodes):
            self._dialogue.tell(node, MessageType.STOP)


def _initial_crcs(settings: Settings, given: NDArray[np.float32]) -> Crcs:
    model = settings.model
    initial, _ = model.start(settings.seed, settings.init, given)
    return zlib.crc32(initial.tobytes()), [zlib.crc32(initial[place].tobytes()) for _, place in model.tensors]
