"""Build the zoo's models in Keras; the one place that says what is in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Layers = list[Any]


def build(keras: Any, name: str, shape: tuple[int, ...], classes: int, batch: int | None) -> Any:
    """Return a model with fresh weights; a batch of 1 makes every shape in the converted file known."""
    layers = _LAYERS[name](keras.layers)
    head = [keras.layers.Dense(classes, kernel_initializer=_head(keras, name)), keras.layers.Softmax()]
    return keras.Sequential([keras.Input(shape, batch_size=batch), *layers, *head], name=name)


def _head(keras: Any, name: str) -> Any:
    # Without training all classes would be as likely, and all int8 outputs the same.
    return keras.initializers.VarianceScaling(100.0) if name == "keywords_dscnn" else "glorot_uniform"


def _digits_mlp(layers: Any) -> Layers:
    return [layers.Dense(32, activation="relu")]


def _digits_cnn(layers: Any) -> Layers:
    return [
        layers.Conv2D(8, 3, padding="same", activation="relu"),
        layers.Conv2D(16, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(2),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(),
    ]


def _mnist_fcn(layers: Any) -> Layers:
    return [layers.Dense(12, activation="relu")]


def _mnist_lenet5(layers: Any) -> Layers:
    return [
        layers.Conv2D(6, 5, padding="same", activation="tanh"),
        layers.AveragePooling2D(2),
        layers.Conv2D(16, 5, activation="tanh"),
        layers.AveragePooling2D(2),
        layers.Flatten(),
        layers.Dense(120, activation="tanh"),
        layers.Dense(84, activation="tanh"),
    ]


def _motions_cnn(layers: Any) -> Layers:
    return [
        layers.Conv1D(16, 5, strides=2, padding="same", activation="relu"),
        layers.Conv1D(32, 5, strides=2, padding="same", activation="relu"),
        layers.GlobalAveragePooling1D(),
    ]


def _patterns_mobilenet(layers: Any) -> Layers:
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    first = [layers.Conv2D(32 // 4, 3, strides=2, padding="same", use_bias=False), *_normalized(layers, 6.0)]
    rest = [layer for filters, stride in blocks for layer in _separable(layers, filters // 4, stride, 6.0)]
    return [*first, *rest, layers.GlobalAveragePooling2D()]


def _keywords_dscnn(layers: Any) -> Layers:
    first = [layers.Conv2D(64, (10, 4), strides=2, padding="same", use_bias=False), *_normalized(layers, None)]
    rest = [layer for _ in range(4) for layer in _separable(layers, 64, 1, None)]
    return [*first, *rest, layers.AveragePooling2D((25, 5)), layers.Flatten()]


def _separable(layers: Any, filters: int, stride: int, limit: float | None) -> Layers:
    return [
        layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False),
        *_normalized(layers, limit),
        layers.Conv2D(filters, 1, use_bias=False),
        *_normalized(layers, limit),
    ]


def _normalized(layers: Any, limit: float | None) -> Layers:
    return [layers.BatchNormalization(momentum=0.9), layers.ReLU(limit)]


_LAYERS: Final[dict[str, Callable[[Any], Layers]]] = {
    "digits_mlp": _digits_mlp,
    "digits_cnn": _digits_cnn,
    "mnist_fcn": _mnist_fcn,
    "mnist_lenet5": _mnist_lenet5,
    "motions_cnn": _motions_cnn,
    "patterns_mobilenet": _patterns_mobilenet,
    "keywords_dscnn": _keywords_dscnn,
}
