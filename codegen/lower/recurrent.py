"""Lower operators with a state that lives from one invocation to the next."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.ir import Activation, DType, LstmOptions, Operator, OperatorError, SvdfOptions, Tensor
from codegen.lower._calls import Call, Field, Lowered, Struct, Table, lowers
from codegen.lower._quantized import DAMAGED, factor, int8, quantized, same_shape

_INT32_MAX = (1 << 31) - 1

Integers = NDArray[np.int64]


@lowers("SVDF")
def _svdf(operator: Operator) -> Lowered:
    source, output = int8(operator, operator.input(0)), int8(operator, operator.output)
    feature = _weights(operator, 1)
    time = _weights(operator, 2, (DType.INT8, DType.INT16))
    state = _state(operator, 4, time.dtype)
    options = operator.options_as(SvdfOptions)
    if options.activation not in (Activation.NONE, Activation.RELU):  # which the output's range does already
        raise OperatorError(operator, f"the fused activation is {options.activation.value}", "use ReLU or none")
    if len(source.shape) != 2 or len(feature.shape) != 2 or len(time.shape) != 2 or not time.shape[1]:
        raise OperatorError(operator, "the input and the weights are not matrices", DAMAGED)
    (batches, inputs), (filters, memory), rank = source.shape, time.shape, options.rank
    if filters % rank:
        raise OperatorError(operator, f"{filters} filters are no multiple of the rank {rank}", DAMAGED)
    units = filters // rank
    same_shape(operator, feature, (filters, inputs))
    same_shape(operator, output, (batches, units))
    same_shape(operator, state, (batches, filters * memory))

    feature_values, time_values = _values(feature), _values(time)
    # Each filter's own sums, then those of a unit, whose rows stand together.
    first = _Sums(operator, feature_values, _bias(operator, None, filters), source)
    second = _Sums(operator, time_values.reshape(units, rank * memory), _bias(operator, 3, units), state)
    real_1 = float(source.scale) * float(feature.scale) / float(state.scale)
    real_2 = float(state.scale) * float(time.scale) / float(output.scale)
    feature_multiplier, feature_shift = factor(operator, real_1, first.bits)
    multiplier, shift = factor(operator, real_2, second.bits)
    wide = time.dtype is DType.INT16
    fields: dict[str, Field] = {
        "feature": Table(feature_values.astype(np.int8), "weights"),
        "feature_bias": Table(first.bias, "bias"),
        "time16" if wide else "time8": Table(time_values.astype(time.dtype.numpy), "weights"),
        "bias": Table(second.bias, "bias"),
        "batches": batches,
        "inputs": inputs,
        "units": units,
        "rank": rank,
        "memory": memory,
        "feature_multiplier": feature_multiplier,
        "feature_shift": feature_shift,
        "state_zero_point": state.zero_point,
        "multiplier": multiplier,
        "shift": shift,
        "zero_point": output.zero_point,
    }
    kernel = "gs_q8_svdf16" if wide else "gs_q8_svdf8"
    return Call(operator, kernel, Struct("gs_q8_svdf_t", fields), (source,), (output,), state=(state,))


# The positions of the inputs of an LSTM, gate by gate.
_GATES = {"input": (1, 5, 12), "forget": (2, 6, 13), "candidate": (3, 7, 14), "output": (4, 8, 15)}
_VARIANTS = {
    "peepholes": (9, 10, 11),
    "a projection": (16, 17),
    "layer normalization": (20, 21, 22, 23),
}
_GATE_SCALE = 2.0**-12
_UNIT_SCALE = 2.0**-15  # of what a gate lets through
_CELL_POWERS = range(-15, 3)  # of 2, that a cell's scale can be


@lowers("UNIDIRECTIONAL_SEQUENCE_LSTM")
def _lstm(operator: Operator) -> Lowered:
    source, output = int8(operator, operator.input(0)), int8(operator, operator.output)
    for variant, positions in _VARIANTS.items():
        if any(operator.optional(position) is not None for position in positions):
            raise OperatorError(operator, f"an LSTM with {variant} is not supported", "use tf.keras.layers.LSTM")
    if any(operator.optional(position) is None for position in _GATES["input"]):
        raise OperatorError(operator, "an LSTM without an input gate is not supported", "use tf.keras.layers.LSTM")
    options = operator.options_as(LstmOptions)
    if options.activation is not Activation.TANH:
        raise OperatorError(operator, f"the activation is {options.activation.value}, not tanh", "use tanh")
    hidden, cell = _state(operator, 18, DType.INT8), _state(operator, 19, DType.INT16)
    if len(source.shape) != 3 or not source.shape[1 - options.time_major]:
        raise OperatorError(operator, "the input is no sequence", "give it the shape batch x time x features")
    cells, inputs = _weights(operator, 2).shape[0], source.shape[2]
    sequences, steps = (source.shape[1], source.shape[0]) if options.time_major else source.shape[:2]
    same_shape(operator, output, (*source.shape[:2], cells))
    for state in (hidden, cell):
        if state.size != sequences * cells:
            raise OperatorError(operator, f"{state.name} has {state.size} elements", DAMAGED)
    fields: dict[str, Field] = {
        "sigmoid": Table(_sigmoid(), "table"),
        "sequences": sequences,
        "steps": steps,
        "inputs": inputs,
        "cells": cells,
        "sequence_stride": 1 if options.time_major else steps,
        "step_stride": sequences if options.time_major else 1,
        "zero_point": hidden.zero_point,
        **_products(operator, hidden, cell),
    }
    for name, positions in _GATES.items():
        fields |= _gate(operator, name, positions, source, hidden, cells)
    struct = Struct("gs_q8_lstm_t", fields)
    return Call(operator, "gs_q8_lstm", struct, (source,), (output,), state=(hidden, cell))


def _products(operator: Operator, hidden: Tensor, cell: Tensor) -> dict[str, Field]:
    """Work out the factors between gates, cells and hidden state."""
    fraction, exponent = math.frexp(float(cell.scale))
    power = exponent - 1
    if fraction != 0.5 or power not in _CELL_POWERS:
        raise OperatorError(operator, f"the scale of {cell.name} is {cell.scale:g}, no power of 2 near 1/2048", DAMAGED)
    clip = operator.options_as(LstmOptions).cell_clip
    if not clip >= 0:
        raise OperatorError(operator, f"cells are clipped to {clip:g}", DAMAGED)
    left = power + 12  # of a cell, to units of 2^-12
    fields: dict[str, Field] = {
        "tanh_multiplier": 3 << max(left, 0),
        "tanh_shift": max(-left, 0),
        "clip": int(min(clip / float(cell.scale), 32767.0)) if clip > 0 else 32768,
    }
    reals = {
        "keep": _UNIT_SCALE,
        "add": _UNIT_SCALE * _UNIT_SCALE / float(cell.scale),
        "out": _UNIT_SCALE * _UNIT_SCALE / float(hidden.scale),
    }
    for name, real in reals.items():
        fields[f"{name}_multiplier"], fields[f"{name}_shift"] = factor(operator, real, 31)
    return fields


def _gate(
    operator: Operator, name: str, positions: tuple[int, int, int], source: Tensor, hidden: Tensor, cells: int
) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    ends = (("in", source, source.shape[2], positions[2]), ("hidden", hidden, cells, None))
    for position, (end, tensor, width, bias) in zip(positions, ends, strict=False):
        weights = _weights(operator, position)
        same_shape(operator, weights, (cells, width))
        values = _values(weights)
        sums = _Sums(operator, values, _bias(operator, bias, cells), tensor)
        real = float(tensor.scale) * float(weights.scale) / _GATE_SCALE
        multiplier, shift = factor(operator, real, sums.bits)
        fields |= {
            f"{name}.{end}_weights": Table(values.astype(np.int8), "weights"),
            f"{name}.{end}_bias": Table(sums.bias, "bias"),
            f"{name}.{end}_multiplier": multiplier,
            f"{name}.{end}_shift": shift,
        }
    return fields


class _Sums:
    """Fold an input's zero point into the bias of weights[rows][terms], and bound what the sums can be."""

    def __init__(self, operator: Operator, weights: Integers, bias: Integers, source: Tensor) -> None:
        reach = abs(source.zero_point) - np.iinfo(source.dtype.numpy).min
        largest = int((np.abs(weights).sum(axis=1) * reach + np.abs(bias)).max(initial=0))
        if largest > _INT32_MAX and source.dtype is DType.INT8:
            raise OperatorError(
                operator, f"a sum could reach {largest:,}, beyond 32 bits", "use fewer or smaller weights"
            )
        self.bits = min(31, largest.bit_length())  # sums over int16 wrap: they stay small in fact, whatever could be
        self.bias = (bias - source.zero_point * weights.sum(axis=1)).astype(np.int32)


def _weights(operator: Operator, position: int, dtypes: tuple[DType, ...] = (DType.INT8,)) -> Tensor:
    """Return weights: constant, symmetric, with one scale."""
    tensor = operator.input(position)
    quantized(operator, tensor, tensor.dtype if tensor.dtype in dtypes else dtypes[0])
    operator.constant(position)
    if tensor.zero_point:
        raise OperatorError(operator, f"the weights {tensor.name} have a zero point", "quantize them symmetrically")
    if len(tensor.shape) != 2:
        raise OperatorError(operator, f"the weights {tensor.name} are no matrix", DAMAGED)
    return tensor


def _values(tensor: Tensor) -> Integers:
    assert tensor.data is not None
    return tensor.data.astype(np.int64)


def _bias(operator: Operator, position: int | None, count: int) -> Integers:
    """Return the bias at a position, or zeros where there is none."""
    if position is None or operator.optional(position) is None:
        return np.zeros(count, np.int64)
    values = operator.constant(position)
    if values.dtype != np.int32 or values.size != count:
        raise OperatorError(operator, f"the bias is not int32 of {count}", DAMAGED)
    return values.reshape(-1).astype(np.int64)


def _state(operator: Operator, position: int, dtype: DType) -> Tensor:
    tensor = quantized(operator, operator.input(position), dtype)
    if not tensor.variable:
        raise OperatorError(operator, f"the state {tensor.name} is no variable", "convert the model again")
    return tensor


# Where TensorFlow Lite's table of the logistic function is one above the rounded value.
_NUDGED = (
    *(4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41, 43, 44, 45, 46),
    *(49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255),
)


def _sigmoid() -> NDArray[Any]:
    """Return the logistic function at i / 24 in units of 2^-16, as TensorFlow Lite tabulates it."""
    values = np.array([round(65536 / (1 + math.exp(-i / 24))) for i in range(256)])
    values[list(_NUDGED)] += 1
    return values.astype(np.uint16)
