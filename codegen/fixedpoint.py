"""Work out the fixed-point numbers of int8 inference as TensorFlow Lite Micro does, to the bit."""

from __future__ import annotations

import math

import numpy as np

from codegen.ir import Activation, Tensor


def quantize_multiplier(real: float) -> tuple[int, int]:
    """Return (multiplier, shift): real is about multiplier * 2^(shift - 31), multiplier in [2^30, 2^31) or 0.

    `real` is a double, at least 0. A product too small for 32 bits becomes (0, 0); one too great saturates.
    """
    multiplier, shift = split_multiplier(real)
    return (multiplier, shift) if shift <= 30 else ((1 << 31) - 1, 30)


def split_multiplier(real: float) -> tuple[int, int]:
    """Return what `quantize_multiplier` does, but let the shift pass 30."""
    if real == 0:
        return 0, 0
    fraction, shift = math.frexp(real)
    # Halves are rounded away from zero, as C's round(): fraction * 2^31 is far below 2^53, so + 0.5 is exact.
    multiplier = math.floor(fraction * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier //= 2
        shift += 1
    return (multiplier, shift) if shift >= -31 else (0, 0)


def clamp_range(activation: Activation, output: Tensor) -> tuple[int, int]:
    """Return the least and the greatest int8 that a fused clamp lets through.

    Raises ValueError for an activation that is no clamp.
    """
    lower, upper = {
        Activation.NONE: (None, None),
        Activation.RELU: (0.0, None),
        Activation.RELU6: (0.0, 6.0),
        Activation.RELU_N1_TO_1: (-1.0, 1.0),
    }.get(activation, (math.nan, math.nan))
    if lower is not None and math.isnan(lower):
        raise ValueError(f"{activation.value} is no clamp")
    least = -128 if lower is None else max(-128, _quantize(lower, output))
    greatest = 127 if upper is None else min(127, _quantize(upper, output))
    return least, greatest


def _quantize(real: float, tensor: Tensor) -> int:
    """Quantize as the converter's run time does: divide in float32, round halves away from zero."""
    quotient = float(np.float32(real) / tensor.scale)
    rounded = math.copysign(math.floor(abs(quotient) + 0.5), quotient)
    return tensor.zero_point + int(rounded)


def wrap(value: int) -> int:
    """Reduce an integer to 32 bits, as C's conversions do."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def high_mul(x: int, multiplier: int) -> int:
    """Return round(x * multiplier / 2^31), halves upwards; both are int32, and not both -2^31."""
    return (x * multiplier + (1 << 30)) >> 31


def round_shift(x: int, exponent: int) -> int:
    """Return x / 2^exponent, halves away from zero."""
    return x if exponent == 0 else (x + (1 << (exponent - 1)) - (x < 0)) >> exponent


def rescale(x: int, multiplier: int, shift: int) -> int:
    """Return x * multiplier * 2^(shift - 31), rounded twice, as `gs_q8_rescale` does; a left shift wraps."""
    return round_shift(high_mul(wrap(x << max(shift, 0)), multiplier), max(-shift, 0))
