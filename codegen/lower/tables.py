"""Lower functions of one int8 value: each becomes a table of the outputs for the 256 inputs.

The tables are worked out by the very integer arithmetic that TensorFlow Lite Micro would do on every element.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from codegen.fixedpoint import quantize_multiplier, rescale, round_shift, split_multiplier
from codegen.ir import LeakyOptions, Operator, OperatorError, Tensor
from codegen.lower import _q31
from codegen.lower._calls import Alias, Call, Field, Lowered, Struct, as_int8, lowers
from codegen.lower._quantized import DIFFERENCE_BITS, EXTREME, factor, int8, same_shape

_SLOPE_MAX = 1e6


def table_call(operator: Operator, source: Tensor, function: Callable[[int], int]) -> Lowered:
    """Call the look-up of a function of int8, whose results are clamped to int8; what changes nothing is an alias."""
    output = operator.output
    values = np.array([max(-128, min(127, function(x))) for x in range(-128, 128)])
    if np.array_equal(values, np.arange(-128, 128)):
        return Alias(operator, source, output)
    fields: dict[str, Field] = {"table": as_int8(values, "table"), "count": source.size}
    return Call(operator, "gs_q8_map", Struct("gs_q8_map_t", fields), (source,), (output,), in_place=(0,))


def _ends(operator: Operator) -> tuple[Tensor, Tensor]:
    source, output = int8(operator, operator.input(0)), int8(operator, operator.output)
    same_shape(operator, output, source.shape)
    return source, output


def requantize(operator: Operator) -> Lowered:
    """Lower QUANTIZE of what is int8 already."""
    source, output = _ends(operator)
    return table_call(operator, source, _requantized(operator, source, output))


def _requantized(operator: Operator, source: Tensor, output: Tensor) -> Callable[[int], int]:
    multiplier, shift = factor(operator, float(source.scale) / float(output.scale), DIFFERENCE_BITS)
    return lambda x: rescale(x - source.zero_point, multiplier, shift) + output.zero_point


@lowers("RELU", "RELU_N1_TO_1", "RELU_0_TO_1")
def _relu(operator: Operator) -> Lowered:
    source, output = _ends(operator)
    lower, upper = {"RELU": (0, None), "RELU_N1_TO_1": (-1, 1), "RELU_0_TO_1": (0, 1)}[operator.kind]
    least = output.zero_point + _round(float(np.float32(lower) / output.scale))
    greatest = 127 if upper is None else output.zero_point + _round(float(np.float32(upper) / output.scale))
    rescaled = _requantized(operator, source, output)
    return table_call(operator, source, lambda x: min(max(rescaled(x), least), greatest))


@lowers("RELU6")
def _relu6(operator: Operator) -> Lowered:
    # The bounds are the input's, and nothing is rescaled: the converter gives both ends the same scale.
    source, _ = _ends(operator)
    greatest = min(127, source.zero_point + _round(float(np.float32(6) / source.scale)))
    return table_call(operator, source, lambda x: min(max(x, source.zero_point), greatest))


@lowers("LEAKY_RELU")
def _leaky_relu(operator: Operator) -> Lowered:
    source, output = _ends(operator)
    alpha = float(np.float32(operator.options_as(LeakyOptions).alpha))
    if not abs(alpha) <= _SLOPE_MAX:
        raise OperatorError(operator, f"the slope is {alpha:g}", "train with a slope below 1")
    identity = factor(operator, float(source.scale) / float(output.scale), DIFFERENCE_BITS)
    slope = factor(operator, float(source.scale) * abs(alpha) / float(output.scale), DIFFERENCE_BITS)
    sign = -1 if alpha < 0 else 1

    def function(x: int) -> int:
        d = x - source.zero_point
        return output.zero_point + (rescale(d, *identity) if d >= 0 else sign * rescale(d, *slope))

    return table_call(operator, source, function)


@lowers("LOGISTIC")
def _logistic(operator: Operator) -> Lowered:
    source, output = _ends(operator)
    if output.zero_point != -128:
        raise OperatorError(
            operator, f"the output's zero point is {output.zero_point}, not -128", "convert the model again"
        )
    return _saturating(operator, source, lambda x: round_shift(_q31.logistic(x), 23) - 128)


@lowers("TANH")
def _tanh(operator: Operator) -> Lowered:
    source, _ = _ends(operator)
    return _saturating(operator, source, lambda x: round_shift(_q31.tanh(x), 24))


def _saturating(operator: Operator, source: Tensor, function: Callable[[int], int]) -> Lowered:
    """Look up a function of inputs in Q4; those of 15 and beyond give the ends of int8."""
    multiplier, shift = split_multiplier(float(source.scale) * (1 << 27))
    if shift < 0:
        raise OperatorError(operator, f"the scale of {source.name} is {source.scale:g}", EXTREME)
    radius = (15 << 27) >> shift  # 0 for a scale of 16 and more, which even 0 is not below

    def saturated(x: int) -> int:
        d = x - source.zero_point
        if d <= -radius:
            return -128
        return 127 if d >= radius else function(rescale(d, multiplier, shift))

    return table_call(operator, source, saturated)


@lowers("HARD_SWISH")
def _hard_swish(operator: Operator) -> Lowered:
    source, output = _ends(operator)
    fine_scale = float(source.scale) / 128
    out_multiplier, out_shift = _int16_multiplier(fine_scale / float(output.scale))
    relu_multiplier, relu_shift = _int16_multiplier(fine_scale / (3 / 32768))
    if not -15 <= out_shift <= 0 or not -15 <= relu_shift <= 30:
        raise OperatorError(operator, f"the scales are {source.scale:g} and {output.scale:g}", EXTREME)

    def function(x: int) -> int:
        fine = (x - source.zero_point) * 128
        gate = fine
        if relu_shift > 0:
            gate = _int16(gate << (relu_shift - 1))
        gate = (gate * relu_multiplier + (1 << 14)) >> 15
        if relu_shift > 0:
            gate = _int16(gate << 1)
        else:
            gate = round_shift(gate, -relu_shift)
        gate = (gate + (1 << 15)) >> 1
        value = (fine * out_multiplier + (1 << 14)) >> 15
        product = gate * value
        product = product >> 15 if product >= 0 else -(-product >> 15)
        return round_shift(product, -out_shift) + output.zero_point

    return table_call(operator, source, function)


@lowers("ABS")
def _abs(operator: Operator) -> Lowered:
    source, output = _ends(operator)
    multiplier, shift = factor(operator, float(source.scale) / float(output.scale), DIFFERENCE_BITS)
    return table_call(
        operator, source, lambda x: rescale(abs(x - source.zero_point), multiplier, shift) + output.zero_point
    )


@lowers("ELU")
def _elu(operator: Operator) -> Lowered:
    source, output = _ends(operator)
    factor(operator, float(source.scale / output.scale), DIFFERENCE_BITS)  # that all fits into integers
    inverse = np.float32(1) / output.scale

    def function(x: int) -> int:
        real = source.scale * np.float32(x - source.zero_point)
        if real < 0:
            real = np.float32(math.exp(real)) - np.float32(1)
        return _round(float(real * inverse)) + output.zero_point

    return table_call(operator, source, function)


def _int16(value: int) -> int:
    return max(-(1 << 15), min((1 << 15) - 1, value))


def _int16_multiplier(real: float) -> tuple[int, int]:
    """Return a multiplier of 16 bits, in [2^14, 2^15), and its shift."""
    multiplier, shift = quantize_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1), shift


def _round(value: float) -> int:
    """Round halves away from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))
