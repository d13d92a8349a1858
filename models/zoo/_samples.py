"""Make the samples that the zoo's models are trained, calibrated and tested with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from models import partition
from models.data import MOTIONS_TRAIN, load

_TEST_FRACTION: Final = 0.2
_PATTERNS: Final = 5000
_NOISE: Final = 320


@dataclass(frozen=True, eq=False)
class Samples:
    """Hold inputs [n, *shape] float32 and labels [n] uint8, those to train with and those held back."""

    train_x: NDArray[np.float32]
    train_y: NDArray[np.uint8]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.uint8]

    @classmethod
    def split(cls, x: NDArray[np.float32], y: NDArray[np.uint8]) -> Samples:
        """Hold a fifth back, as an experiment with seed 0 does."""
        test, train = partition.split(0, len(y), _TEST_FRACTION)
        return cls(x[train], y[train], x[test], y[test])


def of_data_set(name: str, shape: tuple[int, ...]) -> Samples:
    """Take a set of `models.DATA_SETS`, its features scaled as an experiment scales them.

    Where the set is published in two parts, the second is held back, otherwise a fifth.
    """
    data = load(name)
    x = data.x.astype(np.float32) * np.float32(data.feature_scale) + np.float32(data.feature_offset)
    x = x.reshape(-1, *shape)
    if name == "basic_motions":
        return Samples(x[:MOTIONS_TRAIN], data.y[:MOTIONS_TRAIN], x[MOTIONS_TRAIN:], data.y[MOTIONS_TRAIN:])
    return Samples.split(x, data.y)


def of_patterns(shape: tuple[int, ...], classes: int) -> Samples:
    """Draw gratings in noise, values 0 to 1: half of the classes wide, half narrow, each in another direction."""
    draw = np.random.default_rng(0)
    rows, columns, channels = shape
    y = (np.arange(_PATTERNS) % classes).astype(np.uint8)
    angle = np.pi * (y // 2) / (classes // 2) + draw.normal(0, 0.1, _PATTERNS)
    waves = np.where(y % 2, 6.0, 3.0) * draw.uniform(0.9, 1.1, _PATTERNS)
    down, right = np.meshgrid(np.arange(rows) / rows, np.arange(columns) / columns, indexing="ij")
    along = np.cos(angle)[:, None, None] * down + np.sin(angle)[:, None, None] * right
    phase = draw.uniform(0, 2 * np.pi, (_PATTERNS, 1, 1))
    grating = np.sin(2 * np.pi * waves[:, None, None] * along + phase)[..., None]
    colour = draw.uniform(0.05, 0.2, (_PATTERNS, 1, 1, channels))
    x = 0.5 + colour * grating + draw.normal(0, 0.25, (_PATTERNS, *shape))
    return Samples.split(np.clip(x, 0, 1).astype(np.float32), y)


def of_noise(shape: tuple[int, ...], classes: int) -> Samples:
    """Draw normal numbers about a level of each column's own, and labels that say nothing about them."""
    draw = np.random.default_rng(0)
    # Without the levels a network that takes means would answer the same to every sample.
    levels = draw.normal(0, 1.5, (_NOISE, 1, *shape[1:]))
    x = (levels + draw.normal(0, 1, (_NOISE, *shape))).astype(np.float32)
    return Samples.split(x, draw.integers(0, classes, _NOISE).astype(np.uint8))
