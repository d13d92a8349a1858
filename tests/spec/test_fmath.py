"""exp, log, rint and sqrt: error against wider arithmetic, exact values, and the core's bits (SPEC.md 1)."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import cache
from math import isqrt
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from codegen.fit_fmath import constants
from gossamer.native import FIRMWARE, shared_library
from gossamer.spec import fmath
from gossamer.spec.constants import FMATH

EXP_ULP, LOG_ULP = 0.992, 0.840  # the exhaustive scan's 0.9916 and 0.8399, rounded up
GREATEST = float.fromhex("0x1.fffffep+127")

_CDEF = """
void scan_apply(const float *x, float *exp_of, float *log_of, size_t count);
double scan_worst(int is_log, uint32_t first, uint32_t last);
"""


@cache
def core() -> tuple[Any, Any]:
    sources = [Path(__file__).with_name("fmath_scan.c"), FIRMWARE / "core" / "gs_math.c"]
    return shared_library("fmath_scan", sources, _CDEF, ("-O2", "-ffp-contract=off", "-lm"))


def bits(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


def floats(patterns: Any) -> Any:
    return np.asarray(patterns, np.uint32).view(np.float32)


def error_ulps(got: Any, truth: Any) -> Any:
    """Return errors in spacings of floats at the true value, which must be in the range of normal floats."""
    _, exponent = np.frexp(truth)
    return np.abs(got.astype(np.float64) - truth) / np.ldexp(1.0, exponent - 24)


def every_binade(per_binade: int) -> Any:
    """Return positive finite floats: the ends of every binade, subnormals as one, and samples between."""
    rng = np.random.default_rng(1)
    mantissas = rng.integers(0, 1 << 23, (255, per_binade), np.uint32)
    mantissas[:, :4] = [0, 1, (1 << 23) - 2, (1 << 23) - 1]
    mantissas[0, 0] = 1  # not zero
    return floats(np.arange(255, dtype=np.uint32)[:, None] << np.uint32(23) | mantissas)


def test_exp_in_every_binade() -> None:
    x = every_binade(4096).ravel()
    x = np.concatenate([x[x <= 88], -x[x <= 87], np.linspace(-87, 88, 1_000_000, dtype=np.float32)])
    assert error_ulps(fmath.exp(x), np.exp(x.astype(np.float64))).max() <= EXP_ULP


def test_log_in_every_binade() -> None:
    near_one = floats(bits(1.0) + np.arange(-(1 << 18), 1 << 18))
    x = np.concatenate([every_binade(4096).ravel(), near_one, np.linspace(0.5, 2, 1_000_000, dtype=np.float32)])
    x = x[x != 1]
    assert error_ulps(fmath.log(x), np.log(x.astype(np.float64))).max() <= LOG_ULP


@pytest.mark.parametrize("x", ["0x1.2e37c4p+5", "-0x1.4c91d2p+2", "-0x1.5cp+6", "0x1.6p+6", "0x1p-149", "-0x1p-25"])
def test_exp_against_forty_digits(x: str) -> None:
    value = np.float32(float.fromhex(x))
    with mpmath.workdps(40):
        truth = mpmath.exp(float(value))
        ulp = mpmath.mpf(2) ** (mpmath.floor(mpmath.log(truth, 2)) - 23)
        assert abs(float(fmath.exp(value)) - truth) / ulp <= EXP_ULP


@pytest.mark.parametrize("x", ["0x1.69cf3ep+0", "0x1.000002p+0", "0x1.fffffep-1", "0x1p-149", "0x1.fffffep+127"])
def test_log_against_forty_digits(x: str) -> None:
    value = np.float32(float.fromhex(x))
    with mpmath.workdps(40):
        truth = mpmath.log(float(value))
        ulp = mpmath.mpf(2) ** (mpmath.floor(mpmath.log(abs(truth), 2)) - 23)
        assert abs(float(fmath.log(value)) - truth) / ulp <= LOG_ULP


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0.0, 1.0),
        (-0.0, 1.0),
        (float.fromhex("0x1.600002p+6"), np.inf),  # the float after 88
        (np.inf, np.inf),
        (float.fromhex("-0x1.5c0002p+6"), 0.0),  # the float before -87
        (-np.inf, 0.0),
    ],
)
def test_exp_at_the_edges(x: float, expected: float) -> None:
    assert bits(fmath.exp(np.float32(x))) == bits(expected)


@pytest.mark.parametrize(
    ("x", "expected"),
    [(1.0, 0.0), (0.0, -np.inf), (-0.0, -np.inf), (-2.0, -np.inf), (-np.inf, -np.inf), (np.inf, np.inf)],
)
def test_log_at_the_edges(x: float, expected: float) -> None:
    assert bits(fmath.log(np.float32(x))) == bits(expected)


def test_nan_goes_through() -> None:
    assert bits(fmath.exp(floats(0x7FC00123))) == bits(fmath.log(floats(0x7FC00123))) == 0x7FC00123


def test_results_keep_the_shape() -> None:
    x = np.ones((2, 3), np.float32)
    for function in (fmath.exp, fmath.log, fmath.sqrt, fmath.rint):
        assert function(x).shape == (2, 3) and function(x).dtype == function(np.float32(1)).dtype == np.float32


def test_rint_halves_to_even() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.49, -126.5, 4194303.5], np.float32)
    assert fmath.rint(x).tolist() == [0, 2, 2, 0, -2, 2, -126, 4194304]


def test_sqrt_is_correctly_rounded() -> None:
    x = every_binade(8).ravel()
    for value, root in zip(x.tolist(), fmath.sqrt(x).tolist(), strict=True):
        # The root lies between the middles of its float and both neighbours; 2^180 makes all of them whole numbers.
        ulp = Fraction(2) ** (struct.unpack("<I", struct.pack("<f", root))[0] // 2**23 - 150)
        scaled = isqrt(int(Fraction(value) * 2**360))
        assert abs(Fraction(root) * 2**180 - scaled) <= ulp * 2**179 + 1


def test_constants_are_floats_and_the_fits() -> None:
    for text in FMATH.values():
        assert float(np.float32(float.fromhex(text))) == float.fromhex(text)
    assert constants() == FMATH


def test_exponent_times_ln2_hi_is_exact() -> None:
    for k in range(-149, 129):
        product = k * Fraction(float.fromhex(FMATH["LN2_HI"]))
        assert Fraction(float(np.float32(product))) == product


def test_the_core_holds_the_same_bits() -> None:
    ffi, lib = core()
    x = floats(np.arange(0, 1 << 32, 1009, dtype=np.uint64))  # of all floats, NaN and infinities too
    results = [np.empty_like(x) for _ in range(2)]
    pointers = [ffi.cast("float *", array.ctypes.data) for array in (x, *results)]
    lib.scan_apply(*pointers, len(x))
    with np.errstate(invalid="ignore"):  # signalling NaNs
        ours = fmath.exp(x), fmath.log(x)
    for core_result, result in zip(results, ours, strict=True):
        assert np.array_equal(core_result.view(np.uint32), result.view(np.uint32))


@pytest.mark.slow
def test_every_float() -> None:
    _, lib = core()
    scans = [
        (1, 1, bits(1) - 1),
        (1, bits(1) + 1, bits(GREATEST)),
        (0, bits(0.0), bits(88)),
        (0, bits(-0.0), bits(-87)),
    ]
    with ThreadPoolExecutor() as pool:
        worst = list(pool.map(lambda scan: lib.scan_worst(*scan), scans))
    assert max(worst[:2]) <= LOG_ULP and max(worst[2:]) <= EXP_ULP
