"""Quantize the values of a message part and pack them without spare bits (SPEC.md 5).

Arrays may have trailing axes (nodes); the first axis runs over the values, in the order of the message.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.spec import fmath
from gossamer.spec.errors import MalformedError

F32 = NDArray[np.float32]
BITS = (32, 16, 8, 4, 2, 1)


def _greatest(bits: int) -> int:
    return (1 << (bits - 1)) - 1


def scale_of(v: F32, bits: int, where: NDArray[np.bool_] | None = None) -> F32:
    """Return the scale of `v` [n, ...] along the first axis, [...]; `where` marks the values that count.

    0 for 32 and 16 bits, which need none, and where nothing counts.
    """
    if bits >= 16 or not len(v):
        return np.zeros(v.shape[1:], np.float32)
    size = np.abs(v) if where is None else np.where(where, np.abs(v), np.float32(0))
    scale: F32
    if bits == 1:
        count = np.full(v.shape[1:], len(v)) if where is None else where.sum(axis=0)
        total = np.add.accumulate(size, axis=0, dtype=np.float32)[-1]  # a value that does not count adds +0
        scale = total / np.maximum(count, 1).astype(np.float32)
    else:
        scale = size.max(axis=0) / np.float32(_greatest(bits))
    return scale


def quantize(v: F32, scale: F32 | np.float32, bits: int) -> NDArray[Any]:
    """Return the fields of `v` [n, ...] as whole numbers: uint32, uint16, int8 (8, 4, 2 bits) or uint8 (1 bit)."""
    v = np.ascontiguousarray(v, np.float32)
    if bits == 32:
        return v.view(np.uint32)
    if bits == 16:
        u = v.view(np.uint32)
        return ((u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    if bits == 1:
        return (v < 0).astype(np.uint8)
    limit = np.float32(_greatest(bits))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        fields = fmath.rint(np.clip(v / scale, -limit, limit))
    return np.where(scale == 0, np.float32(0), fields).astype(np.int8)


def dequantize(fields: NDArray[Any], scale: F32 | np.float32, bits: int) -> F32:
    """Return what a receiver reads, float32 of the shape of `fields`."""
    if bits == 32:
        return fields.view(np.float32)
    if bits == 16:
        return (fields.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if bits == 1:
        return np.where(fields == 1, -scale, scale).astype(np.float32)
    return fields.astype(np.float32) * scale


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes that `count` fields take."""
    return (count * bits + 7) // 8


def pack(fields: NDArray[Any], bits: int) -> bytes:
    """Pack fields [n]; element i starts at bit i * bits, low bits first."""
    if bits >= 8:
        return fields.astype(f"<i{bits // 8}" if fields.dtype.kind == "i" else f"<u{bits // 8}").tobytes()
    places = (fields.astype(np.uint8)[:, None] >> np.arange(bits, dtype=np.uint8)) & np.uint8(1)
    return np.packbits(places.ravel(), bitorder="little").tobytes()


def unpack(data: bytes, count: int, bits: int) -> NDArray[Any]:
    """Return the fields [count] of packed bytes, as `quantize` gives them.

    Raises MalformedError where the length, a spare bit or a field (-2^(bits-1)) is not what `pack` writes.
    """
    if len(data) != packed_bytes(count, bits):
        raise MalformedError(f"{count} values of {bits} bits take {packed_bytes(count, bits)} bytes, not {len(data)}")
    if bits >= 8:
        dtype = {32: "<u4", 16: "<u2", 8: "<i1"}[bits]
        fields: NDArray[Any] = np.frombuffer(data, dtype).astype(dtype[1:])
    else:
        flat = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        if flat[count * bits :].any():
            raise MalformedError("a spare bit after the last value is set")
        places = flat[: count * bits].reshape(count, bits) << np.arange(bits, dtype=np.uint8)
        raw, sign = places.sum(axis=1, dtype=np.int16), np.int16(1 << (bits - 1))
        fields = raw.astype(np.uint8) if bits == 1 else ((raw ^ sign) - sign).astype(np.int8)
    if bits in (8, 4, 2) and (fields < -_greatest(bits)).any():
        raise MalformedError("a value is below the least of its range")
    return fields
