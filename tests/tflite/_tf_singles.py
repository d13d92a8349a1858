"""Draw single operators, each with the options that have broken exporters; they need TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Draw = np.random.Generator
Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Case:
    """Hold what is converted: a Keras model, or a function of tensors with its inputs' shapes."""

    name: str
    function: Callable[..., Any]
    shapes: Sequence[Shape]  # batch included
    ranges: Sequence[tuple[float, float]] = ((-2.0, 2.0),)  # of the inputs' values; the last serves all others
    float_ends: bool = False  # float32 inputs and outputs, so that QUANTIZE and DEQUANTIZE stand at the ends
    is_model: bool = False
    holder: Any = None  # of the function's variables; the converter dies of one it cannot find


ACTIVATIONS = (None, "relu", "relu6", "relu_n1")
RANGES = ((-2.0, 2.0), (0.0, 4.0), (-6.0, -1.0), (-0.3, 3.0), (1.0, 5.0))


def pick(draw: Draw, values: Sequence[Any]) -> Any:
    """Choose one."""
    return values[int(draw.integers(len(values)))]


def normal(draw: Draw, *shape: int) -> Any:
    """Draw weights."""
    return draw.normal(0, 0.5, shape).astype(np.float32)


def activated(tf: Any, name: str | None, x: Any) -> Any:
    """Apply an activation that the converter may fuse."""
    match name:
        case "relu":
            return tf.nn.relu(x)
        case "relu6":
            return tf.nn.relu6(x)
        case "relu_n1":
            return tf.minimum(1.0, tf.maximum(x, -1.0))
        case _:
            return x


def image(draw: Draw, most: int = 9) -> tuple[int, int, int]:
    """Choose rows, columns and channels."""
    return int(draw.integers(3, most)), int(draw.integers(3, most)), int(draw.integers(1, 9))


def conv(tf: Any, draw: Draw) -> Case:
    """CONV_2D: any kernel, stride (also 3 by 4), padding, dilation, groups, bias or none, one row times 50."""
    rows, columns, channels = image(draw, 12)
    groups = pick(draw, (1, 1, 1, 2))
    channels *= groups
    filters = int(draw.integers(1, 5)) * groups
    kernel = [min(int(draw.integers(1, 6)), rows), min(int(draw.integers(1, 6)), columns)]
    stride = pick(draw, ((1, 1), (2, 2), (1, 1), (3, 4), (2, 1), (1, 3)))
    dilation = pick(draw, ((1, 1), (1, 1), (2, 2), (1, 3))) if stride == (1, 1) else (1, 1)
    padding = pick(draw, ("SAME", "VALID"))
    if padding == "VALID":
        kernel = [min(k, (size - 1) // d + 1) for k, d, size in zip(kernel, dilation, (rows, columns), strict=True)]
    weights = normal(draw, *kernel, channels // groups, filters)
    if draw.random() < 0.3:
        weights[..., int(draw.integers(filters))] *= 50
    bias = normal(draw, filters) if draw.random() < 0.7 else None
    activation = pick(draw, ACTIVATIONS)

    def function(x: Any) -> Any:
        y = tf.nn.conv2d(x, weights, stride, padding, dilations=dilation)
        return activated(tf, activation, y if bias is None else tf.nn.bias_add(y, bias))

    return Case("conv", function, [(1, rows, columns, channels)], [pick(draw, RANGES)])


def depthwise(tf: Any, draw: Draw) -> Case:
    """DEPTHWISE_CONV_2D: any multiplier, stride 2 on even sizes, dilation."""
    rows, columns, channels = image(draw, 12)
    multiplier = pick(draw, (1, 1, 1, 2, 3))
    kernel = pick(draw, (1, 2, 3, 3, 3))
    stride = pick(draw, (1, 1, 2, 3))
    dilation = pick(draw, (1, 2)) if stride == 1 else 1
    padding = pick(draw, ("SAME", "VALID")) if dilation == 1 else "SAME"
    weights = normal(draw, kernel, kernel, channels, multiplier)
    bias = normal(draw, channels * multiplier) if draw.random() < 0.7 else None
    activation = pick(draw, ACTIVATIONS)

    def function(x: Any) -> Any:
        y = tf.nn.depthwise_conv2d(x, weights, [1, stride, stride, 1], padding, dilations=[dilation, dilation])
        return activated(tf, activation, y if bias is None else tf.nn.bias_add(y, bias))

    return Case("depthwise", function, [(1, rows, columns, channels)], [pick(draw, RANGES)])


def padded_conv(tf: Any, draw: Draw) -> Case:
    """PAD before CONV_2D, on inputs whose zero point is not 0; padding is asymmetric."""
    rows, columns, channels = image(draw)
    pads = [[0, 0], *([int(n) for n in draw.integers(0, 3, 2)] for _ in range(2)), [0, 0]]
    weights = normal(draw, 3, 3, channels, int(draw.integers(1, 6)))
    stride = pick(draw, (1, 2))
    return Case(
        "padded_conv",
        lambda x: tf.nn.relu(tf.nn.conv2d(tf.pad(x, pads), weights, stride, "VALID")),
        [(1, rows, columns, channels)],
        [pick(draw, RANGES[1:])],
    )


def transpose_conv(tf: Any, draw: Draw) -> Case:
    """TRANSPOSE_CONV: kernels smaller and larger than the stride."""
    rows, columns, channels = image(draw, 6)
    filters, stride, kernel = int(draw.integers(1, 6)), int(draw.integers(1, 4)), int(draw.integers(1, 5))
    padding = pick(draw, ("same", "valid"))
    layer = tf.keras.layers.Conv2DTranspose(
        filters, kernel, strides=stride, padding=padding, use_bias=draw.random() < 0.7, bias_initializer="normal"
    )
    return keras_case(tf, "transpose_conv", [layer], (rows, columns, channels))


def dense(tf: Any, draw: Draw) -> Case:
    """FULLY_CONNECTED: bias or none, one row times 50, any rank."""
    inputs, outputs = int(draw.integers(1, 40)), int(draw.integers(1, 20))
    weights = normal(draw, inputs, outputs)
    if draw.random() < 0.4:
        weights[:, int(draw.integers(outputs))] *= 50
    bias = normal(draw, outputs) if draw.random() < 0.6 else None
    activation = pick(draw, ACTIVATIONS)
    shape = (1, inputs) if draw.random() < 0.7 else (1, int(draw.integers(2, 5)), inputs)

    def function(x: Any) -> Any:
        y = tf.linalg.matmul(x, weights)
        return activated(tf, activation, y if bias is None else y + bias)

    return Case("dense", function, [shape], [pick(draw, RANGES)])


def pool(tf: Any, draw: Draw) -> Case:
    """AVERAGE_POOL_2D, MAX_POOL_2D: padding beside all-negative values, windows larger than the stride."""
    rows, columns, channels = image(draw, 12)
    window = [int(n) for n in draw.integers(1, 4, 2)]
    stride = [int(n) for n in draw.integers(1, 4, 2)]
    padding = pick(draw, ("SAME", "VALID"))
    pooled = pick(draw, (tf.nn.max_pool2d, tf.nn.avg_pool2d))
    activation = pick(draw, ACTIVATIONS)
    name = "max_pool" if pooled is tf.nn.max_pool2d else "average_pool"
    return Case(
        name,
        lambda x: activated(tf, activation, pooled(x, window, stride, padding)),
        [(1, rows, columns, channels)],
        [pick(draw, RANGES)],
    )


def reduce(tf: Any, draw: Draw) -> Case:
    """MEAN, SUM, REDUCE_MAX, REDUCE_MIN over one axis or several."""
    name = pick(draw, ("mean", "mean", "sum", "max", "min"))
    axes = pick(draw, ([1, 2], [1], [2], [3], [1, 2, 3], [1, 3], [-1]))
    keep = bool(draw.random() < 0.5)
    function = getattr(tf, f"reduce_{name}")
    return Case(f"reduce_{name}", lambda x: function(x, axes, keepdims=keep), [(1, *image(draw))], [pick(draw, RANGES)])


def binary(tf: Any, draw: Draw) -> Case:
    """ADD, SUB, MUL, MAXIMUM, MINIMUM: of two inputs or with a constant, broadcast or not, ranges that differ."""
    name = pick(draw, ("add", "subtract", "multiply", "add", "subtract", "multiply", "maximum", "minimum"))
    operator = getattr(tf, name)
    rows, columns, channels = image(draw)
    shape: Shape = (1, rows, columns, channels)
    other = pick(draw, (shape, shape, (1, 1, 1, channels), (1, rows, columns, 1), (1, 1, 1, 1), (1, rows, 1, channels)))
    activation = pick(draw, ACTIVATIONS) if name in ("add", "subtract", "multiply") else None
    ranges = [pick(draw, RANGES), pick(draw, RANGES)]
    if draw.random() < 0.4:
        constant = draw.uniform(*ranges[1], other).astype(np.float32)
        return Case(f"{name}_constant", lambda x: activated(tf, activation, operator(x, constant)), [shape], ranges)
    return Case(name, lambda x, y: activated(tf, activation, operator(x, y)), [shape, other], ranges)


def concatenation(tf: Any, draw: Draw) -> Case:
    """CONCATENATION of inputs with other ranges: the converter puts QUANTIZE before it."""
    rows, columns, channels = image(draw)
    count, axis = int(draw.integers(2, 5)), int(draw.integers(1, 4))
    shapes = []
    for _ in range(count):
        shape = [1, rows, columns, channels]
        shape[axis] = int(draw.integers(1, 5))
        shapes.append(tuple(shape))
    ranges = [pick(draw, RANGES) for _ in range(count)]
    return Case("concatenation", lambda *xs: tf.concat(xs, axis), shapes, ranges)


def unary(tf: Any, draw: Draw) -> Case:
    """Functions of one value."""
    slope = float(draw.uniform(0.01, 0.9))
    functions = {
        "logistic": tf.sigmoid,
        "tanh": tf.tanh,
        "relu": tf.nn.relu,
        "relu6": tf.nn.relu6,
        "leaky_relu": lambda x: tf.nn.leaky_relu(x, slope),
        "hard_swish": lambda x: x * tf.nn.relu6(x + 3.0) * (1 / 6),
        "softmax": tf.nn.softmax,
        "softmax_last": lambda x: tf.nn.softmax(x, axis=-1),
        "hard_sigmoid": lambda x: tf.nn.relu6(x + 3.0) * (1 / 6),
        "negated": lambda x: -x,
        "absolute": tf.abs,
        "rsqrt": lambda x: tf.math.rsqrt(x + 8.0),
        "square": tf.square,
    }
    name = pick(draw, list(functions))
    reach = float(pick(draw, (0.5, 2.0, 6.0, 20.0)))
    shape = (1, int(draw.integers(2, 60))) if name == "softmax" else (1, *image(draw))
    return Case(name, functions[name], [shape], [(-min(reach, 7.0), reach)])


def prelu(tf: Any, draw: Draw) -> Case:
    """PRELU with a slope for each channel, or shared over rows and columns as Keras does."""
    shape = image(draw)
    layer = tf.keras.layers.PReLU(
        shared_axes=pick(draw, ([1, 2], [1, 2], None)), alpha_initializer=tf.keras.initializers.RandomUniform(-0.5, 0.9)
    )
    return keras_case(tf, "prelu", [layer], shape)


def pad(tf: Any, draw: Draw) -> Case:
    """PAD, PADV2, MIRROR_PAD, where zero is not the integer 0."""
    pads = [[0, 0], *([int(n) for n in draw.integers(0, 3, 2)] for _ in range(3))]
    name, options = pick(
        draw,
        (
            ("pad", {}),
            ("pad", {}),
            ("pad_value", {"constant_values": float(draw.uniform(-1, 1))}),
            ("pad_reflect", {"mode": "REFLECT"}),
            ("pad_symmetric", {"mode": "SYMMETRIC"}),
        ),
    )
    if name == "pad_reflect" or name == "pad_symmetric":
        shape: Shape = (1, int(draw.integers(3, 7)), int(draw.integers(3, 7)), int(draw.integers(3, 7)))
    else:
        shape = (1, *image(draw))
    return Case(name, lambda x: tf.pad(x, pads, **options), [shape], [pick(draw, RANGES)])


def move(tf: Any, draw: Draw) -> Case:
    """What only moves elements: slices, transposes, splits, packs, blocks, reshapes."""
    rows, columns, channels = (2 * int(n) for n in draw.integers(2, 5, 3))
    begin = [0, *(int(n) for n in draw.integers(0, 2, 3))]
    size = [1, rows - 2, columns - 3, channels - 2]
    step = [int(n) for n in draw.integers(1, 4, 2)]
    order = [0, *(1 + int(n) for n in draw.permutation(3))]
    part = int(draw.integers(1, channels))
    functions: dict[str, Callable[[Any], Any]] = {
        "slice": lambda x: tf.slice(x, begin, size),
        "strided_slice": lambda x: x[:, begin[1] :: step[0], : columns - 1 : step[1], begin[3] :],
        "strided_slice_back": lambda x: x[:, :: -step[0], ::-1, :],
        "strided_slice_shrink": lambda x: x[:, begin[1], ..., : channels - 1],
        "strided_slice_new": lambda x: tf.reshape(x, (rows, -1))[1:, tf.newaxis, ::2],
        "transpose": lambda x: tf.transpose(x, order),
        "transpose_3d": lambda x: tf.transpose(tf.reshape(x, (rows, columns, channels)), [n - 1 for n in order[1:]]),
        "split": lambda x: tf.concat([part + 1.0 for part in tf.split(x, 2, axis=3)], axis=2),
        "split_v": lambda x: tf.nn.relu(tf.split(x, [part, channels - part], axis=3)[1]),
        "split_outputs": lambda x: tuple(tf.split(x, 2, axis=begin[1] + 1)),
        "unstack": lambda x: tf.concat(tf.unstack(x, axis=1)[1:], axis=-1),
        "stack": lambda x: tf.stack([x[:, 0], x[:, 1] * 0.5], axis=pick(draw, (1, 2, 3))),
        "reshape": lambda x: tf.nn.relu(tf.reshape(x, (1, rows * columns, channels))),
        "squeeze": lambda x: tf.squeeze(tf.expand_dims(x[:, :1], 3), [1]),
        "space_to_depth": lambda x: tf.nn.space_to_depth(x, 2),
        "depth_to_space": lambda x: tf.nn.depth_to_space(tf.concat([x, x], -1), 2),
        "space_to_batch": lambda x: tf.space_to_batch(x, [2, 2], [[0, 0], [0, 2]]),
        "batch_to_space": lambda x: tf.batch_to_space(
            tf.reshape(x, (4, rows // 2, columns // 2, channels)), [2, 2], [[0, 1], [0, 0]]
        ),  # noqa: E501
        "broadcast_to": lambda x: tf.broadcast_to(x[:, :1], (1, rows, columns, channels)),
        "arg_max": lambda x: tf.argmax(tf.reshape(x, (1, rows, -1)), axis=pick(draw, (1, 2)), output_type=tf.int32),
    }
    name = pick(draw, list(functions))
    return Case(name, functions[name], [(1, rows, columns, channels)], [pick(draw, RANGES)])


def resize(tf: Any, draw: Draw) -> Case:
    """RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR: up, down, corners aligned or centres halved."""
    rows, columns, channels = image(draw)
    size = [int(n) for n in draw.integers(1, 14, 2)]
    name = pick(draw, ("bilinear", "nearest_neighbor"))
    raw = getattr(tf.raw_ops, "ResizeBilinear" if name == "bilinear" else "ResizeNearestNeighbor")
    align, half = pick(draw, ((False, False), (True, False), (False, True)))
    return Case(
        f"resize_{name}",
        lambda x: raw(images=x, size=size, align_corners=align, half_pixel_centers=half),
        [(1, rows, columns, channels)],
        [pick(draw, RANGES)],
    )


def float_ends(tf: Any, draw: Draw) -> Case:
    """QUANTIZE and DEQUANTIZE at the ends of a small network."""
    inputs, outputs = int(draw.integers(2, 20)), int(draw.integers(2, 12))
    weights = normal(draw, inputs, outputs)
    return Case(
        "float_ends",
        lambda x: tf.nn.tanh(tf.linalg.matmul(x, weights)),
        [(1, inputs)],
        [pick(draw, RANGES)],
        float_ends=True,
    )


def lstm(tf: Any, draw: Draw) -> Case:
    """UNIDIRECTIONAL_SEQUENCE_LSTM, which the converter makes of the layer of Keras 2; of that of Keras 3 it dies."""
    import tf_keras

    steps, width, units = int(draw.integers(2, 9)), int(draw.integers(1, 9)), int(draw.integers(2, 13))
    tf_keras.utils.set_random_seed(int(draw.integers(1000)))
    layer = tf_keras.layers.LSTM(units, return_sequences=bool(draw.random() < 0.5), bias_initializer="normal")
    model = tf_keras.Sequential([tf_keras.Input((steps, width), batch_size=1), layer])
    return Case("lstm", lambda x: model(x), [(1, steps, width)], holder=model)


def unrolled(tf: Any, draw: Draw) -> Case:
    """Recurrent layers, step after step: many small products, slices and gates."""
    steps, width, units = int(draw.integers(2, 5)), int(draw.integers(1, 6)), int(draw.integers(2, 7))
    kind = pick(draw, ("LSTM", "GRU", "SimpleRNN"))
    layer = getattr(tf.keras.layers, kind)(units, unroll=True, return_sequences=bool(draw.random() < 0.5))
    return keras_case(tf, f"{kind.lower()}_unrolled", [layer], (steps, width))


def keras_case(tf: Any, name: str, layers: Sequence[Any], shape: tuple[int, ...], batch: int | None = 1) -> Case:
    """Make a case of layers, one after the other."""
    model = tf.keras.Sequential([tf.keras.Input(shape, batch_size=batch), *layers])
    return Case(name, model, [(batch, *shape)], is_model=True)


# A kind is drawn this many times in a corpus of the usual size.
SINGLES: dict[Callable[[Any, Draw], Case], int] = {
    conv: 42,
    depthwise: 20,
    padded_conv: 6,
    transpose_conv: 10,
    dense: 18,
    pool: 16,
    reduce: 16,
    binary: 30,
    concatenation: 8,
    unary: 30,
    prelu: 5,
    pad: 12,
    move: 56,
    resize: 10,
    float_ends: 3,
    lstm: 6,
    unrolled: 6,
}
