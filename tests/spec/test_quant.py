"""Quantization against values worked out by hand and exact fractions (SPEC.md 5)."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.spec import quant
from gossamer.spec.errors import MalformedError

WEIGHTS = st.lists(st.floats(-1000, 1000, width=32), min_size=1, max_size=40)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("bits", "values", "scale", "fields", "packed"),
    [
        (32, [1.0, -2.0], 0.0, [0x3F800000, 0xC0000000], "0000803f000000c0"),
        # 0x3F808000 lies halfway between 0x3F80 and 0x3F81, 0x3F818000 between 0x3F81 and 0x3F82: to even.
        (16, [1.00390625, 1.01171875, -1.0], 0.0, [0x3F80, 0x3F82, 0xBF80], "803f823f80bf"),
        (8, [127.0, -127.0, 0.5, 1.5, -2.5], 1.0, [127, -127, 0, 2, -2], "7f810002fe"),
        (4, [3.5, -3.5, 0.5, 0.75], 0.5, [7, -7, 1, 2], "9721"),  # 0.75 / 0.5 is 1.5: to even
        (4, [7.0], 1.0, [7], "07"),
        (2, [2.0, -2.0, 0.5, -1.5, 1.5], 2.0, [1, -1, 0, -1, 1], "cd01"),
        (1, [1.0, -2.0, 0.0, -5.0], 2.0, [0, 1, 0, 1], "0a"),
        (1, [1.0] * 8 + [-1.0], 1.0, [0] * 8 + [1], "0001"),
        (8, [0.0, -0.0], 0.0, [0, 0], "0000"),
    ],
)
def test_by_hand(bits: int, values: list[float], scale: float, fields: list[int], packed: str) -> None:
    v = f32(*values)
    assert quant.scale_of(v, bits) == scale
    found = quant.quantize(v, quant.scale_of(v, bits), bits)
    assert found.tolist() == fields
    assert quant.pack(found, bits) == bytes.fromhex(packed)
    assert quant.packed_bytes(len(values), bits) == len(bytes.fromhex(packed))


def test_values_that_a_receiver_sees() -> None:
    assert quant.dequantize(np.array([0xC000, 0x3F82], np.uint16), f32(0)[0], 16).tolist() == [-2, 1.015625]
    assert quant.dequantize(np.array([-7, 0, 3], np.int8), np.float32(0.5), 4).tolist() == [-3.5, 0, 1.5]
    assert quant.dequantize(np.array([0, 1], np.uint8), np.float32(0.5), 1).tolist() == [0.5, -0.5]


def test_one_bit_scale_is_summed_in_order() -> None:
    # 1 is lost beside 2^24, but not before it: the order of the sum shows.
    assert quant.scale_of(f32(2**24, -1, 1), 1) == np.float32(2**24) / np.float32(3)
    assert quant.scale_of(f32(-1, 1, 2**24), 1) == np.float32(2**24 + 2) / np.float32(3)


def test_subnormal_scales() -> None:
    tiny = float.fromhex("0x1p-149")
    # 63 / 127 of the least float rounds to 0: everything is 0. 64 / 127 rounds to 1, 190 / 127 too: clamped.
    for count, scale, field in ((63, 0.0, 0), (64, tiny, 64), (190, tiny, 127)):
        v = f32(count * tiny)
        assert quant.scale_of(v, 8) == scale
        assert quant.quantize(v, quant.scale_of(v, 8), 8).tolist() == [field]


@pytest.mark.parametrize("bits", quant.BITS)
def test_columns_and_masks_are_parts(bits: int) -> None:
    v = np.random.default_rng(bits).normal(size=(30, 4)).astype(np.float32)
    where = np.random.default_rng(bits).random((30, 4)) < 0.5
    where[:, 3] = False
    scale = quant.scale_of(v, bits, where)
    fields = quant.quantize(v, scale, bits)
    seen = quant.dequantize(fields, scale, bits)
    assert scale[3] == 0
    for n in range(3):
        part = v[where[:, n], n]
        assert quant.scale_of(part, bits) == scale[n]
        alone = quant.quantize(part, scale[n], bits)
        assert np.array_equal(alone, fields[where[:, n], n])
        assert np.array_equal(quant.dequantize(alone, scale[n], bits), seen[where[:, n], n])


@given(WEIGHTS, st.sampled_from([8, 4, 2]))
def test_steps_are_the_nearest(values: list[float], bits: int) -> None:
    v = f32(*values)
    qmax = 2 ** (bits - 1) - 1
    greatest = max(abs(Fraction(float(x))) for x in v)
    scale = quant.scale_of(v, bits)
    assert abs(Fraction(float(scale)) - greatest / qmax) <= greatest / qmax / 2**24 + Fraction(1, 2**150)
    if scale < np.float32(2.0**-126):  # a subnormal scale has few digits: test_subnormal_scales
        return
    seen = quant.dequantize(quant.quantize(v, scale, bits), scale, bits)
    for x, y in zip(v.tolist(), seen.tolist(), strict=True):
        # Half a step, and what the roundings of v / scale and q * scale add.
        slack = greatest / 2**22
        assert abs(Fraction(x) - Fraction(y)) <= Fraction(float(scale)) / 2 + slack


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40))
def test_bfloat16_is_the_nearest(values: list[float]) -> None:
    v = f32(*values)
    fields = quant.quantize(v, f32(0)[0], 16)
    for x, field in zip(v.tolist(), fields.tolist(), strict=True):
        upper = struct.unpack("<I", struct.pack("<f", x))[0] >> 16
        below, above = (_bfloat16(upper), _bfloat16(upper + 1))  # in size, whatever the sign
        middle = (below + above) / 2
        x_exact = Fraction(x)
        if abs(x_exact) == abs(middle):
            assert field == upper + upper % 2
        else:
            assert field == upper + (abs(x_exact) > abs(middle))


def _bfloat16(field: int) -> Fraction:
    sign, exponent, mantissa = field >> 15, field >> 7 & 0xFF, field & 0x7F
    size = Fraction(mantissa, 128) if exponent == 0 else 1 + Fraction(mantissa, 128)
    return (-1) ** sign * size * Fraction(2) ** (max(exponent, 1) - 127)


@given(WEIGHTS, st.sampled_from(quant.BITS))
def test_packing_round_trips(values: list[float], bits: int) -> None:
    v = f32(*values)
    fields = quant.quantize(v, quant.scale_of(v, bits), bits)
    data = quant.pack(fields, bits)
    assert len(data) == -(-len(values) * bits // 8)
    back = quant.unpack(data, len(values), bits)
    assert back.dtype == fields.dtype and np.array_equal(back, fields)


@given(st.binary(max_size=12), st.integers(0, 40), st.sampled_from(quant.BITS))
def test_unpack_takes_only_what_pack_writes(data: bytes, count: int, bits: int) -> None:
    try:
        fields = quant.unpack(data, count, bits)
    except MalformedError:
        return
    assert quant.pack(fields, bits) == data


@pytest.mark.parametrize(
    ("data", "count", "bits", "reason"),
    [
        ("00", 2, 8, "2 values of 8 bits take 2 bytes, not 1"),
        ("0000", 3, 4, None),
        ("0010", 3, 4, "spare bit"),
        ("02", 1, 1, "spare bit"),
        ("80", 1, 8, "below the least"),
        ("08", 1, 4, "below the least"),
        ("02", 1, 2, "below the least"),
    ],
)
def test_malformed(data: str, count: int, bits: int, reason: str | None) -> None:
    if reason is None:
        assert quant.unpack(bytes.fromhex(data), count, bits).tolist() == [0] * count
        return
    with pytest.raises(MalformedError, match=reason):
        quant.unpack(bytes.fromhex(data), count, bits)
