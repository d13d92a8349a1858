"""Train and evaluate a model, many nodes at once, in the exact order of SPEC.md 3.

Every array ends with the node axis, so one numpy operation serves all nodes; the loops run over inputs, outputs or
samples, in the order that the specification fixes for each sum.

Shapes: N nodes, P parameters, B samples, d features, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gossamer.spec import fmath, rng
from gossamer.spec.constants import LayerKind, Stream
from gossamer.spec.nn import _layers as run
from gossamer.spec.nn._blocks import F32, I64, Bool, blocks, ordered_sum
from gossamer.spec.nn._layers import Normal
from gossamer.spec.nn._model import Block, Layer, Model, Shape


def _none() -> F32:
    return np.zeros(0, np.float32)


@dataclass(frozen=True, eq=False)
class Network:
    """Hold a model and the values of its frozen parameters, which all nodes share."""

    model: Model
    frozen: F32 = field(default_factory=_none)

    def parameters(self, flat: F32) -> dict[int, tuple[F32, F32]]:
        """View flat [P, N], and the frozen values, as layer -> (W [O, k_y, k_x, I, N], b [O, N]); no copy."""
        found = {block.layer: _view(block, self.frozen[:, None]) for block in self.model.frozen}
        return found | {block.layer: _view(block, flat) for block in self.model.trainable}


def _view(block: Block, flat: F32) -> tuple[F32, F32]:
    edge = block.at + block.weights
    weights = flat[block.at : edge].reshape(block.outputs, *block.kernel, block.inputs, -1)
    return weights, flat[edge : block.at + block.size]


@dataclass(frozen=True)
class Dropout:
    """Draw what is dropped in one step (SPEC.md 3.4); `nodes` [N] are ids."""

    seed: int
    round: int
    step: int
    nodes: I64

    def dropped(self, model: Model, layer: int, samples: int) -> Bool:
        """Return the numbers of the layer's output that are dropped, [H, W, C, B, N]."""
        sizes = model.dropout_sizes
        before = sum(size for number, size in sizes.items() if number < layer)
        shape = model.shapes[layer]
        sample = (self.step * samples + np.arange(samples)) * sum(sizes.values())
        index = before + np.arange(shape.numbers).reshape(*shape, 1, 1) + sample[:, None]
        draws = rng.draws(self.seed, Stream.DROPOUT, self.round, self.nodes, index)
        dropped: Bool = rng.chance(draws, model.layers[layer].rate24)
        return dropped


@dataclass
class _Pass:
    """Hold what a pass forth leaves for the pass back, by layer."""

    values: list[F32]  # the input, then each layer's output
    best: dict[int, I64] = field(default_factory=dict)
    normal: dict[int, Normal] = field(default_factory=dict)
    dropped: dict[int, Bool] = field(default_factory=dict)


def _forth(network: Network, parameters: dict[int, tuple[F32, F32]], x: F32, dropout: Dropout | None) -> _Pass:
    model = network.model
    done = _Pass([x.reshape(*model.input, *x.shape[1:])])
    for number, layer in enumerate(model.layers):
        z = _output(done, number, layer, parameters.get(number), model, dropout)
        done.values.append(run.relu(z) if layer.relu else z)
    return done


def _output(
    done: _Pass, number: int, layer: Layer, own: tuple[F32, F32] | None, model: Model, dropout: Dropout | None
) -> F32:
    """Return a layer's output before relu, [H, W, C, B, N]."""
    x = done.values[number]
    match layer.kind, own:
        case LayerKind.DENSE, (weights, bias):
            z = run.dense(weights[:, 0, 0], bias, _flat(x))
            return z.reshape(1, 1, *z.shape)
        case LayerKind.CONV, (weights, bias):
            return run.conv(layer, weights, bias, x)
        case LayerKind.NORM, (weights, bias):
            done.normal[number] = run.normalize(layer, x)
            return run.norm(done.normal[number], weights[:, 0, 0, 0], bias)
        case LayerKind.POOL_MAX, _:
            z, done.best[number] = run.pool_max(layer, x)
            return z
        case LayerKind.POOL_AVERAGE, _:
            return run.pool_average(layer, x)
        case LayerKind.ADD, _:
            return x + done.values[layer.source + 1]
        case LayerKind.DROPOUT, _ if dropout is not None:
            done.dropped[number] = dropout.dropped(model, number, x.shape[3])
            return run.drop(layer, x, done.dropped[number])
        case _:  # FLATTEN, and DROPOUT outside of training
            return x.reshape(*model.shapes[number + 1], *x.shape[3:])


def _flat(value: F32) -> F32:
    return value.reshape(-1, *value.shape[3:])


def forward(network: Network, flat: F32, x: F32) -> F32:
    """Return the logits [C, B, N] outside of training; x is [d, B, N or 1]."""
    return _flat(_forth(network, network.parameters(flat), x, None).values[-1])


def activations(network: Network, flat: F32, x: F32) -> list[F32]:
    """Return the input and every layer's output [H, W, C, B, N] outside of training; x is [d, B, N or 1]."""
    return _forth(network, network.parameters(flat), x, None).values


def softmax_loss(logits: F32, labels: I64) -> tuple[F32, I64, F32, F32]:
    """Return loss [B, N], predicted class [B, N], exponentials [C, B, N] and their sum [B, N] (SPEC.md 3.5).

    `labels` is [B, N or 1].
    """
    top = logits[0].copy()
    best = np.zeros(top.shape, np.int64)
    for number in range(1, len(logits)):
        greater = logits[number] > top
        top = np.where(greater, logits[number], top)
        best[greater] = number
    exps = fmath.exp(logits - top)
    total = np.zeros_like(top)
    for row in exps:
        total = total + row
    own = np.broadcast_to(labels, top.shape)
    chosen = np.take_along_axis(logits, own[None], axis=0)[0]
    return fmath.log(total) - (chosen - top), best, exps, total


def gradient(network: Network, flat: F32, x: F32, labels: I64, dropout: Dropout | None = None) -> tuple[F32, F32]:
    """Return the batch's loss [N] and gradient [P, N] (SPEC.md 3.5, 3.6); x is [d, B, N], labels [B, N]."""
    model, samples = network.model, x.shape[1]
    parameters = network.parameters(flat)
    done = _forth(network, parameters, x, dropout)
    losses, _, exps, total = softmax_loss(_flat(done.values[-1]), labels)
    loss = ordered_sum(losses) / np.float32(samples)

    d = exps / total
    is_label = np.arange(len(d))[:, None, None] == labels
    d = np.where(is_label, d - np.float32(1), d) * (np.float32(1) / np.float32(samples))

    result = np.zeros_like(flat)
    targets = {block.layer: _view(block, result) for block in model.trainable}
    _back(model, parameters, targets, done, d.reshape(done.values[-1].shape))
    return loss, result


def _back(
    model: Model,
    parameters: dict[int, tuple[F32, F32]],
    targets: dict[int, tuple[F32, F32]],
    done: _Pass,
    by_logits: F32,
) -> None:
    """Fill the gradients by the parameters from that by the logits (SPEC.md 3.6)."""
    last, lowest = len(model.layers) - 1, min(targets)
    by_output: dict[int, F32] = {last: by_logits}
    for number in range(last, lowest - 1, -1):
        layer, x, y = model.layers[number], done.values[number], done.values[number + 1]
        dz = by_output.pop(number)
        if layer.relu:
            dz = np.where(y > 0, dz, np.float32(0))
        if number in targets:
            _by_parameters(layer, dz, x, targets[number], done.normal.get(number))
        for below in {number - 1, layer.source} if layer.kind is LayerKind.ADD else {number - 1}:
            if below < lowest:
                continue  # nothing there is trained
            dx = _by_input(layer, dz, Shape(*x.shape[:3]), parameters.get(number), done, number)
            by_output[below] = by_output[below] + dx if below in by_output else dx


def _by_parameters(layer: Layer, dz: F32, x: F32, target: tuple[F32, F32], normal: Normal | None) -> None:
    g_weights, g_bias = target
    if layer.kind is LayerKind.DENSE:
        run.dense_parameters(_flat(dz), _flat(x), g_weights[:, 0, 0], g_bias)
    elif layer.kind is LayerKind.CONV:
        run.conv_parameters(layer, dz, x, g_weights, g_bias)
    elif normal is not None:
        run.norm_parameters(normal, dz, g_weights[:, 0, 0, 0], g_bias)


def _by_input(layer: Layer, dz: F32, size: Shape, own: tuple[F32, F32] | None, done: _Pass, number: int) -> F32:
    match layer.kind, own:
        case LayerKind.DENSE, (weights, _):
            dx = run.dense_input(weights[:, 0, 0], _flat(dz))
            return dx.reshape(*size, *dx.shape[1:])
        case LayerKind.CONV, (weights, _):
            return run.conv_input(layer, weights, dz, size)
        case LayerKind.NORM, (weights, _):
            return run.norm_input(layer, done.normal[number], weights[:, 0, 0, 0], dz)
        case LayerKind.POOL_MAX, _:
            return run.pool_max_input(layer, dz, done.best[number], size)
        case LayerKind.POOL_AVERAGE, _:
            return run.pool_average_input(layer, dz, size)
        case LayerKind.DROPOUT, _ if number in done.dropped:
            return run.drop(layer, dz, done.dropped[number])
        case _:  # ADD, FLATTEN
            return dz.reshape(*size, *dz.shape[3:])


Batches = Callable[[slice], tuple[F32, I64]]
"""Give features [d, b, N or 1] and labels [b, N or 1] of a slice of the samples."""


def evaluate(network: Network, flat: F32, batches: Batches, counts: I64) -> tuple[F32, I64]:
    """Return the mean loss [N] and the correct predictions [N] over each node's first counts[N] samples (SPEC.md 4.3).

    Nodes with fewer samples than the longest get padding from `batches`; it has no part in the result.
    """
    nodes = flat.shape[1]
    loss, correct = np.zeros(nodes, np.float32), np.zeros(nodes, np.int64)
    longest = int(counts.max(initial=0))
    for place in blocks(longest, max(size.numbers for size in network.model.shapes[1:]) * nodes):
        x, labels = batches(place)
        losses, best, _, _ = softmax_loss(forward(network, flat, x), labels)
        counted = np.arange(place.start, place.stop)[:, None] < counts
        correct += ((best == labels) & counted).sum(axis=0)
        for row, valid in zip(losses, counted, strict=True):
            loss = np.where(valid, loss + row, loss)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = loss / counts.astype(np.float32)
    return np.where(counts > 0, mean, np.float32(0)), correct
