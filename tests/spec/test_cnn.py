"""Convolutional models: against a slow reading of SPEC.md 3 to the bit, and against differences in float64."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from gossamer.experiment._network import network
from gossamer.experiment._sections import ModelSection, TrainSection
from gossamer.spec import nn
from gossamer.spec.constants import Init, LayerKind, Padding, Unit
from gossamer.spec.units import Units
from tests.conformance.random_models import random_model
from tests.spec.naive_nn import Naive

F = np.float32
SEEDS = range(40)


def frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: frozen(item) for key, item in value.items()}
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def model_of(tables: dict[str, Any], trainable: Any = "all") -> nn.Model:
    section = ModelSection.model_validate(frozen(tables))
    return network(section, TrainSection(batch=1, local_steps=1, lr=0.1, trainable=frozen(trainable)))


def drawn(seed: int) -> nn.Model:
    draw = random.Random(seed)
    size = (draw.randint(1, 6), draw.randint(1, 6), draw.randint(1, 3))
    return model_of(*random_model(draw, size, draw.randint(2, 4)))


def naive(model: nn.Model, values: np.ndarray) -> Naive:
    return Naive(tuple(model.input), [layer.words() for layer in model.layers], values)


def together(model: nn.Model, own: np.ndarray, still: np.ndarray) -> np.ndarray:
    """Return all parameters in flat order."""
    parts = {False: own, True: still}
    pieces = []
    for block in model.blocks:
        pieces.append(parts[block.frozen][: block.size])
        parts[block.frozen] = parts[block.frozen][block.size :]
    return np.concatenate(pieces)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_bit_is_that_of_the_text(seed: int) -> None:
    model = drawn(seed)
    values = np.random.default_rng(seed)
    nodes, samples = values.integers(1, 4), values.integers(1, 4)
    start = model.initial(seed, Init.HE if seed % 2 else Init.GLOROT)
    assert start.tobytes() == naive(model, start).initial(seed, bool(seed % 2)).tobytes()
    noise = values.normal(size=(model.parameters, nodes)).astype(F) * F(0.3)
    still = model.part(start, frozen=True)
    flat = model.part(start, frozen=False)[:, None] + noise
    x = values.normal(size=(model.input.numbers, samples, nodes)).astype(F)
    labels = values.integers(0, model.classes, (samples, nodes))
    step, round_, ids = 3, 5, values.integers(0, 60000, nodes)

    dropout = nn.Dropout(seed, round_, step, ids)
    loss, g = nn.gradient(nn.Network(model, still), flat, x, labels, dropout)
    logits = nn.forward(nn.Network(model, still), flat, x)
    for node in range(nodes):
        slow = naive(model, together(model, flat[:, node], still))
        batch = [(list(x[:, b, node]), int(labels[b, node])) for b in range(samples)]
        droppers = [slow.dropper(seed, round_, int(ids[node]), step, int(samples), b) for b in range(samples)]
        slow_loss, slow_g = slow.gradient(batch, droppers)
        assert loss[node] == slow_loss
        assert g[:, node].tobytes() == model.part(slow_g, frozen=False).tobytes()
        for b in range(samples):
            assert logits[:, b, node].tobytes() == slow.forward(batch[b][0], None)[-1].tobytes()


def test_the_seeds_meet_every_kind() -> None:
    """Every kind of layer, with and without what makes it hard."""
    layers = [layer for seed in SEEDS for layer in drawn(seed).layers]
    assert {layer.kind for layer in layers} == set(LayerKind)
    convs = [layer for layer in layers if layer.kind is LayerKind.CONV]
    assert any(1 < layer.groups < layer.outputs for layer in convs) and any(min(layer.stride) > 1 for layer in convs)
    assert {layer.padding for layer in convs} == {0, 1} and any(layer.relu for layer in convs)
    assert any(block.frozen for seed in SEEDS for block in drawn(seed).blocks)


# --- float64 ---------------------------------------------------------------------------------------------------------


def loss_in_float64(model: nn.Model, values: np.ndarray, x: np.ndarray, labels: np.ndarray) -> float:
    """Return the batch's loss outside of training; x is [B, H, W, C], as plain as can be."""
    at, outputs = 0, [x]
    for layer, size in zip(model.layers, model.shapes, strict=False):
        v = outputs[-1]
        match layer.kind:
            case LayerKind.DENSE:
                rows = values[at : at + layer.outputs * size.numbers].reshape(layer.outputs, -1)
                at += rows.size + layer.outputs
                z = (v.reshape(len(v), -1) @ rows.T + values[at - layer.outputs : at])[:, None, None]
            case LayerKind.CONV:
                inputs = size.channels // layer.groups
                w = values[at : at + layer.outputs * layer.kernel[0] * layer.kernel[1] * inputs]
                w = w.reshape(layer.outputs, *layer.kernel, inputs)
                at += w.size + layer.outputs
                per = layer.outputs // layer.groups
                patches = windows(layer, size, v, 0.0)
                z = np.stack(
                    [
                        np.tensordot(patches[..., o // per * inputs : (o // per + 1) * inputs], w[o], 3)
                        for o in range(layer.outputs)
                    ],
                    axis=-1,
                )
                z = z + values[at - layer.outputs : at]
            case LayerKind.NORM:
                scale, shift = values[at : at + size.channels], values[at + size.channels : at + 2 * size.channels]
                at += 2 * size.channels
                grouped = v.reshape(len(v), *size[:2], layer.groups, -1)
                mean, var = (f(grouped, axis=(1, 2, 4), keepdims=True) for f in (np.mean, np.var))
                z = ((grouped - mean) / np.sqrt(var + 1e-5)).reshape(v.shape) * scale + shift
            case LayerKind.POOL_MAX:
                z = windows(layer, size, v, -np.inf).max(axis=(3, 4))
            case LayerKind.POOL_AVERAGE:
                z = windows(layer, size, v, 0.0).sum(axis=(3, 4))
                z = z / windows(layer, size, np.ones_like(v), 0.0).sum(axis=(3, 4))
            case LayerKind.ADD:
                z = v + outputs[layer.source + 1]
            case LayerKind.FLATTEN:
                z = v.reshape(len(v), 1, 1, -1)
            case _:
                z = v
        outputs.append(np.maximum(z, 0) if layer.relu else z)
    logits = outputs[-1].reshape(len(x), -1)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(x)), labels]))


def windows(layer: nn.Layer, size: nn.Shape, v: np.ndarray, fill: float) -> np.ndarray:
    """Return [B, H', W', k_y, k_x, C] of a padded input."""
    out = layer.output(size)
    pads = [(0, 0)]
    for axis in range(2):
        needed = max(0, (out[axis] - 1) * layer.stride[axis] + layer.kernel[axis] - size[axis])
        before = needed // 2 if layer.padding else 0
        pads.append((before, needed - before if layer.padding else 0))
    padded = np.pad(v, [*pads, (0, 0)], constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(padded, layer.kernel, axis=(1, 2))
    return view[:, :: layer.stride[0], :: layer.stride[1]][:, : out[0], : out[1]].transpose(0, 1, 2, 4, 5, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_are_those_of_differences_in_float64(seed: int) -> None:
    model = drawn(seed)
    values = np.random.default_rng(seed)
    start = (
        model.initial(seed, Init.HE).astype(np.float64) + values.normal(size=sum(b.size for b in model.blocks)) * 0.2
    )
    start = start.astype(F).astype(np.float64)
    x = values.normal(size=(3, *model.input)).astype(F).astype(np.float64)
    labels = values.integers(0, model.classes, 3)
    single = start.astype(F)
    net = nn.Network(model, model.part(single, frozen=True))
    columns = x.reshape(3, -1).T.astype(F)[:, :, None]
    loss, g = nn.gradient(net, model.part(single, frozen=False)[:, None], columns, labels[:, None])
    assert loss[0] == pytest.approx(loss_in_float64(model, start, x, labels), rel=1e-4, abs=1e-6)
    trained = model.part(np.arange(len(start), dtype=F), frozen=False).astype(int)
    for place in values.choice(len(trained), min(12, len(trained)), replace=False):
        h = 1e-6
        up, down = start.copy(), start.copy()
        up[trained[place]] += h
        down[trained[place]] -= h
        slope = (loss_in_float64(model, up, x, labels) - loss_in_float64(model, down, x, labels)) / (2 * h)
        assert g[place, 0] == pytest.approx(slope, rel=5e-3, abs=2e-4), model.layers


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_same_padding_stands_lower_right() -> None:
    """A 3 x 3 window with stride 2 on 4 x 4: one row of padding in all, none above (SPEC.md 3.1)."""
    layer = nn.Layer(LayerKind.CONV, outputs=1, kernel=(3, 3), stride=(2, 2), padding=Padding.SAME, groups=1)
    assert layer.output(nn.Shape(4, 4, 1)) == (2, 2, 1) and layer.before(nn.Shape(4, 4, 1)) == (0, 0)
    assert layer.output(nn.Shape(5, 5, 1)) == (3, 3, 1) and layer.before(nn.Shape(5, 5, 1)) == (1, 1)


def test_padding_is_skipped_not_added() -> None:
    """An infinite weight on padding would make NaN of a zero."""
    model = model_of({"input": [1, 1, 1], "layers": [{"kind": "conv", "filters": 2, "kernel": 3, "padding": "same"}]})
    flat = np.full((model.parameters, 1), np.inf, F)
    flat[[4, 13, 18, 19]] = [[2], [3], [1], [1]]  # the middle taps and the biases
    assert nn.forward(nn.Network(model), flat, np.full((1, 1, 1), 5, F))[:, 0, 0].tolist() == [11, 16]


def test_the_first_maximum_gets_the_gradient() -> None:
    model = model_of(
        {"input": [1, 4, 1], "layers": [{"kind": "conv", "filters": 1, "kernel": 1, "name": "c"},
                                        {"kind": "max_pool", "size": [1, 3], "stride": 1}]}
    )  # fmt: skip
    flat = np.array([[1], [0]], F)
    x = np.array([7, 7, 7, 1], F)[:, None, None]
    # Logits 7 and 7: dz is -1/2 and 1/2; the maxima are inputs 0 and 1, both 7.
    _, g = nn.gradient(nn.Network(model), flat, x, np.array([[0]]))
    assert g[:, 0].tolist() == [7 * -0.5 + 7 * 0.5, 0.0]


def test_an_average_counts_what_it_read() -> None:
    model = model_of(
        {"input": [1, 3, 1], "layers": [{"kind": "average_pool", "size": [1, 2], "stride": 2, "padding": "same"},
                                        {"kind": "dense", "width": 2}]}
    )  # fmt: skip
    flat = np.array([1, 0, 0, 1, 0, 0], F)[:, None]
    logits = nn.forward(nn.Network(model), flat, np.array([2, 4, 9], F)[:, None, None])
    assert logits[:, 0, 0].tolist() == [3, 9]


def test_a_huge_padded_window_reads_only_the_input() -> None:
    """Window and stride of 60,000 by 60,000: it stands with the whole input inside, and is as quick as a small one."""
    for kind, logits in (("max_pool", [9, 7]), ("average_pool", [4, 4])):
        model = model_of(
            {"input": [2, 2, 2], "layers": [{"kind": kind, "size": 60_000, "padding": "same"},
                                            {"kind": "dense", "width": 2}]}
        )  # fmt: skip
        flat = np.array([1, 0, 0, 1, 0, 0], F)[:, None]
        x = np.array([1, 7, 2, 3, 4, 1, 9, 5], F)[:, None, None]
        assert nn.forward(nn.Network(model), flat, x)[:, 0, 0].tolist() == logits


def test_units_of_a_grouped_convolution_and_a_norm() -> None:
    model = model_of(
        {"input": [1, 2, 4], "layers": [{"kind": "conv", "filters": 2, "kernel": [1, 2], "groups": 2},
                                        {"kind": "group_norm", "groups": 2}]}
    )  # fmt: skip
    # W[2][1][2][2] is 0..7, b 8, 9; gamma 10, 11, beta 12, 13.
    units = {kind: [row.tolist() for row in Units(model, kind).members] for kind in Unit}
    assert units[Unit.KERNEL] == [[0, 1, 2, 3, 8], [4, 5, 6, 7, 9], [10, 12], [11, 13]]
    assert units[Unit.CHANNEL] == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 9], [10], [11], [12, 13]]
    assert units[Unit.LAYER] == [[*range(10)], [10, 11, 12, 13]]
    assert units[Unit.PARAMETER] == [[number] for number in range(14)]


def test_dropout_scales_what_it_keeps_and_draws_anew() -> None:
    model = model_of(
        {"input": [1, 1, 1000], "layers": [{"kind": "dropout", "rate": 0.25}, {"kind": "dense", "width": 2}]}
    )
    ids = np.array([3, 4])
    masks = [nn.Dropout(1, round_, step, ids).dropped(model, 0, 2) for round_, step in ((0, 0), (0, 1), (1, 0))]
    assert all(0.2 < mask.mean() < 0.3 for mask in masks)
    columns = [mask[0, 0, :, b, n] for mask in masks for b in range(2) for n in range(2)]
    assert all((a != b).any() for i, a in enumerate(columns) for b in columns[:i])
    flat = np.zeros((model.parameters, 2), F)
    flat[:2000] = 1
    loss, g = nn.gradient(
        nn.Network(model), flat, np.full((1000, 2, 2), 3, F), np.zeros((2, 2), int), nn.Dropout(1, 0, 0, ids)
    )
    by_hand = [-0.5 * 0.5 * 4 * (2 - masks[0][0, 0, :, :, n].sum(axis=1)) for n in range(2)]
    np.testing.assert_array_equal(g[:1000].T, by_hand)
