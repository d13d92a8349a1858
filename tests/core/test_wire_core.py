"""The core's frames, replay windows and reassembly against gossamer.spec.wire, hand counts and hashlib's HMAC."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gossamer.spec.constants import METRIC_WORDS
from gossamer.spec.errors import FrameError
from gossamer.spec.wire import Frame, Reassembler, fragment_message, pack_frame, parse_frame
from tests.core.probe import HMAC_KEY_BYTES, KEY, library

REASONS = {place: name.removeprefix("dropped_") for place, name in enumerate(METRIC_WORDS)}
DROPPED, MORE, COMPLETE = range(3)


def core_key(key: bytes | None) -> Any:
    ffi, lib = library()
    if key is None:
        return ffi.NULL
    held = ffi.new(f"uint8_t[{HMAC_KEY_BYTES}]")
    lib.gs_hmac_init(held, key, len(key))
    return held


def to_core(frame: Frame) -> Any:
    ffi, _ = library()
    payload = ffi.new(f"uint8_t[{max(1, len(frame.payload))}]", frame.payload)
    made = ffi.new("gs_frame_t *", {
        "type": frame.type, "src": frame.src, "dst": frame.dst, "round": frame.round, "seq": frame.seq,
        "fragment": frame.fragment, "fragments": frame.fragments, "len": len(frame.payload), "payload": payload,
    })  # fmt: skip
    return made, payload  # cffi frees the payload with its last name


def pack(frame: Frame, key: bytes | None) -> bytes:
    ffi, lib = library()
    out = ffi.new(f"uint8_t[{len(frame.payload) + 38}]")
    made, _payload = to_core(frame)
    size = lib.gs_wire_pack(made, core_key(key), out)
    return bytes(ffi.buffer(out, size))


def parse(data: bytes, key: bytes | None) -> Frame | str:
    """Return the frame, or why it is dropped."""
    ffi, lib = library()
    held = ffi.new(f"uint8_t[{len(data)}]", data) if data else ffi.NULL
    frame = ffi.new("gs_frame_t *")
    reason = lib.gs_wire_parse(frame, held, len(data), core_key(key))
    if reason:
        return REASONS[reason]
    payload = bytes(ffi.buffer(frame.payload, frame.len))
    return Frame(frame.type, frame.src, frame.dst, frame.round, frame.seq, payload, frame.fragment, frame.fragments)


def random_frame(draw: random.Random) -> Frame:
    fragments = draw.choice([1, 1, 2, 65535])
    return Frame(
        type=draw.randrange(256), src=draw.getrandbits(16), dst=draw.getrandbits(16), round=draw.getrandbits(32),
        seq=draw.getrandbits(32), payload=draw.randbytes(draw.choice([0, 1, 41, 42, 43, 500])),
        fragment=draw.randrange(fragments), fragments=fragments,
    )  # fmt: skip


@pytest.mark.parametrize("key", [None, KEY])
def test_frames_are_those_of_the_specification(key: bytes | None) -> None:
    draw = random.Random(2)
    for _ in range(100):
        frame = random_frame(draw)
        data = pack_frame(frame, key)
        assert pack(frame, key) == data
        assert parse(data, key) == frame


@pytest.mark.parametrize("key", [None, KEY])
def test_tampered_frames_fall_for_the_same_reason(key: bytes | None) -> None:
    draw = random.Random(3)
    found = set()
    for _ in range(1500):
        data = bytearray(pack_frame(random_frame(draw), key))
        match draw.randrange(4):
            case 0:
                data = data[: draw.randrange(len(data))]
            case 1:
                data += draw.randbytes(draw.randint(1, 40))
            case 2:
                data[draw.randrange(22)] ^= 1 << draw.randrange(8)
            case _:
                data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            expected: Frame | str = parse_frame(bytes(data), key)
        except FrameError as error:
            expected = error.reason
        assert parse(bytes(data), key) == expected
        found.add(expected if isinstance(expected, str) else "none")
    assert found >= {"length", "version", "malformed" if key is None else "tag", "none"}


def test_another_key_and_no_tag_are_refused() -> None:
    frame = Frame(16, 1, 2, 3, 4, b"weights")
    assert parse(pack_frame(frame, bytes(32)), KEY) == "tag"
    assert parse(pack_frame(frame, None), KEY) == "tag"
    assert parse(pack_frame(frame, KEY), None) == frame  # who asks for no tag does not look at one


def test_replay_windows_by_hand() -> None:
    ffi, lib = library()
    window = ffi.new("gs_window_t *")

    def accept(seq: int) -> bool:
        new = lib.gs_window_is_new(window, seq)
        assert lib.gs_window_is_new(window, seq) == new  # asking changes nothing
        if new:
            lib.gs_window_note(window, seq)
            assert not lib.gs_window_is_new(window, seq)
        return bool(new)

    assert [accept(seq) for seq in (1, 1, 3, 2, 2, 3)] == [True, False, True, True, False, False]
    assert accept(66)  # 3 is 63 behind, 2 is 64 behind
    assert [accept(seq) for seq in (2, 3, 4, 65)] == [False, False, True, True]
    assert accept(1000)
    assert [accept(seq) for seq in (936, 937, 66, 1000)] == [False, True, False, False]
    assert accept(0xFFFFFFFF)
    assert not accept(0)


def test_replay_windows_against_sets() -> None:
    ffi, lib = library()
    draw = random.Random(4)
    for _ in range(20):
        window, seen, greatest = ffi.new("gs_window_t *"), set(), 0
        for _ in range(400):
            seq = max(1, greatest + draw.choice([1, 1, 2, 63, 64, 65, -1, -2, -62, -63, -64, -65, -draw.randrange(80)]))
            new = seq not in seen and greatest - seq < 64
            assert lib.gs_window_is_new(window, seq) == new
            if new:
                lib.gs_window_note(window, seq)
                seen.add(seq)
                greatest = max(greatest, seq)


class Core:
    """The core's reassembly, in the clothes of gossamer.spec.wire.Reassembler."""

    def __init__(self, places: int, place_bytes: int) -> None:
        ffi, self._lib = library()
        self._ffi = ffi
        self._held = ffi.new("gs_reassembly_t *")
        self._places = ffi.new(f"gs_place_t[{max(places, 1)}]")
        self._bytes = ffi.new(f"uint8_t[{max(1, places * place_bytes)}]")
        self._lib.gs_reassembly_init(self._held, self._places, self._bytes, place_bytes, places)

    def take(self, frame: Frame) -> tuple[int, bytes | None]:
        message, length = self._ffi.new("uint8_t **"), self._ffi.new("size_t *")
        made, _payload = to_core(frame)
        taken = self._lib.gs_reassembly_take(self._held, made, message, length)
        return taken, bytes(self._ffi.buffer(message[0], length[0])) if taken == COMPLETE else None

    def close(self) -> None:
        self._lib.gs_reassembly_close(self._held)

    @property
    def dropped(self) -> int:
        return int(self._held.dropped)


def pieces(src: int, first_seq: int, length: int) -> list[Frame]:
    """Cut a message for an MTU of 64 with tags: 26 bytes a frame."""
    return fragment_message(16, src, 0, 0, first_seq, bytes(i % 251 for i in range(length)), 64, True)


def test_reassembly_counts_by_hand() -> None:
    core = Core(2, 104)
    a, b, c = pieces(1, 1, 100), pieces(2, 1, 60), pieces(3, 1, 104)
    assert [core.take(frame)[0] for frame in a] == [MORE, MORE, MORE, COMPLETE]
    assert core.dropped == 0
    # A gap: the fragment behind it counts, and so does the message; the next one finds no message.
    a = pieces(1, 5, 100)
    assert [core.take(frame)[0] for frame in (a[0], a[2], a[3])] == [MORE, DROPPED, DROPPED]
    assert core.dropped == 3
    # Two places, three messages: the oldest goes.
    a = pieces(1, 9, 100)
    assert [core.take(frame)[0] for frame in (a[0], b[0], c[0], a[1])] == [MORE, MORE, MORE, DROPPED]
    assert core.dropped == 5
    assert [core.take(frame)[0] for frame in b[1:] + c[1:]] == [MORE, COMPLETE, MORE, MORE, COMPLETE]
    # What is open at the end counts once.
    core.take(pieces(1, 13, 100)[0])
    core.close()
    core.close()
    assert core.dropped == 6


def test_a_message_larger_than_any_legal_one_opens_nothing() -> None:
    core = Core(1, 104)
    a = pieces(1, 1, 100)
    assert core.take(a[0])[0] == MORE
    large = pieces(2, 1, 105)
    assert [core.take(frame)[0] for frame in large] == [DROPPED] * 5
    assert core.dropped == 5
    assert [core.take(frame)[0] for frame in a[1:]] == [MORE, MORE, COMPLETE]
    assert core.dropped == 5


def test_without_places_every_fragment_falls() -> None:
    core = Core(0, 0)
    assert [core.take(frame)[0] for frame in pieces(1, 1, 60)] == [DROPPED] * 3
    assert core.take(Frame(16, 1, 0, 0, 9, b"one frame")) == (COMPLETE, b"one frame")
    core.close()
    assert core.dropped == 3


def test_reassembly_against_the_specification() -> None:
    draw = random.Random(5)
    for _ in range(40):
        places = draw.randint(1, 3)
        core, expected = Core(places, 400), Reassembler(places)
        seq = dict.fromkeys(range(4), 1)
        queue = []
        for _ in range(20):
            src = draw.randrange(4)
            frames = pieces(src, seq[src], draw.choice([1, 26, 27, 60, 200, 400]))
            seq[src] += len(frames)
            queue.append([frame for frame in frames if draw.random() > 0.15])
        while any(queue):
            part = draw.choice([frames for frames in queue if frames])
            frame = part.pop(0)
            assert core.take(frame)[1] == expected.take(frame)
            assert core.dropped == expected.dropped
        core.close()
        expected.close()
        assert core.dropped == expected.dropped
