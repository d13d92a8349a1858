"""Indices against a slow reading of SPEC.md 10.1, and any bytes at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core import naive
from tests.core.parts import Parts

BITMAP, DELTA = 1, 2


def encode(parts: Parts, units: list[int], n_units: int) -> tuple[int, bytes]:
    out, coding = parts.room((n_units + 7) // 8), parts.ffi.new("uint8_t *")
    numbers = parts.give(np.array(units, np.uint32), "uint32_t")
    length = parts.lib.gs_index_encode(numbers, len(units), n_units, out, coding)
    return coding[0], parts.take(out).tobytes()[:length]


def decode(parts: Parts, coding: int, data: bytes, n_units: int) -> list[int] | None:
    numbers, ok = parts.room(n_units, "uint32_t"), parts.ffi.new("bool *")
    count = parts.lib.parts_decode(coding, parts.give(data), len(data), n_units, numbers, ok)
    return list(numbers)[:count] if ok[0] else None


def units_of() -> st.SearchStrategy[tuple[list[int], int]]:
    def choose(n_units: int) -> st.SearchStrategy[tuple[list[int], int]]:
        few = st.sets(st.integers(0, n_units - 1), max_size=12)
        dense = st.integers(0, 2**32).map(
            lambda seed: set(np.flatnonzero(np.random.default_rng(seed).random(n_units) < 0.5))
        )
        return (few | dense).map(lambda units: ([int(u) for u in sorted(units)], n_units))

    return (st.integers(1, 40) | st.integers(1, 5000)).flatmap(choose)


@given(units_of())
@settings(max_examples=120, deadline=None, derandomize=True)
def test_the_shorter_coding_is_taken_and_comes_back(parts: Parts, case: tuple[list[int], int]) -> None:
    units, n_units = case
    bitmap, delta = naive.bitmap(units, n_units), naive.delta(units)
    expected = (DELTA, delta) if len(delta) < len(bitmap) else (BITMAP, bitmap)
    assert encode(parts, units, n_units) == expected
    assert decode(parts, *expected, n_units) == units
    assert decode(parts, BITMAP, bitmap, n_units) == units
    assert decode(parts, DELTA, delta, n_units) == units


def test_a_tie_is_a_bitmap(parts: Parts) -> None:
    assert encode(parts, [0, 8], 16) == (BITMAP, b"\x01\x01")
    assert encode(parts, [0, 8], 17) == (DELTA, b"\x00\x07")


@pytest.mark.parametrize(
    ("coding", "data", "n_units"),
    [
        (DELTA, "80 00", 300),  # 0, but not in its shortest form
        (DELTA, "81 80 00", 300),
        (DELTA, "80", 300),  # cut off
        (DELTA, "05 80", 300),
        (DELTA, "ac 02", 300),  # 300 of 300
        (DELTA, "00 00 00", 2),
        (DELTA, "ff ff ff ff 0f", 2**31),
        (DELTA, "ff ff ff ff 7f", 2**31),  # more than 32 bits
        (DELTA, "80 80 80 80 80 01", 2**31),
        (BITMAP, "01", 9),  # too short
        (BITMAP, "01 00 00", 9),  # too long
        (BITMAP, "01 02", 9),  # a spare bit
        (BITMAP, "", 1),
        (0, "", 8),  # codings without an index
        (3, "", 8),
        (4, "00", 8),
    ],
)
def test_what_no_encoder_writes_is_refused(parts: Parts, coding: int, data: str, n_units: int) -> None:
    raw, ok = bytes.fromhex(data), parts.ffi.new("bool *", True)
    parts.lib.parts_decode(coding, parts.give(raw), len(raw), n_units, parts.room(8, "uint32_t"), ok)
    assert not ok[0]


@given(
    st.sampled_from([BITMAP, DELTA]),
    st.lists(st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255), max_size=12),
    st.integers(1, 200),
)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_any_bytes_are_decoded_to_what_encodes_to_them_or_refused(
    parts: Parts, coding: int, data: list[int], n_units: int
) -> None:
    raw = bytes(data)
    units = decode(parts, coding, raw, n_units)
    if units is not None:
        assert units == sorted(set(units))
        assert all(unit < n_units for unit in units)
        assert (naive.bitmap(units, n_units) if coding == BITMAP else naive.delta(units)) == raw
