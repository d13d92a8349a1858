"""SPEC.md read word by word, one binary32 number at a time: slow, and nothing like the core or gossamer.spec."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

F = np.float32
F32 = NDArray[np.float32]

# Section 1.7, by hand from its table.
LOG2E, LN2_HI, LN2_LO = (F(float.fromhex(t)) for t in ("0x1.715476p+0", "0x1.62e000p-1", "0x1.0bfbe8p-15"))
E2, E3, E4, E5, E6 = (
    F(float.fromhex(t)) for t in ("0x1.fffffcp-2", "0x1.555492p-3", "0x1.5558f2p-5", "0x1.1239d6p-7", "0x1.6a2440p-10")
)
SQRT_HALF = F(float.fromhex("0x1.6a09e6p-1"))
L1, L2, L3, L4 = (F(float.fromhex(t)) for t in ("0x1.555554p-1", "0x1.999a7ap-2", "0x1.2438d8p-2", "0x1.e2f65ep-3"))


def exp(x: np.float32) -> np.float32:
    """Section 1.5."""
    if np.isnan(x):
        return x
    if x > 88:
        return F(np.inf)
    if x < -87:
        return F(0)
    k = F(np.rint(np.float64(x * LOG2E)))  # exact in float64, halves to even
    r = (x - k * LN2_HI) - k * LN2_LO
    p = (((E6 * r + E5) * r + E4) * r + E3) * r + E2
    y = ((p * r) * r + r) + F(1)
    return y * F(2.0 ** int(k))


def log(x: np.float32) -> np.float32:
    """Section 1.6."""
    if x <= 0:
        return F(-np.inf)
    if not np.isfinite(x):
        return x
    mantissa, exponent = np.frexp(np.float64(x))  # exact; mantissa in [0.5, 1)
    if F(mantissa) < SQRT_HALF:
        mantissa, exponent = mantissa * 2, exponent - 1
    e, f = F(exponent), F(mantissa) - F(1)
    s = f / (F(2) + f)
    z = s * s
    q = z * (L1 + z * (L2 + z * (L3 + z * L4)))
    h = (F(0.5) * f) * f
    return e * LN2_HI - ((h - (s * (h + q) + e * LN2_LO)) - f)


def add(start: np.float32, terms: Iterable[np.float32]) -> np.float32:
    """Section 1.2: a sum in order."""
    for term in terms:
        start = start + term
    return start


def cobs_decode(run: bytes) -> bytes | None:
    """Decode the bytes between two delimiters; None: not COBS."""
    out, at = bytearray(), 0
    while at < len(run):
        code = run[at]
        block = run[at + 1 : at + code]
        if len(block) != code - 1:
            return None
        out += block
        at += code
        if code < 255 and at < len(run):
            out.append(0)
    return bytes(out)


def fields_of(v: Sequence[np.float32], bits: int) -> tuple[list[int], np.float32]:
    """Section 5: the fields as unsigned numbers, and the scale."""
    if bits in (32, 16):
        raw = [int(F(x).view(np.uint32)) for x in v]
        return (raw if bits == 32 else [(u + 0x7FFF + (u >> 16 & 1)) >> 16 & 0xFFFF for u in raw]), F(0)
    if bits == 1:
        return [int(x < 0) for x in v], add(F(0), (F(abs(x)) for x in v)) / F(len(v))
    qmax = 2 ** (bits - 1) - 1
    scale = max(F(abs(x)) for x in v) / F(qmax)
    q = [0 if scale == 0 else int(np.rint(np.clip(np.float64(x / scale), -qmax, qmax))) for x in v]
    return [n % 2**bits for n in q], scale


def pack(fields: Sequence[int], bits: int) -> bytes:
    """Section 5: one long number, the first field at its low end."""
    number = sum(field << i * bits for i, field in enumerate(fields))
    return number.to_bytes((len(fields) * bits + 7) // 8, "little")


def bitmap(units: Iterable[int], n_units: int) -> bytes:
    """Section 10.1, coding 1."""
    return sum(1 << u for u in units).to_bytes((n_units + 7) // 8, "little")


def delta(units: Iterable[int]) -> bytes:
    """Section 10.1, coding 2."""
    out, previous = bytearray(), -1
    for unit in units:
        digits, gap = [], unit - previous - 1
        while gap:
            digits.append(gap % 128)
            gap //= 128
        digits = digits or [0]
        out += bytes([d | 128 for d in digits[:-1]] + digits[-1:])
        previous = unit
    return bytes(out)
