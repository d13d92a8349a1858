"""Compute exp, tanh and the logistic function in 32-bit fixed point, to the bit as TensorFlow Lite Micro does.

Numbers are integers; `Qm` means units of 2^(m - 31), so that m bits stand before the binary point.

Source: the scheme is gemmlowp's fixedpoint.h: a Taylor polynomial about -1/8 with a barrel shifter over the constants
exp(-2^k), and Newton's division.
"""

from __future__ import annotations

from typing import Final

from codegen.fixedpoint import high_mul, round_shift

ONE: Final = (1 << 31) - 1  # in Q0, as near as can be
_LEAST: Final = -(1 << 31)

_EXP_OF_MINUS_EIGHTH: Final = 1895147668
_THIRD: Final = 715827883
_EXP_OF_MINUS_POWERS: Final = (  # (k, exp(-2^k)) in Q0
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)


def exp(x: int, integer_bits: int) -> int:
    """Raise e to a power x <= 0 in Q`integer_bits`, of which there are at most 5; the result is in Q0."""
    if x == 0:
        return ONE
    fraction_bits = 31 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    part = (x & (quarter - 1)) - quarter  # in [-1/4, 0)
    result = _exp_above_minus_quarter(part << integer_bits)
    rest = part - x  # the quarters that are left
    for power, factor in _EXP_OF_MINUS_POWERS:
        if integer_bits > power and rest & (1 << (fraction_bits + power)):
            result = high_mul(result, factor)
    return result


def logistic(x: int) -> int:
    """Compute 1 / (1 + e^-x) in Q0, for x in Q4."""
    if x == 0:
        return 1 << 30
    positive = _inverse_of_one_plus(exp(-abs(x), 4))
    return positive if x > 0 else ONE - positive


def tanh(x: int) -> int:
    """Compute the hyperbolic tangent in Q0, for x in Q4."""
    if x == 0:
        return 0
    # The number of Q4 for x is the number of Q5 for 2x.
    positive = _one_minus_over_one_plus(exp(-abs(x), 5))
    return positive if x > 0 else -positive


def _exp_above_minus_quarter(x: int) -> int:
    """Return exp(x) for x in [-1/4, 0), both in Q0."""
    x += 1 << 28
    x2 = high_mul(x, x)
    x3 = high_mul(x2, x)
    x4_over_4 = round_shift(high_mul(x2, x2), 2)
    tail = round_shift(high_mul(x4_over_4 + x3, _THIRD) + x2, 1)
    return _EXP_OF_MINUS_EIGHTH + high_mul(_EXP_OF_MINUS_EIGHTH, x + tail)


def _inverse_of_half(x: int) -> int:
    """Return 2 / (1 + x) in Q2 for x in [0, 1) in Q0, by three steps of Newton's from the line 48/17 - 32/17 d."""
    half = (x + ONE + 1) // 2
    inverse = 1515870810 + high_mul(half, -1010580540)
    for _ in range(3):
        rest = (1 << 29) - high_mul(half, inverse)
        inverse += _shift_left(high_mul(inverse, rest), 2)
    return inverse


def _inverse_of_one_plus(x: int) -> int:
    return _shift_left(_inverse_of_half(x), 1)


def _one_minus_over_one_plus(x: int) -> int:
    return _shift_left(_inverse_of_half(x) - (1 << 29), 2)


def _shift_left(x: int, bits: int) -> int:
    """Shift to the left, saturating."""
    return max(_LEAST, min(ONE, x << bits))
