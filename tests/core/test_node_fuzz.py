"""No bad frame changes a node: it is counted by its reason, and what outlives a round stands as it was."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gossamer.spec import indexing
from gossamer.spec.constants import COORDINATOR, Coding, PolicyKind
from gossamer.spec.constants import MessageType as Type
from gossamer.spec.messages import Pull, Segment
from gossamer.spec.wire import Frame, pack_frame
from tests.core.probe import FRAME, KEY, OK, Node, words

P = 6 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3
PEER = 2


def opened(**changes: Any) -> Node:
    """Return node 0 with peers 1 to 3 in round 1, after sharing."""
    node = Node(words(lr=0.0, **changes))
    assert node.start() == OK
    node.ready([1, 2, 3])
    node.train(0)
    node.commit(0)
    node.train(1)
    return node


@pytest.fixture
def node() -> Iterator[Node]:
    with opened(segments=1) as made:
        yield made


def dropped(node: Node, reason: str, data: bytes) -> None:
    """Expect that a frame is dropped for this reason and leaves no other trace."""
    before, state = node.counters(), node.state
    assert node.frame(data) == FRAME
    after = node.counters()
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {reason: 1}
    assert node.state == state
    assert node.take_raw() == []


def segment(count: int = P, **changes: Any) -> bytes:
    """Return a SEGMENT of gist with one value for each of the first `count` parameters."""
    coding, index = indexing.encode(range(count), P)
    fields = {"coding": coding, "bits": 32, "part": 0, "weight": 0.5, "scale": 0.0, "index": index}
    fields |= {"values": np.full(count, 0.5, np.float32).tobytes()}
    return Segment(**{**fields, **changes}).pack()


def data_frame(payload: bytes, key: bytes | None = KEY, **changes: Any) -> bytes:
    fields = {"type": Type.SEGMENT, "src": PEER, "dst": 0, "round": 1, "seq": 1, "payload": payload}
    return pack_frame(Frame(**{**fields, **changes}), key)


def test_every_reason_by_name(node: Node) -> None:
    good = data_frame(segment())
    dropped(node, "length", b"")
    dropped(node, "length", good[:21])
    dropped(node, "length", good + b"\0")
    dropped(node, "version", b"\2" + good[1:])
    dropped(node, "tag", good[:-1] + bytes([good[-1] ^ 1]))
    dropped(node, "tag", data_frame(segment(), bytes(32)))
    dropped(node, "tag", data_frame(segment(), None))
    dropped(node, "malformed", data_frame(segment(), fragment=1, fragments=1))
    dropped(node, "malformed", data_frame(segment(), fragments=0))
    dropped(node, "peer", data_frame(segment(), dst=1))
    dropped(node, "peer", data_frame(segment(), src=9))
    dropped(node, "peer", data_frame(segment(), src=COORDINATOR))
    dropped(node, "peer", data_frame(b"", type=Type.STOP))
    dropped(node, "stale", data_frame(segment(), round=0))
    dropped(node, "stale", data_frame(segment(), round=2))
    dropped(node, "reassembly", data_frame(segment(), fragment=1, fragments=2))
    dropped(node, "reassembly", data_frame(segment(), fragments=65535))
    dropped(node, "malformed", data_frame(segment(), type=18))
    dropped(node, "malformed", data_frame(segment(), type=255))
    assert node.frame(good) == OK
    dropped(node, "replay", good)
    assert node.commit(1).words["messages_merged"] == 1
    dropped(node, "stale", data_frame(segment(), seq=2))  # the round is over


def test_the_checks_come_in_order(node: Node) -> None:
    """A frame that is wrong in every way falls for the first reason; each mend brings the next."""
    wrong: dict[str, Any] = {"src": 9, "round": 7, "type": 18}
    good = data_frame(segment())
    assert node.frame(good) == OK
    dropped(node, "version", b"\2" + data_frame(segment(), bytes(32), **wrong)[1:])
    dropped(node, "tag", data_frame(segment(), bytes(32), **wrong))
    dropped(node, "malformed", data_frame(segment(), **wrong, fragment=1))
    dropped(node, "peer", data_frame(segment(), **wrong))
    dropped(node, "stale", data_frame(segment(), **wrong | {"src": PEER}))
    dropped(node, "replay", data_frame(segment(), type=18))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        segment()[:15],
        segment() + b"\0",
        segment()[:-1],
        segment(bits=16),
        segment(bits=33),
        segment(part=1),
        segment(coding=Coding.RANGE, index=b""),
        segment(coding=Coding.MASK, index=b""),
        segment(coding=7),
        segment(coding=Coding.DELTA),  # a bitmap's bytes are no ascending units
        segment(count=0),
        segment(index=segment()[16:25] + b"\0"),
        segment(count=P - 1, index=indexing.encode(range(P), P)[1]),
        segment(coding=Coding.BITMAP, index=bytes(9) + b"\x04", values=bytes(4)),  # unit 74 of 74
        segment(coding=Coding.DELTA, index=b"\x80\x00", values=bytes(4)),  # not the shortest form
        segment(coding=Coding.DELTA, index=b"\x4a", values=bytes(4)),  # unit 74 of 74
        segment(coding=Coding.DELTA, index=b"\x80", values=bytes(4)),
        struct.pack("<BBHffI", 1, 32, 0, 0.5, 0.0, 0xFFFFFFFF) + bytes(300),
    ],
)
def test_malformed_segments(node: Node, payload: bytes) -> None:
    dropped(node, "malformed", data_frame(payload))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\1",
        bytes(2),
        b"\1\0",
        b"\2\0\0\0",
        b"\1\0\4\0",
        b"\2\0\1\0\1\0",
        b"\2\0\1\0\0\0",
        Pull((0, 1)).pack() + b"\0",
    ],
)
def test_malformed_pulls(payload: bytes) -> None:
    with opened(policy=PolicyKind.SEGMENTED_GOSSIP, segments=4) as node:
        dropped(node, "malformed", data_frame(payload, type=Type.PULL))
        assert node.sync(1) == []


@pytest.mark.parametrize("bits", [8, 4, 2, 1])
def test_fields_that_no_rounding_gives(bits: int) -> None:
    """Spare bits, and the field below the least one."""
    with opened(policy=PolicyKind.DPSGD, bits=bits) as node:
        size = (P * bits + 7) // 8

        def whole(values: bytes) -> bytes:
            return data_frame(Segment(Coding.RANGE, bits, 0, 3.0, 0.5, b"", values).pack())

        if P * bits % 8:
            dropped(node, "malformed", whole(bytes(size - 1) + b"\x80"))
        if bits > 1:
            dropped(node, "malformed", whole(bytes([1 << bits - 1]) + bytes(size - 1)))
        assert node.frame(whole(bytes(size))) == OK


def test_a_dropped_frame_takes_no_sequence_number(node: Node) -> None:
    """What falls for its contents must not push what follows out of the replay window."""
    dropped(node, "malformed", data_frame(b"", seq=0xFFFFFFFF))
    dropped(node, "reassembly", data_frame(b"", seq=0xFFFFFFFF, fragment=1, fragments=2))
    assert node.frame(data_frame(segment(), seq=1)) == OK


def test_control_frames_are_checked_alike(node: Node) -> None:
    def control(type_: int, payload: bytes = b"", **changes: Any) -> bytes:
        fields = {"type": type_, "src": COORDINATOR, "dst": 0, "round": 1, "seq": node.control_seq + 1}
        return pack_frame(Frame(**{**fields, **changes}, payload=payload), KEY)

    good = control(Type.SYNC)
    dropped(node, "tag", good[:-1] + bytes([good[-1] ^ 128]))
    dropped(node, "replay", control(Type.SYNC, seq=1))
    for type_ in (0, Type.HELLO, Type.ACK, Type.DONE, Type.METRICS, Type.ERROR, 13, 15):
        dropped(node, "malformed", control(type_))
    for type_ in (Type.ROUND, Type.SYNC, Type.COMMIT, Type.STOP):
        dropped(node, "malformed", control(type_, b"\0"))
    for type_ in (Type.WELCOME, Type.PROVISION, Type.PEERS):
        dropped(node, "malformed", control(type_, b"\0"))
    dropped(node, "malformed", control(Type.PEERS, b"\2\0\1\0"))
    assert node.frame(good) == OK


def corpus(node: Node, draw: random.Random) -> bytes:
    """Return a frame that some sender could have meant."""
    payload = draw.choice(
        [segment(), segment(5), segment(weight=float("nan")), Pull((0,)).pack(), b"", bytes(4), draw.randbytes(30)]
    )
    control = draw.random() < 0.3
    types = (Type.WELCOME, Type.PROVISION, Type.PEERS, Type.ROUND, Type.SYNC, Type.COMMIT) if control else (16, 17, 20)
    fragments = draw.choice([1, 1, 1, 2, 3])
    frame = Frame(
        type=draw.choice(types),
        src=COORDINATOR if control else draw.choice([1, 2, 3, 4]),
        dst=draw.choice([0, 0, 0, 0, 1]),
        round=draw.choice([0, 1, 1, 1, 2]),
        seq=draw.randrange(1, 200),
        payload=payload,
        fragment=draw.randrange(fragments),
        fragments=fragments,
    )
    return pack_frame(frame, draw.choice([KEY, KEY, KEY, KEY, None, bytes(32)]))


def damage(data: bytes, draw: random.Random) -> bytes:
    match draw.randrange(4):
        case 0:
            return data[: draw.randrange(len(data))]
        case 1:
            return data + draw.randbytes(draw.randint(1, 2000))
        case _:
            damaged = bytearray(data)
            for _ in range(draw.randint(1, 8)):
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
            return bytes(damaged)


@pytest.mark.parametrize("mtu", [64, 1024])
@pytest.mark.parametrize("auth", [0, 1])
@pytest.mark.parametrize(
    "changes",
    [
        {"segments": 1},
        {"segments": 3, "unit": 1, "bits": 8, "threshold": 3},
        {"policy": PolicyKind.SEGMENTED_GOSSIP, "segments": 4, "bits": 4},
        {"policy": PolicyKind.GOSSIPFL, "bits": 1},
        {"policy": PolicyKind.TOPK, "bits": 2},
    ],
)
def test_a_storm_of_frames(changes: dict[str, Any], mtu: int, auth: int) -> None:
    """Random bytes, frames out of place, and damaged ones: dropped frames change nothing, and the round goes on."""
    draw = random.Random(9)
    outcomes = set()
    with opened(**changes, mtu=mtu, auth=auth) as node:
        for _ in range(1500):
            data = draw.randbytes(draw.randrange(120)) if draw.random() < 0.1 else corpus(node, draw)
            data = damage(data, draw) if draw.random() < 0.3 else data
            node.take_raw()
            state, weights, before = node.state, node.weights.tobytes(), node.counters()
            outcome = node.frame(data)
            outcomes.add(outcome)
            if outcome == FRAME:
                after = node.counters()
                grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
                assert len(grown) == 1, grown
                assert set(grown.values()) == {1} or grown.keys() == {"reassembly"}, grown
                assert (node.state, node.weights.tobytes()) == (state, weights)
                assert node.take_raw() == []
            elif draw.random() < 0.2:
                node.work()
        assert outcomes > {FRAME, OK}
        node.work()
        node.take_raw()
        assert np.isfinite(node.weights).all()
