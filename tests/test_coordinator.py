"""The coordinator against nodes that only speak: order, losses, absences, noise, silence, and continuing."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gossamer.errors import CoreError, RunError
from gossamer.job import Job
from gossamer.link import Coordinator, Patience
from gossamer.spec import rng
from gossamer.spec.constants import SERVER, Coding, MessageType, Stream
from gossamer.spec.image import shard_bytes
from gossamer.spec.messages import Failure, Hello, Segment
from gossamer.spec.wire import Frame, pack_frame
from tests.link_fakes import KEY, FakeLine, FakeNode, Outgoing, small_job


def nothing(node: int, number: int) -> list[tuple[int, bytes]]:
    return []


def to_all_others(node: int, number: int) -> list[tuple[int, bytes]]:
    return [(other, f"{number}:{node}".encode()) for other in range(4) if other != node]


def assemble(
    job: Job, outgoing: Outgoing = nothing, patience: Patience | None = None
) -> tuple[Coordinator, FakeLine, list[FakeNode]]:
    nodes = [FakeNode(number, job, outgoing) for number in range(len(job.shards))]
    return connect(job, nodes, patience)


def connect(
    job: Job, nodes: list[FakeNode], patience: Patience | None = None
) -> tuple[Coordinator, FakeLine, list[FakeNode]]:
    line = FakeLine(nodes)
    return Coordinator(job, line, KEY, patience, line.clock_s), line, nodes


# --- a run as it should be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mtu_bytes", [64, 1024])
def test_every_node_gets_its_shard_and_its_peers(mtu_bytes: int, tmp_path: Path) -> None:
    job = small_job(tmp_path, link={"mtu_bytes": mtu_bytes})
    coordinator, _, nodes = assemble(job)
    assert coordinator.start(0) == 0
    assert coordinator.arena_bytes == 5003  # the greatest that a node named
    for number in range(3):
        rows = coordinator.round(number)
        assert [row["weights_crc"] for row in rows] == [1000 * number + node for node in range(4)]
        assert all(row["present"] and row["train_loss"] == 0.5 for row in rows)
    coordinator.stop()
    for node, (x, y) in zip(nodes, job.shards, strict=True):
        assert node.shard == shard_bytes(node.id, x, y, 0)
        assert node.peers == [tuple(other for other in range(4) if other != node.id)]  # told once: it never changed
        assert node.trained == node.committed == [0, 1, 2]
        assert node.stopped
    assert not coordinator.dropped


def test_frames_arrive_in_the_order_of_the_specification(tmp_path: Path) -> None:
    coordinator, _, nodes = assemble(small_job(tmp_path), to_all_others)
    coordinator.start(0)
    coordinator.round(0)
    coordinator.round(1)
    # SPEC.md 7.6: ascending (src - r) mod 4. In round 1 node 0 comes last. Every node numbers its frames on.
    assert nodes[0].data == [(0, 1, 1), (0, 2, 1), (0, 3, 1), (1, 1, 4), (1, 2, 4), (1, 3, 4)]
    assert nodes[2].data == [(0, 0, 2), (0, 1, 2), (0, 3, 3), (1, 1, 5), (1, 3, 6), (1, 0, 5)]


def test_links_lose_what_the_draws_say(tmp_path: Path) -> None:
    job = small_job(tmp_path, link={"loss": 0.5}, experiment={"seed": 11})
    coordinator, _, nodes = assemble(job, to_all_others)
    coordinator.start(0)
    rows = coordinator.round(0)
    lost = Counter[int]()
    for dst in range(4):
        arrived = []
        for src in (s for s in range(4) if s != dst):
            seq = 1 + [other for other in range(4) if other != src].index(dst)
            draw = int(rng.draws(11, Stream.LINK, 0, src | dst << 16, seq))
            if draw >> 8 < 1 << 23:  # SPEC.md 7.5 with p = 1/2
                lost[src] += 1
            else:
                arrived.append((0, src, seq))
        assert nodes[dst].data == arrived
    assert 0 < lost.total() < 12
    assert [row["frames_lost"] for row in rows] == [lost[node] for node in range(4)]


def test_an_absent_node_hears_nothing_and_is_reported_frozen(tmp_path: Path) -> None:
    job = small_job(tmp_path, away=[(2, 1, 2)])
    coordinator, _, nodes = assemble(job, to_all_others)
    coordinator.start(0)
    rows = [coordinator.round(number)[2] for number in range(3)]
    assert [row["present"] for row in rows] == [True, False, True]
    assert [row["weights_crc"] for row in rows] == [2, 2, 2002]
    assert rows[1]["tensor_crcs"] == [0, 2]
    assert np.isnan(rows[1]["train_loss"])
    assert nodes[2].trained == [0, 2]
    assert {number for number, _, _ in nodes[2].data} == {0, 2}


def test_the_server_averages_by_weight(tmp_path: Path) -> None:
    job = small_job(tmp_path, nodes=2, policy={"name": "fedavg", "bits": 32})
    own = {0: (np.float32(1.0), 1.0), 1: (np.float32(5.0), 3.0)}

    def to_server(node: int, number: int) -> list[tuple[int, bytes]]:
        value, weight = own[node]
        values = np.full(650, value, "<f4").tobytes()
        return [(SERVER, Segment(Coding.RANGE, 32, 0, weight, 0.0, b"", values).pack())]

    coordinator, _, nodes = assemble(job, to_server)
    coordinator.start(0)
    coordinator.round(0)
    coordinator.round(1)
    for node in nodes:
        segment = Segment.parse(node.payloads[SERVER])
        assert segment.weight == 1.0
        assert set(np.frombuffer(segment.values, "<f4").tolist()) == {4.0}  # (1 * 1 + 3 * 5) / (1 + 3)
        # A message of 16 + 2600 bytes takes 3 frames of 986: SPEC.md 9.4 numbers them (r*N + i)*F + f + 1.
        assert [seq for number, _, seq in node.data if number == 1] == [(2 + node.id) * 3 + f for f in (1, 2, 3)]


# --- noise and lies --------------------------------------------------------------------------------------------------


def test_what_is_no_frame_for_us_is_counted_and_changes_nothing(tmp_path: Path) -> None:
    coordinator, line, nodes = assemble(small_job(tmp_path), to_all_others)
    coordinator.start(0)

    def frame(
        type_: int, src: int = 1, round_: int = 0, dst: int = 65535, key: bytes = KEY, payload: bytes = b""
    ) -> bytes:
        return pack_frame(Frame(type_, src, dst, round_, 99, payload), key)

    metrics, done = int(MessageType.METRICS), int(MessageType.DONE)
    line.noise = [
        (1, b""),
        (1, b"ets Jul 29 2019 12:21:46 rst:0x1 (POWERON_RESET)"),
        (1, frame(metrics)[:-1]),
        (1, frame(metrics, key=bytes(32))),
        (1, b"\x02" + frame(metrics)[1:]),
        (1, frame(metrics, src=2)),
        (1, frame(metrics, dst=2)),
        (1, frame(done, payload=b"\0\0")),
        (1, frame(int(MessageType.ERROR))),
        (1, frame(done, round_=7, payload=bytes(4))),
        (1, frame(int(MessageType.SEGMENT), src=2, dst=3)),
        (1, frame(int(MessageType.SEGMENT), dst=40000)),
        (1, frame(int(MessageType.SEGMENT), round_=5, dst=3)),
        (1, frame(200, dst=65535)),
        (1, frame(12)),
    ]
    assert all(row["present"] for row in coordinator.round(0))
    assert coordinator.dropped == {"length": 3, "tag": 1, "version": 1, "peer": 5, "malformed": 2, "stale": 1}
    assert nodes[3].data == [(0, 0, 3), (0, 1, 3), (0, 2, 3)]


def test_fragments_without_a_beginning_are_counted(tmp_path: Path) -> None:
    coordinator, line, _ = assemble(small_job(tmp_path))
    line.noise = [(1, pack_frame(Frame(int(MessageType.METRICS), 1, 65535, 0, 8, b"x", 1, 3), KEY))]
    coordinator.start(0)
    assert coordinator.dropped == {"reassembly": 1}


def test_everything_said_twice_counts_once(tmp_path: Path) -> None:
    coordinator, line, nodes = assemble(small_job(tmp_path, link={"mtu_bytes": 100}))
    line.repeat = True
    coordinator.start(0)
    for number in range(3):
        assert [row["weights_crc"] for row in coordinator.round(number)] == [1000 * number + n for n in range(4)]
    assert all(node.trained == node.committed == [0, 1, 2] for node in nodes)


# --- silence ---------------------------------------------------------------------------------------------------------


def test_a_silent_node_is_named_with_what_was_seen(tmp_path: Path) -> None:
    coordinator, line, _ = assemble(small_job(tmp_path), patience=Patience(timeout_s=20.0))
    coordinator.start(0)
    coordinator.round(0)
    line.mute = {3}
    line.noise = [(3, b"Guru Meditation Error: Core 0 panic'ed")]
    with pytest.raises(RunError) as caught:
        coordinator.round(1)
    assert caught.value.where == "node 3, round 1"
    assert "no DONE within 20 s; 1 of 4 nodes are silent" in caught.value.what
    assert "node 3: METRICS of round 0" in caught.value.what
    assert "frames dropped: 1 length" in caught.value.what
    assert "--resume" in str(caught.value.mend)
    assert line.now_s == 20.0


def test_a_node_that_never_spoke_is_named(tmp_path: Path) -> None:
    coordinator, line, _ = assemble(small_job(tmp_path, nodes=8), patience=Patience(timeout_s=5.0, tries=2))
    line.mute = set(range(1, 8))
    with pytest.raises(
        RunError, match=r"no HELLO within 5 s, asked 2 times; 7 of 8 .*node 1: nothing, ever; .*; \.\.\.;"
    ):
        coordinator.start(0)
    assert line.now_s == 10.0


def test_noise_without_end_does_not_hide_silence(tmp_path: Path) -> None:
    coordinator, line, _ = assemble(small_job(tmp_path), patience=Patience(timeout_s=30.0))
    coordinator.start(0)
    line.mute, line.endless_noise = {2}, True
    with pytest.raises(RunError, match="node 2, round 0: no DONE"):
        coordinator.round(0)
    assert line.now_s <= 31.0
    assert coordinator.dropped["length"] >= 29


def test_a_lossy_line_is_asked_again(tmp_path: Path) -> None:
    job = small_job(tmp_path, rounds=6)
    coordinator, line, nodes = assemble(job, patience=Patience(timeout_s=1.0, tries=20))
    line.lose = random.Random(1)
    coordinator.start(0)
    for number in range(6):
        assert [row["weights_crc"] for row in coordinator.round(number)] == [1000 * number + n for n in range(4)]
    assert line.now_s > 5.0  # it was needed
    for node, (x, y) in zip(nodes, job.shards, strict=True):
        assert node.shard == shard_bytes(node.id, x, y, 0)
        assert node.trained == node.committed == list(range(6))


def test_an_error_of_a_node_ends_the_run_by_name(tmp_path: Path) -> None:
    coordinator, _, nodes = assemble(small_job(tmp_path))
    coordinator.start(0)
    nodes[1].say(MessageType.ERROR, Failure(-11, "no valid checkpoint of that round").pack())
    with pytest.raises(CoreError) as caught:
        coordinator.round(0)
    assert caught.value.code == -11
    assert caught.value.where == "node 1, round 0"


@pytest.mark.parametrize(
    ("word", "name"), [("spec_version", "spec version"), ("wire_version", "wire version"), ("image_crc", "image")]
)
def test_a_node_built_from_something_else_is_refused(word: str, name: str, tmp_path: Path) -> None:
    job = small_job(tmp_path)
    nodes = [FakeNode(n, job, nothing, hello={word: 77} if n == 2 else {}) for n in range(4)]
    coordinator, _, _ = connect(job, nodes)
    with pytest.raises(RunError, match=f"node 2: .*{name}.* 77 instead of"):
        coordinator.start(0)


# --- continuing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "committed", "rounds"),
    [
        ([(4, 3)] * 4, 4, 4),
        ([(4, 3)] * 4, 3, 3),  # the record ends earlier than the nodes
        ([(4, 3), (4, 3), (3, 2), (4, 3)], 4, 3),  # a node was cut before its checkpoint
        ([(4, 3), (4, 3), (2, 1), (4, 3)], 4, 0),  # nothing in common
        ([(4, 3), (0, 0), (4, 3), (4, 3)], 4, 0),  # a node lost all
        ([(4, 3)] * 4, 0, 0),  # a fresh record
        ([(4, 3)] * 4, 2, 0),
    ],
)
def test_a_run_continues_from_the_newest_round_that_all_hold(
    held: list[tuple[int, int]], committed: int, rounds: int, tmp_path: Path
) -> None:
    job = small_job(tmp_path, rounds=5)
    coordinator, _, nodes = connect(job, [FakeNode(n, job, nothing, own) for n, own in enumerate(held)])
    assert coordinator.start(committed) == rounds
    assert [node.welcomed for node in nodes] == [rounds] * 4


def test_a_node_that_was_away_continues_from_its_own_last_round(tmp_path: Path) -> None:
    job = small_job(tmp_path, rounds=5, away=[(1, 2, 4), (3, 0, 4)])
    held = [(4, 3), (2, 1), (4, 3), (0, 0)]
    coordinator, _, nodes = connect(job, [FakeNode(n, job, nothing, own) for n, own in enumerate(held)])
    assert coordinator.start(4) == 4
    assert [node.welcomed for node in nodes] == [4, 2, 4, 0]
    coordinator.restore_crcs([(40 + n, [n]) for n in range(4)])
    assert coordinator.crcs()[1] == (41, [1])
    assert all(row["present"] for row in coordinator.round(4))


def test_hello_heard_late_does_no_harm(tmp_path: Path) -> None:
    coordinator, line, nodes = assemble(small_job(tmp_path))
    coordinator.start(0)
    crc = int.from_bytes(nodes[0].job.image[12:16], "little")
    line.noise = [(0, pack_frame(Frame(1, 0, 65535, 0, 1, Hello(1, 1, crc, 0, 0, 1).pack()), KEY))]
    assert coordinator.round(0)[0]["present"]
