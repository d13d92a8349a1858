"""Turn the zoo's trained models into int8 .tflite files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import GossamerError
from models._tensorflow import seed, tensorflow
from models.zoo import Entry, Samples, get
from models.zoo._layers import build

_CALIBRATION: Final = 200  # training samples that set the ranges


def quantize(name: str, out: Path) -> Path:
    """Convert `<name>.keras` of a folder, which `train` wrote; return the path of `<name>_int8.tflite` beside it.

    Also writes `<name>_inputs.npz` and `facts.json` (see `models.zoo`).
    Raises: GossamerError for another name, and where the trained model, TensorFlow or the data are missing.
    """
    entry = get(name)
    trained = out / f"{name}.keras"
    if not trained.exists():
        raise GossamerError("the trained model is not there", str(trained), f"gossamer models train {name} --out {out}")
    tf = tensorflow()
    samples = entry.samples()
    seed(tf, entry.seed)
    float_model = tf.keras.models.load_model(trained)
    single = build(tf.keras, name, entry.shape, entry.classes, 1)
    single.set_weights(float_model.get_weights())
    content = convert(tf, single, samples.train_x[:_CALIBRATION])
    path = out / f"{name}_int8.tflite"
    path.write_bytes(content)
    x, y = samples.test_x[: entry.committed_inputs], samples.test_y[: entry.committed_inputs]
    np.savez_compressed(out / f"{name}_inputs.npz", x=_as_input(tf, content, x), y=y)
    facts = json.dumps(_facts(tf, entry, float_model, samples), indent=2)
    (out / "facts.json").write_text(facts + "\n", "utf-8")
    return path


def convert(tf: Any, model: Any, calibration: NDArray[np.float32]) -> bytes:
    """Convert a Keras model to a .tflite file with int8 operators, inputs and outputs."""
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: _one_by_one(calibration)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    content: bytes = converter.convert()
    return content


def _one_by_one(x: NDArray[np.float32]) -> Iterator[list[NDArray[np.float32]]]:
    for row in x:
        yield [row[None]]


def _as_input(tf: Any, content: bytes, x: NDArray[np.float32]) -> NDArray[np.int8]:
    """Quantize samples as the model wants its input."""
    scale, zero_point = tf.lite.Interpreter(model_content=content).get_input_details()[0]["quantization"]
    quantized: NDArray[np.int8] = np.clip(np.rint(x / np.float32(scale)) + zero_point, -128, 127).astype(np.int8)
    return quantized


def _facts(tf: Any, entry: Entry, model: Any, samples: Samples) -> dict[str, Any]:
    """Tell what cannot be learned from the .tflite file."""
    right = model.predict(samples.test_x, verbose=0).argmax(axis=1) == samples.test_y
    return {
        "parameters": model.count_params(),
        "float_accuracy": round(float(right.mean()), 4) if entry.epochs else None,
        "train_samples": len(samples.train_y),
        "test_samples": len(samples.test_y),
        "tensorflow": tf.__version__,
        "keras": tf.keras.__version__,
    }
