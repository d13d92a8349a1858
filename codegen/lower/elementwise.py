"""Lower functions of two int8 values, softmax, and conversions from and to float32."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from codegen.fixedpoint import quantize_multiplier, rescale, split_multiplier
from codegen.ir import DType, FusedOptions, Operator, OperatorError, SoftmaxOptions, Tensor
from codegen.lower import _q31
from codegen.lower._calls import Call, Field, Lowered, Struct, Table, lowers
from codegen.lower._quantized import DIFFERENCE_BITS, EXTREME, clamp, factor, int8, same_shape
from codegen.lower.tables import requantize, table_call

Pair = Callable[[int, int], int]

_PRODUCT_BITS = 16  # of two differences of int8
_ADD_SHIFT = 20  # to the left, before the terms of a sum are scaled
_NEST = 4  # loops of gs_q8_nest_t
_SOFTMAX_BITS = 5  # before the binary point of its differences
_SOFTMAX_DEPTH_MAX = 4095


def _call(operator: Operator, kernel: str, ctype: str, fields: Mapping[str, Field], pair: Pair) -> Lowered:
    """Call a kernel of two inputs, or look up what depends on one value only."""
    x, y, output = operator.input(0), operator.input(1), operator.output
    if x is y:
        return table_call(operator, x, lambda value: pair(value, value))
    if y.data is not None and y.size == 1 and x.size == output.size:
        return table_call(operator, x, lambda value: pair(value, int(operator.constant(1).reshape(-1)[0])))
    if x.data is not None and x.size == 1 and y.size == output.size:
        return table_call(operator, y, lambda value: pair(int(operator.constant(0).reshape(-1)[0]), value))
    in_place = tuple(i for i, tensor in enumerate((x, y)) if tensor.data is None and tensor.size == output.size)
    struct = Struct(ctype, {**_nest(operator, x.shape, y.shape, output), **fields})
    return Call(operator, kernel, struct, (x, y), (output,), in_place=in_place)


def _nest(operator: Operator, x: Sequence[int], y: Sequence[int], output: Tensor) -> dict[str, Field]:
    """Merge neighbouring axes that are broadcast alike into as few loops as there can be."""
    rank = max(len(x), len(y))
    x, y = (1,) * (rank - len(x)) + tuple(x), (1,) * (rank - len(y)) + tuple(y)
    if any(m != n and 1 not in (m, n) for m, n in zip(x, y, strict=True)):
        raise OperatorError(operator, "the inputs' shapes do not go together", "convert the model again")
    same_shape(operator, output, [n if m == 1 else m for m, n in zip(x, y, strict=True)])
    axes = [(m, n) for m, n in zip(x, y, strict=True) if (m, n) != (1, 1)]
    groups = [list(group) for _, group in itertools.groupby(axes, lambda axis: (axis[0] == 1, axis[1] == 1))]
    sizes = [(prod(m for m, _ in group), prod(n for _, n in group)) for group in groups] or [(1, 1)]
    if len(sizes) > _NEST:
        raise OperatorError(
            operator, f"broadcasting takes more than {_NEST} nested loops", "repeat one input by a Tile or by hand"
        )
    sizes = [(1, 1)] * (_NEST - len(sizes)) + sizes
    return {
        "nest.dims": tuple(max(size) for size in sizes),
        "nest.step0": _steps([m for m, _ in sizes]),
        "nest.step1": _steps([n for _, n in sizes]),
    }


def _steps(dims: Sequence[int]) -> tuple[int, ...]:
    """Say how far an index moves a dense tensor's pointer; a broadcast one does not, except that of a run of one."""
    steps = [prod(dims[place + 1 :]) if size > 1 else 0 for place, size in enumerate(dims)]
    return tuple(steps)


def _operands(operator: Operator) -> tuple[Tensor, Tensor, Tensor]:
    return int8(operator, operator.input(0)), int8(operator, operator.input(1)), int8(operator, operator.output)


@lowers("ADD", "SUB")
def _add(operator: Operator) -> Lowered:
    x, y, output = _operands(operator)
    least, greatest = clamp(operator, operator.options_as(FusedOptions).activation, output)
    terms = [_below_one(operator, real) for real in _sum_factors(x, y, output)]
    sign = 1 if operator.kind == "ADD" else -1

    def pair(p: int, q: int) -> int:
        first = rescale((p - x.zero_point) << _ADD_SHIFT, *terms[0])
        second = rescale((q - y.zero_point) << _ADD_SHIFT, *terms[1])
        return max(least, min(greatest, rescale(first + sign * second, *terms[2]) + output.zero_point))

    fields: dict[str, Field] = {"least": least, "greatest": greatest}
    for name, tensor, (multiplier, shift) in zip(("term0", "term1", "sum"), (x, y, output), terms, strict=True):
        fields |= {
            f"{name}.zero_point": tensor.zero_point,
            f"{name}.multiplier": multiplier,
            f"{name}.shift": -shift,
        }
    return _call(operator, f"gs_q8_{operator.kind.lower()}", "gs_q8_add_t", fields, pair)


def _sum_factors(x: Tensor, y: Tensor, output: Tensor) -> tuple[float, float, float]:
    """Return what the shifted inputs and their sum are multiplied by."""
    common = 2 * float(max(x.scale, y.scale))
    return float(x.scale) / common, float(y.scale) / common, common / ((1 << _ADD_SHIFT) * float(output.scale))


def _below_one(operator: Operator, real: float) -> tuple[int, int]:
    multiplier, shift = quantize_multiplier(real)
    if not 0 < real < 1 or shift > 0:
        raise OperatorError(operator, f"integers would be multiplied by {real:g}", EXTREME)
    return multiplier, shift


@lowers("MUL")
def _mul(operator: Operator) -> Lowered:
    x, y, output = _operands(operator)
    least, greatest = clamp(operator, operator.options_as(FusedOptions).activation, output)
    real = float(x.scale) * float(y.scale) / float(output.scale)
    multiplier, shift = factor(operator, real, _PRODUCT_BITS)

    def pair(p: int, q: int) -> int:
        product = rescale((p - x.zero_point) * (q - y.zero_point), multiplier, shift)
        return max(least, min(greatest, product + output.zero_point))

    fields: dict[str, Field] = {
        **_zero_points(x, y, output),
        "multiplier": multiplier,
        "shift": shift,
        "least": least,
        "greatest": greatest,
    }
    return _call(operator, "gs_q8_mul", "gs_q8_mul_t", fields, pair)


@lowers("PRELU")
def _prelu(operator: Operator) -> Lowered:
    x, slope, output = _operands(operator)
    ratio = float(x.scale) / float(output.scale)
    multiplier, shift = factor(operator, ratio, DIFFERENCE_BITS)
    below = factor(operator, float(x.scale) * float(slope.scale) / float(output.scale), _PRODUCT_BITS)

    def pair(p: int, q: int) -> int:
        d = p - x.zero_point
        value = rescale(d, multiplier, shift) if d >= 0 else rescale(d * (q - slope.zero_point), *below)
        return value + output.zero_point

    fields: dict[str, Field] = {
        **_zero_points(x, slope, output),
        "multiplier": multiplier,
        "shift": shift,
        "slope_multiplier": below[0],
        "slope_shift": below[1],
    }
    return _call(operator, "gs_q8_prelu", "gs_q8_prelu_t", fields, pair)


def _zero_points(x: Tensor, y: Tensor, output: Tensor) -> dict[str, Field]:
    return {"zero_point0": x.zero_point, "zero_point1": y.zero_point, "zero_point": output.zero_point}


@lowers("MAXIMUM", "MINIMUM")
def _extreme(operator: Operator) -> Lowered:
    _operands(operator)  # whatever their scales are, the integers are compared
    better = max if operator.kind == "MAXIMUM" else min
    fields: dict[str, Field] = {"flip": 0 if operator.kind == "MAXIMUM" else -1}
    return _call(operator, "gs_q8_extreme", "gs_q8_extreme_t", fields, lambda p, q: better(p, q))


@lowers("SOFTMAX")
def _softmax(operator: Operator) -> Lowered:
    source, output = int8(operator, operator.input(0)), int8(operator, operator.output)
    same_shape(operator, output, source.shape)
    if output.scale != np.float32(1 / 256) or output.zero_point != -128:
        raise OperatorError(
            operator,
            f"the output has scale {output.scale:g} and zero point {output.zero_point}, not 1/256 and -128",
            "convert the model again",
        )
    depth = source.shape[-1] if source.shape else 1
    if not 1 <= depth <= _SOFTMAX_DEPTH_MAX:
        raise OperatorError(
            operator, f"a row has {depth} elements, not 1..{_SOFTMAX_DEPTH_MAX}", "split the classes, or drop the layer"
        )
    exps = _exps(operator, float(np.float32(operator.options_as(SoftmaxOptions).beta)) * float(source.scale))
    fields: dict[str, Field] = {
        "exps": Table(exps, "table"),
        "levels": exps.size,
        "rows": source.size // depth,
        "depth": depth,
    }
    return Call(operator, "gs_q8_softmax", Struct("gs_q8_softmax_t", fields), (source,), (output,), in_place=(0,))


def _exps(operator: Operator, step: float) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Work out e^(-i * step) in Q0 for as many i as count; a difference of int8 is at most 255."""
    real = min(step * (1 << (31 - _SOFTMAX_BITS)), (1 << 31) - 1.0)
    if not real > 1:
        raise OperatorError(operator, f"a step of the input changes its exponent by {step:g}", EXTREME)
    multiplier, shift = split_multiplier(real)
    radius = ((1 << _SOFTMAX_BITS) - 1 << 31 - _SOFTMAX_BITS) >> shift
    levels = min(radius, 255) + 1
    return np.array([_q31.exp(rescale(-i, multiplier, shift), _SOFTMAX_BITS) for i in range(levels)], np.int32)


@lowers("QUANTIZE")
def _quantize(operator: Operator) -> Lowered:
    source = operator.input(0)
    if source.dtype is DType.INT8:
        return requantize(operator)
    if source.dtype is not DType.FLOAT32:
        raise OperatorError(
            operator, f"{source.name} is {source.dtype.value}, not float32 or int8", "feed the model int8 or float32"
        )
    return _convert(operator, "gs_q8_quantize", int8(operator, operator.output))


@lowers("DEQUANTIZE")
def _dequantize(operator: Operator) -> Lowered:
    if operator.output.dtype is not DType.FLOAT32:
        raise OperatorError(operator, f"the output is {operator.output.dtype.value}, not float32", "convert again")
    return _convert(operator, "gs_q8_dequantize", int8(operator, operator.input(0)))


def _convert(operator: Operator, kernel: str, quantized: Tensor) -> Call:
    source, output = operator.input(0), operator.output
    same_shape(operator, output, source.shape)
    fields: dict[str, Field] = {
        "scale": float(quantized.scale),
        "zero_point": quantized.zero_point,
        "count": source.size,
    }
    return Call(operator, kernel, Struct("gs_q8_convert_t", fields), (source,), (output,))
