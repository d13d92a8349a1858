"""Train the zoo's models with Keras, in floats."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from models._tensorflow import seed, tensorflow
from models.zoo import get
from models.zoo._layers import build

_PASSES: Final = 40  # forget the start: 0.9^40 is 1.5 %


def train(name: str, out: Path) -> Path:
    """Train a model, write it into a folder as `<name>.keras` and return the file's path.

    The weights are the same every time with one release of TensorFlow on one kind of processor.
    Raises: GossamerError for another name, and where TensorFlow or the data are not installed.
    """
    entry = get(name)
    tf = tensorflow()
    samples = entry.samples()
    seed(tf, entry.seed)
    model = build(tf.keras, name, entry.shape, entry.classes, None)
    if entry.epochs:
        steps = entry.epochs * -(-len(samples.train_y) // entry.batch)
        rate = tf.keras.optimizers.schedules.CosineDecay(entry.learning_rate, steps)
        model.compile(tf.keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
        model.fit(samples.train_x, samples.train_y, entry.batch, entry.epochs, verbose=2)
    else:
        for _ in range(_PASSES):  # so that batch normalization knows what comes in
            model(samples.train_x, training=True)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.keras"
    model.save(path)
    return path
