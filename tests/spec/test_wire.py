"""Frames, tags, COBS, fragments and replay windows against published and hand-written bytes (SPEC.md 9)."""

from __future__ import annotations

import hashlib
import hmac
import struct
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.spec.errors import FrameError
from gossamer.spec.wire import (
    CobsStream,
    Frame,
    Reassembler,
    ReplayWindow,
    cobs_bytes_max,
    cobs_decode,
    cobs_encode,
    fragment_message,
    pack_frame,
    parse_frame,
)

KEY = bytes(range(32))
FRAME = Frame(type=16, src=1, dst=2, round=0x01020304, seq=0x0A0B0C0D, payload=b"\x00hi", fragment=3, fragments=0x0104)
# version, type, flags, 0 | src | dst | round | seq | fragment | fragments | payload bytes | payload
HEADER = "01100000 0100 0200 04030201 0d0c0b0a 0300 0401 0300"
BYTES = bytes.fromhex(HEADER + "006869")

FRAMES = st.builds(
    lambda last, **fields: Frame(fragments=fields["fragment"] + 1 + last, **fields),
    last=st.integers(0, 100),
    type=st.integers(0, 255),
    src=st.integers(0, 65535),
    dst=st.integers(0, 65535),
    round=st.integers(0, 2**32 - 1),
    seq=st.integers(0, 2**32 - 1),
    fragment=st.integers(0, 65000),
    payload=st.binary(max_size=300),
)
KEYS = st.sampled_from([None, KEY])


# --- frames and tags ----------------------------------------------------------------------------------------------


def test_header_by_hand() -> None:
    assert pack_frame(FRAME, None) == BYTES
    assert parse_frame(BYTES, None) == FRAME
    assert FRAME.is_data and not replace(FRAME, type=15).is_data


@pytest.mark.parametrize(
    ("key", "text", "mac"),
    [  # RFC 4231, cases 1, 2, 3 and 6
        (b"\x0b" * 20, b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        (
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (b"\xaa" * 20, b"\xdd" * 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
        (
            b"\xaa" * 131,
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        ),
    ],
)
def test_hmac_is_that_of_the_standard(key: bytes, text: bytes, mac: str) -> None:
    assert hmac.digest(key, text, "sha256").hex() == mac


def test_tag_covers_header_and_payload() -> None:
    covered = BYTES[:2] + b"\x01" + BYTES[3:]
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in KEY + bytes(32)) + covered).digest()
    tag = hashlib.sha256(bytes(b ^ 0x5C for b in KEY + bytes(32)) + inner).digest()[:16]
    assert pack_frame(FRAME, KEY) == covered + tag
    assert parse_frame(covered + tag, KEY) == FRAME


@given(FRAMES, KEYS)
def test_frames_round_trip(frame: Frame, key: bytes | None) -> None:
    assert parse_frame(pack_frame(frame, key), key) == frame


@given(FRAMES, st.data())
def test_one_changed_bit_is_never_taken(frame: Frame, data: st.DataObject) -> None:
    tagged = bytearray(pack_frame(frame, KEY))
    place = data.draw(st.integers(0, 8 * len(tagged) - 1))
    tagged[place // 8] ^= 1 << place % 8
    with pytest.raises(FrameError):
        parse_frame(bytes(tagged), KEY)


@given(st.binary(max_size=80), KEYS)
def test_parse_survives_garbage(data: bytes, key: bytes | None) -> None:
    try:
        frame = parse_frame(data, key)
    except FrameError as error:
        assert error.reason in {"length", "version", "tag", "malformed"}
    else:
        assert key is None and parse_frame(pack_frame(frame, None), None) == frame


def changed(at: int, *values: int, data: bytes = BYTES) -> bytes:
    return data[:at] + bytes(values) + data[at + len(values) :]


@pytest.mark.parametrize(
    ("data", "key", "reason"),
    [
        (b"", None, "length"),
        (BYTES[:21], None, "length"),
        (BYTES[:-1], None, "length"),
        (BYTES + b"\0", None, "length"),
        (changed(2, 1), None, "length"),  # flagged as tagged, but no tag
        (changed(0, 2), None, "version"),
        (changed(0, 2) + b"\0", None, "length"),  # the first of the checks decides
        (changed(0, 2), KEY, "version"),
        (BYTES, KEY, "tag"),
        (changed(2, 1) + bytes(16), KEY, "tag"),
        (changed(2, 2), KEY, "tag"),
        (changed(2, 2), None, "malformed"),
        (changed(3, 1), None, "malformed"),
        (changed(16, 4, 1), None, "malformed"),  # fragment 260 of 260
        (changed(18, 0, 0), None, "malformed"),
    ],
)
def test_reasons(data: bytes, key: bytes | None, reason: str) -> None:
    with pytest.raises(FrameError) as caught:
        parse_frame(data, key)
    assert caught.value.reason == reason


@pytest.mark.parametrize("field", [{"type": 256}, {"src": 65536}, {"round": 2**32}, {"seq": -1}, {"fragments": 65536}])
def test_a_field_that_does_not_fit_is_refused(field: dict[str, int]) -> None:
    with pytest.raises(struct.error):
        pack_frame(replace(FRAME, **field), None)


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes, not 5"):
        pack_frame(FRAME, b"short")


# --- COBS ---------------------------------------------------------------------------------------------------------

RUN = bytes(range(1, 255))  # 254 bytes that are not 0


@pytest.mark.parametrize(
    ("data", "encoded"),
    [  # block by block
        (b"", b"\x01"),
        (b"\0", b"\x01\x01"),
        (b"\0\0", b"\x01\x01\x01"),
        (b"\x11\x22\x00\x33", b"\x03\x11\x22\x02\x33"),
        (b"\x11\x00\x00\x00", b"\x02\x11\x01\x01\x01"),
        (RUN, b"\xff" + RUN),
        (RUN[:-1], b"\xfe" + RUN[:-1]),
        (b"\0" + RUN, b"\x01\xff" + RUN),
        (RUN + b"\0", b"\xff" + RUN + b"\x01\x01"),
        (RUN + b"\xff", b"\xff" + RUN + b"\x02\xff"),
        (RUN + RUN, b"\xff" + RUN + b"\xff" + RUN),
        (RUN + b"\0" + RUN, b"\xff" + RUN + b"\x01\xff" + RUN),
    ],
)
def test_cobs_by_hand(data: bytes, encoded: bytes) -> None:
    assert cobs_encode(data) == encoded
    assert cobs_decode(encoded) == data


BLOCKS = st.lists(st.one_of(st.just(b"\0"), st.binary(max_size=3), st.just(RUN), st.just(RUN[:-1])), max_size=8)


@given(BLOCKS)
def test_cobs_round_trips_within_its_bound(blocks: list[bytes]) -> None:
    data = b"".join(blocks)
    encoded = cobs_encode(data)
    assert 0 not in encoded and len(encoded) <= cobs_bytes_max(len(data))
    assert cobs_decode(encoded) == data


@pytest.mark.parametrize("data", ["03", "0311", "00", "02ff05", "0300ff"])
def test_cobs_refuses_what_no_encoder_writes(data: str) -> None:
    with pytest.raises(FrameError, match="garbage"):
        cobs_decode(bytes.fromhex(data))


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(0, 90), max_size=8))
def test_a_stream_may_come_in_any_pieces(frames: list[bytes], cuts: list[int]) -> None:
    line = b"".join(cobs_encode(frame) + b"\0" for frame in frames)
    stream = CobsStream(40)
    bounds = [0, *sorted(min(cut, len(line)) for cut in cuts), len(line)]
    found = [frame for a, b in zip(bounds, bounds[1:], strict=False) for frame in stream.feed(line[a:b])]
    assert found == frames and stream.garbage == 0


@given(st.binary(max_size=400), st.binary(min_size=1, max_size=60))
def test_a_stream_finds_its_frame_after_any_garbage(garbage: bytes, frame: bytes) -> None:
    stream = CobsStream(60)
    before = stream.feed(garbage)
    assert all(len(found) <= 60 for found in before)
    after = stream.feed(b"\0" + cobs_encode(frame) + b"\0")
    assert after[-1] == frame and len(after) <= 2  # one may have ended with the delimiter
    runs = [run for run in garbage.split(b"\0") if run]
    assert len(before) + len(after) - 1 + stream.garbage == len(runs)  # each is a frame or garbage, none is lost


def test_an_endless_line_without_delimiter_takes_no_memory() -> None:
    stream = CobsStream(64)
    block = b"\x41" * 4096
    tracemalloc.start()
    try:
        for _ in range(2000):
            assert stream.feed(block) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64_000
    assert stream.feed(b"\0") == [] and stream.garbage == 1
    assert stream.feed(b"\0\0\x02A\0") == [b"A"] and stream.garbage == 1  # an empty run is nothing


def test_the_longest_frame_passes_and_one_byte_more_does_not() -> None:
    stream = CobsStream(600)
    assert stream.feed(cobs_encode(bytes(600)) + b"\0") == [bytes(600)]
    assert stream.feed(cobs_encode(b"x" * 600) + b"\0") == [b"x" * 600]
    # 601 zeros take 602 bytes, fewer than the longest encoding of 600, 603: what counts is the frame.
    assert stream.feed(cobs_encode(bytes(601)) + b"\0" + cobs_encode(b"x" * 601) + b"\0") == []
    assert stream.garbage == 2


# --- fragments ----------------------------------------------------------------------------------------------------


def cut(
    payload: bytes, *, src: int = 1, seq: int = 10, mtu: int = 64, auth: bool = True, type_: int = 16
) -> list[Frame]:
    return fragment_message(type_, src, 2, 5, seq, payload, mtu, auth)


@pytest.mark.parametrize(
    ("length", "auth", "lengths"),
    [
        (0, True, [0]),
        (26, True, [26]),  # 64 - 22 - 16
        (27, True, [26, 1]),
        (52, True, [26, 26]),
        (42, False, [42]),
        (100, False, [42, 42, 16]),
    ],
)
def test_fragments_by_hand(length: int, auth: bool, lengths: list[int]) -> None:
    frames = cut(bytes(length), auth=auth)
    assert [len(frame.payload) for frame in frames] == lengths
    assert [frame.seq for frame in frames] == list(range(10, 10 + len(lengths)))
    assert [(frame.fragment, frame.fragments) for frame in frames] == [(i, len(lengths)) for i in range(len(lengths))]
    assert all(len(pack_frame(frame, KEY if auth else None)) <= 64 for frame in frames)


@pytest.mark.parametrize("mtu", [63, 65536])
def test_mtu_out_of_range(mtu: int) -> None:
    with pytest.raises(ValueError, match="64 to 65535"):
        cut(b"", mtu=mtu)


@given(st.binary(max_size=600), st.integers(64, 200), st.booleans())
def test_fragments_come_back_together(payload: bytes, mtu: int, auth: bool) -> None:
    held = Reassembler(1)
    results = [held.take(frame) for frame in cut(payload, mtu=mtu, auth=auth)]
    assert results == [None] * (len(results) - 1) + [payload]
    held.close()
    assert held.dropped == 0


def test_interleaved_messages() -> None:
    held = Reassembler(3)
    a, b, c = cut(b"a" * 60), cut(b"b" * 60, src=7), cut(b"c" * 60, type_=10)  # a and c: same source and numbers
    assert [held.take(frame) for pair in zip(a, b, c, strict=True) for frame in pair] == [None] * 6 + [
        b"a" * 60, b"b" * 60, b"c" * 60,
    ]  # fmt: skip
    assert held.dropped == 0


def test_a_gap_closes_its_message_and_counts_each_fragment_after_it() -> None:
    held = Reassembler(1)
    first, _lost, third, fourth = cut(bytes(100))
    assert held.take(first) is None and held.dropped == 0
    assert held.take(third) is None and held.dropped == 2  # the fragment, and the message it closes
    assert held.take(fourth) is None and held.dropped == 3  # the fragment alone: its message is closed


def test_the_oldest_makes_room() -> None:
    held = Reassembler(2)
    a, b, c = cut(b"a" * 30), cut(b"b" * 30, src=2), cut(b"c" * 30, src=3)
    for frames in (a, b, c):
        held.take(frames[0])
    assert held.dropped == 1
    assert held.take(c[1]) == b"c" * 30 and held.take(b[1]) == b"b" * 30
    assert held.take(a[1]) is None and held.dropped == 2


def test_a_message_of_one_fragment_needs_no_place() -> None:
    held = Reassembler(1)
    held.take(cut(b"a" * 30)[0])
    assert held.take(cut(b"short", src=3)[0]) == b"short"
    assert held.take(cut(b"a" * 30)[1]) == b"a" * 30 and held.dropped == 0


def test_close_counts_what_is_open() -> None:
    held = Reassembler(4)
    for src in range(3):
        held.take(cut(bytes(30), src=src)[0])
    held.close()
    held.close()
    assert held.dropped == 3
    assert held.take(cut(bytes(30), src=0)[1]) is None and held.dropped == 4


def test_a_fragment_that_tells_another_count_is_refused() -> None:
    held = Reassembler(1)
    first, second, _ = cut(bytes(70))
    held.take(first)
    assert held.take(replace(second, fragments=2)) is None and held.dropped == 2


def test_messages_beyond_the_bound_are_refused() -> None:
    held = Reassembler(1, message_bytes_max=60)
    assert [held.take(frame) for frame in cut(bytes(60))][-1] == bytes(60)
    held.take(cut(bytes(30), src=3)[0])
    # The first fragment already tells 3 * 26 bytes: nothing is opened, what is open stays.
    assert held.take(cut(bytes(79), src=4)[0]) is None and held.dropped == 1
    assert held.take(cut(bytes(30), src=3)[1]) == bytes(30)
    # 61 bytes may be seen only at the last fragment.
    assert [held.take(frame) for frame in cut(bytes(61), src=5)] == [None] * 3 and held.dropped == 3


ANY = st.lists(
    st.builds(
        Frame,
        type=st.sampled_from([10, 16]),
        src=st.integers(0, 2),
        dst=st.just(0),
        round=st.just(0),
        seq=st.integers(0, 12),
        payload=st.binary(max_size=9),
        fragment=st.integers(0, 3),
        fragments=st.just(4),
    ),
    max_size=60,
)


@given(ANY, st.integers(0, 3))
def test_reassembly_is_bounded_whatever_comes(frames: list[Frame], places: int) -> None:
    held = Reassembler(places, message_bytes_max=20)
    done = begun = 0
    for frame in frames:
        begun += frame.fragment == 0
        message = held.take(frame)
        done += message is not None
        assert message is None or len(message) <= 20
        assert len(held._open) <= places
    held.close()
    # Each frame either became part of a message done, was dropped, or went down with its message.
    assert done <= begun and held.dropped <= len(frames) + begun


# --- replay -------------------------------------------------------------------------------------------------------


def accept(window: ReplayWindow, seq: int) -> bool:
    new = window.is_new(seq)
    if new:
        window.note(seq)
    return new


def test_replay_by_hand() -> None:
    window = ReplayWindow()
    assert [accept(window, seq) for seq in (1, 1, 3, 2, 2, 3)] == [True, False, True, True, False, False]
    assert accept(window, 66)  # 3 is 63 behind and was seen, 2 is 64 behind
    assert [accept(window, seq) for seq in (2, 3, 4, 65, 4)] == [False, False, True, True, False]
    assert accept(window, 1000)
    assert [accept(window, seq) for seq in (936, 937, 66)] == [False, True, False]


def test_a_jump_over_all_numbers_costs_nothing() -> None:
    window = ReplayWindow()
    assert accept(window, 2**32 - 1)
    tracemalloc.start()
    try:
        assert not window.is_new(1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1000


def test_asking_leaves_no_trace() -> None:
    window = ReplayWindow()
    assert window.is_new(500) and window.is_new(500) and window.is_new(1)


@given(st.lists(st.integers(-130, 130), max_size=200))
def test_replay_against_a_set(steps: list[int]) -> None:
    window, seen, last = ReplayWindow(), set[int](), 1
    for step in steps:
        seq = max(1, last + step)
        new = seq not in seen and seq > max(seen, default=0) - 64
        assert accept(window, seq) == new
        if new:
            seen.add(seq)
            last = seq
