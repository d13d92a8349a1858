"""The coordinator when nodes fall silent, fail, flood or start again: the others go on, and all of it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.errors import NodeLostError, RunError
from gossamer.link import Coordinator, Patience
from gossamer.link.coordinator import FOREVER
from gossamer.spec.constants import MessageType
from gossamer.spec.messages import Failure
from gossamer.spec.plan import Absence
from gossamer.spec.wire import Frame, pack_frame
from tests.link_fakes import KEY, FakeLine, FakeNode, small_job


class Cluster:
    """Four nodes that send one message each to all others, and what was told of them."""

    def __init__(self, folder: Path, held: tuple[int, int] = (0, 0), absences: tuple[Absence, ...] = ()) -> None:
        self.job = small_job(folder, rounds=6)
        self.line = FakeLine([FakeNode(number, self.job, self.to_all_others, held) for number in range(4)])
        self.told: list[NodeLostError] = []
        self.coordinator = Coordinator(
            self.job, self.line, KEY, Patience(20.0), self.line.clock_s, self.told.append, absences
        )

    @staticmethod
    def to_all_others(node: int, number: int) -> list[tuple[int, bytes]]:
        return [(other, f"{number}:{node}".encode()) for other in range(4) if other != node]

    def start_again(self, node: int, held: tuple[int, int]) -> FakeNode:
        new = FakeNode(node, self.job, self.to_all_others, held)
        self.line.nodes[node] = new
        new.start()
        return new

    def present(self, number: int) -> list[int]:
        rows = self.coordinator.round(number)
        return [row["node"] for row in rows if row["present"]]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    made.coordinator.start(0)
    return made


def test_the_others_go_on_without_a_silent_node(cluster: Cluster) -> None:
    assert cluster.present(0) == [0, 1, 2, 3]
    cluster.line.mute = {2}
    rows = cluster.coordinator.round(1)
    assert [row["present"] for row in rows] == [True, True, False, True]
    assert rows[2]["weights_crc"] == 2 and rows[2]["test_count"] == 0  # its last, frozen
    assert [row["frames_lost"] for row in rows] == [1, 1, 0, 1]  # what was sent to it
    (told,) = cluster.told
    assert told.nodes == (2,) and "no DONE within 20 s" in told.what
    waited_s = cluster.line.now_s
    assert cluster.present(2) == [0, 1, 3]
    assert cluster.line.now_s == waited_s  # nobody waits for it twice
    assert cluster.coordinator.absences == [Absence(2, 1, FOREVER)]


def test_a_node_that_starts_again_is_noticed_at_once_and_comes_back(cluster: Cluster) -> None:
    cluster.present(0)
    new = cluster.start_again(1, held=(1, 0))
    rows = cluster.coordinator.round(1)  # its HELLO comes while its DONE is awaited
    assert [row["present"] for row in rows] == [True, False, True, True]
    assert [told.what for told in cluster.told] == ["it started again"]
    assert cluster.line.now_s < 20.0
    assert cluster.present(2) == [0, 1, 2, 3]
    assert new.welcomed == 1 and new.shard and new.trained == [2]
    assert cluster.coordinator.absences == [Absence(1, 1, 2)]
    assert not cluster.coordinator.gone


def test_a_node_without_its_checkpoint_stays_away(cluster: Cluster) -> None:
    cluster.present(0)
    cluster.present(1)
    new = cluster.start_again(3, held=(1, 0))
    assert cluster.present(2) == [0, 1, 2]
    assert cluster.present(3) == [0, 1, 2]
    assert new.welcomed is None
    assert cluster.told[-1].what == "it started again without its checkpoint of 2 rounds; it has: 1"
    assert cluster.coordinator.gone == {3}


def test_a_node_that_fails_is_told_by_its_own_words(cluster: Cluster) -> None:
    node = cluster.line.nodes[0]
    node.say(MessageType.ERROR, Failure(-15, "the processor stopped at a fault: cause 9").pack())
    assert cluster.present(0) == [1, 2, 3]
    (told,) = cluster.told
    assert told.nodes == (0,) and "FAULT (-15)" in told.what and "cause 9" in told.what


def test_a_flood_ends_with_the_node(cluster: Cluster) -> None:
    frame = pack_frame(Frame(MessageType.SEGMENT, 3, 0, 0, 9, b"x" * 900), KEY)
    cluster.line.noise = [(3, frame)] * 40_000
    assert cluster.present(0) == [0, 1, 2]
    (told,) = cluster.told
    assert told.nodes == (3,) and "floods its line" in told.what
    assert sum(map(len, cluster.coordinator._dialogue.data)) < 1 << 25


def test_a_round_without_anybody_ends_the_run(cluster: Cluster) -> None:
    cluster.line.mute = {0, 1, 2, 3}
    with pytest.raises(RunError, match="round 0: no node is left"):
        cluster.coordinator.round(0)


def test_who_never_came_is_told_and_the_others_start(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.line.mute = {1}
    assert cluster.coordinator.start(0) == 0
    assert cluster.present(0) == [0, 2, 3]
    cluster.line.mute = set()
    cluster.start_again(1, held=(0, 0))
    cluster.present(1)
    assert cluster.present(2) == [0, 1, 2, 3]


def test_a_later_run_knows_who_was_away(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, held=(3, 2), absences=(Absence(1, 1, FOREVER), Absence(2, 0, 2)))
    cluster.line.nodes[1].held = (1, 0)
    cluster.start_again(1, held=(1, 0))
    assert cluster.coordinator.start(3) == 3
    assert [node.welcomed for node in cluster.line.nodes] == [3, 1, 3, 3]
    assert cluster.present(3) == [0, 1, 2, 3]
    assert cluster.coordinator.absences == [Absence(1, 1, 3), Absence(2, 0, 2)]


def test_of_rounds_that_are_run_again_nothing_is_remembered(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, held=(2, 1), absences=(Absence(1, 2, 3), Absence(2, 4, FOREVER)))
    assert cluster.coordinator.start(5) == 2
    assert cluster.coordinator.absences == []
    assert cluster.present(2) == [0, 1, 2, 3]
