"""Turn the weights, biases and scales of convolutions and dense layers into the tables of their kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen.fixedpoint import split_multiplier
from codegen.ir import Activation, DType, Operator, OperatorError, Tensor, shape_text
from codegen.lower._calls import Field, Table
from codegen.lower._quantized import DAMAGED, EXTREME, clamp
from codegen.packing import pack_rows, readable

TERMS_MAX: Final = (1 << 17) - 1  # products of two int8 whose sum fits int32
_ELEMENTS_MAX: Final = 1 << 30
_QUANTIZE: Final = "convert with TensorFlow's int8 quantization (Optimize.DEFAULT, a representative_dataset)"


@dataclass(frozen=True, eq=False)
class Weights:
    """Constant weights and what belongs to each of their output channels."""

    operator: Operator
    tensor: Tensor
    values: NDArray[np.int8]  # of the tensor's shape
    scales: NDArray[np.float32]  # [1] or [channels]
    bias: NDArray[np.int64]  # [channels]
    channels: int

    @property
    def bits(self) -> int:
        """Return the bits of one weight as it is stored."""
        return self.tensor.bits

    @property
    def suffix(self) -> str:
        """Return what a kernel's name ends in for these bits."""
        return "" if self.bits == 8 else f"_w{self.bits}"


def read_weights(operator: Operator, position: int, bias_position: int, axis: int, rank: int) -> Weights:
    """Check weights with output channels along `axis`, and their bias, which may be left out. Raises OperatorError."""
    tensor = operator.input(position)
    values = operator.constant(position)
    if tensor.dtype is not DType.INT8:
        raise OperatorError(operator, f"the weights ({tensor.name}) are {tensor.dtype.value}, not int8", _QUANTIZE)
    if len(tensor.shape) != rank or tensor.size == 0:
        raise OperatorError(operator, f"the weights ({tensor.name}) are {shape_text(tensor.shape)}", DAMAGED)
    if tensor.size > _ELEMENTS_MAX:
        raise OperatorError(operator, f"{tensor.size:,} weights", "no microcontroller holds this model")
    channels = tensor.shape[axis]
    bias = _read_bias(operator, bias_position, channels)
    return Weights(operator, tensor, values, _read_scales(operator, tensor, axis), bias, channels)


def _read_scales(operator: Operator, tensor: Tensor, axis: int) -> NDArray[np.float32]:
    quantization = tensor.quantization
    if quantization is None:
        raise OperatorError(operator, f"the weights ({tensor.name}) have no scale", _QUANTIZE)
    if quantization.zero_points.any():
        raise OperatorError(
            operator,
            f"a zero point of the weights ({tensor.name}) is not 0",
            f"weights must be symmetric: {_QUANTIZE}",
        )
    scales = quantization.scales
    if not quantization.is_per_tensor and (quantization.axis != axis or len(scales) != tensor.shape[axis]):
        raise OperatorError(
            operator,
            f"the weights ({tensor.name}) have {len(scales)} scales along axis {quantization.axis}; "
            f"the outputs are the {tensor.shape[axis]} of axis {axis}",
            "convert the model again with a current TensorFlow",
        )
    if not (np.isfinite(scales).all() and (scales >= 0).all()):
        raise OperatorError(operator, f"a scale of the weights ({tensor.name}) is no positive number", DAMAGED)
    return scales


def _read_bias(operator: Operator, position: int, channels: int) -> NDArray[np.int64]:
    tensor = operator.optional(position)
    if tensor is None:
        return np.zeros(channels, np.int64)
    values = operator.constant(position)
    if tensor.dtype is not DType.INT32:
        raise OperatorError(operator, f"the bias ({tensor.name}) is {tensor.dtype.value}, not int32", _QUANTIZE)
    if tensor.size != channels:
        raise OperatorError(operator, f"the bias ({tensor.name}) has {tensor.size} elements, not {channels}", DAMAGED)
    return values.reshape(-1).astype(np.int64)


def factors(source: Tensor, weights: Weights, output: Tensor) -> NDArray[np.float64]:
    """Return what an int32 sum of each output channel is multiplied with.

    TensorFlow Lite Micro multiplies the scales in float64; TensorFlow Lite rounds a dense layer's product to float32.
    """
    scales = np.broadcast_to(weights.scales, weights.channels).astype(np.float64)
    return np.float64(source.scale) * scales / np.float64(output.scale)


def matrix_fields(
    weights: Weights,
    matrices: list[NDArray[Any]],
    source: Tensor,
    output: Tensor,
    activation: Activation,
    factor: NDArray[np.float64],
) -> dict[str, Field]:
    """Return the members of gs_q8_matrix_t for rows [channels, terms] of int8; several follow each other.

    `rows` and `terms` are the first one's.
    """
    rows, terms = matrices[0].shape
    if max(matrix.shape[1] for matrix in matrices) > TERMS_MAX:
        raise OperatorError(weights.operator, f"an output sums {terms:,} products", "split the layer")
    table = readable([pack_rows(matrix, weights.bits) for matrix in matrices])
    fields: dict[str, Field] = {"weights": Table(table, "weights"), "rows": rows, "terms": terms}
    sums = np.concatenate([matrix.sum(axis=1, dtype=np.int64) for matrix in matrices])
    fields |= channel_fields(weights, sums, source, output, activation, factor)
    return {f"matrix.{name}": value for name, value in fields.items()}


def channel_fields(
    weights: Weights,
    sums: NDArray[np.int64],
    source: Tensor,
    output: Tensor,
    activation: Activation,
    factor: NDArray[np.float64],
) -> dict[str, Field]:
    """Return the members of gs_q8_channels_t; `sums` are those of each channel's weights, phase after phase."""
    least, greatest = clamp(weights.operator, activation, output)
    pairs = [split_multiplier(float(real)) for real in factor]
    shifts = [shift for _, shift in pairs]
    if max(shifts) > 30:  # tflite-micro shifts by more bits than there are: anything may come of it
        raise OperatorError(weights.operator, f"sums would be multiplied by {float(factor.max()):g}", EXTREME)
    phases = len(sums) // weights.channels
    bias = np.tile(weights.bias, phases) - source.zero_point * sums
    return {
        "channels.bias": Table(bias.astype(np.int32), "bias"),  # wraps, as the sums do
        "channels.multipliers": Table(np.array([multiplier for multiplier, _ in pairs], np.int32), "multipliers"),
        "channels.shifts": Table(np.array(shifts, np.int8), "shifts"),
        "channels.all_right": int(max(shifts) < 0),
        "channels.zero_point": output.zero_point,
        "channels.least": least,
        "channels.greatest": greatest,
    }


def check_elements(operator: Operator, *tensors: Tensor) -> None:
    """Refuse tensors whose elements int32 cannot count with ease."""
    for tensor in tensors:
        if not 0 < tensor.size <= _ELEMENTS_MAX:
            raise OperatorError(operator, f"{tensor.name} has {tensor.size:,} elements", "use a smaller model")
