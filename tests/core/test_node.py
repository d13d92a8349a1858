"""One node by its frames: the life of a round, what is repeated, what is refused, and what survives a restart."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gossamer.spec.constants import CORE_ERRORS, PolicyKind, Spread
from gossamer.spec.constants import MessageType as Type
from gossamer.spec.image import shard_bytes
from gossamer.spec.messages import Failure, Hello, Metrics, Peers, Provision, Pull
from gossamer.spec.nn import Model
from tests.core.probe import FRAME, OK, STATE, Node, image_of, library, samples, words

CODE = {name: code for name, (code, _) in CORE_ERRORS.items()}
ZERO = bytes(4)

POLICIES: dict[str, dict[str, Any]] = {
    "gist": {"policy": PolicyKind.GIST, "bits": 8, "momentum": 0.5, "threshold": 2},
    "segmented_gossip": {"policy": PolicyKind.SEGMENTED_GOSSIP, "bits": 16},
    "gossipfl": {"policy": PolicyKind.GOSSIPFL, "bits": 4, "error_feedback": 1},
    "dpsgd": {"policy": PolicyKind.DPSGD, "bits": 32},
    "epidemic": {"policy": PolicyKind.EPIDEMIC, "bits": 2},
    "topk": {"policy": PolicyKind.TOPK, "bits": 8},
    "fedavg": {"policy": PolicyKind.FEDAVG, "bits": 8},
    "local": {"policy": PolicyKind.LOCAL},
}


@pytest.fixture
def node() -> Iterator[Node]:
    with Node(words()) as made:
        assert made.start() == OK
        yield made


def failure(node: Node, code: str) -> None:
    """Expect exactly one ERROR with this code and the text of the one table."""
    [(type_, payload)] = node.answers()
    assert type_ == Type.ERROR
    assert (Failure.parse(payload).code, Failure.parse(payload).text) == CORE_ERRORS[code]


# --- starting ------------------------------------------------------------------------------------------------------


def test_hello_names_versions_image_and_memory(node: Node) -> None:
    image = image_of(node.config)
    [(frame, payload)] = node.take()
    assert (frame.type, frame.dst, frame.seq) == (Type.HELLO, 65535, 1)
    hello = Hello.parse(payload)
    assert (hello.spec_version, hello.wire_version, hello.image_crc) == (2, 1, zlib.crc32(image[16:]))
    assert (hello.newest_rounds, hello.older_rounds) == (0, 0)
    assert hello.arena_bytes > 4 * 3 * Model.dense((6, 5, 4, 3)).parameters
    node.hello()
    [(frame, again)] = node.take()
    assert (again, frame.seq) == (payload, 2)
    node.control(Type.WELCOME, ZERO)
    node.hello()
    assert node.take() == []


def test_an_arena_one_byte_short_is_refused() -> None:
    with Node(words()) as node:
        assert node.start(missing=1) == CODE["ARENA"]
        assert node.take_raw() == []


def test_rounds_wait_for_welcome_and_shard(node: Node) -> None:
    node.take()
    for type_ in (Type.ROUND, Type.SYNC, Type.COMMIT):
        assert node.control(type_) == STATE
        failure(node, "STATE")
    assert node.control(Type.PEERS, Peers((1,)).pack()) == STATE
    failure(node, "STATE")
    assert node.control(Type.WELCOME, ZERO) == OK
    assert node.control(Type.WELCOME, ZERO) == OK  # repeated
    assert node.control(Type.WELCOME, b"\1\0\0\0") == STATE
    failure(node, "STATE")
    assert node.control(Type.ROUND) == STATE
    failure(node, "STATE")


def test_chunks_of_the_shard_are_taken_in_order_only(node: Node) -> None:
    node.take()
    node.control(Type.WELCOME, ZERO)
    shard = shard_bytes(0, *samples(20, 100), 0)

    def give(offset: int, piece: bytes, total: int = len(shard)) -> int:
        assert node.control(Type.PROVISION, Provision(total, offset, piece).pack()) == OK
        [(type_, payload)] = node.answers()
        assert type_ == Type.ACK
        return int.from_bytes(payload, "little")

    assert give(10, shard[10:20]) == 0
    assert give(0, shard[:10]) == 10
    assert give(0, shard[:10]) == 10
    assert give(20, shard[20:30]) == 10
    assert give(10, shard[10:]) == len(shard)
    assert give(0, bytes(len(shard))) == len(shard)  # whole: nothing is overwritten
    for total, offset, piece in (
        (20, 10, bytes(11)),
        (20, 21, b""),
        (20, 0xFFFFFFFF, b"x"),
        (7, 0, b""),
        (1 << 30, 0, b"x"),
    ):
        assert node.control(Type.PROVISION, Provision(total, offset, piece).pack()) == CODE["SHARD"]
        failure(node, "SHARD")


def test_a_total_that_changes_between_chunks_writes_nothing_beyond_the_shard() -> None:
    """The second total is smaller than what is held: the sum that would tell so must not wrap."""
    with Node(words()) as node:
        node.start()
        node.take()
        node.control(Type.WELCOME, ZERO)
        capacity = len(shard_bytes(0, *samples(24, 1), 0))
        assert node.control(Type.PROVISION, Provision(capacity, 0, bytes(capacity - 1)).pack()) == OK
        before = node.weights.tobytes()
        bad = Provision(100, capacity - 1, b"\xff" * 90).pack()
        node.take()
        assert node.control(Type.PROVISION, bad) == CODE["SHARD"]
        assert node.weights.tobytes() == before


@pytest.mark.parametrize(
    "shard",
    [
        shard_bytes(1, *samples(20, 1), 0),  # another node's
        shard_bytes(0, *samples(1, 1), 0),
        shard_bytes(0, samples(5, 1)[0], np.array([0, 1, 2, 3, 0], np.uint8), 0),  # label 3 of 3 classes
        shard_bytes(0, *samples(20, 1), 0)[:-1],
        shard_bytes(0, *samples(20, 1), 0) + b"\0",
        struct.pack("<II", 0, 0xFFFFFFFF) + bytes(100),
        struct.pack("<II", 0, 0) + bytes(100),
    ],
)
def test_a_shard_that_does_not_fit_is_refused_and_can_be_sent_again(node: Node, shard: bytes) -> None:
    node.take()
    node.control(Type.WELCOME, ZERO)
    assert node.control(Type.PROVISION, Provision(len(shard), 0, shard).pack()) == CODE["SHARD"]
    failure(node, "SHARD")
    assert node.control(Type.ROUND) == STATE
    node.take()
    node.provision()


@pytest.mark.parametrize("ids", [(0, 1), (1, 1), (2, 1), (1, 2, 3, 4, 5)])
def test_peer_lists_that_no_plan_makes_are_refused(node: Node, ids: tuple[int, ...]) -> None:
    node.ready([1, 2])
    assert node.control(Type.PEERS, Peers(ids).pack()) == CODE["PEERS"]
    failure(node, "PEERS")
    assert len({frame.dst for frame, _ in node.train(0)} - {1, 2}) == 0


def test_peers_stay_while_a_round_is_open(node: Node) -> None:
    node.ready([1, 2])
    node.train(0)
    assert node.control(Type.PEERS, Peers((1, 2)).pack()) == OK  # the same list
    assert node.control(Type.PEERS, Peers((1, 3)).pack()) == STATE
    failure(node, "STATE")
    node.commit(0)
    node.peers((1, 3))


def test_a_long_peer_list_comes_in_fragments() -> None:
    with Node(words(mtu=64, peers_max=30, policy=PolicyKind.DPSGD)) as node:
        node.start()
        node.ready(range(1, 31))
        assert [frame.dst for frame, _ in node.train(0)] == list(range(1, 31))


# --- a round -------------------------------------------------------------------------------------------------------


def test_repeated_control_messages_are_answered_and_do_nothing_else(node: Node) -> None:
    node.ready([1])
    node.control(Type.ROUND)
    assert node.step()
    assert node.control(Type.ROUND) == OK  # under way: the answer comes once
    node.work()
    assert [type_ for type_, _ in node.answers()].count(Type.DONE) == 1
    before = node.state
    for _ in range(2):
        assert node.control(Type.ROUND) == OK
        node.work()
        assert node.answers() == [(Type.DONE, ZERO)]
    assert node.state[:8] == before[:8] and node.weights.tobytes() in node.state
    assert node.control(Type.SYNC) == OK
    assert node.control(Type.SYNC) == OK
    node.work()
    assert node.answers() == [(Type.DONE, b"\1\0\0\0")]
    assert node.control(Type.COMMIT) == OK
    assert node.control(Type.COMMIT) == OK
    node.work()
    [(type_, report)] = node.answers()
    assert type_ == Type.METRICS
    kept = node.slots
    node.frame(b"noise")  # counted in the next report, not in this one
    for _ in range(2):
        assert node.control(Type.COMMIT) == OK
        node.work()
        assert node.answers() == [(Type.METRICS, report)]
        assert node.control(Type.ROUND) == OK
        node.work()
        assert node.answers() == [(Type.DONE, ZERO)]
    assert node.slots == kept
    node.train(1)
    assert node.commit(1).words["dropped_length"] == 1


def test_what_does_not_fit_the_state_is_answered_by_error(node: Node) -> None:
    node.ready([1])
    node.control(Type.ROUND, round_=2)
    for type_, round_ in ((Type.ROUND, 3), (Type.COMMIT, 2), (Type.COMMIT, 3), (Type.SYNC, 2)):
        assert node.control(type_, round_=round_) == STATE, type_  # while it trains
        failure(node, "STATE")
    node.work()
    node.take()
    for type_, round_ in ((Type.ROUND, 3), (Type.COMMIT, 1), (Type.SYNC, 3)):
        assert node.control(type_, round_=round_) == STATE
        failure(node, "STATE")
    node.commit(2)
    for type_, round_ in ((Type.ROUND, 1), (Type.ROUND, 9), (Type.COMMIT, 1), (Type.COMMIT, 3), (Type.SYNC, 2)):
        assert node.control(type_, round_=round_) == STATE
        failure(node, "STATE")
    node.train(3)


def test_work_comes_in_small_pieces(node: Node) -> None:
    node.ready([1])
    node.control(Type.ROUND)
    # 3 training steps, 5 validation samples in 2 chunks of the batch's 4, sharing.
    assert node.work() == 3 + 2 + 1
    node.take()
    node.control(Type.COMMIT)
    assert node.work() == 1 + 2  # the merge, 7 test samples in 2 chunks
    assert not node.step()


def test_reports_hold_the_crcs_of_the_weights_and_count_one_round(node: Node) -> None:
    node.ready([1])
    node.note_garbage(3)
    for round_ in range(3):
        messages = node.train(round_)
        report = node.commit(round_)
        w = node.weights
        assert report.words["weights_crc"] == zlib.crc32(w)
        edges = np.cumsum([0, 30, 5, 20, 4, 12, 3])
        assert report.tensor_crcs == tuple(zlib.crc32(w[a:b]) for a, b in zip(edges, edges[1:], strict=False))
        assert report.words["frames_sent"] == len(messages)
        assert report.words["dropped_garbage"] == (3 if round_ == 0 else 0)
        assert (report.words["val_count"], report.words["test_count"]) == (5, 7)


def test_tests_are_rare_if_so_configured() -> None:
    with Node(words(eval_every=2, rounds=3)) as node:
        node.start()
        node.ready([])
        counts = []
        for round_ in range(3):
            node.train(round_)
            counts.append(node.commit(round_).words["test_count"])
        assert counts == [0, 7, 7]


def test_a_node_that_diverges_goes_back() -> None:
    with Node(words(lr=3e38, momentum=0.5, weight_decay=10.0)) as node:
        node.start()
        w = node.ready([1]).weights
        node.train(0)
        assert node.weights.tobytes() == w.tobytes()
        report = node.commit(0).words
        assert report["diverged"] == 1
        assert report["train_loss"] != report["train_loss"] or np.isfinite(report["train_loss"])


def test_a_loss_that_is_not_finite_is_the_one_nan() -> None:
    with Node(words(lr=3e38, local_steps=40)) as node:
        node.start()
        node.ready([])
        node.train(0)
        node.control(Type.COMMIT)
        node.work()
        [(_, payload)] = node.answers()
        bits = struct.unpack_from("<I", payload, 8)[0]
        assert bits == 0x7FC00000 or bits & 0x7F800000 != 0x7F800000


def test_stop_ends_the_node(node: Node) -> None:
    node.ready([1])
    assert node.control(Type.STOP) == OK
    assert node.stopped
    assert not node.step()
    assert node.control(Type.ROUND) == STATE


def test_sequence_numbers_never_repeat() -> None:
    with Node(words(policy=PolicyKind.DPSGD, mtu=64)) as node:
        node.start()
        seen: dict[bool, list[int]] = {True: [], False: []}
        for data in node.take_raw():
            seen[data[1] >= 16].append(struct.unpack_from("<I", data, 12)[0])
        node.control(Type.WELCOME, ZERO)
        node.control_seq += 5  # gaps are no news
        shard = shard_bytes(0, *samples(20, 100), 0)
        for at in range(0, len(shard), 18):
            node.control(Type.PROVISION, Provision(len(shard), at, shard[at : at + 18]).pack())
        node.control(Type.PEERS, Peers((1, 2)).pack())
        for round_ in range(2):
            for type_ in (Type.ROUND, Type.COMMIT):
                node.control(type_, round_=round_)
                node.work()
        for data in node.take_raw():
            seen[data[1] >= 16].append(struct.unpack_from("<I", data, 12)[0])
        assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in seen.values())
        assert min(map(len, seen.values())) > 10


# --- two nodes -----------------------------------------------------------------------------------------------------


def exchange(nodes: list[Node], round_: int) -> list[Metrics]:
    """Run one round between nodes that hear each other, as the coordinator would."""
    for node in nodes:
        assert node.control(Type.ROUND, round_=round_) == OK
        node.work()
    for last in (False, True):
        sent = [node.take_raw() for node in nodes]
        for data in (data for frames in sent for data in frames if data[1] >= 16):
            to = struct.unpack_from("<H", data, 6)[0]
            for node in nodes:
                if to == node.id:
                    assert node.frame(data) == OK
        if not last:
            for node in nodes:
                assert node.control(Type.SYNC, round_=round_) == OK
                node.work()
    return [node.commit(round_) for node in nodes]


def pair(changes: dict[str, Any], slots: list[tuple[bytes, bytes]] | None = None, rounds: int = 0) -> list[Node]:
    """Start nodes 0 and 1 as each other's neighbours."""
    found = []
    for number in range(2):
        node = Node(words(**changes), id=number)
        assert node.start(slots[number] if slots else (b"", b"")) == OK
        found.append(node.ready([1 - number], rounds))
    return found


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("mtu", [64, 1024])
def test_two_nodes_exchange(name: str, mtu: int) -> None:
    changes = POLICIES[name] | {"mtu": mtu}
    nodes = pair(changes)
    merged = 0
    for round_ in range(4):
        for report in exchange(nodes, round_):
            merged += int(report.words["messages_merged"])
            assert not any(
                v for k, v in report.words.items() if k.startswith(("dropped", "messages_rej", "messages_ev"))
            )
    assert (merged > 0) == (name != "local")
    for node in nodes:
        node.__exit__()


def test_two_nodes_come_closer() -> None:
    """Without training, averaging everything leaves both with the same model."""
    nodes = pair({"policy": PolicyKind.DPSGD, "bits": 32})
    exchange(nodes, 0)
    a, b = (node.weights for node in nodes)
    assert np.array_equal(a, b)
    for node in nodes:
        node.__exit__()


# --- checkpoints ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_a_restart_continues_to_the_same_bits(name: str) -> None:
    changes = POLICIES[name] | {"lr_policy": 3, "loss_count": 1, "stair_count": 1, "stair_at0": 2}
    changes |= {"spread": Spread.BALANCED}
    whole, cut = pair(changes), pair(changes)
    for round_ in range(3):
        exchange(whole, round_)
        exchange(cut, round_)
    slots = [node.slots for node in cut]
    for node in cut:
        node.__exit__()
    cut = pair(changes, slots, rounds=3)
    for round_ in (3, 4):
        assert exchange(whole, round_) == exchange(cut, round_)
    for one, other in zip(whole, cut, strict=True):
        assert one.weights.tobytes() == other.weights.tobytes()
        one.__exit__()
        other.__exit__()


def run(rounds: tuple[int, ...], slots: tuple[bytes, bytes] = (b"", b""), begin: int = 0) -> Node:
    """Run a lone node through some rounds; those between are its absences."""
    node = Node(words())
    assert node.start(slots) == OK
    node.ready([1], begin)
    for round_ in rounds:
        node.train(round_)
        node.commit(round_)
    return node


def offered(slots: tuple[bytes, bytes], **changes: Any) -> tuple[int, int]:
    """Return the rounds that HELLO offers."""
    with Node(words(**{k: v for k, v in changes.items() if k != "id"}), id=changes.get("id", 0)) as node:
        assert node.start(slots) == OK
        [(_, payload)] = node.take()
        hello = Hello.parse(payload)
        return hello.newest_rounds, hello.older_rounds


def test_slots_alternate_whatever_rounds_were_missed() -> None:
    with run((0, 2, 4)) as node:
        assert offered(node.slots) == (5, 3)
    with run((0,)) as node:
        assert offered(node.slots) == (1, 0)


def test_the_older_checkpoint_serves_too() -> None:
    with run((0, 1, 2)) as whole, run((0, 1)) as shorter:
        with run((), whole.slots, begin=2) as again:
            assert again.weights.tobytes() == shorter.weights.tobytes()
            again.train(2)
            again.commit(2)
            assert again.weights.tobytes() == whole.weights.tobytes()
            assert offered(again.slots) == (3, 2)


def test_starting_anew_forgets_old_checkpoints() -> None:
    with run((0, 1, 2)) as old, run((0,), old.slots, begin=0) as fresh, run((0,)) as plain:
        assert fresh.weights.tobytes() == plain.weights.tobytes()
        assert offered(fresh.slots) == (1, 0)


def test_checkpoints_of_others_are_not_offered() -> None:
    with run((0, 1)) as node:
        assert offered(node.slots) == (2, 1)
        assert offered(node.slots, id=1) == (0, 0)
        assert offered(node.slots, seed_lo=6) == (0, 0)


def test_torn_checkpoints_are_not_offered() -> None:
    """Cut at every 16th byte, and with a bit flipped at every 16th: the other slot stands."""
    with run((0, 1)) as node:
        newest = max((0, 1), key=lambda slot: struct.unpack_from("<I", node.slot(slot), 8)[0])
        good, other = node.slot(newest), node.slot(1 - newest)

        def with_damage(bad: bytes) -> tuple[bytes, bytes]:
            return (bad, other) if newest == 0 else (other, bad)

        assert offered(with_damage(good)) == (2, 1)
        for at in range(0, len(good), 16):
            assert offered(with_damage(good[:at])) == (1, 0), at
            flipped = good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :]
            assert offered(with_damage(flipped)) == (1, 0), at
        for at in range(24):
            flipped = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
            assert offered(with_damage(flipped)) == (1, 0), at
        assert offered(with_damage(good + b"\0")) == (1, 0)


def test_a_checkpoint_that_is_not_there_is_an_error() -> None:
    with run((0, 1)) as old, Node(words()) as node:
        assert node.start(old.slots) == OK
        node.take()
        for rounds in (3, 9, 0xFFFFFFFF):
            assert node.control(Type.WELCOME, struct.pack("<I", rounds)) == CODE["CHECKPOINT"]
            failure(node, "CHECKPOINT")
        node.ready([1], rounds=2)  # the coordinator may ask for another
        assert node.weights.tobytes() == old.weights.tobytes()


def test_a_store_that_fails_does_not_stop_the_run(node: Node) -> None:
    node.ready([1])
    node.train(0)
    node.break_store(True)
    node.commit(0)
    assert node.slots == (b"", b"")
    node.break_store(False)
    node.train(1)
    node.commit(1)
    assert offered(node.slots) == (2, 0)


def test_a_node_without_store_runs() -> None:
    with Node(words(), store=False) as node:
        assert node.start() == OK
        node.ready([1])
        node.train(0)
        node.commit(0)
        assert node.slots == (b"", b"")


def test_library_is_built_once() -> None:
    assert library() is library()


def test_pull_belongs_to_one_policy(node: Node) -> None:
    node.ready([1])
    node.train(0)
    assert node.data(1, Type.PULL, Pull((0,)).pack(), 0) == FRAME
    assert node.counters()["malformed"] == 1
