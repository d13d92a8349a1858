"""Make models that cannot be exported to int8 C exactly, and must be refused by name; they need TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _dense(tf: Any, batch: int | None = 1) -> Any:
    layers = [tf.keras.layers.Dense(4, activation="relu"), tf.keras.layers.Dense(3)]
    return tf.keras.Sequential([tf.keras.Input((6,), batch_size=batch), *layers])


def _calibration() -> Any:
    draw = np.random.default_rng(1)
    return iter([[draw.normal(size=(1, 6)).astype(np.float32)] for _ in range(8)])


def _float(tf: Any) -> Any:
    return tf.lite.TFLiteConverter.from_keras_model(_dense(tf)).convert()


def _dynamic_range(tf: Any) -> Any:
    model = tf.keras.Sequential([tf.keras.Input((64,), batch_size=1), tf.keras.layers.Dense(32)])
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return converter.convert()


def _int16(tf: Any) -> Any:
    converter = tf.lite.TFLiteConverter.from_keras_model(_dense(tf))
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = _calibration
    both = "EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8"
    converter.target_spec.supported_ops = [getattr(tf.lite.OpsSet, both)]
    return converter.convert()


def _uint8_ends(tf: Any) -> Any:
    converter = tf.lite.TFLiteConverter.from_keras_model(_dense(tf))
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = _calibration
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.uint8
    return converter.convert()


def _custom(tf: Any) -> Any:
    made = tf.function(lambda x: tf.raw_ops.Betainc(a=x, b=x, x=x), [tf.TensorSpec((1, 4), tf.float32)])
    converter = tf.lite.TFLiteConverter.from_concrete_functions([made.get_concrete_function()], made)
    converter.allow_custom_ops = True
    return converter.convert()


def _of_function(tf: Any, function: Callable[[Any], Any], shape: tuple[int | None, ...], select: bool = False) -> Any:
    made = tf.function(function, input_signature=[tf.TensorSpec(shape, tf.float32)], autograph=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([made.get_concrete_function()], made)
    draw = np.random.default_rng(1)
    samples = [[draw.uniform(0.1, 2, [size or 2 for size in shape]).astype(np.float32)] for _ in range(8)]
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: iter(samples)
    converter.target_spec.supported_ops = [
        tf.lite.OpsSet.TFLITE_BUILTINS_INT8,
        *([tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS] if select else []),
    ]
    if not select:
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


REFUSED: dict[str, Callable[[Any], bytes]] = {
    "float": _float,
    "dynamic_range": _dynamic_range,
    "int16": _int16,
    "uint8_ends": _uint8_ends,
    "custom": _custom,
    "cumsum": lambda tf: _of_function(tf, lambda x: tf.cumsum(x, axis=1), (1, 4), select=True),
    "batch_matmul": lambda tf: _of_function(tf, lambda x: tf.matmul(x, x, transpose_b=True), (1, 3, 4)),
    "top_k": lambda tf: _of_function(tf, lambda x: tf.math.top_k(x, 2)[0], (1, 8)),
    "open_rows": lambda tf: _of_function(tf, lambda x: tf.reduce_mean(tf.nn.relu(x), 1), (1, None, 3)),
    "conv_3d": lambda tf: _of_function(
        tf, lambda x: tf.nn.conv3d(x, tf.ones((2, 2, 2, 1, 2)), [1] * 5, "VALID"), (1, 3, 3, 3, 1), select=True
    ),
    "while": lambda tf: _of_function(
        tf, lambda x: tf.while_loop(lambda y: tf.reduce_sum(y) < 9.0, lambda y: [y + 1.0], [x])[0], (1, 2), select=True
    ),
}
