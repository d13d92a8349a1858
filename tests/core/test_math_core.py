"""exp, log, square root and rounding: exact where they must be, below one unit in the last place elsewhere."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.core import naive
from tests.core.parts import F32, Parts

NAN, INF = np.float32(np.nan), np.float32(np.inf)


def every_binade(each: int, seed: int) -> F32:
    """Return `each` floats of every exponent, subnormals too, and the ends of every binade."""
    random = np.random.default_rng(seed)
    mantissas = random.integers(0, 1 << 23, (255, each), np.uint32)
    mantissas[:, :3] = [0, 1, (1 << 23) - 1]
    return (np.arange(255, dtype=np.uint32)[:, None] << np.uint32(23) | mantissas).ravel().view(np.float32)


def bits(x: F32) -> NDArray[np.uint32]:
    return x.view(np.uint32)


def ulps(result: F32, exact: NDArray[np.float64]) -> float:
    """Return the greatest error in units of the last place of the exact value."""
    _, exponent = np.frexp(exact)
    return float(np.max(np.abs(result.astype(np.float64) - exact) / np.ldexp(1.0, np.maximum(exponent, -125) - 24)))


def test_sqrt_is_correctly_rounded(parts: Parts) -> None:
    x = every_binade(400, 1)
    # float64 has more than twice binary32's digits, so rounding its root once more rounds correctly.
    expected = np.sqrt(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(bits(parts.map("sqrt", x)), bits(expected))
    whole = np.arange(4096, dtype=np.float32)
    np.testing.assert_array_equal(parts.map("sqrt", whole * whole), whole)


def test_sqrt_of_what_has_none(parts: Parts) -> None:
    result = parts.map("sqrt", np.array([-0.0, INF, NAN, -1, -1e-45, -INF], np.float32))
    assert bits(result)[0] == 0x80000000
    assert result[1] == INF
    assert np.isnan(result[2:]).all()


def test_exp_is_within_one_ulp(parts: Parts) -> None:
    x = np.concatenate([np.linspace(-87, 88, 20001, dtype=np.float32), every_binade(20, 2), -every_binade(20, 3)])
    x = x[(x >= -87) & (x <= 88)]
    assert ulps(parts.map("exp", x), np.exp(x.astype(np.float64))) < 1
    for value in x[:: len(x) // 50]:  # float64's exp, in turn, against mpmath
        assert np.exp(np.float64(value)) == pytest.approx(float(mpmath.exp(mpmath.mpf(float(value)))), rel=1e-14)


def test_log_is_within_one_ulp(parts: Parts) -> None:
    x = np.concatenate([every_binade(100, 4)[1:], np.linspace(0.5, 2, 20001, dtype=np.float32)])
    x = x[x > 0]
    assert ulps(parts.map("log", x), np.log(x.astype(np.float64))) < 1
    for value in x[:: len(x) // 50]:
        assert np.log(np.float64(value)) == pytest.approx(float(mpmath.log(mpmath.mpf(float(value)))), rel=1e-14)


def test_exp_and_log_at_the_ends(parts: Parts) -> None:
    above, below = np.nextafter(np.float32(88), INF), np.nextafter(np.float32(-87), -INF)
    result = parts.map("exp", np.array([0, -0.0, above, INF, below, -INF, NAN], np.float32))
    np.testing.assert_array_equal(result, np.array([1, 1, INF, INF, 0, 0, NAN], np.float32))
    result = parts.map("log", np.array([1, 0, -0.0, -1, -INF, INF, NAN], np.float32))
    np.testing.assert_array_equal(result, np.array([0, -INF, -INF, -INF, -INF, INF, NAN], np.float32))


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("name", ["exp", "log"])
def test_exp_and_log_are_the_specification_to_the_bit(parts: Parts, name: str) -> None:
    x = every_binade(4, 5)
    x = np.concatenate([x, -x, np.linspace(-90, 90, 500, dtype=np.float32)])
    expected = np.array([getattr(naive, name)(value) for value in x], np.float32)
    np.testing.assert_array_equal(bits(parts.map(name, x)), bits(expected))


def test_rint_takes_halves_to_even(parts: Parts) -> None:
    x = np.concatenate(
        [np.arange(-600, 600, dtype=np.float32) / np.float32(4), np.array([0.49999997, 4194303], np.float32)]
    )
    np.testing.assert_array_equal(parts.map("rint", x), np.rint(x))


def test_abs_and_finite(parts: Parts) -> None:
    x = np.array([-0.0, -1e-45, -INF, 3, NAN], np.float32)
    assert bits(parts.map("abs", x)).tolist() == [0, 1, 0x7F800000, 0x40400000, 0x7FC00000]
    assert parts.map("is_finite", x).tolist() == [1, 1, 0, 1, 0]
