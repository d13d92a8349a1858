"""Operators with a state against tflite-micro, invocation after invocation; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen.host import build
from codegen.ir import Activation, DType, Graph, LstmOptions, OperatorError, SvdfOptions, Tensor
from codegen.lower import lower
from codegen.lower.recurrent import _sigmoid
from codegen.program import Settings, compile_graph
from tests.tflite.agree import agree, drawn_scale, drawn_zero_point
from tests.tflite.conftest import Compared
from tests.tflite.single import int8, int32, one_operator, quantized, random_inputs

Array = NDArray[Any]


def state(name: str, shape: tuple[int, ...], dtype: DType, scale: float, zero_point: int = 0) -> Tensor:
    return Tensor(name, shape, dtype, quantized(scale, zero_point), variable=True)


def weights(draw: np.random.Generator, name: str, shape: tuple[int, ...], scale: float) -> Tensor:
    return int8(name, shape, scale, 0, draw.integers(-127, 128, shape))


def svdf(seed: int, dtype: DType) -> Graph:
    draw = np.random.default_rng(seed)
    batches, inputs, rank, units, memory = (int(draw.integers(1, most)) for most in (3, 20, 4, 9, 12))
    filters = rank * units
    x = int8("x", (batches, inputs), 0.05, drawn_zero_point(draw))
    feature = weights(draw, "feature", (filters, inputs), drawn_scale(draw, 0.005, 0.02))
    limit = np.iinfo(dtype.numpy).max
    values = draw.integers(-limit, limit, (filters, memory), endpoint=True)
    if seed % 3 == 0 and dtype is DType.INT16:
        values = values // 64  # otherwise sums wrap
    time = Tensor("time", (filters, memory), dtype, quantized(0.5 / limit), values.astype(dtype.numpy))
    # So that the state sometimes saturates, and with a zero point wraps.
    reach = 0.06 * inputs / (1 if dtype is DType.INT8 else 200)
    scale = drawn_scale(draw, reach / 5, reach * 2)
    zero_point = drawn_zero_point(draw) if dtype is DType.INT8 else int(draw.choice([0, 300]))
    bias = int32("bias", draw.integers(-2000, 2000, units), float(np.float32(scale) * np.float32(0.5 / limit)))
    memories = state("state", (batches, filters * memory), dtype, scale, zero_point)
    output = int8("y", (batches, units), scale * (0.3 if dtype is DType.INT8 else 20), drawn_zero_point(draw))
    options = SvdfOptions(rank, Activation.RELU if seed % 2 else Activation.NONE)
    return one_operator("SVDF", [x, feature, time, bias, memories], output, options)


@dataclass(frozen=True)
class LstmShape:
    """Draw an LSTM of these sizes, whose weights have scales of this range."""

    batches: int
    steps: int
    inputs: int
    cells: int
    scales: tuple[float, float]
    cell_power: int = -12
    clip: float = 0.0
    time_major: bool = False


def lstm_of(draw: np.random.Generator, shape: LstmShape) -> Graph:
    moments = (shape.steps, shape.batches) if shape.time_major else (shape.batches, shape.steps)
    x = int8("x", (*moments, shape.inputs), drawn_scale(draw, 0.005, 0.05), drawn_zero_point(draw))
    states = (shape.batches, shape.cells)
    hidden = state("hidden", states, DType.INT8, drawn_scale(draw, 0.004, 0.009), int(draw.integers(-20, 20)))
    cell = state("cell", states, DType.INT16, 2.0**shape.cell_power)
    given: list[Tensor | None] = [x, *[None] * 23]
    for place in range(1, 5):
        given[place] = weights(draw, f"w{place}", (shape.cells, shape.inputs), drawn_scale(draw, *shape.scales))
        given[place + 4] = weights(draw, f"w{place + 4}", (shape.cells, shape.cells), drawn_scale(draw, *shape.scales))
        given[place + 11] = int32(f"b{place}", draw.integers(-3000, 3000, shape.cells), 3e-4)
    given[18], given[19] = hidden, cell
    output = int8("y", (*moments, shape.cells), float(hidden.scale), hidden.zero_point)
    options = LstmOptions(cell_clip=shape.clip, time_major=shape.time_major)
    return one_operator("UNIDIRECTIONAL_SEQUENCE_LSTM", given, output, options)


def lstm(seed: int) -> Graph:
    draw = np.random.default_rng(seed)
    batches, steps, inputs, cells = (int(draw.integers(1, most)) for most in (3, 8, 20, 20))
    power, clip = -int(draw.integers(8, 16)), float(draw.choice([0, 0, 1.5, 10.0]))
    return lstm_of(draw, LstmShape(batches, steps, inputs, cells, (0.003, 0.02), power, clip, bool(seed % 2)))


def long_lstm(seed: int) -> Graph:
    """Make one whose gates are seldom saturated, of enough elements to tell how the factors were rounded."""
    return lstm_of(np.random.default_rng(seed), LstmShape(4, 40, 40, 24, (0.0005, 0.004)))


def echo(seed: int, feature_is_one: bool) -> Graph:
    """Make an SVDF that rescales its input once: many results are halves, which tell how the factor was rounded."""
    draw = np.random.default_rng(seed)
    units, inputs = 60, 4
    if feature_is_one:
        scale, weight, middle, time = 0.5, 0.5, 0.25, drawn_scale(draw, 0.01, 1)
        out = drawn_scale(draw, middle * time / 2, middle * time * 4)
        values, times = np.eye(1, inputs).repeat(units, 0), draw.integers(-20, 20, (units, 1))
    else:
        scale, weight, time = drawn_scale(draw, 0.01, 0.1), drawn_scale(draw, 0.01, 0.1), 1.0
        out = middle = drawn_scale(draw, scale * weight * 2, scale * weight * 10)
        values, times = draw.integers(-3, 4, (units, inputs)), np.ones((units, 1))
    given = [
        int8("x", (4, inputs), scale),
        int8("feature", (units, inputs), weight, 0, values),
        int8("time", (units, 1), time, 0, times),
        int32("bias", np.zeros(units), float(np.float32(middle) * np.float32(time))),
        state("state", (4, units), DType.INT8, middle),
    ]
    return one_operator("SVDF", given, int8("y", (4, units), out), SvdfOptions(1))


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
def test_svdf(dtype: DType, compared: Compared) -> None:
    graphs = [svdf(seed, dtype) for seed in range(30)]
    agree(graphs, lambda graph: random_inputs(graph, 25), compared, "recurrent")


def test_factors_of_svdf(compared: Compared) -> None:
    graphs = [echo(seed, bool(seed % 2)) for seed in range(24)]
    agree(graphs, lambda graph: random_inputs(graph, 40), compared, "recurrent")


def test_lstm(compared: Compared) -> None:
    agree([lstm(seed) for seed in range(40)], lambda graph: random_inputs(graph, 20), compared, "recurrent")


def test_factors_of_lstm(compared: Compared) -> None:
    graphs = [long_lstm(seed) for seed in (2, 16, 19)]  # which products in float32 would change
    agree(graphs, lambda graph: random_inputs(graph, 40), compared, "recurrent")


@pytest.mark.parametrize("graph", [svdf(4, DType.INT8), svdf(4, DType.INT16), lstm(1)], ids=["svdf8", "svdf16", "lstm"])
def test_reset_forgets(graph: Graph) -> None:
    (model,) = build([compile_graph(graph, Settings("forgetful"))])
    inputs = random_inputs(graph, 4)
    first = [model.invoke(values)[0] for values in inputs]
    again = model.invoke(inputs[0])[0]
    model.reset()
    second = [model.invoke(values)[0] for values in inputs]
    assert not np.array_equal(first[0], again)  # it remembers otherwise
    np.testing.assert_array_equal(first, second)


def test_the_table_is_the_logistic_function() -> None:
    exact = 65536 / (1 + np.exp(-np.arange(256) / 24))
    assert np.abs(_sigmoid() - exact).max() < 1.2


def changed(graph: Graph, position: int, **fields: Any) -> Graph:
    """Change an input of the only operator."""
    for name, value in fields.items():
        setattr(graph.operators[0].input(position), name, value)
    return graph


def without(graph: Graph, position: int) -> Graph:
    graph.operators[0].inputs[position] = None
    return graph


def with_tensor(graph: Graph, position: int) -> Graph:
    graph.operators[0].inputs[position] = int8("more", (3,), data=[1, 2, 3])
    return graph


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: changed(svdf(1, DType.INT8), 4, variable=False), "the state state is no variable"),
        (lambda: changed(svdf(1, DType.INT8), 1, data=None), "feature. is computed at run time"),
        (lambda: changed(svdf(1, DType.INT8), 1, quantization=quantized(0.01, 3)), "feature have a zero point"),
        (lambda: changed(svdf(1, DType.INT8), 4, dtype=DType.INT16), "state is int16, not int8"),
        (lambda: without(svdf(1, DType.INT8), 2), "input 2 is missing"),
        (lambda: changed(lstm(1), 19, quantization=quantized(0.0005)), "no power of 2"),
        (lambda: changed(lstm(1), 19, dtype=DType.INT8), "cell is int8, not int16"),
        (lambda: without(lstm(1), 1), "without an input gate"),
        (lambda: with_tensor(lstm(1), 9), "an LSTM with peepholes"),
        (lambda: with_tensor(lstm(1), 16), "an LSTM with a projection"),
        (lambda: with_tensor(lstm(1), 20), "an LSTM with layer normalization"),
        (lambda: changed(lstm(1), 0, shape=(4, 4)), "the input is no sequence"),
    ],
)
def test_refusals(make: Callable[[], Graph], reason: str) -> None:
    with pytest.raises(OperatorError, match=reason):
        lower(make().operators[0])
