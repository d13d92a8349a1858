"""Compute operators whose inputs are known now, with numpy, to the bits that tflite-micro would compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen import ir
from codegen._cuts import cuts_of
from codegen._move_rules import pairs
from codegen.ir import DType, Operator, OperatorError, Tensor

Array = NDArray[Any]
Evaluator = Callable[[Operator], Array | list[Array]]

_SIZE_MOST: Final = 1 << 16  # elements of a result that is larger than what it is computed from
_INTEGERS: Final = (DType.INT32, DType.INT64)
_INTEGERS_MOST: Final = 1 << 12  # elements of what computes shapes
_STEPS_MOST: Final = 1 << 30  # of a scale in a real number: beyond, the run time's conversion to int32 overflows


def evaluate_integers(operator: Operator) -> list[Array] | None:
    """Return the values of the outputs if they are integers without a scale, as lengths of axes are.

    None if they are not, or cannot be known. The outputs must have their shapes. Raises OperatorError.
    """
    if any(tensor.dtype not in _INTEGERS or tensor.size > _INTEGERS_MOST for tensor in operator.outputs):
        return None
    return evaluate(operator)


def evaluate(operator: Operator) -> list[Array] | None:
    """Return the values of the outputs, or None if they cannot be known. Raises OperatorError."""
    if operator.kind == "SHAPE":
        return _finished(operator, np.array(operator.input(0).shape))
    if operator.kind == "RANK":
        return _finished(operator, np.array(len(operator.input(0).shape)))
    given = [tensor for tensor in operator.inputs if tensor is not None]
    known = _known(operator)
    if known is None or any(tensor.data is None for tensor in given):
        return None
    if sum(tensor.size for tensor in operator.outputs) > max(_SIZE_MOST, sum(tensor.size for tensor in given)):
        return None
    with np.errstate(all="ignore"):  # what overflows or is no number is refused where it is quantized
        return _finished(operator, known(operator))


def _known(operator: Operator) -> Evaluator | None:
    """Find how to compute an operator; arithmetic only on plain integers, for others are rescaled."""
    plain = all(tensor.dtype in _INTEGERS for tensor in (*operator.inputs, *operator.outputs) if tensor is not None)
    if operator.kind in _MOVES and (plain or _same_meaning(operator)):
        return _MOVES[operator.kind]
    if plain:
        return _ARITHMETIC.get(operator.kind)
    if all(tensor.dtype is DType.FLOAT32 for tensor in (*operator.inputs, *operator.outputs) if tensor is not None):
        return _REALS.get(operator.kind)
    return _CONVERSIONS.get(operator.kind) if _is_conversion(operator) else None


def _is_conversion(operator: Operator) -> bool:
    """Tell whether QUANTIZE or DEQUANTIZE is between float32 and int8 of one scale."""
    ends = [tensor for tensor in (operator.inputs[0], operator.output) if tensor is not None]
    real, quantized = ends if operator.kind == "QUANTIZE" else ends[::-1]
    return (
        real.dtype is DType.FLOAT32
        and quantized.dtype is DType.INT8
        and quantized.quantization is not None
        and quantized.quantization.is_per_tensor
    )


def _same_meaning(operator: Operator) -> bool:
    """Tell whether what is moved keeps its type and scale; lowering refuses what does not."""
    first = operator.output
    moved = [tensor for tensor in operator.inputs if tensor is not None and tensor.dtype is first.dtype]
    return bool(moved) and all(same_quantization(tensor, first) for tensor in (*moved, *operator.outputs))


def same_quantization(one: Tensor, other: Tensor) -> bool:
    """Tell whether the same integers mean the same numbers."""
    p, q = one.quantization, other.quantization
    if p is None or q is None:
        return p is q
    return np.array_equal(p.scales, q.scales) and np.array_equal(p.zero_points, q.zero_points) and p.axis == q.axis


def _finished(operator: Operator, found: Array | list[Array]) -> list[Array]:
    results = found if isinstance(found, list) else [found]
    for values, tensor in zip(results, operator.outputs, strict=True):
        assert values.shape == tensor.shape, (operator.kind, values.shape, tensor.shape)
    return [
        np.ascontiguousarray(values, tensor.dtype.numpy).reshape(tensor.shape)
        for values, tensor in zip(results, operator.outputs, strict=True)
    ]


def _value(operator: Operator, position: int = 0) -> Array:
    return operator.constant(position)


def _number(operator: Operator, position: int) -> int:
    return int(operator.constant(position).reshape(-1)[0])


def _axis(operator: Operator) -> int:
    return operator.options_as(ir.AxisOptions).axis


def _all(operator: Operator) -> list[Array]:
    return [operator.constant(position) for position in range(len(operator.inputs))]


def _reshaped(operator: Operator) -> Array:
    return _value(operator).reshape(operator.output.shape)


def _cut(operator: Operator) -> Array:
    cuts, shape = cuts_of(operator)
    return _value(operator)[tuple(cut.indices for cut in cuts)].reshape(shape)


def _padded(operator: Operator) -> Array:
    given = _value(operator)
    return np.pad(given, pairs(operator, 1, given.ndim), constant_values=fill_of(operator))


def fill_of(operator: Operator) -> Any:
    """Return the element that PAD or PADV2 puts around its input. Raises OperatorError."""
    if operator.optional(2) is not None:
        values = operator.constant(2).reshape(-1)
        if values.size != 1:
            raise OperatorError(operator, f"it pads with {values.size} values, not one", "convert the model again")
        return values[0]
    tensor = operator.output
    if tensor.quantization is not None and not tensor.quantization.is_per_tensor:
        raise OperatorError(operator, f"{tensor.name} has a scale for each channel", "convert the model again")
    return tensor.dtype.numpy.type(tensor.zero_point if tensor.quantization is not None else 0)


def _split(operator: Operator) -> list[Array]:
    value, where = (1, 0) if operator.kind == "SPLIT" else (0, 2)
    given, axis = _value(operator, value), _number(operator, where)
    ends = np.cumsum([tensor.shape[axis] for tensor in operator.outputs])
    return list(np.split(given, ends[:-1], axis))


def _unpacked(operator: Operator) -> list[Array]:
    return list(np.moveaxis(_value(operator), _axis(operator), 0))


_MOVES: Final[Mapping[str, Evaluator]] = {
    "RESHAPE": _reshaped,
    "SQUEEZE": _reshaped,
    "EXPAND_DIMS": _reshaped,
    "SLICE": _cut,
    "STRIDED_SLICE": _cut,
    "TRANSPOSE": lambda operator: np.transpose(_value(operator), _value(operator, 1).reshape(-1)),
    "CONCATENATION": lambda operator: np.concatenate(_all(operator), _axis(operator)),
    "PACK": lambda operator: np.stack(_all(operator), _axis(operator)),
    "UNPACK": _unpacked,
    "SPLIT": _split,
    "SPLIT_V": _split,
    "PAD": _padded,
    "PADV2": _padded,
    "GATHER": lambda operator: np.take(_value(operator), _value(operator, 1), _axis(operator)),
    "BROADCAST_TO": lambda operator: np.broadcast_to(_value(operator), operator.output.shape),
    "TILE": lambda operator: np.tile(_value(operator), _value(operator, 1).reshape(-1)),
    "FILL": lambda operator: np.full(operator.output.shape, _value(operator, 1).reshape(-1)[0]),
}


_REDUCTIONS: Final[Mapping[str, np.ufunc]] = {
    "SUM": np.add,
    "REDUCE_PROD": np.multiply,
    "REDUCE_MAX": np.maximum,
    "REDUCE_MIN": np.minimum,
}


def _reduced(operator: Operator) -> Array:
    given = _value(operator)
    axes = tuple({int(axis) % given.ndim for axis in _value(operator, 1).reshape(-1)})
    if given.size == 0 and operator.kind in ("REDUCE_MAX", "REDUCE_MIN"):
        raise OperatorError(operator, "it seeks an extreme among no values", "convert the model again")
    keep = operator.options_as(ir.ReduceOptions).keep_dims
    return np.asarray(_REDUCTIONS[operator.kind].reduce(given, axis=axes, dtype=given.dtype, keepdims=keep))


def _divided(operator: Operator) -> Array:
    one, other = np.atleast_1d(_value(operator)), np.atleast_1d(_value(operator, 1))
    if (other == 0).any():
        raise OperatorError(operator, "it divides by 0", "convert the model again")
    if operator.kind == "FLOOR_DIV":
        found = one // other
    elif operator.kind == "FLOOR_MOD":
        found = one % other
    else:  # DIV drops the fraction
        found = np.sign(one) * np.sign(other) * (np.abs(one) // np.abs(other))
    return np.asarray(found).reshape(operator.output.shape)


def _broadcast_shape(operator: Operator) -> Array:
    try:
        return np.array(np.broadcast_shapes(*map(tuple, _all(operator))))
    except ValueError as error:
        raise OperatorError(operator, f"the shapes do not go together: {error}", "convert the model again") from error


def _of_both(function: Callable[[Array, Array], Array]) -> Evaluator:
    # Arrays, not scalars, so that overflow wraps in silence.
    return lambda operator: function(*map(np.atleast_1d, _all(operator))).reshape(operator.output.shape)


_ARITHMETIC: Final[Mapping[str, Evaluator]] = {
    "ADD": _of_both(np.add),
    "SUB": _of_both(np.subtract),
    "MUL": _of_both(np.multiply),
    "MAXIMUM": _of_both(np.maximum),
    "MINIMUM": _of_both(np.minimum),
    "DIV": _divided,
    "FLOOR_DIV": _divided,
    "FLOOR_MOD": _divided,
    **dict.fromkeys(_REDUCTIONS, _reduced),
    "BROADCAST_ARGS": _broadcast_shape,
    "RANGE": lambda operator: np.arange(*(_number(operator, position) for position in range(3))),
    "CAST": _value,
    "ABS": lambda operator: np.abs(_value(operator)),
    "NEG": lambda operator: np.negative(_value(operator)),
    "SQUARE": lambda operator: np.square(_value(operator)),
    "ZEROS_LIKE": lambda operator: np.zeros_like(_value(operator)),
}


def _leaky(operator: Operator) -> Array:
    given = _value(operator)
    return np.where(given > 0, given, given * np.float32(operator.options_as(ir.LeakyOptions).alpha))


def _rounded(operator: Operator) -> Array:
    """Round halves to even; what rounds up to a zero is +0, which `rint` would make -0."""
    given = _value(operator)
    below = np.floor(given)
    rest = given - below
    return np.where((rest < 0.5) | ((rest == 0.5) & (below % 2 == 0)), below, below + 1)


def _of_real(function: Callable[[Array], Any]) -> Evaluator:
    return lambda operator: np.asarray(function(_value(operator)))


# Functions of one float32 that IEEE 754 defines to the bit; what a mathematical library decides (EXP, LOG) is not here.
_REALS: Final[Mapping[str, Evaluator]] = {
    "ABS": _of_real(np.abs),
    "CEIL": _of_real(np.ceil),
    "FLOOR": _of_real(np.floor),
    "LEAKY_RELU": _leaky,
    "NEG": _of_real(np.negative),
    "RELU": _of_real(lambda x: np.where(x < 0, 0, x)),
    "RELU6": _of_real(lambda x: np.where(x < 0, 0, np.where(x > 6, 6, x))),
    "ROUND": _rounded,
    "SQRT": _of_real(np.sqrt),
    "SQUARE": _of_real(np.square),
}
REAL_FUNCTIONS: Final = tuple(_REALS)


def _quantized(operator: Operator) -> Array:
    """Divide in float32 and round halves away from zero, as the run time does."""
    tensor = operator.output
    quotients = (_value(operator) / tensor.scale).astype(np.float64)
    if not (np.abs(quotients) < _STEPS_MOST).all():
        raise OperatorError(
            operator,
            f"{operator.input(0).name} may be no number, or too large for a scale of {tensor.scale:g}",
            "replace what computes it, or calibrate with representative data",
        )
    rounded = np.copysign(np.floor(np.abs(quotients) + 0.5), quotients) + tensor.zero_point
    limits = np.iinfo(tensor.dtype.numpy)
    return np.asarray(np.clip(rounded, limits.min, limits.max))


def _dequantized(operator: Operator) -> Array:
    tensor = operator.input(0)
    differences = (_value(operator).astype(np.int32) - tensor.zero_point).astype(np.float32)
    return np.asarray(differences * tensor.scale)


_CONVERSIONS: Final[Mapping[str, Evaluator]] = {"QUANTIZE": _quantized, "DEQUANTIZE": _dequantized}
