"""Requantize the weights of dense layers and convolutions to 4, 2 or 1 bits, without data.

Depthwise convolutions keep their bytes: they have few weights, and lose the most by it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen.ir import DType, Graph, Operator, Quantization, Tensor

Reals = NDArray[np.float64]

_WEIGHTS: Final = 1  # the input that holds them
_BIAS: Final = {"CONV_2D": 2, "FULLY_CONNECTED": 2, "TRANSPOSE_CONV": 3}
_SOURCE: Final = {"CONV_2D": 0, "FULLY_CONNECTED": 0, "TRANSPOSE_CONV": 2}
_SHRUNK: Final = 2.0 ** -(np.arange(48) / 8)  # steps that are tried, by the one that reaches the greatest weight
_MAGNITUDES: Final = 129  # of an int8
_INT32_MAX: Final = (1 << 31) - 1
_LEAST_MEAN: Final = 1 / 256  # of one-bit weights that are all zero, in units of their old scale: zero has no sign


def requantize(graph: Graph, bits: int) -> Graph:
    """Return the graph with weights of `bits` bits (4, 2 or 1) where they had more, one scale for each output channel.

    The scales minimize the squared error of each channel's weights. One-bit weights are -1 or 1, others symmetric about
    0. Biases are expressed in the new scales. What cannot be lowered is left as it is, for lowering to refuse.
    Source: the optimal scale of signs is the mean magnitude (Rastegari et al., XNOR-Net, 2016).
    """
    done: dict[int, Tensor] = {}  # weights that several operators share stay shared
    return replace(graph, operators=[_requantized(operator, bits, done) for operator in graph.operators])


def _requantized(operator: Operator, bits: int, done: dict[int, Tensor]) -> Operator:
    weights = operator.optional(_WEIGHTS)
    source = operator.optional(_SOURCE.get(operator.kind, 0))
    if operator.kind not in _BIAS or weights is None or source is None or not _has_bits_to_lose(weights, bits):
        return operator
    if source.quantization is None or not source.quantization.is_per_tensor or source.quantization.scale <= 0:
        return operator
    if id(weights) not in done:
        done[id(weights)] = _fewer_bits(weights, bits)
    inputs = list(operator.inputs)
    inputs[_WEIGHTS] = done[id(weights)]
    position = _BIAS[operator.kind]
    bias = operator.optional(position)
    if bias is not None:
        inputs[position] = _rescaled_bias(bias, _scales(weights), _scales(done[id(weights)]), source)
    return replace(operator, inputs=inputs)


def _has_bits_to_lose(weights: Tensor, bits: int) -> bool:
    return (
        weights.dtype is DType.INT8
        and weights.data is not None
        and weights.data.size > 0
        and weights.bits > bits
        and weights.quantization is not None
        and not weights.quantization.zero_points.any()
        and bool((weights.quantization.scales > 0).all())
        and (weights.quantization.is_per_tensor or weights.quantization.axis == 0)
    )


def _scales(weights: Tensor) -> Reals:
    """Return the scale of each output channel, of which axis 0 counts."""
    assert weights.quantization is not None
    return np.broadcast_to(weights.quantization.scales.astype(np.float64), weights.shape[0])


def _fewer_bits(weights: Tensor, bits: int) -> Tensor:
    assert weights.data is not None
    rows = np.asarray(weights.data, np.int8).reshape(weights.shape[0], -1)
    steps = _mean_magnitudes(rows) if bits == 1 else _best_steps(rows, bits)
    scales = (steps * _scales(weights)).astype(np.float32)
    values = _quantized(rows, steps, bits).astype(np.int8).reshape(weights.shape)
    quantization = Quantization(scales, np.zeros(len(scales), np.int32), axis=0)
    return replace(weights, data=values, quantization=quantization, bits=bits)


def _best_steps(rows: NDArray[np.int8], bits: int) -> Reals:
    """Return the step of each row whose multiples are nearest to it in squares, in units of the old scale.

    Works on how often each magnitude is there, which is the same for all candidates.
    """
    magnitudes = np.arange(_MAGNITUDES, dtype=np.float64)
    places = np.abs(rows.astype(np.int64)) + _MAGNITUDES * np.arange(len(rows))[:, None]
    counts = np.bincount(places.reshape(-1), minlength=len(rows) * _MAGNITUDES).reshape(len(rows), _MAGNITUDES)
    greatest = np.maximum((magnitudes * (counts > 0)).max(axis=1), 1.0)  # of a row of zeros, any step serves
    best: Reals = np.full(len(rows), np.inf)
    steps: Reals = greatest / _limit(bits)
    for shrunk in _SHRUNK:
        tried = greatest / _limit(bits) * shrunk
        step = _least_squares(counts, magnitudes, _quantized(magnitudes, tried, bits), tried)
        error = (counts * (magnitudes - _quantized(magnitudes, step, bits) * step[:, None]) ** 2).sum(axis=1)
        better = error < best
        best[better], steps[better] = error[better], step[better]
    return steps


def _least_squares(counts: NDArray[np.int64], magnitudes: Reals, values: Reals, otherwise: Reals) -> Reals:
    """Return the step of each row with which given multiples are nearest to it."""
    squares = (counts * values * values).sum(axis=1)
    fitted = (counts * magnitudes * values).sum(axis=1) / np.maximum(squares, 1)
    return np.asarray(np.where(squares > 0, fitted, otherwise), np.float64)


def _mean_magnitudes(rows: NDArray[np.int8]) -> Reals:
    means: Reals = np.abs(rows.astype(np.float64)).mean(axis=1)
    return np.maximum(means, _LEAST_MEAN)


def _limit(bits: int) -> int:
    return max(1, (1 << (bits - 1)) - 1)


def _quantized(values: NDArray[Any], steps: Reals, bits: int) -> Reals:
    """Return the nearest multiples of each row's step, in steps."""
    if bits == 1:
        return np.where(values < 0, -1.0, 1.0)
    limit = _limit(bits)
    return np.asarray(np.clip(np.rint(values / steps[:, None]), -limit, limit), np.float64)


def _rescaled_bias(bias: Tensor, old: Reals, new: Reals, source: Tensor) -> Tensor:
    """Express a bias, in units of the input's scale times that of the weights, in the weights' new scales."""
    if bias.data is None or bias.data.size != len(old) or bias.dtype is not DType.INT32:
        return bias
    real = bias.data.reshape(-1).astype(np.float64) * (old / new)
    values = np.clip(np.rint(real), -_INT32_MAX, _INT32_MAX).astype(np.int32).reshape(bias.shape)
    scales = (np.float64(source.scale) * new).astype(np.float32)
    return replace(bias, data=values, quantization=Quantization(scales, np.zeros(len(scales), np.int32), axis=0))
