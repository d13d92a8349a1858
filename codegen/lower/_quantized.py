"""Check the tensors of an operator, in words that say what, where and the mend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from codegen.fixedpoint import clamp_range, split_multiplier
from codegen.ir import Activation, DType, Operator, OperatorError, Tensor, shape_text

DAMAGED: Final = "the file is damaged: convert the model again"
EXTREME: Final = "calibrate with representative data: such scales are not those of real activations"
DIFFERENCE_BITS: Final = 8  # of an int8 less its zero point
_CONVERT: Final = "quantize the whole model to int8 (TFLITE_BUILTINS_INT8, int8 input and output)"
_SCALES: Final = (1e-15, 1e15)  # so that no product or quotient of two leaves float32


def quantized(operator: Operator, tensor: Tensor, dtype: DType) -> Tensor:
    """Return a tensor of a type, with one sensible scale and one zero point. Raises OperatorError."""
    if tensor.dtype is not dtype:
        raise OperatorError(operator, f"{tensor.name} is {tensor.dtype.value}, not {dtype.value}", _CONVERT)
    quantization = tensor.quantization
    if quantization is None:
        raise OperatorError(operator, f"{tensor.name} has no scale", _CONVERT)
    if not quantization.is_per_tensor:
        raise OperatorError(
            operator,
            f"{tensor.name} has {len(quantization.scales)} scales where one is due",
            "only weights may have a scale for each channel: convert the model again",
        )
    scale = float(quantization.scale)
    if not _SCALES[0] <= scale <= _SCALES[1]:
        raise OperatorError(operator, f"the scale of {tensor.name} is {scale:g}", EXTREME)
    limits = np.iinfo(dtype.numpy)
    if not limits.min <= quantization.zero_point <= limits.max:
        raise OperatorError(operator, f"the zero point of {tensor.name} is {quantization.zero_point}", DAMAGED)
    return tensor


def int8(operator: Operator, tensor: Tensor) -> Tensor:
    """Return a tensor of int8, with one sensible scale and one zero point. Raises OperatorError."""
    return quantized(operator, tensor, DType.INT8)


def factor(operator: Operator, real: float, bits: int) -> tuple[int, int]:
    """Return the multiplier and the shift for integers below 2^bits; refuse those with which they would overflow."""
    multiplier, shift = split_multiplier(real)
    if shift + bits > 31:
        raise OperatorError(operator, f"integers would be multiplied by {real:g}", EXTREME)
    return multiplier, shift


def same_quantization(operator: Operator, one: Tensor, other: Tensor) -> None:
    """Refuse tensors of which the same integers mean different numbers."""
    if one.scale != other.scale or one.zero_point != other.zero_point:
        raise OperatorError(
            operator,
            f"{one.name} and {other.name} differ in scale or zero point, but nothing is rescaled here",
            "convert the model again with a current TensorFlow",
        )


def same_shape(operator: Operator, tensor: Tensor, shape: Sequence[int]) -> None:
    """Refuse a tensor of another shape."""
    if tensor.shape != tuple(shape):
        raise OperatorError(operator, f"{tensor.name} is {shape_text(tensor.shape)}, not {shape_text(shape)}", DAMAGED)


def clamp(operator: Operator, activation: Activation, output: Tensor) -> tuple[int, int]:
    """Return the least and the greatest int8 that a fused activation lets through."""
    try:
        return clamp_range(activation, output)
    except ValueError as error:
        raise OperatorError(
            operator, f"the fused activation {error}", "make the activation a layer of its own"
        ) from error


def axes_of(operator: Operator, position: int, rank: int) -> tuple[int, ...]:
    """Return the axes that a constant input names: sorted, each once, counted from 0."""
    given = [int(axis) for axis in operator.constant(position).reshape(-1)]
    for axis in given:
        if not -rank <= axis < rank:
            raise OperatorError(operator, f"axis {axis} of a tensor with {rank}", DAMAGED)
    return tuple(sorted({axis % rank for axis in given}))
