"""Compute exp, log, square root and rounding on binary32, elementwise and the same everywhere (SPEC.md 1).

Every function takes and returns float32 arrays or scalars.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gossamer.spec.constants import FMATH

_C = {name: np.float32(float.fromhex(text)) for name, text in FMATH.items()}
_ONE, _TWO, _HALF = np.float32(1), np.float32(2), np.float32(0.5)
_ROUNDER = np.float32(12582912)  # 1.5 * 2^23: adding it leaves no bits below the units


def rint(x: Any) -> Any:
    """Round to the nearest whole number, halves to even; |x| < 2^22."""
    return (x + _ROUNDER) - _ROUNDER


def sqrt(x: Any) -> Any:
    """Return the correctly rounded square root."""
    return np.sqrt(x, dtype=np.float32)


def exp(x: Any) -> Any:
    """Return e^x: +0 below -87, +inf above 88 (SPEC.md 1.5 states the error)."""
    x = np.asarray(x, np.float32)
    inside = np.where((x >= -87) & (x <= 88), x, np.float32(0))
    k = rint(inside * _C["LOG2E"])
    r = (inside - k * _C["LN2_HI"]) - k * _C["LN2_LO"]
    p = (((_C["E6"] * r + _C["E5"]) * r + _C["E4"]) * r + _C["E3"]) * r + _C["E2"]
    y = ((p * r) * r + r) + _ONE
    power = ((k.astype(np.int32) + np.int32(127)) << np.int32(23)).view(np.float32)
    result = np.where(x > 88, np.float32(np.inf), np.where(x < -87, np.float32(0), y * power))
    return np.where(np.isnan(x), x, result)[()]


def log(x: Any) -> Any:
    """Return the natural logarithm: -inf for x <= 0 (SPEC.md 1.6 states the error)."""
    x = np.asarray(x, np.float32)
    usable = (x > 0) & np.isfinite(x)
    subnormal = x < np.float32(2.0**-126)
    scaled = np.where(usable, x, _ONE) * np.where(subnormal & usable, np.float32(2.0**23), _ONE)
    bits = scaled.view(np.int32)
    # Taking SQRT_HALF's bits off first makes the exponent step at SQRT_HALF instead of at 1.
    exponent = (bits - _C["SQRT_HALF"].view(np.int32)) >> np.int32(23)
    m = (bits - (exponent << np.int32(23))).view(np.float32)
    e = (exponent - np.where(subnormal & usable, np.int32(23), np.int32(0))).astype(np.float32)
    f = m - _ONE
    s = f / (_TWO + f)
    z = s * s
    q = z * (_C["L1"] + z * (_C["L2"] + z * (_C["L3"] + z * _C["L4"])))
    h = (_HALF * f) * f
    result = e * _C["LN2_HI"] - ((h - (s * (h + q) + e * _C["LN2_LO"])) - f)
    return np.where(usable, result, np.where(x <= 0, np.float32(-np.inf), x))[()]
