"""Functions of two int8 values, softmax and conversions against tflite-micro; what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen.ir import Activation, DType, FusedOptions, Graph, Operator, OperatorError, Options, SoftmaxOptions, Tensor
from codegen.lower import lower
from codegen.program import Settings, compile_graph
from tests.tflite.agree import agree, call_of, drawn_scale, drawn_zero_point, is_alias, ours
from tests.tflite.conftest import Compared
from tests.tflite.single import every_int8, int8, of_operators, one_operator, plain, random_inputs

Array = NDArray[Any]

FUSED = ("ADD", "SUB", "MUL")
KINDS = (*FUSED, "PRELU", "MAXIMUM", "MINIMUM")
CLAMPS = (Activation.NONE, Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1)
COUNT = 16


def binary(kind: str, x: Tensor, y: Tensor, output: Tensor, activation: Activation = Activation.NONE) -> Graph:
    return one_operator(kind, [x, y], output, FusedOptions(activation) if kind in FUSED else Options())


def drawn_shapes(draw: np.random.Generator) -> tuple[list[int], list[int], list[int]]:
    """Draw two shapes that go together, of up to four axes, one perhaps with fewer; and the shape of the result."""
    shape = draw.integers(1, 6, draw.integers(1, 5))
    if draw.random() < 0.3:
        shape[-1] = draw.integers(60, 200)  # beyond one block of the kernel
    x, y = (np.where(draw.random(shape.size) < 0.6, shape, 1).tolist() for _ in range(2))
    if draw.random() < 0.3:
        x = y = shape.tolist()
    if draw.random() < 0.3:
        y = y[draw.integers(0, len(y)) :]
    return x, y, list(np.broadcast_shapes(x, y))


def drawn(kind: str, seed: int) -> Graph:
    draw = np.random.default_rng([seed, *kind.encode()])
    x_shape, y_shape, shape = drawn_shapes(draw)
    if kind == "PRELU":
        x_shape = shape
    x_scale = drawn_scale(draw, 1e-3, 1)
    y_scale = drawn_scale(draw, x_scale / 30, x_scale * 30)
    reach = max(x_scale, y_scale) if kind in ("ADD", "SUB") else 100 * x_scale * y_scale
    x = int8("x", x_shape, x_scale, drawn_zero_point(draw))
    y = int8("y", y_shape, y_scale, drawn_zero_point(draw))
    constant = {0: x, 1: y}.get(seed % 4)
    if constant is not None:
        constant.data = draw.integers(-128, 128, constant.shape).astype(np.int8)
    output = int8("out", shape, drawn_scale(draw, reach / 10, reach * 10), drawn_zero_point(draw))
    return binary(kind, x, y, output, CLAMPS[seed % len(CLAMPS)])


@pytest.mark.parametrize("kind", KINDS)
def test_broadcasting_and_constants(kind: str, compared: Compared) -> None:
    agree([drawn(kind, seed) for seed in range(COUNT)], lambda graph: random_inputs(graph, 20), compared, "elementwise")


@pytest.mark.parametrize("kind", KINDS)
def test_every_pair(kind: str, compared: Compared) -> None:
    """Among all pairs there are many whose result is a half, which tells how the factors were rounded."""
    shape = (1, 256)
    scales = [(0.04, 0.07, 0.1), (0.03, 0.1, 0.05), (0.3, 0.02, 0.7)]
    graphs = [
        binary(kind, int8("x", shape, a, 3), int8("y", shape, b, -5), int8("out", shape, c, 2)) for a, b, c in scales
    ]
    agree(graphs, every_int8, compared, "elementwise")


def test_scales_far_apart(compared: Compared) -> None:
    """One term vanishes, or the sum is nearly as large as an output may be."""
    scales = [(1e-10, 1.0, 1.0), (1.0, 1e-10, 1.0), (0.02, 0.02, 1e-7), (1e-3, 3.0, 1e3)]
    graphs = [
        binary(kind, int8("x", (64,), a, 3), int8("y", (64,), b, -5), int8("out", (64,), c, 7))
        for kind in ("ADD", "SUB")
        for a, b, c in scales
    ]
    agree(graphs, lambda graph: random_inputs(graph, 10), compared, "elementwise")


@pytest.mark.parametrize("kind", KINDS)
def test_one_value_with_itself_or_a_constant_is_looked_up(kind: str, compared: Compared) -> None:
    x, output = int8("x", (1, 256), 0.04, 3), int8("out", (1, 256), 0.1, 2)
    constant = int8("c", (), 0.07, -5, [-77])
    graphs = [binary(kind, x, constant, output), binary(kind, constant, x, output), binary(kind, x, x, output)]
    if kind in ("MAXIMUM", "MINIMUM"):
        assert is_alias(graphs.pop())
    if kind == "PRELU":
        del graphs[1]  # the slope is never the larger
    assert {call_of(graph).kernel for graph in graphs} == {"gs_q8_map"}
    agree(graphs, every_int8, compared, "elementwise")


def test_in_place(compared: Compared) -> None:
    """Outputs take over inputs of their own size, from either side, and only those."""
    sizes = {"full": (1, 4, 4, 40), "channels": (1, 1, 1, 40)}
    x, c, w = (int8(name, sizes[size], 0.05, 3) for name, size in (("x", "full"), ("c", "channels"), ("w", "full")))
    middle = [int8(f"m{number}", sizes["full"], 0.05, number) for number in range(7)]
    fused = FusedOptions()
    operators = [
        Operator("MUL", [x, c], [middle[0]], fused),
        Operator("ADD", [middle[0], w], [middle[1]], fused),
        Operator("SUB", [w, middle[1]], [middle[2]], fused),
        Operator("PRELU", [middle[2], c], [middle[3]], Options()),
        Operator("TANH", [middle[3]], [middle[4]], Options()),
        Operator("MAXIMUM", [c, middle[4]], [middle[5]], Options()),
        Operator("ADD", [middle[5], middle[5]], [middle[6]], fused),
        Operator("MUL", [middle[6], x], [int8("y", sizes["full"], 0.1, 9)], fused),
    ]
    graph = of_operators(operators, [operators[-1].output])
    program = compile_graph(graph, Settings("in_place"))
    assert program.arena.peak_bytes == 4 * 4 * 40  # all of `middle` in one place
    assert [lower(operator).in_place for operator in operators[:4]] == [(0,), (0, 1), (0, 1), (0,)]  # type: ignore[union-attr]
    agree([graph], lambda graph: random_inputs(graph, 20), compared, "elementwise")


def test_softmax(compared: Compared) -> None:
    graphs = []
    for seed in range(30):
        draw = np.random.default_rng(seed)
        shape = (int(draw.integers(1, 4)), int(draw.choice([1, 2, 10, 100, 300, 500])))
        x = int8("x", shape, drawn_scale(draw, 1e-4, 50), drawn_zero_point(draw))
        beta = float(draw.choice([1.0, 0.5, 2.0]))
        graphs.append(one_operator("SOFTMAX", [x], int8("y", shape, 1 / 256, -128), SoftmaxOptions(beta)))
    agree(graphs, alike, compared, "softmax")


def alike(graph: Graph) -> list[list[Array]]:
    """Draw inputs of which every other set has few different values."""
    sets = random_inputs(graph, 20)
    return [[values // 50 if number % 2 else values for values in given] for number, given in enumerate(sets)]


def test_softmax_beyond_what_tflite_micro_can_divide() -> None:
    """It ends the process for a row of 512 equal values; each has a probability that rounds to 1/256 or to 0."""
    graph = one_operator("SOFTMAX", [int8("x", (2, 2048))], int8("y", (2, 2048), 1 / 256, -128), SoftmaxOptions())
    equal, one = np.zeros((2, 2048), np.int8), np.full((2, 2048), -128, np.int8)
    one[:, 7] = 127
    ((flat, peak),) = ours([graph], [[[equal], [one]]])
    assert (flat[0] == -128).all()
    assert (peak[0][:, 7] >= 126).all()


def test_from_float(compared: Compared) -> None:
    """Halves, their neighbours on both sides, and what saturates."""
    graphs = []
    for seed in range(8):
        draw = np.random.default_rng(seed)
        output = int8("y", (4000,), drawn_scale(draw, 1e-4, 10), drawn_zero_point(draw))
        graphs.append(one_operator("QUANTIZE", [plain("x", (4000,), DType.FLOAT32)], output, Options()))

    def near_halves(graph: Graph) -> list[list[Array]]:
        draw = np.random.default_rng(1)
        halves = (draw.integers(-300, 300, 4000).astype(np.float32) + np.float32(0.5)) * graph.outputs[0].scale
        outwards = np.nextafter(halves, 2 * halves)
        inwards = np.nextafter(halves, np.zeros_like(halves))
        return [[halves], [outwards], [inwards], [halves * np.float32(100)]]

    agree(graphs, near_halves, compared, "conversions")


def test_floats_that_int32_does_not_hold() -> None:
    """C++ does not define what tflite-micro does to them; ours saturates."""
    graph = one_operator("QUANTIZE", [plain("x", (6,), DType.FLOAT32)], int8("y", (6,), 0.1, -20), Options())
    given = np.array([math.inf, -math.inf, math.nan, 3e38, -3e38, -0.0], np.float32)
    assert ours([graph], [[[given]]])[0][0][0].tolist() == [127, -128, -128, 127, -128, -20]


def test_to_float(compared: Compared) -> None:
    graphs = []
    for seed in range(8):
        draw = np.random.default_rng(seed)
        x = int8("x", (256,), drawn_scale(draw, 1e-6, 1e6), drawn_zero_point(draw))
        graphs.append(one_operator("DEQUANTIZE", [x], plain("y", (256,), DType.FLOAT32), Options()))
    agree(graphs, lambda graph: every_int8(graph)[:1], compared, "conversions")


@pytest.mark.parametrize(
    ("kind", "x", "y", "output", "reason"),
    [
        ("ADD", plain("x", (2,), DType.INT32), int8("y", (2,)), int8("out", (2,)), "x is int32, not int8"),
        ("ADD", int8("x", (2,), [0.1, 0.2]), int8("y", (2,)), int8("out", (2,)), "x has 2 scales"),
        ("MUL", int8("x", (2,)), int8("y", (3,)), int8("out", (3,)), "shapes do not go together"),
        ("MUL", int8("x", (2, 1)), int8("y", (3,)), int8("out", (3, 2)), "out is 3x2, not 2x3"),
        ("PRELU", int8("x", (2,)), int8("y", (2, 2)), int8("out", (2,)), "out is 2, not 2x2"),
        ("ADD", int8("x", (2,), 1e6), int8("y", (2,)), int8("out", (2,), 1e-3), "would be multiplied by"),
        ("MUL", int8("x", (2,), 1e3), int8("y", (2,), 1e3), int8("out", (2,), 1e-3), "would be multiplied by"),
        ("MAXIMUM", int8("x", (2, 1) * 5), int8("y", (1, 2) * 5), int8("out", (2,) * 10), "4 nested loops"),
    ],
)
def test_refusals(kind: str, x: Tensor, y: Tensor, output: Tensor, reason: str) -> None:
    with pytest.raises(OperatorError, match=reason):
        lower(binary(kind, x, y, output).operators[0])


@pytest.mark.parametrize("activation", [Activation.TANH, Activation.SIGN_BIT])
def test_activations_that_are_no_clamps(activation: Activation) -> None:
    with pytest.raises(OperatorError, match="is no clamp"):
        lower(binary("ADD", int8("x", (2,)), int8("y", (2,)), int8("out", (2,)), activation).operators[0])


@pytest.mark.parametrize(
    ("x", "output", "beta", "reason"),
    [
        (int8("x", (1, 10)), int8("y", (1, 10), 1 / 128, -128), 1.0, "not 1/256 and -128"),
        (int8("x", (1, 10)), int8("y", (1, 10), 1 / 256, 0), 1.0, "not 1/256 and -128"),
        (int8("x", (1, 4096)), int8("y", (1, 4096), 1 / 256, -128), 1.0, r"not 1\.\.4095"),
        (int8("x", (1, 10)), int8("y", (1, 10), 1 / 256, -128), 0.0, "changes its exponent by 0"),
        (int8("x", (1, 10)), int8("y", (1, 10), 1 / 256, -128), math.nan, "changes its exponent by nan"),
        (int8("x", (1, 10)), Tensor("y", (1, 10), DType.INT16), 1.0, "y is int16, not int8"),
    ],
)
def test_softmax_refusals(x: Tensor, output: Tensor, beta: float, reason: str) -> None:
    with pytest.raises(OperatorError, match=reason):
        lower(one_operator("SOFTMAX", [x], output, SoftmaxOptions(beta)).operators[0])
