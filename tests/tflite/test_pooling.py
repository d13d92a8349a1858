"""Pooling and reductions against tflite-micro; what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen.ir import (
    Activation,
    DType,
    Graph,
    OperatorError,
    Options,
    Padding,
    PoolOptions,
    Quantization,
    ReduceOptions,
    Tensor,
)
from codegen.lower import lower
from tests.tflite.agree import agree, call_of, drawn_scale, drawn_zero_point, is_alias, ours
from tests.tflite.conftest import Compared
from tests.tflite.single import int8, int32, litert, one_operator, plain, random_inputs

Array = NDArray[Any]

POOLS = ("AVERAGE_POOL_2D", "MAX_POOL_2D")
REDUCTIONS = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
CLAMPS = (Activation.NONE, Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1)


def pool(kind: str, shape: Sequence[int], options: PoolOptions, scale: float = 0.05, zero_point: int = 3) -> Graph:
    """Make a pool; sizes after it are those of TensorFlow's documentation."""
    sides = zip(shape[1:3], options.window, options.stride, strict=True)
    valid = options.padding is Padding.VALID
    after = [-(-(size - window + 1) // stride) if valid else -(-size // stride) for size, window, stride in sides]
    output = int8("y", (shape[0], *after, shape[3]), scale, zero_point)
    return one_operator(kind, [int8("x", shape, scale, zero_point)], output, options)


def drawn_pool(kind: str, seed: int) -> Graph:
    draw = np.random.default_rng([seed, *kind.encode()])
    sides = draw.integers(1, 12, 2)
    padding = Padding.SAME if seed % 2 else Padding.VALID
    window = np.minimum(draw.integers(1, 7, 2), sides if padding is Padding.VALID else 9).tolist()
    stride = draw.integers(1, 5, 2).tolist()
    shape = (int(draw.integers(1, 3)), *sides.tolist(), int(draw.choice([1, 3, 8, 33, 70])))
    options = PoolOptions(padding, (stride[0], stride[1]), (window[0], window[1]), CLAMPS[seed // 2 % len(CLAMPS)])
    return pool(kind, shape, options, drawn_scale(draw, 1e-3, 1), drawn_zero_point(draw))


def with_low_values(graph: Graph) -> list[list[Array]]:
    """Draw inputs, and add some that are far below what padding would be."""
    low = [np.full(graph.inputs[0].shape, value, np.int8) for value in (-128, -100)]
    return [*random_inputs(graph, 10), *([values] for values in low)]


@pytest.mark.parametrize("kind", POOLS)
def test_pools(kind: str, compared: Compared) -> None:
    agree([drawn_pool(kind, seed) for seed in range(32)], with_low_values, compared, "pooling")


@pytest.mark.parametrize("kind", POOLS)
def test_windows_of_every_kind(kind: str, compared: Compared) -> None:
    """More pixels than fast division takes, a window larger than the image, and strides beyond the window."""
    of = PoolOptions
    graphs = [
        pool(kind, (1, 25, 25, 3), of(Padding.VALID, (2, 1), (20, 25))),
        pool(kind, (1, 40, 40, 32), of(Padding.VALID, (1, 1), (40, 40))),
        pool(kind, (1, 3, 4, 5), of(Padding.SAME, (1, 1), (9, 9))),
        pool(kind, (2, 9, 8, 40), of(Padding.SAME, (3, 4), (2, 2))),
        pool(kind, (1, 6, 6, 2), of(Padding.SAME, (2, 2), (3, 3))),
    ]
    agree(graphs, with_low_values, compared, "pooling")


def test_averages_of_every_count() -> None:
    """Division by multiplication is exact at and beyond its bound, for the largest sums and for halves."""
    counts = (1, 2, 3, 7, 64, 255, 359, 360, 361, 1000)
    graphs, inputs = [], []
    for count in counts:
        graphs.append(pool("AVERAGE_POOL_2D", (1, 1, count, 64), PoolOptions(Padding.VALID, (1, 1), (1, count))))
        given = np.random.default_rng(count).integers(-128, 128, (1, 1, count, 64)).astype(np.int8)
        given[..., 0], given[..., 1], given[..., 2] = -128, 127, 0
        given[:, :, : count // 2, 2] = 1
        inputs.append(given)
    for count, given, ((found,),) in zip(counts, inputs, ours(graphs, [[[given]] for given in inputs]), strict=True):
        sums = given.astype(int).sum(axis=2).reshape(-1).tolist()
        expected = [(abs(total) + count // 2) // count * (1 if total > 0 else -1) for total in sums]
        assert found.reshape(-1).tolist() == expected


def reduction(
    kind: str,
    shape: Sequence[int],
    axes: Sequence[int],
    keep: bool = False,
    ends: Sequence[tuple[float, int]] = ((0.05, 3), (0.05, 3)),
) -> Graph:
    positive = {axis % len(shape) for axis in axes}
    after = [1 if axis in positive else size for axis, size in enumerate(shape) if keep or axis not in positive]
    x, y = int8("x", shape, *ends[0]), int8("y", after, *ends[1])
    return one_operator(kind, [x, int32("axes", np.array(axes, np.int32))], y, ReduceOptions(keep))


def drawn_reduction(kind: str, seed: int) -> Graph:
    draw = np.random.default_rng([seed, *kind.encode()])
    shape = draw.integers(1, 9, draw.integers(1, 5)).tolist()
    if draw.random() < 0.3:
        shape[-1] = int(draw.integers(30, 80))
    axes = draw.permutation(len(shape))[: draw.integers(0, 3)]
    axes = np.where(draw.random(axes.size) < 0.3, axes - len(shape), axes).tolist()
    scale, zero_point = drawn_scale(draw, 1e-3, 1), drawn_zero_point(draw)
    other = (drawn_scale(draw, scale / 10, scale * 10), drawn_zero_point(draw))
    same = kind.startswith("REDUCE") or draw.random() < 0.3
    ends = (scale, zero_point), (scale, zero_point) if same else other
    return reduction(kind, shape, axes, bool(draw.random() < 0.5), ends)


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_reductions(kind: str, compared: Compared) -> None:
    agree([drawn_reduction(kind, seed) for seed in range(32)], lambda graph: random_inputs(graph, 12), compared, "sums")


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_every_choice_of_axes(kind: str) -> None:
    """Of three axes and more tflite-micro overruns a buffer; numpy tells the result."""
    shape = (2, 3, 4, 5)
    choices = [axes for count in range(5) for axes in itertools.combinations(range(4), count)]
    choices.remove(())
    scale = 0.05
    graphs = [reduction(kind, shape, axes, ends=((scale, 0), (scale * 8, 0))) for axes in choices]
    if kind.startswith("REDUCE"):
        graphs = [reduction(kind, shape, axes) for axes in choices]
    given = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    for axes, ((found,),) in zip(choices, ours(graphs, [[[given]]] * len(graphs)), strict=True):
        if kind.startswith("REDUCE"):
            expected = given.max(axis=axes) if kind == "REDUCE_MAX" else given.min(axis=axes)
            np.testing.assert_array_equal(found, expected)
        else:
            exact = given.mean(axis=axes) if kind == "MEAN" else given.astype(int).sum(axis=axes)
            np.testing.assert_allclose(found, np.clip(exact / 8, -128, 127), atol=0.8)  # rounded twice


def test_reductions_of_nothing_vanish() -> None:
    assert is_alias(reduction("REDUCE_MAX", (1, 4, 1, 3), (0, 2)))
    assert is_alias(reduction("MEAN", (1, 4, 1, 3), (0, 2)))
    assert call_of(reduction("MEAN", (1, 4), (0,), ends=((0.1, 1), (0.2, 2)))).kernel == "gs_q8_map"


def argument(kind: str, shape: Sequence[int], axis: int, dtype: DType = DType.INT32) -> Graph:
    after = [size for place, size in enumerate(shape) if place != axis % len(shape)]
    x, y = int8("x", shape), plain("y", after, dtype)
    return one_operator(kind, [x, int32("axis", axis)], y, Options())


def with_ties(graph: Graph) -> list[list[Array]]:
    return [[values // divisor for values in given] for given in random_inputs(graph, 5) for divisor in (1, 50)]


@pytest.mark.parametrize("kind", ["ARG_MAX", "ARG_MIN"])
def test_arguments(kind: str, compared: Compared) -> None:
    shapes = [(7,), (3, 100), (2, 3, 4), (2, 3, 4, 5)]
    graphs = [
        argument(kind, shape, axis) for shape in shapes for axis in range(-1, len(shape)) if len(shape) > 1 or axis
    ]
    agree(graphs, with_ties, compared, "arguments")


@pytest.mark.parametrize("kind", ["ARG_MAX", "ARG_MIN"])
def test_arguments_of_64_bits(kind: str) -> None:
    """tflite-micro lacks them; LiteRT's reference kernels are the judge."""
    graph = argument(kind, (2, 3, 4), 1, DType.INT64)
    given = with_ties(graph)
    for (found,), (expected,) in zip(ours([graph], [given])[0], litert(graph, given), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype == np.int64


def of_type(name: str, shape: Sequence[int], dtype: DType) -> Tensor:
    return Tensor(name, tuple(shape), dtype, Quantization(np.array([0.05], np.float32), np.array([3], np.int32)))


VALID_2 = PoolOptions(Padding.VALID, (2, 2), (2, 2))


@pytest.mark.parametrize(
    ("x", "y", "options", "reason"),
    [
        (int8("x", (4, 4, 2)), int8("y", (2, 2, 2)), VALID_2, "the input is 4x4x2, not NHWC"),
        (int8("x", (1, 4, 4, 2)), int8("y", (1, 2, 2, 3)), VALID_2, "y is 1x2x2x3, not 1x2x2x2"),
        (int8("x", (1, 4, 4, 2), 0.1), int8("y", (1, 2, 2, 2), 0.2), VALID_2, "x and y differ in scale or zero point"),
        (int8("x", (1, 4, 4, 2), 0.1, 1), int8("y", (1, 2, 2, 2), 0.1), VALID_2, "x and y differ"),
        (of_type("x", (1, 4, 4, 2), DType.INT16), int8("y", (1, 2, 2, 2)), VALID_2, "x is int16, not int8"),
        (
            int8("x", (1, 1, 1 << 15, 1)),
            int8("y", (1, 1, 1 << 15, 1)),
            PoolOptions(Padding.SAME, (1, 1), (1, 2)),
            "too large",
        ),
        (
            int8("x", (1, 4, 4, 2)),
            int8("y", (1, 2, 2, 2)),
            PoolOptions(Padding.VALID, (2, 2), (2, 2), Activation.TANH),
            "tanh is no clamp",
        ),
    ],
)
def test_refused_pools(x: Tensor, y: Tensor, options: PoolOptions, reason: str) -> None:
    with pytest.raises(OperatorError, match=reason):
        lower(one_operator("AVERAGE_POOL_2D", [x], y, options).operators[0])


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (reduction("REDUCE_MAX", (2, 3), (1,), ends=((0.1, 0), (0.2, 0))), "differ in scale or zero point"),
        (reduction("SUM", (2, 3), (1,), ends=((1e6, 0), (1e-3, 0))), "integers would be multiplied by 1e"),
        (reduction("SUM", (1 << 12, (1 << 11) + 1), (0, 1)), "terms"),
        (reduction("SUM", (2, 3, 2, 3, 2, 3), (1, 3, 5)), "the axes alternate too often"),
    ],
)
def test_refused_reductions(graph: Graph, reason: str) -> None:
    with pytest.raises(OperatorError, match=reason):
        lower(graph.operators[0])


def test_axes_that_are_none() -> None:
    graph = reduction("SUM", (2, 3), (1,))
    graph.operators[0].inputs[1] = int32("axes", [2])
    with pytest.raises(OperatorError, match="axis 2 of a tensor with 2"):
        lower(graph.operators[0])
    graph.operators[0].inputs[1] = plain("axes", (1,), DType.INT32)
    with pytest.raises(OperatorError, match="is computed at run time"):
        lower(graph.operators[0])


def test_a_shape_that_is_none() -> None:
    graph = argument("ARG_MAX", (2, 3), 1)
    graph.operators[0].outputs[0] = plain("y", (3,), DType.INT32)
    with pytest.raises(OperatorError, match="y is 3, not 2"):
        lower(graph.operators[0])
    graph.operators[0].outputs[0] = plain("y", (2,), DType.FLOAT32)
    with pytest.raises(OperatorError, match="the output is float32"):
        lower(graph.operators[0])
