"""Functions of one int8 value: all 256 inputs against tflite-micro, over many scales; what is refused."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen import oracle
from codegen.ir import DType, Graph, LeakyOptions, OperatorError, Options, Quantization, Tensor
from codegen.lower import Table, _q31, lower
from codegen.write import write
from tests.tflite.agree import agree, call_of, describe, drawn_scale, drawn_zero_point, is_alias
from tests.tflite.conftest import Compared
from tests.tflite.single import int8, litert, one_operator, plain

KINDS = ("ABS", "ELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "QUANTIZE", "RELU", "RELU6", "TANH")
COUNT = 40
EVERY = np.arange(-128, 128).astype(np.int8).reshape(1, 256)


def unary(
    kind: str, scale: float, zero_point: int, out_scale: float, out_zero_point: int, options: Options | None = None
) -> Graph:
    ends = int8("x", (1, 256), scale, zero_point), int8("y", (1, 256), out_scale, out_zero_point)
    return one_operator(kind, [ends[0]], ends[1], options or Options())


def drawn(kind: str, seed: int) -> Graph:
    draw = np.random.default_rng([seed, *kind.encode()])
    scale, zero_point = drawn_scale(draw, 1e-5, 30), drawn_zero_point(draw)
    out_scale, out_zero_point = drawn_scale(draw, scale / 100, scale * 300), drawn_zero_point(draw)
    options = Options()
    if kind == "LOGISTIC":
        out_scale, out_zero_point = 1 / 256, -128
    if kind == "TANH":
        out_scale, out_zero_point = 1 / 128, 0
    if kind == "RELU6":
        out_scale, out_zero_point = scale, zero_point
    if kind == "LEAKY_RELU":
        options = LeakyOptions(float(draw.choice([0.1, 0.3, 1.5, -0.5, -2.0, 0.0])))
    if kind == "HARD_SWISH":
        out_scale = max(out_scale, scale / 127)
    return unary(kind, scale, zero_point, out_scale, out_zero_point, options)


def table_of(graph: Graph) -> NDArray[Any]:
    if is_alias(graph):
        return EVERY.reshape(-1)
    table = call_of(graph).parameters.fields["table"]
    assert isinstance(table, Table)
    return table.values


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_what_tflite_micro_computes(kind: str, compared: Compared) -> None:
    graphs = [drawn(kind, seed) for seed in range(COUNT)]
    answers = oracle.run_many([(write(graph), [[EVERY]]) for graph in graphs])
    for graph, answer in zip(graphs, answers, strict=True):
        assert isinstance(answer, oracle.Answer), f"{describe(graph)}: {answer}"
        np.testing.assert_array_equal(table_of(graph), answer.outputs[0][0].reshape(-1), describe(graph))
    compared.add("tables", len(graphs), len(graphs) * 256)


def test_hard_swish_with_a_factor_between_two_integers(compared: Compared) -> None:
    """In float32 these quotients would be rounded to another multiplier of 16 bits."""
    scales = [(0.006000938359647989, 0.003807065775617957), (0.08211380243301392, 0.1164378970861435)]
    agree([unary("HARD_SWISH", scale, 0, out, 0) for scale, out in scales], lambda _: [[EVERY]], compared, "tables")


def test_looking_up(compared: Compared) -> None:
    agree([drawn(kind, 0) for kind in KINDS if kind != "QUANTIZE"], lambda _: [[EVERY]], compared, "tables")


@pytest.mark.parametrize("kind", ["RELU_N1_TO_1", "RELU_0_TO_1"])
def test_what_tflite_micro_lacks(kind: str) -> None:
    """LiteRT's reference kernels are the only judge."""
    for seed in range(10):
        draw = np.random.default_rng(seed)
        scale, zero_point = drawn_scale(draw, 1e-3, 0.3), drawn_zero_point(draw)
        graph = unary(kind, scale, zero_point, scale, zero_point)
        np.testing.assert_array_equal(table_of(graph), litert(graph, [[EVERY]])[0][0].reshape(-1))


def test_what_changes_nothing_vanishes() -> None:
    assert is_alias(unary("QUANTIZE", 0.1, 3, 0.1, 3))
    assert is_alias(unary("RELU", 0.1, -128, 0.1, -128))
    assert not is_alias(unary("RELU", 0.1, -127, 0.1, -127))
    assert call_of(unary("RELU", 0.1, 0, 0.1, 0)).in_place == (0,)


@pytest.mark.parametrize("integer_bits", [4, 5])
def test_exp_is_an_exponential(integer_bits: int) -> None:
    for x in np.random.default_rng(0).integers(-(2**31), 0, 200, endpoint=True).tolist():
        assert _q31.exp(x, integer_bits) / 2**31 == pytest.approx(math.exp(x / 2 ** (31 - integer_bits)), abs=1e-6)


def test_logistic_and_tanh_are_what_they_are_called() -> None:
    for x in np.random.default_rng(0).integers(-(2**31) + 1, 2**31, 200).tolist():
        assert _q31.logistic(x) / 2**31 == pytest.approx(1 / (1 + math.exp(-x / 2**27)), abs=1e-6)
        assert _q31.tanh(x) / 2**31 == pytest.approx(math.tanh(x / 2**27), abs=1e-6)


def per_channel() -> Tensor:
    return int8("x", (1, 2), [0.1, 0.2], axis=1)


def without_scale() -> Tensor:
    return Tensor("x", (1, 2), DType.INT8)


def of_type(dtype: DType) -> Tensor:
    return Tensor("x", (1, 2), dtype, Quantization(np.array([0.1], np.float32), np.array([0], np.int32)))


@pytest.mark.parametrize(
    ("kind", "source", "reason"),
    [
        ("TANH", per_channel(), "x has 2 scales where one is due"),
        ("TANH", without_scale(), "x has no scale"),
        ("TANH", of_type(DType.INT16), "x is int16, not int8"),
        ("QUANTIZE", of_type(DType.UINT8), "x is uint8, not float32 or int8"),
        ("RELU", plain("x", (1, 2), DType.FLOAT32), "x is float32, not int8"),
        ("RELU", int8("x", (1, 2), 0.1, 128), "the zero point of x is 128"),
        ("RELU", int8("x", (1, 2), 0.0), "the scale of x is 0"),
        ("RELU", int8("x", (1, 2), math.nan), "the scale of x is nan"),
        ("RELU", int8("x", (1, 2), math.inf), "the scale of x is inf"),
        ("RELU", int8("x", (1, 3)), "y is 1x2, not 1x3"),
        ("RELU", int8("x", (1, 2), 1e9), "integers would be multiplied by 1e"),
        ("LOGISTIC", int8("x", (1, 2)), "the output's zero point is 0, not -128"),
        ("TANH", int8("x", (1, 2), 1e-9), "the scale of x is 1e-09"),
        ("HARD_SWISH", int8("x", (1, 2), 20.0), "the scales are 20 and 0.1"),
    ],
)
def test_refusals(kind: str, source: Tensor, reason: str) -> None:
    graph = one_operator(kind, [source], int8("y", (1, 2), 0.1), Options())
    with pytest.raises(OperatorError, match=reason) as refused:
        lower(graph.operators[0])
    assert refused.value.mend


@pytest.mark.parametrize("alpha", [math.nan, math.inf, -1e30])
def test_a_slope_that_is_none(alpha: float) -> None:
    graph = unary("LEAKY_RELU", 0.1, 0, 0.1, 0, LeakyOptions(alpha))
    with pytest.raises(OperatorError, match="the slope is"):
        lower(graph.operators[0])


def test_outputs_of_other_types() -> None:
    for kind, dtype in itertools.product(("RELU", "QUANTIZE"), (DType.UINT8, DType.INT16)):
        output = of_type(dtype)
        with pytest.raises(OperatorError, match=f"x is {dtype.value}, not int8"):
            lower(one_operator(kind, [int8("in", (1, 2))], output, Options()).operators[0])
