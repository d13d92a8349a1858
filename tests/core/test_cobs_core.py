"""COBS against its paper's example, the published corner cases, and any bytes at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core import naive
from tests.core.parts import Parts

UP = bytes(range(1, 255))  # 254 bytes without a zero: a full block

# The IP header of Cheshire and Baker, "Consistent overhead byte stuffing", IEEE/ACM Trans. Networking 7 (1999), and
# the cases around a full block; without the delimiter.
EXAMPLES = [
    ("45 00 00 2c 4c 79 00 00 40 06 4f 37", "02 45 01 04 2c 4c 79 01 05 40 06 4f 37"),
    ("00", "01 01"),
    ("00 00", "01 01 01"),
    ("00 11 00", "01 02 11 01"),
    ("11 22 00 33", "03 11 22 02 33"),
    ("11 22 33 44", "05 11 22 33 44"),
    ("11 00 00 00", "02 11 01 01 01"),
    (UP.hex(), "ff" + UP.hex()),
    ("00" + UP.hex(), "01 ff" + UP.hex()),
    (UP.hex() + "ff", "ff" + UP.hex() + "02 ff"),
    (bytes(range(2, 256)).hex() + "00", "ff" + bytes(range(2, 256)).hex() + "01 01"),
    (bytes(range(3, 256)).hex() + "00 01", "fe" + bytes(range(3, 256)).hex() + "02 01"),
]


def encode(parts: Parts, data: bytes) -> bytes:
    out = parts.room(len(data) + len(data) // 254 + 2)  # GS_COBS_BYTES
    length = parts.lib.gs_cobs_encode(parts.give(data), len(data), out)
    return parts.take(out).tobytes()[:length]


def decode(parts: Parts, stream: bytes, capacity: int) -> tuple[list[bytes], int]:
    """Return the frames found and the count of garbage."""
    cobs, buffer = parts.ffi.new("gs_cobs_t *"), parts.room(capacity)
    frames, lengths = parts.room(len(stream) + 1), parts.room(len(stream) + 1, "uint32_t")
    parts.lib.gs_cobs_init(cobs, buffer, capacity)
    count = parts.lib.parts_cobs(cobs, parts.give(stream), len(stream), frames, lengths)
    data, at, found = parts.take(frames).tobytes(), 0, []
    for length in list(lengths)[:count]:
        found.append(data[at : at + length])
        at += length
    return found, cobs.garbage


def expected_of(stream: bytes, capacity: int) -> tuple[list[bytes], int]:
    runs = [naive.cobs_decode(run) for run in stream.split(b"\0")[:-1] if run]
    frames = [run for run in runs if run is not None and len(run) <= capacity]
    return frames, len(runs) - len(frames)


@pytest.mark.parametrize(("plain", "encoded"), EXAMPLES)
def test_the_published_examples(parts: Parts, plain: str, encoded: str) -> None:
    data, code = bytes.fromhex(plain), bytes.fromhex(encoded)
    assert encode(parts, data) == code + b"\0"
    assert decode(parts, code + b"\0", len(data)) == ([data], 0)


def test_an_empty_run_is_nothing(parts: Parts) -> None:
    assert decode(parts, b"\0\0\0", 8) == ([], 0)


def test_a_frame_follows_any_garbage(parts: Parts) -> None:
    stream = b"boot: ok\r\n\0" + encode(parts, b"\1\0\2") + b"\x09half\0" + encode(parts, b"x") + b"\5cut"
    assert decode(parts, stream, 3) == ([b"\1\0\2", b"x"], 2)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 253, 254, 255, 600])
def test_a_frame_longer_than_the_buffer_is_garbage(parts: Parts, length: int) -> None:
    stream = encode(parts, bytes(255 - i % 255 for i in range(length))) + encode(parts, b"next")
    frames, garbage = decode(parts, stream, 8)
    assert (len(frames), garbage) == (2 if length <= 8 else 1, int(length > 8))
    assert frames[-1] == b"next"


@given(st.binary(max_size=600).map(lambda data: data.replace(b"\1", b"\0")))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_what_is_encoded_comes_back(parts: Parts, data: bytes) -> None:
    code = encode(parts, data)
    assert code.endswith(b"\0")
    assert 0 not in code[:-1]
    assert decode(parts, code, len(data)) == ([data], 0)


@given(
    st.lists(st.sampled_from([0, 0, 1, 2, 3, 4, 9, 254, 255]) | st.integers(0, 255), max_size=300), st.integers(0, 40)
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_stream_is_survived(parts: Parts, stream: list[int], capacity: int) -> None:
    data = bytes(stream)
    assert decode(parts, data, capacity) == expected_of(data, capacity)
