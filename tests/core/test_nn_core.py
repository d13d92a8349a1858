"""Training: to the bit against the slow reading of SPEC.md 3, and in the large against float64."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gossamer.spec import rng
from gossamer.spec.constants import CONFIG_WORDS, LayerKind, Stream
from tests.core import naive
from tests.core.naive_nn import Axis, Layer, Net, Shape, dense, model_words, perceptron
from tests.core.nn_cases import (
    AVERAGE,
    CASES,
    FLOAT,
    MAX,
    OFFSET,
    OTHERS,
    SAME,
    SCALE,
    U8,
    Samples,
    conv,
    norm,
    plus,
    pool,
)  # fmt: skip
from tests.core.parts import F32, Parts

LR = np.float32(0.3)
SEED, ROUND, NODE, STEP = [0x12345678, 0x9ABCDEF0], 3, 2, 1


class Case:
    """Hold them in the memory that C sees."""

    def __init__(self, parts: Parts, samples: Samples) -> None:
        self.parts, self.samples = parts, samples
        self.model, bad = parts.model(model_words(samples.shape, samples.layers))
        assert bad == len(CONFIG_WORDS)
        self.known = parts.look(self.model)
        assert (self.known["parameters"], self.known["given"]) == (len(samples.w), len(samples.frozen))
        self._held = parts.give(samples.stored), parts.give(samples.labels), parts.give(samples.frozen, "float")
        parts.lib.parts_model_give(self.model, self._held[2])
        fields = {"features": self._held[0], "labels": self._held[1], "type": samples.feature_type}
        self._samples = parts.ffi.new("gs_samples_t *", fields | {"scale": SCALE, "offset": OFFSET})
        self.c_w, self.c_rows = parts.give(samples.w, "float"), parts.give(samples.rows, "uint16_t")
        self.c_g = parts.room(len(samples.w), "float")
        self.c_scratch = parts.room(parts.lib.gs_nn_scratch_floats(self.model, samples.batch), "float")
        parts.ffi.memmove(self.c_scratch, b"\xff" * parts.ffi.sizeof(self.c_scratch), parts.ffi.sizeof(self.c_scratch))

    def _batch(self, rows: Any, first: int, count: int) -> Any:
        fields = {"samples": self._samples, "rows": rows, "first": first, "count": count}
        return self.parts.ffi.new("gs_batch_t *", fields)

    def gradient(self) -> tuple[np.float32, F32]:
        rng = self.parts.ffi.new("gs_rng_t *")
        self.parts.lib.gs_rng_init(rng, SEED, Stream.DROPOUT, ROUND, NODE)
        batch = self._batch(self.c_rows, 0, self.samples.batch)
        first = STEP * self.samples.batch * self.known["dropped"]
        loss = self.parts.lib.gs_nn_gradient(self.model, self.c_w, batch, rng, first, self.c_g, self.c_scratch)
        return np.float32(loss), self.parts.take(self.c_g, "f4")

    def step(self, optimizer: Any, state: Any) -> F32:
        self.parts.lib.gs_optimizer_step(optimizer, len(self.samples.w), LR, self.c_w, self.c_g, state)
        return self.parts.take(self.c_w, "f4")

    def evaluate(self, first: int, count: int, by_rows: bool) -> tuple[np.float32, int]:
        loss, correct = self.parts.ffi.new("float *", 0.5), self.parts.ffi.new("uint32_t *", 7)
        batch = self._batch(self.c_rows if by_rows else self.parts.ffi.NULL, first, count)
        self.parts.lib.gs_nn_evaluate(self.model, self.c_w, batch, loss, correct, self.c_scratch)
        return np.float32(loss[0]), correct[0] - 7


def same(found: F32 | np.float32, expected: object) -> None:
    np.testing.assert_array_equal(np.asarray(found).view(np.uint32), np.asarray(expected, np.float32).view(np.uint32))


def draws(stream: int, round_: int, node: int, indices: Sequence[int]) -> NDArray[np.uint32]:
    """Return draws as gossamer.spec.rng makes them, which is held against published vectors."""
    return rng.draws(SEED[0] | SEED[1] << 32, stream, round_, node, np.array(indices, np.uint32))


@cache
def expected_steps(name: str) -> list[tuple[np.float32, F32]]:
    """Return (loss, gradient) of two steps of plain SGD, by the slow reading."""
    samples = Samples(*CASES[name])
    net, steps = samples.net, []
    numbers = draws(Stream.DROPOUT, ROUND, NODE, range((STEP + 1) * samples.batch * net.dropped + 1))
    for _ in range(2):
        loss, g = net.gradient(samples.batch_x, samples.batch_labels, lambda i: int(numbers[i]), STEP)
        net.sgd(g, LR, np.float32(0), np.float32(0))
        steps.append((loss, np.array(g)))
    return steps


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_specification_to_the_bit(parts: Parts, name: str) -> None:
    case = Case(parts, Samples(*CASES[name]))
    sgd = parts.ffi.new("gs_optimizer_t *")
    for expected_loss, expected_g in expected_steps(name):
        loss, g = case.gradient()
        same(loss, expected_loss)
        same(g, expected_g)
        assert np.any(g) or name == "perceptron 0"  # one class: nothing to learn
        case.step(sgd, parts.ffi.NULL)


@cache
def expected_results(name: str) -> list[tuple[np.float32, int]]:
    """Return loss and predicted class of the first samples and of the batch."""
    samples = Samples(*CASES[name])
    net = samples.net
    rows = [*range(11, 11 + samples.batch), *samples.rows.tolist()]
    results = [net.loss(net.forward(list(samples.x[row]))[-1], int(samples.labels[row])) for row in rows]
    return [(loss, int(best == samples.labels[row])) for (loss, _, best), row in zip(results, rows, strict=True)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("by_rows", [False, True])
def test_evaluation_is_the_specification_to_the_bit(parts: Parts, name: str, by_rows: bool) -> None:
    samples = Samples(*CASES[name])
    results = expected_results(name)[samples.batch if by_rows else 0 :][: samples.batch]
    loss, correct = Case(parts, samples).evaluate(11, samples.batch, by_rows)
    same(loss, naive.add(np.float32(0.5), (loss for loss, _ in results)))
    assert correct == sum(right for _, right in results)


OPTIMIZERS = {
    "plain": (0, 0.0, 0.0),
    "momentum": (0, 0.9, 0.0),
    "decay": (0, 0.0, 0.01),
    "momentum and decay": (0, 0.5, 0.25),
    "adam": (1, 0.0, 0.0),
    "adam with decay": (1, 0.0, 0.125),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_the_specification_to_the_bit(parts: Parts, name: str) -> None:
    kind, momentum, decay = OPTIMIZERS[name]
    beta1, beta2, epsilon = np.float32(0.9), np.float32(0.999), np.float32(1e-7)
    samples = Samples((1, 1, 7), perceptron(7, 6, 3), 5, U8)
    case, net = Case(parts, samples), samples.net
    fields = {"kind": kind, "momentum": momentum, "beta1": beta1, "beta2": beta2, "epsilon": epsilon}
    optimizer = parts.ffi.new("gs_optimizer_t *", fields | {"weight_decay": decay})
    floats = parts.lib.gs_optimizer_floats(optimizer, len(samples.w))
    assert floats == (2 + 2 * len(samples.w) if kind else len(samples.w) if momentum else 0)
    state = parts.give(np.full(floats, np.nan, np.float32), "float")
    parts.lib.gs_optimizer_reset(optimizer, len(samples.w), state if floats else parts.ffi.NULL)
    for _ in range(4):
        _, g = net.gradient(samples.batch_x, samples.batch_labels)
        if kind:
            net.adam(g, LR, (beta1, beta2), epsilon, np.float32(decay))
        else:
            net.sgd(g, LR, np.float32(momentum), np.float32(decay))
        case.gradient()
        same(case.step(optimizer, state if floats else parts.ffi.NULL), net.w)
    if kind:
        same(parts.take(state, "f4"), [*net.powers, *net.state[0], *net.state[1]])
    elif momentum:
        same(parts.take(state, "f4"), net.state[0])


BIG: dict[str, tuple[Shape, list[Layer], int, int]] = {
    "perceptron": ((1, 1, 784), perceptron(784, 12, 10), 50, U8),
    "deep perceptron": ((1, 1, 20), perceptron(20, 40, 30, 5), 7, FLOAT),
    "residual": (
        (8, 8, 3),
        [
            conv(16, 3, padding=SAME, relu=False),
            norm(4, relu=True),
            conv(16, 3, groups=4, padding=SAME, relu=False),
            norm(16),
            plus(1, relu=True),
            pool(AVERAGE, (2, 2), (2, 2)),
            conv(16, 3, groups=16, padding=SAME),
            conv(24, 1),
            pool(MAX, (3, 3), (2, 2), SAME),
            dense(10, relu=False),
        ],
        4,
        FLOAT,
    ),
}


def in_float64(samples: Samples, w: NDArray[np.float64]) -> float:
    """Return a batch's loss in float64, by array operations; no derivative is written down here."""
    values = [samples.x[samples.rows].astype(np.float64).reshape(-1, *samples.shape)]
    at = 0
    for part in Net.parts_of(samples.shape, samples.layers):
        x, layer = values[-1], part.layer
        weights, bias = w[at : at + part.weights], w[at + part.weights : at + part.weights + part.biases]
        at += part.weights + part.biases
        if layer.kind == LayerKind.DENSE:
            z = (x.reshape(len(x), -1) @ weights.reshape(layer.outputs, -1).T + bias)[:, None, None, :]
        elif layer.kind == LayerKind.ADD:
            z = x + values[layer.source + 1]
        elif layer.kind == LayerKind.NORM:
            split = x.reshape(*x.shape[:3], layer.groups, -1)
            centred = split - split.mean(axis=(1, 2, 4), keepdims=True)
            z = (centred / np.sqrt((centred**2).mean(axis=(1, 2, 4), keepdims=True) + 1e-5)).reshape(x.shape)
            z = z * weights + bias
        else:
            z = windows_in_float64(x, layer, part.y, part.x, weights, bias)
        values.append(np.maximum(z, 0) if layer.relu else z)
    logits = values[-1].reshape(len(values[-1]), -1)
    shifted = logits - logits.max(axis=1, keepdims=True)
    chosen = shifted[np.arange(len(logits)), samples.labels[samples.rows]]
    return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - chosen))


def windows_in_float64(
    x: NDArray[np.float64], layer: Layer, y_axis: Axis, x_axis: Axis, weights: NDArray[np.float64], bias: Any
) -> NDArray[np.float64]:
    """Fill the padding with NaN, and look at every window of the whole batch."""
    pads = [(0, 0)]
    for axis in (y_axis, x_axis):
        needed = (axis.out - 1) * axis.stride + axis.kernel - axis.n
        pads.append((axis.before, max(0, needed - axis.before)))
    padded = np.pad(x, [*pads, (0, 0)], constant_values=np.nan)
    rows = []
    for y in range(0, y_axis.out * y_axis.stride, y_axis.stride):
        for p in range(0, x_axis.out * x_axis.stride, x_axis.stride):
            window = padded[:, y : y + y_axis.kernel, p : p + x_axis.kernel]
            if layer.kind == LayerKind.CONV:
                split = np.nan_to_num(window).reshape(*window.shape[:3], layer.groups, -1)
                filters = weights.reshape(layer.groups, -1, *layer.kernel, split.shape[-1])
                rows.append(np.einsum("bhwgi,gohwi->bgo", split, filters).reshape(len(x), -1) + bias)
            else:
                reduce = np.nanmax if layer.kind == MAX else np.nanmean
                rows.append(reduce(window, axis=(1, 2)))
    return np.stack(rows, axis=1).reshape(len(x), y_axis.out, x_axis.out, -1)


@pytest.mark.parametrize("name", BIG)
def test_the_gradient_is_that_of_the_loss(parts: Parts, name: str) -> None:
    """Compare with slopes of a loss in float64 along random directions."""
    samples = Samples(*BIG[name])
    loss, g = Case(parts, samples).gradient()
    w, step = samples.w.astype(np.float64), 1e-7
    assert loss == pytest.approx(in_float64(samples, w), rel=1e-5)
    random = np.random.default_rng(9)
    for _ in range(8):
        way = random.normal(size=w.size)
        way /= np.linalg.norm(way)
        slope = (in_float64(samples, w + step * way) - in_float64(samples, w - step * way)) / (2 * step)
        assert slope == pytest.approx(float(way @ g), abs=1e-5 * float(np.linalg.norm(g)))


@pytest.mark.parametrize("init", [0, 1, 2])
def test_initial_parameters(parts: Parts, init: int) -> None:
    shape: Shape = (3, 3, 4)
    layers = [conv(6, (2, 3), groups=2), norm(2), conv(2, 1, frozen=True), norm(1, frozen=True), dense(3, False)]
    net_parts = Net.parts_of(shape, layers)
    total = sum(part.weights + part.biases for part in net_parts)
    model, bad = parts.model(model_words(shape, layers), all_given=init == 2)
    assert bad == len(CONFIG_WORDS)
    known = parts.look(model)
    given = np.arange(1000, 1000 + known["given"], dtype=np.float32)
    held = parts.give(given, "float")
    parts.lib.parts_model_give(model, held)
    w = parts.room(known["parameters"], "float")
    parts.lib.gs_nn_init(model, init, SEED, w)
    numbers, expected, p = draws(Stream.INIT, 0, 0, range(total)), [], 0
    for part in net_parts:
        count = part.weights + part.biases
        if part.layer.frozen:
            p += count
            continue
        if init == 2:
            expected += given[p : p + count].tolist()
        elif part.layer.kind == LayerKind.NORM:
            expected += [1.0] * part.weights + [0.0] * part.biases
        else:
            fan_in, fan_out = part.fans()
            limit = np.sqrt(np.float32(6) / np.float32(fan_in + fan_out if init == 0 else fan_in))
            for number in numbers[p : p + part.weights]:
                unit = np.float32(number >> 8) / np.float32(2**24)
                expected.append((unit * np.float32(2) - np.float32(1)) * limit)
            expected += [0.0] * part.biases
        p += count
    assert known["given"] == (total if init == 2 else 2 * 6 + 2 + 2 * 2)
    same(parts.take(w, "f4"), expected)


def test_parameters_that_are_not_finite_do_no_harm(parts: Parts) -> None:
    for name in ("perceptron 3", "adds of one source", "max that overlaps", "norm", "depthwise"):
        case = Case(parts, Samples(*CASES[name]))
        for at in range(len(case.samples.w)):
            case.c_w[at] = np.inf if at % 2 else np.nan
        loss, _ = case.gradient()
        assert not np.isfinite(loss)


def test_only_what_is_needed_on_the_way_back_is_kept(parts: Parts) -> None:
    shape, layers, *_ = OTHERS["sparse"]
    known = parts.look(parts.model(model_words(shape, layers))[0])
    assert known["lowest"] == 5
    # Below layer 5, ADD needs the outputs of layers 0 and 2, and writes its own: three of 100. The 25 of the input, and
    # what layer 5 and those above it keep (16, 6, 6, 6, 6, 3), find room where some of these were.
    assert known["values"] == 3 * 100
    everything = [Layer(**{**vars(layer), "frozen": False}) for layer in layers]
    kept = parts.look(parts.model(model_words(shape, everything))[0])
    assert (kept["lowest"], kept["values"]) == (0, 25 + 4 * 100 + 16 + 4 * 6 + 3)
