"""Say which units a message holds: a bitmap or delta-coded numbers, whichever is shorter (SPEC.md 10.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer.spec.constants import Coding
from gossamer.spec.errors import MalformedError

I64 = NDArray[np.int64]


def encode(units: ArrayLike, n_units: int) -> tuple[Coding, bytes]:
    """Encode ascending unit numbers below `n_units`."""
    numbers = np.asarray(units, np.int64)
    delta = _leb128(np.diff(numbers, prepend=-1) - 1)
    if len(delta) < (n_units + 7) // 8:
        return Coding.DELTA, delta
    members = np.zeros(n_units, np.uint8)
    members[numbers] = 1
    return Coding.BITMAP, np.packbits(members, bitorder="little").tobytes()


def decode(coding: int, data: bytes, n_units: int) -> I64:
    """Return the unit numbers; raises MalformedError for what `encode` would not have written with this coding."""
    if coding == Coding.BITMAP:
        if len(data) != (n_units + 7) // 8:
            raise MalformedError(f"a bitmap of {n_units} units takes {(n_units + 7) // 8} bytes, not {len(data)}")
        members = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        if members[n_units:].any():
            raise MalformedError("a spare bit of the bitmap is set")
        return np.nonzero(members)[0]
    if coding != Coding.DELTA:
        raise MalformedError(f"coding {coding} has no index")
    numbers, last, at = [], -1, 0
    while at < len(data):
        gap, shift = 0, 0
        while True:
            if at == len(data) or shift > 28:
                raise MalformedError("a number of the index is cut off or too long")
            byte = data[at]
            at += 1
            gap |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if byte == 0 and shift > 7:
            raise MalformedError("a number of the index is not in its shortest form")
        last += 1 + gap
        if last >= n_units:
            raise MalformedError(f"unit {last} of {n_units}")
        numbers.append(last)
    return np.array(numbers, np.int64)


def index_bytes(members: NDArray[np.bool_]) -> I64:
    """Return the bytes of the index of each column of `members` [U, ...], [...]."""
    n_units = len(members)
    numbers = np.where(members, np.arange(n_units).reshape(-1, *[1] * (members.ndim - 1)), -1)
    previous = np.full_like(numbers, -1)
    previous[1:] = np.maximum.accumulate(numbers, axis=0)[:-1]
    gap = numbers - previous - 1
    length = 1 + sum((gap >= 1 << 7 * k).astype(np.int64) for k in range(1, 5))
    delta: I64 = np.where(members, length, 0).sum(axis=0)
    return np.minimum(delta, (n_units + 7) // 8)


def _leb128(numbers: I64) -> bytes:
    out = bytearray()
    for number in numbers.tolist():
        while number >= 0x80:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)
