"""Models of every kind, small enough for the slow reading, with samples and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.spec.constants import LayerKind, Padding
from tests.core.naive_nn import Layer, Net, Shape, dense, perceptron
from tests.core.parts import F32

U8, FLOAT = 0, 1
SCALE, OFFSET = np.float32(1 / 255), np.float32(-0.125)


def conv(outputs: int, kernel: int | tuple[int, int], relu: bool = True, **options: Any) -> Layer:
    size = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    stride = options.pop("stride", (1, 1))
    return Layer(LayerKind.CONV, relu, outputs, size, stride, groups=options.pop("groups", 1), **options)


def pool(kind: LayerKind, kernel: tuple[int, int], stride: tuple[int, int], padding: Padding = Padding.VALID) -> Layer:
    return Layer(kind, kernel=kernel, stride=stride, padding=padding)


def norm(groups: int, relu: bool = False, frozen: bool = False) -> Layer:
    return Layer(LayerKind.NORM, relu, groups=groups, frozen=frozen)


def plus(source: int, relu: bool = False) -> Layer:
    return Layer(LayerKind.ADD, relu, source=source)


def dropout(rate: float) -> Layer:
    return Layer(LayerKind.DROPOUT, rate24=int(rate * 2**24))


FLATTEN = Layer(LayerKind.FLATTEN)
SAME, VALID = Padding.SAME, Padding.VALID
MAX, AVERAGE = LayerKind.POOL_MAX, LayerKind.POOL_AVERAGE

# Perceptrons around panels of 2 * 1, 4, 8 and 16 columns, strips of 32 features and blocks of 1, 2, 4 and 8 rows.
PERCEPTRONS: list[tuple[Shape, list[Layer], int, int]] = [
    ((1, 1, dims[0]), perceptron(*dims), batch, kind)
    for dims, batch, kind in [
        ((1, 1), 1, U8),
        ((3, 2), 2, FLOAT),
        ((33, 9, 2), 3, U8),
        ((31, 5, 4, 3), 5, FLOAT),
        ((7, 1, 6, 2, 9), 4, U8),
        ((64, 17, 10), 2, FLOAT),
        ((6, 8, 3), 33, U8),
        ((5, 12, 11), 17, FLOAT),
    ]
]
# fmt: off
OTHERS: dict[str, tuple[Shape, list[Layer], int, int]] = {
    "relu nowhere": ((1, 1, 5), [dense(4, relu=False), dense(3, relu=False)], 3, U8),
    "relu of logits": ((1, 1, 5), [dense(9), dense(3)], 3, FLOAT),
    "frozen below": ((2, 3, 2), [dense(40, frozen=True), dense(11, relu=False, frozen=True), dense(3, False)], 3, U8),
    "frozen above": ((1, 1, 6), [dense(5), dense(35, frozen=True), dense(3, relu=False, frozen=True)], 2, FLOAT),
    "conv": ((4, 4, 1), [conv(3, 3), dense(3, relu=False)], 2, U8),
    "conv same": ((5, 3, 2), [conv(18, 3, padding=SAME), conv(5, (2, 3), padding=SAME), dense(2, False)], 2, FLOAT),
    "conv stride": (
        (7, 9, 3),
        [conv(9, (3, 2), stride=(2, 3)), conv(2, 2, stride=(2, 1), padding=SAME, relu=False)],
        2, U8,
    ),
    "conv groups": (
        (4, 5, 6),
        [conv(8, 3, groups=2, padding=SAME), conv(6, 2, groups=2, stride=(2, 2)), dense(3, False)],
        2, U8,
    ),
    "conv stride over kernel": (
        (9, 9, 2),
        [conv(4, 2, relu=False), conv(3, 2, stride=(3, 4)), dense(2, False)],
        2, FLOAT,
    ),
    "conv wide kernel": ((2, 3, 4), [conv(3, (5, 7), padding=SAME), conv(2, (2, 3))], 3, U8),
    "depthwise": (
        (5, 4, 20),
        [conv(20, 3, groups=20, padding=SAME), conv(20, (2, 3), groups=20, stride=(2, 1)), dense(3, False)],
        1, U8,
    ),
    "depthwise multiplier": (
        (4, 4, 3),
        [conv(3, 3, groups=3, padding=SAME), conv(6, 2, groups=3), dense(3, False)],
        2, FLOAT,
    ),
    "pointwise": ((2, 3, 17), [conv(33, 1), conv(4, 1, relu=False), pool(AVERAGE, (2, 3), (1, 1))], 2, U8),
    "max": ((5, 6, 3), [conv(4, 2, relu=False), pool(MAX, (2, 2), (2, 2)), dense(3, False)], 2, FLOAT),
    "max that overlaps": (
        (5, 5, 2),
        [conv(9, 3, padding=SAME), pool(MAX, (3, 2), (1, 2), SAME), dense(3, False)],
        2, U8,
    ),
    "max with gaps": ((7, 7, 1), [conv(3, 1, relu=False), pool(MAX, (2, 2), (3, 3)), dense(3, False)], 2, U8),
    "max of ties": (
        (4, 4, 1),
        [conv(2, 3, padding=SAME, frozen=True), conv(2, 1), pool(MAX, (3, 3), (1, 1)), dense(3, False)],
        2, U8,
    ),
    "average": ((5, 5, 3), [conv(4, 2), pool(AVERAGE, (3, 3), (2, 2), SAME), dense(3, False)], 2, FLOAT),
    "pool first": ((6, 6, 2), [pool(MAX, (2, 2), (2, 2)), pool(AVERAGE, (2, 2), (1, 1)), dense(3, False)], 2, U8),
    "norm": ((3, 4, 6), [conv(12, 2), norm(3, relu=True), conv(6, 2, relu=False), norm(1), dense(3, False)], 2, U8),
    "norm of channels": ((3, 3, 2), [norm(2), conv(18, 2, relu=False), norm(18, relu=True), dense(3, False)], 3, FLOAT),
    "norm last": ((2, 2, 3), [conv(5, 2, relu=False), norm(5)], 2, U8),
    "add": (
        (4, 4, 2),
        [conv(4, 3, padding=SAME), conv(4, 3, padding=SAME, relu=False), plus(0, relu=True), dense(3, False)],
        2, U8,
    ),
    "adds of one source": (
        (3, 3, 2),
        [conv(4, 2), conv(4, 1), plus(0), conv(4, 1, False), plus(0, relu=True), plus(2), plus(0), dense(3, False)],
        2,
        FLOAT,
    ),
    "add of what is flat": (
        (1, 1, 6),
        [dense(5), FLATTEN, dropout(0.25), plus(1), plus(0, relu=True), dense(3, False)],
        3, U8,
    ),
    "add last": ((2, 2, 3), [conv(3, 2), dense(3), plus(0, relu=True)], 2, FLOAT),
    "flatten and dropout": (
        (3, 3, 2),
        [conv(5, 2), dropout(0.5), FLATTEN, dense(9), dropout(0.3), dense(3, False)],
        3, U8,
    ),
    "dropout of all kinds": (
        (2, 3, 2),
        [dropout(0.4), conv(6, 2, relu=False), dropout(0.0), dense(4, False), dropout(0.3)],
        2, FLOAT,
    ),
    "flatten only": ((2, 1, 2), [dense(4), FLATTEN], 2, FLOAT),
    "sparse": (
        (5, 5, 1),
        [
            conv(4, 3, padding=SAME, frozen=True),
            norm(2, relu=True, frozen=True),
            conv(4, 3, padding=SAME, relu=False, frozen=True),
            plus(0, relu=True),
            pool(MAX, (2, 2), (2, 2)),
            conv(6, 2),
            norm(3, frozen=True),
            conv(6, 1, relu=False, frozen=True),
            plus(5, relu=True),
            dense(3, False),
        ],
        2,
        U8,
    ),
    "sparse across": (
        (4, 4, 2),
        [
            conv(3, 3, padding=SAME, frozen=True),
            conv(5, 3, padding=SAME, frozen=True),
            conv(3, 3, padding=SAME, frozen=True),
            conv(3, 1, relu=False),
            plus(0, relu=True),
            plus(2),
            dense(3, False, frozen=True),
        ],
        2,
        FLOAT,
    ),
    "one frozen tail": ((4, 4, 1), [norm(1), conv(3, 2, frozen=True), pool(AVERAGE, (3, 3), (3, 3))], 2, U8),
}
# fmt: on
CASES = {f"perceptron {i}": case for i, case in enumerate(PERCEPTRONS)} | OTHERS


@dataclass
class Samples:
    """Draw samples and parameters."""

    shape: Shape
    layers: list[Layer]
    batch: int
    feature_type: int
    count: int = 70

    def __post_init__(self) -> None:
        inputs = self.shape[0] * self.shape[1] * self.shape[2]
        random = np.random.default_rng([self.batch, inputs, len(self.layers)])
        parts = Net.parts_of(self.shape, self.layers)
        if self.feature_type == U8:
            self.stored: NDArray[np.generic] = random.integers(0, 256, (self.count, inputs), np.uint8)
            self.x = self.stored.astype(np.float32) * SCALE + OFFSET
        else:
            self.stored = self.x = random.normal(size=(self.count, inputs)).astype(np.float32)
        self.labels = random.integers(0, parts[-1].numbers, self.count).astype(np.uint8)
        self.rows = random.integers(0, self.count, self.batch).astype(np.uint16)
        vectors: dict[bool, list[F32]] = {False: [np.zeros(0, np.float32)], True: [np.zeros(0, np.float32)]}
        for part in parts:
            width = part.weights // max(part.biases, 1)
            weights = random.normal(size=part.weights + part.biases).astype(np.float32) / np.float32(
                max(width, 1) ** 0.5
            )
            vectors[part.layer.frozen].append(weights)
        self.w, self.frozen = (np.concatenate(vectors[frozen]) for frozen in (False, True))

    @property
    def net(self) -> Net:
        return Net(self.shape, self.layers, list(self.w), list(self.frozen))

    @property
    def batch_x(self) -> list[list[np.float32]]:
        return [list(self.x[row]) for row in self.rows]

    @property
    def batch_labels(self) -> list[int]:
        return [int(self.labels[row]) for row in self.rows]
