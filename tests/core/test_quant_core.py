"""Quantization against a slow reading of SPEC.md 5."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core import naive
from tests.core.parts import F32, Parts

BITS = (32, 16, 8, 4, 2, 1)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100)


def quantize(parts: Parts, v: F32, bits: int) -> tuple[bytes, np.float32]:
    packed = parts.room((len(v) * bits + 7) // 8)
    assert parts.lib.parts_quant_bytes(len(v), bits) == len(packed)
    scale = parts.lib.parts_quantize(parts.give(v, "float"), len(v), bits, packed)
    return parts.take(packed).tobytes(), np.float32(scale)


def dequantize(parts: Parts, data: bytes, n: int, scale: np.float32, bits: int) -> F32:
    v = parts.room(n, "float")
    parts.lib.parts_dequantize(parts.give(data), n, scale, bits, v)
    return parts.take(v, "f4")


@given(st.lists(FLOATS, min_size=1, max_size=40), st.sampled_from(BITS))
@settings(max_examples=200, deadline=None, derandomize=True)
@pytest.mark.filterwarnings("ignore:underflow:RuntimeWarning")
def test_fields_and_scale_are_the_specifications(parts: Parts, values: list[float], bits: int) -> None:
    v = np.array(values, np.float32)
    fields, scale = naive.fields_of(list(v), bits)
    packed, found = quantize(parts, v, bits)
    assert found.view(np.uint32) == scale.view(np.uint32)
    assert packed == naive.pack(fields, bits)
    assert parts.lib.gs_quant_is_valid(parts.give(packed), len(v), bits)


@pytest.mark.parametrize("bits", BITS)
def test_a_receiver_reads_what_the_specification_says(parts: Parts, bits: int) -> None:
    random = np.random.default_rng(bits)
    v = random.normal(size=37).astype(np.float32)
    packed, scale = quantize(parts, v, bits)
    read = dequantize(parts, packed, len(v), scale, bits)
    fields, _ = naive.fields_of(list(v), bits)
    if bits == 32:
        expected = v
    elif bits == 16:
        expected = (np.array(fields, np.uint32) << np.uint32(16)).view(np.float32)
        assert np.abs(read / v - 1).max() <= 2.0**-8
    elif bits == 1:
        expected = np.where(v < 0, -scale, scale)
    else:
        signed = np.array([field - (field >> (bits - 1) << bits) for field in fields])
        expected = signed.astype(np.float32) * scale
        assert np.abs(read - v).max() <= scale * np.float32(0.5001)
    np.testing.assert_array_equal(read, expected)


@pytest.mark.parametrize(("bits", "expected"), [(8, "7f810040"), (4, "9740"), (2, "0d"), (1, "02")])
def test_fields_fill_bytes_from_the_low_bits(parts: Parts, bits: int, expected: str) -> None:
    """Worked by hand: scale 1, so q = qmax, -qmax, 0, and half of qmax (63.5, 3.5, 0.5) rounded to even."""
    qmax = max(1, 2 ** (bits - 1) - 1)
    packed, _ = quantize(parts, np.array([qmax, -qmax, 0, qmax / 2], np.float32), bits)
    assert packed.hex() == expected


@pytest.mark.parametrize("bits", BITS)
def test_zeros_stay_zeros(parts: Parts, bits: int) -> None:
    packed, scale = quantize(parts, np.zeros(9, np.float32), bits)
    assert (set(packed), scale) == ({0}, 0)
    assert not dequantize(parts, packed, 9, scale, bits).any()


@pytest.mark.parametrize("bits", BITS)
def test_what_is_not_finite_does_no_harm(parts: Parts, bits: int) -> None:
    quantize(parts, np.array([np.inf, -np.inf, np.nan, 1], np.float32), bits)


@pytest.mark.parametrize(
    ("data", "count", "bits", "valid"),
    [
        ("01", 1, 1, True),
        ("02", 1, 1, False),  # a spare bit
        ("ff00", 9, 1, True),
        ("ff02", 9, 1, False),
        ("1d", 3, 2, True),
        ("40", 3, 2, False),
        ("02", 1, 2, False),  # -2: below the least
        ("08", 1, 4, False),
        ("0f", 1, 4, True),
        ("80", 1, 8, False),
        ("81", 1, 8, True),
        ("ffff", 1, 16, True),
        ("", 0, 4, True),
    ],
)
def test_fields_that_no_encoder_writes_are_seen(parts: Parts, data: str, count: int, bits: int, valid: bool) -> None:
    assert parts.lib.gs_quant_is_valid(parts.give(bytes.fromhex(data)), count, bits) == valid
