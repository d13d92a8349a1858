"""Floats between DEQUANTIZE and QUANTIZE: all 256 inputs against tflite-micro, over many scales; what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen import oracle
from codegen.check import check
from codegen.ir import (
    ConvOptions,
    DType,
    FusedOptions,
    Graph,
    LeakyOptions,
    ModelError,
    Operator,
    Options,
    Tensor,
)
from codegen.lower import Alias, Call, Table, lower_graph
from codegen.program import Settings, compile_graph
from codegen.write import write
from tests.tflite.agree import agree, describe, drawn_scale, drawn_zero_point
from tests.tflite.conftest import Compared
from tests.tflite.single import every_int8, int8, int32, of_operators, plain

SHAPE = (1, 256)
EVERY = np.arange(-128, 128).astype(np.int8).reshape(SHAPE)
COUNT = 30
CHAINS = (
    (),
    ("ABS",),
    ("CEIL",),
    ("FLOOR",),
    ("LEAKY_RELU",),
    ("NEG",),
    ("RELU",),
    ("RELU6",),
    ("ROUND",),
    ("SQUARE",),
    ("ABS", "SQRT"),
    ("NEG", "RELU"),
    ("SQUARE", "NEG", "LEAKY_RELU", "ROUND"),
    ("SQUARE", "SQRT", "SQUARE"),
)


def island(x: Tensor, kinds: tuple[str, ...], output: Tensor, slope: float = 0.1) -> list[Operator]:
    """Make a chain of functions of floats, from int8 to int8."""
    operators: list[Operator] = []
    source = x
    for kind in ("DEQUANTIZE", *kinds):
        real = plain(f"{output.name}/{kind}{len(operators)}", x.shape, DType.FLOAT32)
        options = LeakyOptions(slope) if kind == "LEAKY_RELU" else Options()
        operators.append(Operator(kind, [source], [real], options))
        source = real
    return [*operators, Operator("QUANTIZE", [source], [output])]


def drawn(kinds: tuple[str, ...], seed: int) -> Graph:
    draw = np.random.default_rng([seed, *" ".join(kinds).encode()])
    scale = drawn_scale(draw, 1e-3, 5)
    reach = 128 * scale
    for kind in kinds:
        reach = {"SQUARE": reach**2, "SQRT": reach**0.5}.get(kind, reach)
    out_scale = drawn_scale(draw, reach / 1e4, reach)
    x = int8("x", SHAPE, scale, drawn_zero_point(draw))
    y = int8("y", SHAPE, out_scale, drawn_zero_point(draw))
    return of_operators(island(x, kinds, y, float(draw.choice([0.1, 0.25, 1.5, -0.5, 0.0]))), [y])


def table_of(graph: Graph) -> NDArray[Any]:
    (lowered,) = lower_graph(graph)
    if isinstance(lowered, Alias):
        return EVERY.reshape(-1)
    assert lowered.kernel == "gs_q8_map"
    table = lowered.parameters.fields["table"]
    assert isinstance(table, Table)
    return table.values


@pytest.mark.parametrize("kinds", CHAINS, ids=lambda kinds: "-".join(kinds) or "none")
def test_islands_are_what_tflite_micro_computes(kinds: tuple[str, ...], compared: Compared) -> None:
    graphs = [drawn(kinds, seed) for seed in range(COUNT)]
    answers = oracle.run_many([(write(graph), [[EVERY]]) for graph in graphs])
    for graph, answer in zip(graphs, answers, strict=True):
        assert isinstance(answer, oracle.Answer), f"{describe(graph)}: {answer}"
        np.testing.assert_array_equal(table_of(graph), answer.outputs[0][0].reshape(-1), describe(graph))
    compared.add("islands", len(graphs), len(graphs) * 256)


def test_looking_up(compared: Compared) -> None:
    agree([drawn(kinds, 0) for kinds in CHAINS], lambda _: [[EVERY]], compared, "islands")


def test_square_root_of_what_is_never_negative(compared: Compared) -> None:
    x, y = int8("x", SHAPE, 0.01, -128), int8("y", SHAPE, 0.007, -128)
    agree([of_operators(island(x, ("SQRT",), y), [y])], lambda _: [[EVERY]], compared, "islands")


def test_an_island_that_changes_nothing_vanishes() -> None:
    x, y = int8("x", SHAPE, 0.1, 3), int8("y", SHAPE, 0.1, 3)
    (lowered,) = lower_graph(of_operators(island(x, (), y), [y]))
    assert isinstance(lowered, Alias)
    assert lowered.source is x


def test_floats_that_several_read(compared: Compared) -> None:
    """Two islands begin with the same DEQUANTIZE, whose output leaves the model as well."""
    x, y, z = int8("x", SHAPE, 0.1, 5), int8("y", SHAPE, 0.07, -3), int8("z", SHAPE, 1.3, -128)
    negated, squared = island(x, ("NEG",), y), island(x, ("SQUARE",), z)
    shared = negated[0]
    squared[1].inputs[0] = shared.output
    operators = [*negated, *squared[1:]]
    calls = lower_graph(of_operators(operators, [y, z]))
    assert [call.kernel for call in calls if isinstance(call, Call)] == ["gs_q8_map", "gs_q8_map"]
    graph = of_operators(operators, [y, z, shared.output])
    calls = lower_graph(graph)
    assert [call.operator.kind for call in calls] == ["DEQUANTIZE", "QUANTIZE", "QUANTIZE"]
    agree([graph], lambda _: [[EVERY]], compared, "islands")


def prelu(seed: int) -> Graph:
    """Make what Keras 3 makes of a convolution and PReLU: relu(x) + slope * relu(-x)."""
    draw = np.random.default_rng(seed)
    shape, channels = (1, 4, 5, 3), 3
    given = int8("given", (1, 4, 5, 2), 0.05, drawn_zero_point(draw))
    weights = int8(
        "weights", (channels, 1, 1, 2), [0.01, 0.02, 0.005], 0, draw.integers(-127, 128, (channels, 1, 1, 2))
    )
    bias = int32("bias", draw.integers(-900, 900, channels), [0.0005, 0.001, 0.00025])
    x = int8("x", shape, drawn_scale(draw, 0.02, 0.1), drawn_zero_point(draw))
    positive = int8("positive", shape, float(x.scale), -128)
    negated = int8("negated", shape, float(x.scale), drawn_zero_point(draw))
    negative = int8("negative", shape, float(x.scale), -128)
    slope = int8("slope", (1, 1, 1, channels), 0.004, 0, draw.integers(-127, 128, channels))
    scaled, y = int8("scaled", shape, 0.03, 11), int8("y", shape, 0.06, -7)
    return of_operators(
        [
            Operator("CONV_2D", [given, weights, bias], [x], ConvOptions()),
            Operator("RELU", [x], [positive]),
            *island(x, ("NEG",), negated),
            Operator("RELU", [negated], [negative]),
            Operator("MUL", [slope, negative], [scaled], FusedOptions()),
            Operator("ADD", [positive, scaled], [y], FusedOptions()),
        ],
        [y],
    )


def test_parametric_relu(compared: Compared) -> None:
    graphs = [prelu(seed) for seed in range(3)]
    agree(graphs, every_int8, compared, "islands")
    layout = compile_graph(graphs[0]).layout
    assert all(tensor.dtype is DType.INT8 for place in layout.storages for tensor in place.tensors)


@pytest.mark.parametrize("settings", [Settings(), Settings(weight_bits=4)], ids=["as it is", "4 bits"])
def test_the_graph_can_still_be_judged(settings: Settings, tmp_path: Path) -> None:
    """Every tensor that is there is compared; of the floats in between there are none."""
    (tmp_path / "m.tflite").write_bytes(write(prelu(0)))
    found = check(tmp_path / "m.tflite", settings, samples=5, layers=True)
    assert found.equal, found.lines
    assert "of 6 tensors" in found.lines[0]


def test_constants_are_computed_at_once(compared: Compared) -> None:
    x, c = int8("x", SHAPE, 0.1, 3), int8("c", SHAPE, 0.02, -5, EVERY)
    negated, y = int8("negated", SHAPE, 0.03, 1), int8("y", SHAPE, 0.1, 0)
    operators = [*island(c, ("NEG", "ROUND"), negated), Operator("ADD", [x, negated], [y], FusedOptions())]
    graph = of_operators(operators, [y])
    assert [call.kernel for call in compile_graph(graph).calls] == ["gs_q8_add"]
    agree([graph], lambda _: [[EVERY]], compared, "islands")


@pytest.mark.parametrize(
    ("kinds", "scale", "reason"),
    [
        (("SQRT",), 0.1, r"\(QUANTIZE\) y: y/SQRT1 may be no number, or too large for a scale of 0.1"),
        (("SQUARE", "SQUARE"), 1e-4, "may be no number, or too large for a scale of 0.0001"),
        (("EXP",), 0.1, r"\(EXP\) y/EXP1: this operator is not supported"),
        (("NEG", "LOG"), 0.1, r"\(NEG\) y/NEG1: this operator is not supported"),
    ],
)
def test_what_has_no_exact_table_is_refused(kinds: tuple[str, ...], scale: float, reason: str) -> None:
    x, y = int8("x", SHAPE, 5.0), int8("y", SHAPE, scale)
    with pytest.raises(ModelError, match=reason):
        compile_graph(of_operators(island(x, kinds, y), [y]))


def test_floats_from_outside_are_no_island() -> None:
    x, real, y = plain("x", SHAPE, DType.FLOAT32), plain("real", SHAPE, DType.FLOAT32), int8("y", SHAPE)
    operators = [Operator("NEG", [x], [real]), Operator("QUANTIZE", [real], [y])]
    with pytest.raises(ModelError, match=r"\(NEG\) real: this operator is not supported"):
        compile_graph(of_operators(operators, [y]))


def test_floats_that_leave_the_model_are_refused() -> None:
    x, y = int8("x", SHAPE), int8("y", SHAPE)
    operators = island(x, ("NEG",), y)
    with pytest.raises(ModelError, match=r"\(NEG\) y/NEG1: this operator is not supported"):
        compile_graph(of_operators(operators, [y, operators[1].output]))
