"""Training against an independent float64 model, and the order of sums against numbers chosen to reveal it."""

from __future__ import annotations

import numpy as np
import pytest

from gossamer.spec import nn

TINY, HUGE = np.float32(1), np.float32(2**25)  # HUGE + TINY == HUGE in binary32


def reference(dims: tuple[int, ...], flat: np.ndarray, x: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Return loss and gradient in float64 by matrix products; x is [B, d]."""
    layers, at = [], 0
    for fan_in, fan_out in zip(dims[:-1], dims[1:], strict=True):
        weights = flat[at : at + fan_in * fan_out].reshape(fan_out, fan_in).astype(np.float64)
        at += fan_in * fan_out
        layers.append((weights, flat[at : at + fan_out].astype(np.float64)))
        at += fan_out
    values = [x.astype(np.float64)]
    for number, (weights, bias) in enumerate(layers):
        z = values[-1] @ weights.T + bias
        values.append(z if number == len(layers) - 1 else np.maximum(z, 0))
    shifted = values[-1] - values[-1].max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    dz = (np.exp(log_p) - np.eye(dims[-1])[labels]) / len(x)
    pieces = []
    for number in reversed(range(len(layers))):
        pieces.append(np.concatenate([(dz.T @ values[number]).ravel(), dz.sum(axis=0)]))
        dz = (dz @ layers[number][0]) * (values[number] > 0)
    return -log_p[np.arange(len(x)), labels].mean(), np.concatenate(pieces[::-1])


@pytest.mark.parametrize("dims", [(3, 2), (5, 4, 3), (64, 32, 10), (7, 1, 6, 2, 9)])
@pytest.mark.parametrize("nodes", [1, 3])
def test_gradient_is_that_of_the_float64_model(dims: tuple[int, ...], nodes: int) -> None:
    random = np.random.default_rng(sum(dims) + nodes)
    model = nn.Model.dense(dims)
    flat = random.normal(size=(model.parameters, nodes)).astype(np.float32)
    x = random.random((dims[0], 6, nodes), np.float32)
    labels = random.integers(0, dims[-1], (6, nodes))
    loss, gradient = nn.gradient(nn.Network(model), flat, x, labels)
    for node in range(nodes):
        expected_loss, expected = reference(dims, flat[:, node], x[:, :, node].T, labels[:, node])
        assert loss[node] == pytest.approx(expected_loss, rel=1e-5)
        np.testing.assert_allclose(gradient[:, node], expected, rtol=1e-4, atol=1e-6)


def test_a_node_is_not_touched_by_the_others_beside_it() -> None:
    random = np.random.default_rng(5)
    model = nn.Model.dense((20, 9, 4))
    flat = random.normal(size=(model.parameters, 200)).astype(np.float32)
    x = random.random((20, 5, 200), np.float32)
    labels = random.integers(0, 4, (5, 200))
    loss, gradient = nn.gradient(nn.Network(model), flat, x, labels)
    alone, alone_gradient = nn.gradient(nn.Network(model), flat[:, 77:78], x[:, :, 77:78], labels[:, 77:78])
    assert loss[77] == alone[0]
    np.testing.assert_array_equal(gradient[:, 77], alone_gradient[:, 0])


def test_forward_sums_from_the_bias_in_order_of_inputs() -> None:
    model = nn.Model.dense((3, 1))
    flat = np.array([HUGE, TINY, -HUGE, TINY], np.float32)[:, None]  # three weights, then the bias
    logits = nn.forward(nn.Network(model), flat, np.ones((3, 1, 1), np.float32))
    # ((1 + 2^25) + 1) - 2^25: both ones are lost. Any other order keeps at least one.
    assert logits[0, 0, 0] == 0


def test_gradient_sums_in_order_of_samples() -> None:
    # Equal logits: dz of class 0 is -1/6, -1/6, +1/6; the inputs show in which order the products are added.
    model = nn.Model.dense((1, 2))
    flat = np.zeros((model.parameters, 1), np.float32)
    x = np.array([[[HUGE], [TINY], [HUGE]]], np.float32)
    labels = np.array([[0], [0], [1]])
    _, gradient = nn.gradient(nn.Network(model), flat, x, labels)
    third = np.float32(1) / np.float32(3)
    step = np.float32(0.5) * third
    expected = (-step * HUGE + -step * TINY) + step * HUGE
    assert gradient[0, 0] == expected == 0
    assert float(-step) * float(TINY) != 0


def test_evaluate_counts_only_a_nodes_own_samples() -> None:
    model = nn.Model.dense((1, 2))
    flat = np.repeat(np.array([[0], [0], [1], [0]], np.float32), 3, axis=1)  # always predicts class 0
    labels = np.array([0, 1, 0, 0])

    def batches(place: slice) -> tuple[np.ndarray, np.ndarray]:
        return np.ones((1, place.stop - place.start, 1), np.float32), labels[place][:, None]

    loss, correct = nn.evaluate(nn.Network(model), flat, batches, np.array([4, 2, 0]))
    right, wrong = np.log1p(np.exp(-1.0)), np.log1p(np.exp(1.0))
    assert correct.tolist() == [3, 1, 0]
    np.testing.assert_allclose(loss, [(3 * right + wrong) / 4, (right + wrong) / 2, 0], rtol=1e-6)


def test_parameters_are_laid_out_row_by_row_then_bias() -> None:
    model = nn.Model.dense((3, 2, 4))
    assert model.parameters == 3 * 2 + 2 + 2 * 4 + 4
    assert [(name, place.start, place.stop) for name, place in model.tensors] == [
        ("layer 1 weights", 0, 6),
        ("layer 1 bias", 6, 8),
        ("layer 2 weights", 8, 16),
        ("layer 2 bias", 16, 20),
    ]
