"""Fit the polynomials of exp and log (SPEC.md 1.5, 1.6) and print the constants of `gossamer/spec/constants.py`.

Minimax fits by the Remez exchange in 40 digits, rounded to binary32. The fits are good to 0.06 ulp (exp) and 0.001 ulp
(log): what error the functions have is the rounding of their operations, which no other choice of digits takes away.

Run: python -m codegen.fit_fmath (a second or two; needs mpmath)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np

_GRID = 600  # intervals between the points among which an exchange looks for extrema
_EXCHANGES = 12
Real = Any  # mpmath has no types
Function = Callable[[Real], Real]


def constants() -> dict[str, str]:
    """Return the constants by name, as hexadecimal floats that binary32 holds exactly."""
    with mpmath.workdps(40):
        ln2 = mpmath.log(2)
        # 13 bits: times an exponent of 8 bits the product is exact, and so is its difference to a close x.
        ln2_hi = mpmath.floor(ln2 * 2**13) / 2**13
        sqrt_half = mpmath.sqrt(0.5)
        values = {"LOG2E": 1 / ln2, "LN2_HI": ln2_hi, "LN2_LO": ln2 - ln2_hi}
        values |= {f"E{k + 2}": c for k, c in enumerate(_fit_exp())}
        values["SQRT_HALF"] = sqrt_half
        values |= {f"L{k + 1}": c for k, c in enumerate(_fit_log())}
        return {name: _hex(value) for name, value in values.items()}


def _fit_exp() -> Sequence[Real]:
    """Fit P in e^r = 1 + r + r^2 P(r) for |r| <= ln(2) / 2 (and a little, as k is rounded); relative error."""
    edge = mpmath.mpf("0.34658")

    def target(r: Real) -> Real:
        return (mpmath.exp(r) - 1 - r) / r**2 if abs(r) > mpmath.mpf("1e-10") else mpmath.mpf("0.5")

    def importance(r: Real) -> Real:
        return r * r / mpmath.exp(r) if abs(r) > mpmath.mpf("1e-6") else mpmath.mpf("1e-12")

    return _minimax(target, importance, 4, -edge, edge)


def _fit_log() -> Sequence[Real]:
    """Fit L in log((1 + s) / (1 - s)) = 2s + s z L(z), z = s^2, up to the s of sqrt(2); error relative to s."""
    s_max = (mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1)
    tiny = mpmath.mpf("1e-9")

    def target(z: Real) -> Real:
        if z < mpmath.mpf("1e-12"):
            return mpmath.mpf(2) / 3
        s = mpmath.sqrt(z)
        return (2 * mpmath.atanh(s) - 2 * s) / (s * z)

    return _minimax(target, lambda z: max(z, tiny), 3, mpmath.mpf(0), s_max**2)


def _minimax(target: Function, importance: Function, degree: int, a: Real, b: Real) -> Sequence[Real]:
    """Return the coefficients, lowest first, of the polynomial whose greatest weighted error on [a, b] is least."""
    count = degree + 2
    points = [(a + b) / 2 - (b - a) / 2 * mpmath.cos(mpmath.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    grid = [a + (b - a) * i / _GRID for i in range(_GRID + 1)]
    wanted = [target(x) for x in grid]
    weights = [importance(x) for x in grid]
    coefficients: list[Real] = []
    for _ in range(_EXCHANGES):
        coefficients = _alternating(target, importance, degree, points)
        errors = [
            (want - sum(c * x**k for k, c in enumerate(coefficients))) * weight
            for x, want, weight in zip(grid, wanted, weights, strict=True)
        ]
        extrema = _extrema(errors)
        if len(extrema) < count:
            break
        if len(extrema) > count and abs(errors[extrema[0]]) > abs(errors[extrema[-1]]):
            extrema = extrema[:count]
        points = [grid[i] for i in extrema[-count:]]
    return coefficients


def _alternating(target: Function, importance: Function, degree: int, points: Sequence[Real]) -> list[Real]:
    """Solve for the polynomial whose weighted error has one size and alternating signs at the points."""
    rows = [
        [*(x**k for k in range(degree + 1)), (-1) ** i / importance(x)]
        for i, x in enumerate(points)
    ]  # fmt: skip
    solution = mpmath.lu_solve(mpmath.matrix(rows), mpmath.matrix([target(x) for x in points]))
    return list(solution)[: degree + 1]


def _extrema(errors: Sequence[Real]) -> list[int]:
    """Return where the error is extreme, the greatest of each run of one sign."""
    found: list[int] = []
    for i, error in enumerate(errors):
        if any(abs(error) < abs(near) for near in errors[max(i - 1, 0) : i + 2]):
            continue
        if found and mpmath.sign(error) == mpmath.sign(errors[found[-1]]):
            if abs(error) > abs(errors[found[-1]]):
                found[-1] = i
        else:
            found.append(i)
    return found


def _hex(value: Real) -> str:
    mantissa, exponent = float(np.float32(float(value))).hex().split("p")
    return f"{mantissa[:-7]}p{exponent}"  # binary32 fills six of the thirteen digits


def main() -> int:
    """Print the constants."""
    for name, text in constants().items():
        print(f'    "{name}": "{text}",')
    return 0


if __name__ == "__main__":
    sys.exit(main())
