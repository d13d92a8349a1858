"""Bitmaps and delta codes against bytes written by hand (SPEC.md 10.1)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.spec import indexing
from gossamer.spec.constants import Coding
from gossamer.spec.errors import MalformedError


@st.composite
def selections(draw: st.DrawFn) -> tuple[list[int], int]:
    n_units = draw(st.integers(1, 40_000))
    return sorted(draw(st.sets(st.integers(0, n_units - 1), max_size=60))), n_units


@pytest.mark.parametrize(
    ("units", "n_units", "coding", "data"),
    [
        ([0], 9, Coding.DELTA, "00"),
        ([0, 8], 9, Coding.BITMAP, "0101"),  # as long as the delta code: the bitmap
        ([1, 3, 8], 17, Coding.BITMAP, "0a0100"),  # deltas 1, 1, 4: as long
        ([1, 3], 17, Coding.DELTA, "0101"),
        ([7], 8, Coding.BITMAP, "80"),
        ([127, 128], 100_000, Coding.DELTA, "7f00"),
        ([128], 100_000, Coding.DELTA, "8001"),
        ([0, 301, 20_000], 100_000, Coding.DELTA, "00ac02f29901"),  # 300, 19698 = 0x4CF2
        ([16_384], 100_000, Coding.DELTA, "808001"),
    ],
)
def test_by_hand(units: list[int], n_units: int, coding: Coding, data: str) -> None:
    assert indexing.encode(units, n_units) == (coding, bytes.fromhex(data))
    assert indexing.decode(coding, bytes.fromhex(data), n_units).tolist() == units


@given(selections())
def test_round_trip_in_the_shorter_code(selection: tuple[list[int], int]) -> None:
    units, n_units = selection
    coding, data = indexing.encode(units, n_units)
    assert indexing.decode(coding, data, n_units).tolist() == units
    gaps = [b - a - 1 for a, b in zip([-1, *units], units, strict=False)]
    delta_bytes = sum(max(1, -(-gap.bit_length() // 7)) for gap in gaps)
    bitmap_bytes = -(-n_units // 8)
    assert len(data) == min(delta_bytes, bitmap_bytes)
    assert coding == (Coding.DELTA if delta_bytes < bitmap_bytes else Coding.BITMAP)
    members = np.zeros(n_units, np.bool_)
    members[units] = True
    assert indexing.index_bytes(members) == len(data)


def test_index_bytes_of_columns() -> None:
    members = np.random.default_rng(0).random((2410, 2, 3)) < [[0.5, 0.02, 0.003], [0.0005, 0.9, 0.1]]
    for row, column in np.ndindex(2, 3):
        _, data = indexing.encode(np.nonzero(members[:, row, column])[0], 2410)
        assert indexing.index_bytes(members)[row, column] == len(data)


@pytest.mark.parametrize(
    ("coding", "data", "n_units", "reason"),
    [
        (Coding.BITMAP, "01", 9, "takes 2 bytes, not 1"),
        (Coding.BITMAP, "0102", 9, "spare bit"),
        (Coding.DELTA, "80", 9, "cut off"),
        (Coding.DELTA, "8000", 9, "shortest form"),
        (Coding.DELTA, "09", 9, "unit 9 of 9"),
        (Coding.DELTA, "0800", 9, "unit 9 of 9"),
        (Coding.DELTA, "ffffffffff01", 9, "too long"),
        (Coding.RANGE, "", 9, "has no index"),
        (Coding.MASK, "", 9, "has no index"),
        (7, "00", 9, "has no index"),
    ],
)
def test_malformed(coding: int, data: str, n_units: int, reason: str) -> None:
    with pytest.raises(MalformedError, match=reason):
        indexing.decode(coding, bytes.fromhex(data), n_units)


@given(st.sampled_from([Coding.BITMAP, Coding.DELTA]), st.binary(max_size=20), st.integers(1, 170))
def test_decode_survives_garbage(coding: Coding, data: bytes, n_units: int) -> None:
    try:
        units = indexing.decode(coding, data, n_units).tolist()
    except MalformedError:
        return
    assert units == sorted(set(units)) and all(0 <= unit < n_units for unit in units)
    chosen, shorter = indexing.encode(units, n_units)
    assert len(shorter) <= len(data)
    assert chosen != coding or shorter == data
