"""Nodes that speak but do not learn, written from SPEC.md 9 and 10, on a line with every kind of trouble."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import models
from gossamer.experiment import load_experiment
from gossamer.job import Job
from gossamer.spec.constants import COORDINATOR, METRIC_WORDS, SPEC_VERSION, WIRE_VERSION, MessageType
from gossamer.spec.errors import FrameError
from gossamer.spec.messages import Ack, Done, Failure, Hello, Metrics, Peers, Provision, Welcome
from gossamer.spec.wire import Frame, Reassembler, ReplayWindow, fragment_message, pack_frame, parse_frame
from tests.conformance.random_experiments import to_toml

KEY = bytes(range(32))
Outgoing = Callable[[int, int], Sequence[tuple[int, bytes]]]  # node, round -> (destination, message)


def small_job(
    folder: Path,
    nodes: int = 4,
    rounds: int = 3,
    away: Sequence[tuple[int, int, int]] = (),
    **sections: dict[str, Any],
) -> Job:
    """Prepare an experiment of few nodes; `sections` add to the tables, `away` lists absences: node, from, to."""
    tables: dict[str, dict[str, Any]] = {
        "experiment": {"name": "small", "seed": 5, "nodes": nodes, "rounds": rounds},
        "data": {"set": "digits", "partition": "iid"},
        "model": {"layers": [64, 10]},
        "train": {"batch": 4, "local_steps": 1, "lr": 0.1},
        "policy": {"name": "dpsgd", "bits": 8},
        "topology": {"kind": "full"},
        "link": {"mtu_bytes": 1024},
    }
    for name, values in sections.items():
        tables[name] = {**tables.get(name, {}), **values}
    path = folder / "small.toml"
    absences = ", ".join(f"{{node = {node}, from = {first}, to = {end}}}" for node, first, end in away)
    path.write_text(to_toml(tables) + f"[churn]\nleave = [{absences}]\n")
    return models.prepare(load_experiment(path))


@dataclass
class FakeNode:
    """Answer as SPEC.md 10 says; keep what came, for tests to look at."""

    id: int
    job: Job
    outgoing: Outgoing
    held: tuple[int, int] = (0, 0)  # rounds in its checkpoints
    hello: dict[str, int] = field(default_factory=dict)  # words of HELLO that differ from the right ones
    welcomed: int | None = None
    shard: bytearray = field(default_factory=bytearray)
    peers: list[tuple[int, ...]] = field(default_factory=list)
    trained: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    data: list[tuple[int, int, int]] = field(default_factory=list)  # round, source, seq of data frames, as they came
    payloads: dict[int, bytes] = field(default_factory=dict)  # of whole data messages, by source
    stopped: bool = False

    def __post_init__(self) -> None:
        self.key: bytes | None = KEY if self.job.config["auth"] else None
        self.round = 0
        self._seq = {False: 0, True: 0}
        self._window = ReplayWindow()
        self._whole = Reassembler(16)
        self.out: list[bytes] = []

    def start(self) -> None:
        words = {
            "spec_version": SPEC_VERSION,
            "wire_version": WIRE_VERSION,
            "image_crc": int.from_bytes(self.job.image[12:16], "little"),
            "newest_rounds": self.held[0],
            "older_rounds": self.held[1],
            "arena_bytes": 5000 + self.id,
        } | self.hello
        self.say(MessageType.HELLO, Hello(**words).pack())

    def say(self, type_: int, payload: bytes, dst: int = COORDINATOR) -> None:
        data, mtu = type_ >= 16, int(self.job.config["mtu"])
        frames = fragment_message(
            type_, self.id, dst, self.round, self._seq[data] + 1, payload, mtu, self.key is not None
        )
        self._seq[data] += len(frames)
        self.out += [pack_frame(frame, self.key) for frame in frames]

    def take(self, raw: bytes) -> None:
        try:
            frame = parse_frame(raw, self.key)
        except FrameError:
            return
        assert frame.dst == self.id
        if frame.type >= 16:
            self.data.append((frame.round, frame.src, frame.seq))
            message = self._whole.take(frame)
            if message is not None:
                self.payloads[frame.src] = message
            return
        if not self._window.is_new(frame.seq):
            return
        self._window.note(frame.seq)
        message = self._whole.take(frame)
        if message is not None:
            self._on_control(frame, message)

    def _on_control(self, frame: Frame, message: bytes) -> None:
        match frame.type:
            case MessageType.WELCOME:
                self.welcomed = Welcome.parse(message).rounds
            case MessageType.PROVISION:
                part = Provision.parse(message)
                if part.offset == len(self.shard):
                    self.shard += part.piece
                self.say(MessageType.ACK, Ack(len(self.shard)).pack())
            case MessageType.PEERS:
                self.peers.append(Peers.parse(message).numbers)
            case MessageType.ROUND:
                self._on_round(frame.round)
            case MessageType.SYNC:
                self.say(MessageType.DONE, Done(1).pack())
            case MessageType.COMMIT:
                if frame.round not in self.committed:
                    self.committed.append(frame.round)
                self.say(MessageType.METRICS, self.metrics().pack())
            case MessageType.STOP:
                self.stopped = True

    def _on_round(self, number: int) -> None:
        if self.welcomed is None or not self.peers:
            self.say(MessageType.ERROR, Failure(-9, "the message does not fit the node's state").pack())
            return
        if number not in self.trained:
            self.trained.append(number)
            self.round = number
            for dst, message in self.outgoing(self.id, number):
                self.say(MessageType.SEGMENT, message, dst)
        self.say(MessageType.DONE, Done(0).pack())

    def metrics(self) -> Metrics:
        words: dict[str, int | float] = {name: 0.0 if kind == "f" else 0 for name, kind in METRIC_WORDS.items()}
        words |= {"round": self.round, "weights_crc": 1000 * self.round + self.id, "train_loss": 0.5}
        return Metrics(words, (self.round, self.id))


class FakeLine:
    """Carry frames by hand (`gossamer.link.Transport`); lose, repeat and invent some as told. Its clock is its own."""

    def __init__(self, nodes: Sequence[FakeNode]) -> None:
        self.nodes = nodes
        self.now_s = 0.0
        self.mute: set[int] = set()  # nodes whose words nobody hears
        self.noise: list[tuple[int, bytes]] = []  # comes with the next frames
        self.endless_noise = False
        self.lose: random.Random | None = None  # a third of the control frames, both ways
        self.repeat = False  # everything that nodes say comes twice
        for node in nodes:
            node.start()

    def clock_s(self) -> float:
        return self.now_s

    def send(self, node: int, frames: Sequence[bytes]) -> None:
        for frame in frames:
            if not self._is_lost(frame):
                self.nodes[node].take(frame)

    def receive(self, timeout_s: float) -> Sequence[tuple[int, bytes]]:
        came, self.noise = self.noise, []
        for node in self.nodes:
            said, node.out = node.out, []
            if node.id not in self.mute:
                came += [(node.id, frame) for frame in said if not self._is_lost(frame) for _ in range(1 + self.repeat)]
        if self.endless_noise:
            self.now_s += 1.0
            came.append((0, b"a boot log"))
        elif not came:
            self.now_s += timeout_s
        return came

    def _is_lost(self, frame: bytes) -> bool:
        """HELLO comes through: a node repeats it until it is heard."""
        return self.lose is not None and 1 < frame[1] < 16 and self.lose.random() < 1 / 3
