"""Offer small int8 models with their test inputs: ready files, which need no TensorFlow.

One folder a model holds its card (README.md), `<name>_int8.tflite`, `<name>_inputs.npz` (`x` int8 [n, *shape] as the
model takes it, `y` uint8 [n], the labels; from the held-back part of the data) and `facts.json` (what was known when
it was made). `models.train` and `models.quantize` make them.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from gossamer.errors import GossamerError
from models.zoo._samples import Samples, of_data_set, of_noise, of_patterns

__all__ = ["Entry", "Samples", "get", "names"]

_HERE: Final = Path(__file__).parent


@dataclass(frozen=True)
class Entry:
    """Describe one model of the zoo; `epochs` is 0 for random weights."""

    name: str
    title: str
    shape: tuple[int, ...]  # of one input, without the batch
    classes: int
    data: str  # a set of `models.DATA_SETS`, or `patterns` or `noise`, which are made up
    epochs: int
    batch: int = 32
    learning_rate: float = 2e-3
    seed: int = 1
    committed_inputs: int = 64

    @property
    def folder(self) -> Path:
        """Say where the files are."""
        return _HERE / self.name

    @property
    def tflite(self) -> Path:
        """Say where the model is."""
        return self.folder / f"{self.name}_int8.tflite"

    @property
    def inputs(self) -> Path:
        """Say where the test inputs are."""
        return self.folder / f"{self.name}_inputs.npz"

    @property
    def facts(self) -> Path:
        """Say where what was known when the model was made is."""
        return self.folder / "facts.json"

    @property
    def card(self) -> Path:
        """Say where the card is."""
        return self.folder / "README.md"

    def samples(self) -> Samples:
        """Return training and test samples as floats, the way the float model takes them.

        Raises: GossamerError where the package that holds them is missing.
        """
        match self.data:
            case "patterns":
                return of_patterns(self.shape, self.classes)
            case "noise":
                return of_noise(self.shape, self.classes)
            case name:
                return of_data_set(name, self.shape)


_ENTRIES: Final = {
    entry.name: entry
    for entry in (
        Entry("digits_mlp", "Digits, MLP 64-32-10", (64,), 10, "digits", epochs=40),
        Entry("digits_cnn", "Digits, CNN", (8, 8, 1), 10, "digits", epochs=30),
        Entry("mnist_fcn", "MNIST, MLP 784-12-10", (784,), 10, "mnist", epochs=30),
        Entry("mnist_lenet5", "MNIST, LeNet-5", (28, 28, 1), 10, "mnist", epochs=12),
        Entry("motions_cnn", "Human activity, CNN over time", (100, 6), 4, "basic_motions", 60, 8, committed_inputs=8),
        Entry(
            "patterns_mobilenet",
            "Patterns, MobileNetV1 0.25",
            (32, 32, 3),
            10,
            "patterns",
            10,
            learning_rate=5e-3,
            committed_inputs=24,
        ),
        Entry("keywords_dscnn", "Keyword spotting, DS-CNN with random weights", (49, 10, 1), 12, "noise", epochs=0),
    )
}


def names() -> tuple[str, ...]:
    """List the models."""
    return tuple(_ENTRIES)


def get(name: str) -> Entry:
    """Return a model by name. Raises GossamerError for another name."""
    if name not in _ENTRIES:
        near = get_close_matches(name, _ENTRIES, 1)
        mend = f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(_ENTRIES)}"
        raise GossamerError(f"there is no model {name!r}", mend=mend)
    return _ENTRIES[name]
