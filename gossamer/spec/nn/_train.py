"""Train and evaluate multi-layer perceptrons, many nodes at once, in the exact order of SPEC.md 3.

Every array ends with the node axis, so one numpy operation serves all nodes; the loops run over inputs, outputs or
samples, in the order that the specification fixes for each sum.

Shapes: N nodes, P parameters, B samples, d features, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from gossamer.spec import fmath
from gossamer.spec.nn._model import Model

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

_SCRATCH_FLOATS = 1 << 16  # one temporary of this size stays in a core's second-level cache


def _views(model: Model, flat: F32) -> list[tuple[F32, F32]]:
    """View flat [P, N] as (W [out, in, N], b [out, N]) a layer; no copy."""
    found = []
    for block in model.trainable:
        edge = block.at + block.weights
        weights = flat[block.at : edge].reshape(block.outputs, block.inputs, -1)
        found.append((weights, flat[edge : block.at + block.size]))
    return found


def _blocks(length: int, floats_each: int) -> Iterator[slice]:
    """Cut an axis so that a block of it stays in cache."""
    step = max(1, _SCRATCH_FLOATS // max(1, floats_each))
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def _add_products(total: F32, terms: Iterator[tuple[F32, F32]]) -> None:
    """Add a * b to `total`, term by term, each product and each sum rounded."""
    scratch = np.empty_like(total)
    for a, b in terms:
        np.multiply(a, b, out=scratch)
        np.add(total, scratch, out=total)


def _dense(weights: F32, bias: F32, x: F32) -> F32:
    """Return z [out, B, N] of x [in, B, N or 1] (SPEC.md 3.4)."""
    fan_out, fan_in, nodes = weights.shape
    samples = x.shape[1]
    z = np.empty((fan_out, samples, nodes), np.float32)
    z[:] = bias[:, None, :]
    for rows in _blocks(fan_out, samples * nodes):
        _add_products(z[rows], ((weights[rows, i, None, :], x[None, i]) for i in range(fan_in)))
    return z


def _relu(z: F32) -> F32:
    return np.where(z > 0, z, np.float32(0))


def forward(model: Model, flat: F32, x: F32) -> list[F32]:
    """Return the input of every layer and, last, the logits [C, B, N]; x is [d, B, N or 1]."""
    layers = _views(model, flat)
    values = [x]
    for number, (weights, bias) in enumerate(layers):
        z = _dense(weights, bias, values[-1])
        values.append(z if number == len(layers) - 1 else _relu(z))
    return values


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


def gradient(model: Model, flat: F32, x: F32, labels: I64) -> tuple[F32, F32]:
    """Return the batch's loss [N] and gradient [P, N] (SPEC.md 3.5, 3.6); x is [d, B, N], labels [B, N]."""
    samples = x.shape[1]
    values = forward(model, flat, x)
    losses, _, exps, total = softmax_loss(values[-1], labels)
    loss = ordered_sum(losses) / np.float32(samples)

    dz = exps / total
    is_label = np.arange(len(dz))[:, None, None] == labels
    dz = np.where(is_label, dz - np.float32(1), dz) * (np.float32(1) / np.float32(samples))

    result = np.zeros_like(flat)
    layers, gradients = _views(model, flat), _views(model, result)
    for number in reversed(range(len(layers))):
        (weights, _), (g_weights, g_bias), inputs = layers[number], gradients[number], values[number]
        fan_out, fan_in, nodes = weights.shape
        for columns in _blocks(fan_in, fan_out * nodes):
            block = np.zeros((fan_out, columns.stop - columns.start, nodes), np.float32)
            _add_products(block, ((dz[:, None, s], inputs[None, columns, s]) for s in range(samples)))
            g_weights[:, columns] = block
        for s in range(samples):
            g_bias += dz[:, s]
        if number:
            dx = np.zeros_like(inputs)
            for rows in _blocks(fan_in, samples * nodes):
                _add_products(dx[rows], ((weights[o, rows, None, :], dz[None, o]) for o in range(fan_out)))
            dz = np.where(inputs > 0, dx, np.float32(0))
    return loss, result


def update(flat: F32, velocity: F32 | None, g: F32, lr: F32, momentum: np.float32, weight_decay: np.float32) -> None:
    """Take one SGD step in place (SPEC.md 3.7); lr is [N], `velocity` is None exactly when momentum is 0."""
    if weight_decay:
        g = g + weight_decay * flat
    if velocity is not None:
        velocity[:] = momentum * velocity + g
        g = velocity
    flat -= lr * g


def ordered_sum(terms: F32) -> F32:
    """Sum along the first axis, in order, from +0."""
    total: F32 = np.add.accumulate(terms, axis=0, dtype=np.float32)[-1]
    return np.float32(0) + total


Batches = Callable[[slice], tuple[F32, I64]]
"""Give features [d, b, N or 1] and labels [b, N or 1] of a slice of the samples."""


def evaluate(model: Model, flat: F32, batches: Batches, counts: I64) -> tuple[F32, I64]:
    """Return the mean loss [N] and the correct predictions [N] over each node's first counts[N] samples (SPEC.md 4.3).

    Nodes with fewer samples than the longest get padding from `batches`; it has no part in the result.
    """
    nodes = flat.shape[1]
    loss, correct = np.zeros(nodes, np.float32), np.zeros(nodes, np.int64)
    longest = int(counts.max(initial=0))
    for place in _blocks(longest, max(size.numbers for size in model.shapes[1:]) * nodes):
        x, labels = batches(place)
        losses, best, _, _ = softmax_loss(forward(model, flat, x)[-1], labels)
        counted = np.arange(place.start, place.stop)[:, None] < counts
        correct += ((best == labels) & counted).sum(axis=0)
        for row, valid in zip(losses, counted, strict=True):
            loss = np.where(valid, loss + row, loss)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = loss / counts.astype(np.float32)
    return np.where(counts > 0, mean, np.float32(0)), correct
