"""Draw whole networks, as people build them in Keras; they need TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.tflite._tf_singles import Case, Draw, image, keras_case, normal, pick

_ROWS_MIN = 4


def small_cnn(tf: Any, draw: Draw) -> Case:
    """Blocks drawn one after the other, then a head; sometimes exported with an open batch."""
    keras = tf.keras
    batch = pick(draw, (1, 1, 1, None))
    shape = (int(draw.integers(6, 17)), int(draw.integers(6, 17)), int(draw.integers(1, 5)))
    start = keras.Input(shape, batch_size=batch)
    x = start
    for _ in range(int(draw.integers(1, 5))):
        block = pick(draw, _BLOCKS)
        if min(x.shape[1], x.shape[2]) >= _ROWS_MIN:
            x = block(keras, draw, x)
    x = _head(keras, draw, x)
    return Case("cnn_open_batch" if batch is None else "cnn", keras.Model(start, x), [(batch, *shape)], is_model=True)


def small_mlp(tf: Any, draw: Draw) -> Case:
    """Dense layers, of images or of vectors, with or without an open batch."""
    layers = tf.keras.layers
    batch = pick(draw, (1, None))
    flat = draw.random() < 0.6
    shape = (int(draw.integers(2, 40)),) if flat else image(draw, 6)
    hidden = [
        layers.Dense(
            int(draw.integers(2, 24)),
            activation=pick(draw, ("relu", "tanh", "sigmoid", "linear", "leaky_relu", "hard_silu")),
            use_bias=bool(draw.random() < 0.7),
            bias_initializer="normal",
        )
        for _ in range(int(draw.integers(1, 4)))
    ]
    head = [layers.Dense(int(draw.integers(2, 8)), activation=pick(draw, (None, "softmax")))]
    return keras_case(tf, "mlp" if batch else "mlp_open_batch", [layers.Flatten(), *hidden, *head], shape, batch)


def sequence_cnn(tf: Any, draw: Draw) -> Case:
    """Convolutions over time: causal, dilated, strided; their shapes pass through EXPAND_DIMS."""
    layers = tf.keras.layers
    batch = pick(draw, (1, 1, None))
    shape = (int(draw.integers(8, 30)), int(draw.integers(1, 7)))
    convs = []
    for number in range(int(draw.integers(1, 4))):
        causal = draw.random() < 0.5
        convs.append(
            layers.Conv1D(
                int(draw.integers(2, 9)),
                int(draw.integers(2, 4)),
                padding="causal" if causal else "same",
                dilation_rate=2**number if causal else 1,
                activation="relu",
                bias_initializer="normal",
            )
        )
    tail = pick(draw, ([layers.GlobalAveragePooling1D()], [layers.GlobalMaxPooling1D()], [layers.Flatten()]))
    name = "sequence" if batch else "sequence_open_batch"
    return keras_case(tf, name, [*convs, *tail, layers.Dense(3, activation="softmax")], shape, batch)


def two_inputs(tf: Any, draw: Draw) -> Case:
    """Two branches that meet, one of an image, one of a vector; two outputs."""
    keras = tf.keras
    rows, columns, channels = image(draw)
    first = keras.Input((rows, columns, channels), batch_size=1)
    second = keras.Input((int(draw.integers(2, 9)),), batch_size=1)
    x = keras.layers.Conv2D(4, 3, padding="same", activation="relu")(first)
    gate = keras.layers.Dense(4, activation="sigmoid")(second)
    x = keras.layers.Multiply()([x, keras.layers.Reshape((1, 1, 4))(gate)])
    pooled = keras.layers.GlobalMaxPooling2D()(x)
    joined = keras.layers.Concatenate()([pooled, second])
    outputs = [keras.layers.Dense(3, activation="softmax")(joined), keras.layers.Dense(2)(pooled)]
    model = keras.Model([first, second], outputs)
    ranges = ((-2.0, 2.0), (0.0, 9.0))
    return Case("two_inputs", model, [first.shape, second.shape], ranges, is_model=True)


def upsampler(tf: Any, draw: Draw) -> Case:
    """An encoder and a decoder that sees the encoder's values again."""
    layers = tf.keras.layers
    shape = (2 * int(draw.integers(3, 7)), 2 * int(draw.integers(3, 7)), int(draw.integers(1, 4)))
    start = tf.keras.Input(shape, batch_size=1)
    wide = layers.Conv2D(6, 3, padding="same", activation="relu")(start)
    narrow = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(wide)
    up = pick(
        draw,
        (
            layers.UpSampling2D(2, interpolation="nearest"),
            layers.UpSampling2D(2, interpolation="bilinear"),
            layers.Conv2DTranspose(6, pick(draw, (2, 3)), strides=2, padding="same", bias_initializer="normal"),
        ),
    )(narrow)
    x = layers.Concatenate()([wide, up])
    x = layers.Conv2D(2, 1, activation=pick(draw, ("sigmoid", "softmax", None)))(x)
    return Case("upsampler", tf.keras.Model(start, x), [(1, *shape)], is_model=True)


def attention(tf: Any, draw: Draw) -> Case:
    """Products, transposes and sums without a layer for them: what graphs of functions look like."""
    steps, width = int(draw.integers(2, 7)), int(draw.integers(2, 9))
    keys, values = normal(draw, width, width), normal(draw, width, width)

    def function(x: Any) -> Any:
        rows = tf.reshape(x, (steps, width))
        weight = tf.nn.softmax(tf.reduce_sum(tf.tanh(rows @ keys), axis=1)[tf.newaxis])
        mixed = tf.transpose(rows @ values) * weight
        return tf.reduce_mean(mixed, axis=1, keepdims=True)

    return Case("attention", function, [(1, steps, width)])


def _conv(keras: Any, draw: Draw, x: Any) -> Any:
    layer = keras.layers.Conv2D(
        int(draw.integers(1, 17)),
        pick(draw, (1, 3, 3, 5)),
        strides=pick(draw, (1, 1, 2)),
        padding=pick(draw, ("same", "same", "valid")) if min(x.shape[1:3]) > 5 else "same",
        use_bias=bool(draw.random() < 0.7),
        bias_initializer="normal",
    )
    x = layer(x)
    if draw.random() < 0.4:
        x = keras.layers.BatchNormalization(beta_initializer="normal", moving_mean_initializer="normal")(x)
    return _activation(keras, draw)(x)


def _activation(keras: Any, draw: Draw) -> Any:
    name = pick(draw, ("relu", "relu", "relu6", "tanh", "sigmoid", "hard_silu", "leaky_relu", "linear"))
    return keras.layers.Activation(name)


def _dilated(keras: Any, draw: Draw, x: Any) -> Any:
    return keras.layers.Conv2D(int(draw.integers(2, 9)), 3, dilation_rate=2, padding="same", activation="relu")(x)


def _separable(keras: Any, draw: Draw, x: Any) -> Any:
    x = keras.layers.DepthwiseConv2D(3, strides=pick(draw, (1, 2)), padding="same", bias_initializer="normal")(x)
    x = keras.layers.ReLU(6.0)(x)
    return keras.layers.Conv2D(int(draw.integers(2, 17)), 1, activation="relu")(x)


def _residual(keras: Any, draw: Draw, x: Any) -> Any:
    y = keras.layers.Conv2D(x.shape[-1], 3, padding="same", activation="relu")(x)
    y = keras.layers.Conv2D(x.shape[-1], 3, padding="same", bias_initializer="normal")(y)
    return keras.layers.ReLU()(keras.layers.Add()([x, y]))


def _branches(keras: Any, draw: Draw, x: Any) -> Any:
    one = keras.layers.Conv2D(4, 1, activation="relu")(x)
    three = keras.layers.Conv2D(4, 3, padding="same", activation="tanh")(x)
    pooled = keras.layers.MaxPooling2D(3, strides=1, padding="same")(x)
    return keras.layers.Concatenate()([one, three, pooled])


def _squeezed(keras: Any, draw: Draw, x: Any) -> Any:
    channels = x.shape[-1]
    y = keras.layers.GlobalAveragePooling2D(keepdims=True)(x)
    y = keras.layers.Conv2D(max(1, channels // 2), 1, activation="relu")(y)
    y = keras.layers.Conv2D(channels, 1, activation=pick(draw, ("sigmoid", "hard_sigmoid")))(y)
    return keras.layers.Multiply()([x, y])


def _pooled(keras: Any, draw: Draw, x: Any) -> Any:
    kind = pick(draw, (keras.layers.MaxPooling2D, keras.layers.AveragePooling2D))
    return kind(pick(draw, (2, 3)), strides=2, padding=pick(draw, ("same", "valid")))(x)


def _padded(keras: Any, draw: Draw, x: Any) -> Any:
    x = keras.layers.ZeroPadding2D(((0, 1), (0, 1)))(x)
    return keras.layers.Conv2D(int(draw.integers(2, 9)), 3, strides=2, activation="relu")(x)


def _grouped(keras: Any, draw: Draw, x: Any) -> Any:
    if x.shape[-1] % 2:
        return _separable(keras, draw, x)
    return keras.layers.Conv2D(2 * int(draw.integers(1, 5)), 3, groups=2, padding="same", activation="relu")(x)


def _prelu(keras: Any, draw: Draw, x: Any) -> Any:
    return keras.layers.PReLU(shared_axes=[1, 2], alpha_initializer=keras.initializers.RandomUniform(0.05, 0.5))(x)


def _head(keras: Any, draw: Draw, x: Any) -> Any:
    layers = keras.layers
    x = pick(draw, (layers.GlobalAveragePooling2D(), layers.GlobalMaxPooling2D(), layers.Flatten(), layers.Flatten()))(
        x
    )
    if draw.random() < 0.3:
        x = layers.Dense(int(draw.integers(2, 13)), activation="relu", use_bias=bool(draw.random() < 0.5))(x)
    return layers.Dense(int(draw.integers(2, 11)), activation=pick(draw, ("softmax", "softmax", "sigmoid", None)))(x)


_BLOCKS = (
    _conv, _conv, _dilated, _separable, _residual, _branches, _squeezed, _pooled, _pooled, _padded, _grouped, _prelu,
)  # fmt: skip

GRAPHS: dict[Callable[[Any, Draw], Case], int] = {
    small_cnn: 64,
    small_mlp: 14,
    sequence_cnn: 12,
    two_inputs: 4,
    upsampler: 8,
    attention: 3,
}
