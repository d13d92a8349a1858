"""Parts of random models that compute: each one operator, or a few that come together."""

from __future__ import annotations

import math

import numpy as np

from codegen.ir import (
    Activation,
    ConvOptions,
    DenseOptions,
    DType,
    FusedOptions,
    LeakyOptions,
    LstmOptions,
    Options,
    Padding,
    PoolOptions,
    ReduceOptions,
    SoftmaxOptions,
    SvdfOptions,
    Tensor,
)
from tests.tflite.random_graphs import SIZE_MOST, Drawing, part, size_of
from tests.tflite.single import quantized


def window_output(size: int, window: int, stride: int, padding: Padding, dilation: int = 1) -> int:
    """Count the positions of a window; less than 1 where there is none."""
    reach = (window - 1) * dilation + 1
    return -(-size // stride) if padding is Padding.SAME else (size - reach) // stride + 1


def _windowed(d: Drawing, x: Tensor, dilates: bool) -> tuple[Padding, tuple[int, int], tuple[int, int], list[int]]:
    """Draw padding, window and stride; return them with the rows and columns of the output, dilation included last."""
    padding = d.pick([Padding.SAME, Padding.VALID])
    window = d.pair(1, 4)
    stride = d.pick([(1, 1), (1, 1), (2, 2), (2, 1), (3, 4)])
    dilation = d.pair(1, 3) if dilates and stride == (1, 1) and d.chance(25) else (1, 1)
    sizes = [window_output(x.shape[1 + i], window[i], stride[i], padding, dilation[i]) for i in (0, 1)]
    return padding, window, stride, [*sizes, *dilation]


def _spread(x: Tensor, scales: np.ndarray, terms: int) -> float:
    """Estimate an output scale with which sums of products neither vanish nor all saturate."""
    return float(x.scale * np.median(scales) * 73 * math.sqrt(terms))


@part("CONV_2D", weight=4)
def conv(d: Drawing, x: Tensor) -> Tensor | None:
    if len(x.shape) != 4:
        return None
    padding, window, stride, (rows, columns, *dilation) = _windowed(d, x, True)
    groups = d.pick([g for g in (1, 1, 1, 2, 3) if x.shape[3] % g == 0])
    channels = groups * d.integer(1, 9 // groups)
    if min(rows, columns) < 1 or rows * columns * channels > SIZE_MOST:
        return None
    depth = x.shape[3] // groups
    bits = 4 if groups == 1 and d.chance(12) else 8
    weights = d.weights((channels, *window, depth), bits)
    scales = d.channel_scales(channels)
    y = d.fresh((x.shape[0], rows, columns, channels), _spread(x, scales, weights[0].size))
    options = ConvOptions(padding, stride, (dilation[0], dilation[1]), activation=d.clamp())
    filters = d.constant("filters", weights, quantized(scales.tolist()), bits)
    return d.add("CONV_2D", [x, filters, d.bias(x, scales, channels)], y, options)


@part("CONV_2D", weight=2)
def pointwise(d: Drawing, x: Tensor) -> Tensor | None:
    channels = d.integer(1, 16)
    if len(x.shape) != 4 or size_of(x.shape[:3]) * channels > SIZE_MOST:
        return None
    scales = d.channel_scales(channels)
    filters = d.constant("filters", d.weights((channels, 1, 1, x.shape[3])), quantized(scales.tolist()))
    y = d.fresh((*x.shape[:3], channels), _spread(x, scales, x.shape[3]))
    return d.add("CONV_2D", [x, filters, d.bias(x, scales, channels)], y, ConvOptions(activation=d.clamp()))


@part("DEPTHWISE_CONV_2D", weight=4)
def depthwise(d: Drawing, x: Tensor) -> Tensor | None:
    if len(x.shape) != 4:
        return None
    padding, window, stride, (rows, columns, *dilation) = _windowed(d, x, True)
    multiplier = d.pick([1, 1, 1, 2, 3])
    channels = x.shape[3] * multiplier
    if min(rows, columns) < 1 or rows * columns * channels > SIZE_MOST:
        return None
    scales = d.channel_scales(channels)
    filters = d.constant("filters", d.weights((1, *window, channels)), quantized(scales.tolist(), axis=3))
    y = d.fresh((x.shape[0], rows, columns, channels), _spread(x, scales, window[0] * window[1]))
    options = ConvOptions(padding, stride, (dilation[0], dilation[1]), multiplier, d.clamp())
    bias = d.bias(x, scales, channels)  # tflite-micro dies of one that is left out by number
    return d.add("DEPTHWISE_CONV_2D", [x, filters, *([bias] if bias else [])], y, options)


@part("TRANSPOSE_CONV", weight=2)
def transpose_conv(d: Drawing, x: Tensor) -> Tensor | None:
    if len(x.shape) != 4:
        return None
    padding, window, stride, channels = d.pick(list(Padding)), d.pair(1, 4), d.pair(1, 3), d.integer(1, 5)
    sizes = [
        x.shape[1 + i] * stride[i] if padding is Padding.SAME else (x.shape[1 + i] - 1) * stride[i] + window[i]
        for i in (0, 1)
    ]
    if x.shape[0] != 1 or size_of(sizes) * channels > SIZE_MOST:
        return None
    scales = d.channel_scales(channels)
    filters = d.constant("filters", d.weights((channels, *window, x.shape[3])), quantized(scales.tolist()))
    y = d.fresh((1, *sizes, channels), _spread(x, scales, size_of(window) * x.shape[3]))
    inputs: list[Tensor | None] = [d.numbers("size", y.shape), filters, x]
    bias = d.bias(x, scales, channels)
    return d.add("TRANSPOSE_CONV", inputs + ([bias] if bias else []), y, ConvOptions(padding, stride))


@part("FULLY_CONNECTED", weight=3)
def dense(d: Drawing, x: Tensor) -> Tensor | None:
    depth, units = x.shape[-1] if x.shape else 0, d.integer(1, 20)
    if len(x.shape) < 2 or size_of(x.shape[:-1]) * units > SIZE_MOST:
        return None
    scales = d.channel_scales(units)
    bits = 4 if len(scales) == 1 and d.chance(50) else 8  # tflite-micro has no four-bit weights of many scales here
    keep = len(x.shape) == 2 or d.chance(50)
    weights = d.constant("weights", d.weights((units, depth), bits), quantized(scales.tolist()), bits)
    rows = x.shape[:-1] if keep else (size_of(x.shape[:-1]),)
    y = d.fresh((*rows, units), _spread(x, scales, depth))
    options = DenseOptions(d.clamp(), keep_dims=keep and len(x.shape) > 2)
    return d.add("FULLY_CONNECTED", [x, weights, d.bias(x, scales, units)], y, options)


@part("SVDF", weight=2)
def svdf(d: Drawing, x: Tensor) -> Tensor | None:
    if len(x.shape) != 2 or x.shape[0] != 1:
        return None
    rank, units, memory = d.integer(1, 3), d.integer(1, 6), d.integer(1, 9)
    filters = rank * units
    stored = d.pick([DType.INT16, DType.INT8])
    feature = d.constant("feature", d.weights((filters, x.shape[1])), quantized(d.scale(0.01)))
    time = d.constant("time", d.weights((filters, memory)).astype(stored.numpy), quantized(d.scale(0.01)))
    reach = 256 if stored is DType.INT16 else 1
    state = d.activation(
        (1, filters * memory), quantized(_spread(x, np.array([feature.scale]), x.shape[1]) / reach), stored
    )
    state.name, state.variable = d.name("state"), True
    center = float(state.scale * time.scale) * 40 * 73 * math.sqrt(rank * memory) * reach
    bias = d.constant(
        "bias", d.random.integers(-9999, 9999, units, np.int32), quantized(float(state.scale * time.scale))
    )
    inputs: list[Tensor | None] = [x, feature, time, bias, state]  # tflite-micro dies without the bias
    y = d.fresh((1, units), center)
    return d.add("SVDF", inputs, y, SvdfOptions(rank, d.pick([Activation.RELU, Activation.NONE])))


@part("UNIDIRECTIONAL_SEQUENCE_LSTM", weight=3)
def lstm(d: Drawing, x: Tensor) -> Tensor | None:
    if len(x.shape) != 3 or x.shape[0] != 1 or x.shape[1] > 12:
        return None
    cells, width = d.integer(1, 6), x.shape[2]
    hidden = d.activation((1, cells), quantized(d.scale(1 / 128), d.zero_point()))
    cell = d.activation((1, cells), quantized(2.0 ** d.integer(-13, -10)), DType.INT16)
    for state, name in ((hidden, "hidden"), (cell, "cell")):
        state.name, state.variable = d.name(name), True
    inputs: list[Tensor | None] = [x, *[None] * 23]
    for gate in range(4):
        scale = 1 / (float(x.scale) * 128 * math.sqrt(width))  # so that the gates neither idle nor saturate
        given = quantized(d.scale(scale / 40))
        inputs[1 + gate] = d.constant(f"input_weights{gate}", d.weights((cells, width)), given)
        inputs[5 + gate] = d.constant(f"hidden_weights{gate}", d.weights((cells, cells)), quantized(d.scale(0.01)))
        bias = d.random.integers(-5000, 5000, cells, np.int32)
        inputs[12 + gate] = d.constant(f"bias{gate}", bias, quantized(float(x.scale * given.scale)))
    inputs[18], inputs[19] = hidden, cell
    y = d.like(hidden, (*x.shape[:2], cells))
    options = LstmOptions(cell_clip=float(d.pick([0.0, 0.0, 1.0])), time_major=False)
    return d.add("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, y, options)


def _pool(kind: str) -> None:
    @part(kind, weight=2)
    def pool(d: Drawing, x: Tensor) -> Tensor | None:
        if len(x.shape) != 4:
            return None
        padding, window, stride, (rows, columns, *_) = _windowed(d, x, False)
        if d.chance(20):  # the whole image
            padding, window, rows, columns = Padding.VALID, (x.shape[1], x.shape[2]), 1, 1
        if min(rows, columns) < 1:
            return None
        y = d.like(x, (x.shape[0], rows, columns, x.shape[3]))
        return d.add(kind, [x], y, PoolOptions(padding, stride, window, d.clamp()))


for _kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
    _pool(_kind)


def _reduction(kind: str, keeps_scale: bool) -> None:
    @part(kind)
    def reduce(d: Drawing, x: Tensor) -> Tensor | None:
        rank = len(x.shape)
        if rank < 2:
            return None
        axes = [1, 2] if rank == 4 and d.chance(50) else [axis for axis in range(1, rank) if d.chance(50)] or [rank - 1]
        keep = d.chance(50)
        shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
        terms = size_of([x.shape[axis] for axis in axes])
        center = float(x.scale) * (terms if kind == "SUM" else 1)
        y = d.like(x, shape) if keeps_scale or d.chance(30) else d.fresh(shape, center)
        signed = [axis - rank if d.chance(20) else axis for axis in axes]
        return d.add(kind, [x, d.numbers("axes", signed)], y, ReduceOptions(keep))


for _kind, _keeps in (("MEAN", False), ("SUM", False), ("REDUCE_MAX", True), ("REDUCE_MIN", True)):
    _reduction(_kind, _keeps)


def _other(d: Drawing, x: Tensor) -> Tensor:
    """Find a second operand: an activation of the same shape, itself, or a constant that may broadcast."""
    partner = d.partner(x.shape)
    if partner is not None and d.chance(65):
        return partner
    shape = d.pick([x.shape, x.shape[-1:], (1,) * len(x.shape), (*(1,) * (len(x.shape) - 1), x.shape[-1])])
    return d.constant("operand", d.weights(shape), quantized(d.scale(float(x.scale)), d.zero_point()))


def _binary(kind: str) -> None:
    @part(kind, weight=2)
    def binary(d: Drawing, x: Tensor) -> Tensor | None:
        if len(x.shape) < 1:
            return None
        other = _other(d, x)
        center = float(x.scale * other.scale) * 100 if kind == "MUL" else float(max(x.scale, other.scale))
        y = d.fresh(x.shape, center)
        inputs: list[Tensor | None] = [x, other] if d.chance(60) else [other, x]
        return d.add(kind, inputs, y, FusedOptions(d.clamp()))


for _kind in ("ADD", "SUB", "MUL"):
    _binary(_kind)


def _extreme(kind: str) -> None:
    @part(kind)
    def extreme(d: Drawing, x: Tensor) -> Tensor | None:
        if len(x.shape) < 1:
            return None
        other = d.constant("operand", d.weights(x.shape), x.quantization)
        return d.add(kind, [x, other], d.like(x, x.shape), Options())


for _kind in ("MAXIMUM", "MINIMUM"):
    _extreme(_kind)


@part("PRELU")
def prelu(d: Drawing, x: Tensor) -> Tensor | None:
    if len(x.shape) != 4:
        return None
    shape = d.pick([(1, 1, x.shape[3]), (1, 1, 1), x.shape[1:]])
    slope = d.constant("slope", d.weights(shape), quantized(d.scale(0.01), d.pick([0, 0, d.zero_point()])))
    return d.add("PRELU", [x, slope], d.fresh(x.shape, float(x.scale)), Options())


@part("LEAKY_RELU")
def leaky_relu(d: Drawing, x: Tensor) -> Tensor | None:
    options = LeakyOptions(float(np.float32(d.pick([0.01, 0.2, 0.5, 1.0, 1.5, -0.25]))))
    return d.add("LEAKY_RELU", [x], d.fresh(x.shape, float(x.scale)), options)


def _unary(kind: str, scale: float | None = None, zero_point: int = 0) -> None:
    @part(kind)
    def unary(d: Drawing, x: Tensor) -> Tensor | None:
        y = d.fresh(x.shape, float(x.scale)) if scale is None else d.activation(x.shape, quantized(scale, zero_point))
        return d.add(kind, [x], y, Options())


for _kind in ("RELU", "RELU6", "HARD_SWISH", "QUANTIZE"):
    _unary(_kind)
_unary("LOGISTIC", 1 / 256, -128)
_unary("TANH", 1 / 128)


@part("SOFTMAX")
def softmax(d: Drawing, x: Tensor) -> Tensor | None:
    if not 1 <= len(x.shape) <= 4 or x.shape[-1] > 500:  # tflite-micro aborts at 512 equal elements
        return None
    y = d.activation(x.shape, quantized(1 / 256, -128))
    return d.add("SOFTMAX", [x], y, SoftmaxOptions(float(d.pick([1.0, 1.0, 0.5, 2.0]))))


@part("ARG_MAX")
def arg_max(d: Drawing, x: Tensor) -> Tensor | None:
    if len(x.shape) < 2 or d.chance(60):
        return None
    axis = d.integer(1, len(x.shape) - 1)
    y = d.activation([n for i, n in enumerate(x.shape) if i != axis], None, DType.INT32)
    return d.add("ARG_MAX", [x, d.numbers("axis", axis - (len(x.shape) if d.chance(30) else 0))], y, Options())


@part("DEQUANTIZE")
def dequantize(d: Drawing, x: Tensor) -> Tensor | None:
    if d.chance(60):
        return None
    return d.add("DEQUANTIZE", [x], d.activation(x.shape, None, DType.FLOAT32), Options())


@part("DEQUANTIZE", "QUANTIZE")
def through_float(d: Drawing, x: Tensor) -> Tensor | None:
    real = d.add("DEQUANTIZE", [x], d.activation(x.shape, None, DType.FLOAT32), Options())
    return d.add("QUANTIZE", [real], d.fresh(x.shape, float(x.scale)), Options())
