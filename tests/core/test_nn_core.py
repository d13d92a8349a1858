"""Training: to the bit against the slow reading of SPEC.md 3, and in the large against float64."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.core import naive
from tests.core.parts import F32, Parts

U8, FLOAT = 0, 1
SCALE, OFFSET, LR = np.float32(1 / 255), np.float32(-0.125), np.float32(0.3)


@dataclass
class Samples:
    """Draw samples and weights."""

    dims: tuple[int, ...]
    batch: int
    feature_type: int
    count: int = 70

    def __post_init__(self) -> None:
        random = np.random.default_rng([self.batch, *self.dims])
        shape = (self.count, self.dims[0])
        if self.feature_type == U8:
            self.stored: NDArray[np.generic] = random.integers(0, 256, shape, np.uint8)
            self.x = self.stored.astype(np.float32) * SCALE + OFFSET
        else:
            self.stored = self.x = random.normal(size=shape).astype(np.float32)
        self.labels = random.integers(0, self.dims[-1], self.count).astype(np.uint8)
        self.rows = random.integers(0, self.count, self.batch).astype(np.uint16)
        parameters = sum((i + 1) * o for i, o in zip(self.dims[:-1], self.dims[1:], strict=True))
        self.w = random.normal(size=parameters).astype(np.float32) / np.float32(np.sqrt(self.dims[0]))

    @property
    def net(self) -> naive.Net:
        return naive.Net(self.dims, list(self.w), [np.float32(0)] * len(self.w))


class Case:
    """Hold them in the memory that C sees."""

    def __init__(self, parts: Parts, samples: Samples) -> None:
        self.parts, self.samples = parts, samples
        self.nn = parts.nn(samples.dims)
        assert parts.lib.gs_nn_parameters(self.nn) == len(samples.w)
        self._held = parts.give(samples.stored), parts.give(samples.labels)
        fields = {"features": self._held[0], "labels": self._held[1], "type": samples.feature_type}
        self.c_samples = parts.ffi.new("gs_samples_t *", fields | {"scale": SCALE, "offset": OFFSET})
        self.c_w, self.c_rows = parts.give(samples.w, "float"), parts.give(samples.rows, "uint16_t")
        self.c_g = parts.room(len(samples.w), "float")
        self.c_scratch = parts.room(parts.lib.gs_nn_scratch_floats(self.nn, samples.batch), "float")

    def gradient(self) -> tuple[np.float32, F32]:
        loss = self.parts.lib.gs_nn_gradient(
            self.nn, self.c_w, self.c_samples, self.c_rows, self.samples.batch, self.c_g, self.c_scratch
        )
        return np.float32(loss), self.parts.take(self.c_g, "f4")

    def update(self, velocity: object, lr: np.float32, momentum: float, decay: float) -> F32:
        self.parts.lib.gs_nn_update(len(self.samples.w), self.c_w, velocity, self.c_g, lr, momentum, decay)
        return self.parts.take(self.c_w, "f4")

    def evaluate(self, first: int, count: int, by_rows: bool) -> tuple[np.float32, int]:
        loss, correct = self.parts.ffi.new("float *", 0.5), self.parts.ffi.new("uint32_t *", 7)
        rows = self.c_rows if by_rows else self.parts.ffi.NULL
        self.parts.lib.gs_nn_evaluate(
            self.nn, self.c_w, self.c_samples, rows, first, count, loss, correct, self.c_scratch
        )
        return np.float32(loss[0]), correct[0] - 7


def same(found: F32 | np.float32, expected: object) -> None:
    np.testing.assert_array_equal(np.asarray(found).view(np.uint32), np.asarray(expected, np.float32).view(np.uint32))


# Around panels of 2 * 1, 4, 8 and 16 columns, strips of 32 features and register blocks of 1, 2, 4 and 8 rows.
SMALL = [
    ((1, 1), 1, U8),
    ((3, 2), 2, FLOAT),
    ((33, 9, 2), 3, U8),
    ((31, 5, 4, 3), 5, FLOAT),
    ((7, 1, 6, 2, 9), 4, U8),
    ((64, 17, 10), 2, FLOAT),
    ((6, 8, 3), 33, U8),
    ((5, 12, 11), 17, FLOAT),
]


@cache
def expected_steps(
    dims: tuple[int, ...], batch: int, feature_type: int, momentum: float, decay: float
) -> tuple[list[tuple[np.float32, F32, F32]], F32]:
    """Return (loss, gradient, new weights) of two steps, and the velocity, by the slow reading."""
    samples = Samples(dims, batch, feature_type)
    net, steps = samples.net, []
    for _ in range(2):
        x = [list(samples.x[row]) for row in samples.rows]
        loss, g = net.gradient(x, [int(samples.labels[row]) for row in samples.rows])
        net.update(g, LR, np.float32(momentum), np.float32(decay))
        steps.append((loss, np.array(g), np.array(net.w)))
    return steps, np.array(net.velocity)


@pytest.mark.parametrize(("dims", "batch", "feature_type"), SMALL)
@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.01), (0.5, 0.25)])
def test_steps_are_the_specification_to_the_bit(
    parts: Parts, dims: tuple[int, ...], batch: int, feature_type: int, momentum: float, decay: float
) -> None:
    case = Case(parts, Samples(dims, batch, feature_type))
    steps, expected_velocity = expected_steps(dims, batch, feature_type, momentum, decay)
    velocity = parts.room(len(case.samples.w), "float") if momentum else parts.ffi.NULL
    for expected_loss, expected_g, expected_w in steps:
        loss, g = case.gradient()
        same(loss, expected_loss)
        same(g, expected_g)
        same(case.update(velocity, LR, momentum, decay), expected_w)
    if momentum:
        same(parts.take(velocity, "f4"), expected_velocity)


@pytest.mark.parametrize(("dims", "batch", "feature_type"), SMALL)
@pytest.mark.parametrize("by_rows", [False, True])
def test_evaluation_is_the_specification_to_the_bit(
    parts: Parts, dims: tuple[int, ...], batch: int, feature_type: int, by_rows: bool
) -> None:
    samples = Samples(dims, batch, feature_type)
    net, rows = samples.net, samples.rows.tolist() if by_rows else list(range(11, 11 + batch))
    results = [net.loss(net.forward(list(samples.x[row]))[-1], int(samples.labels[row])) for row in rows]
    loss, correct = Case(parts, samples).evaluate(11, batch, by_rows)
    same(loss, naive.add(np.float32(0.5), (result[0] for result in results)))
    assert correct == sum(best == samples.labels[row] for (_, _, best), row in zip(results, rows, strict=True))


@pytest.mark.parametrize(("dims", "batch"), [((64, 32, 10), 16), ((784, 12, 10), 50), ((20, 40, 30, 5), 7)])
@pytest.mark.parametrize("feature_type", [U8, FLOAT])
def test_the_gradient_is_that_of_the_loss(parts: Parts, dims: tuple[int, ...], batch: int, feature_type: int) -> None:
    """Compare with slopes of a loss in float64 along random directions; no derivative is written down here."""
    samples = Samples(dims, batch, feature_type)
    x, labels = samples.x[samples.rows].astype(np.float64), samples.labels[samples.rows]

    def loss_at(w: NDArray[np.float64]) -> float:
        values, at = x, 0
        for layer, (fan_in, fan_out) in enumerate(zip(dims[:-1], dims[1:], strict=True)):
            weights = w[at : at + fan_in * fan_out].reshape(fan_out, fan_in)
            at += fan_in * fan_out
            values = values @ weights.T + w[at : at + fan_out]
            at += fan_out
            if layer < len(dims) - 2:
                values = np.maximum(values, 0)
        shifted = values - values.max(axis=1, keepdims=True)
        return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(batch), labels]))

    loss, g = Case(parts, samples).gradient()
    w, step = samples.w.astype(np.float64), 1e-7
    assert loss == pytest.approx(loss_at(w), rel=1e-5)
    random = np.random.default_rng(9)
    for _ in range(8):
        way = random.normal(size=w.size)
        way /= np.linalg.norm(way)
        slope = (loss_at(w + step * way) - loss_at(w - step * way)) / (2 * step)
        assert slope == pytest.approx(float(way @ g), abs=1e-5 * float(np.linalg.norm(g)))


@pytest.mark.parametrize("init", [0, 1])
def test_initial_weights(parts: Parts, init: int) -> None:
    dims, seed = (5, 4, 3), [0x12345678, 0x9ABCDEF0]
    w = parts.room(39, "float")
    parts.lib.gs_nn_init(parts.nn(dims), init, seed, w)
    draws = parts.room(39, "uint32_t")
    parts.lib.parts_draws(seed, 1, 0, 0, parts.give(np.arange(39, dtype=np.uint32), "uint32_t"), draws, 39)
    expected, p = [], 0
    for fan_in, fan_out in zip(dims[:-1], dims[1:], strict=True):
        limit = np.sqrt(np.float32(6) / np.float32(fan_in + fan_out if init == 0 else fan_in))
        for _ in range(fan_in * fan_out):
            unit = np.float32(draws[p] >> 8) / np.float32(2**24)
            expected.append((unit * np.float32(2) - np.float32(1)) * limit)
            p += 1
        expected += [np.float32(0)] * fan_out
        p += fan_out
    same(parts.take(w, "f4"), expected)


def test_weights_that_are_not_finite_do_no_harm(parts: Parts) -> None:
    case = Case(parts, Samples((9, 5, 3), 4, FLOAT))
    case.c_w[2], case.c_w[30] = np.inf, np.nan
    loss, _ = case.gradient()
    assert not np.isfinite(loss)
