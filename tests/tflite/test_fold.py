"""What is folded keeps its bits: constants, splits, joins, dilation, and what is dead."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen import ir, oracle
from codegen.fold import fold
from codegen.host import build
from codegen.ir import Activation, DType, Graph, Operator, OperatorError, Options, Padding, Tensor
from codegen.program import Settings, compile_graph
from codegen.read import parse_model
from codegen.shapes import infer
from codegen.write import write
from tests.tflite.single import int8, int32, litert, of_operators, plain, quantized, random_inputs, tflite_micro

Array = NDArray[Any]
SCALE, ZERO = 0.05, 3


def x(name: str, *shape: int, zero: int = ZERO, data: Any = None) -> Tensor:
    return int8(name, shape, SCALE, zero, data)


def folded(graph: Graph) -> Graph:
    return fold(infer(graph))


def kinds(graph: Graph) -> list[str]:
    return [operator.kind for operator in folded(graph).operators]


def same(found: Sequence[Sequence[Array]], right: Sequence[Sequence[Array]]) -> bool:
    pairs = [pair for sets in zip(found, right, strict=True) for pair in zip(*sets, strict=True)]
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def unchanged(*graphs: Graph) -> bool:
    """Tell whether tflite-micro computes the same of graphs and of what folding leaves."""
    inputs = [random_inputs(graph, 3) for graph in graphs]
    both = [*graphs, *map(folded, graphs)]
    answers = oracle.run_many([(write(graph), sets) for graph, sets in zip(both, inputs * 2, strict=True)])
    found = [answer.outputs for answer in answers if isinstance(answer, oracle.Answer)]
    assert len(found) == len(both), [answer for answer in answers if isinstance(answer, oracle.OracleError)]
    return all(itertools.starmap(same, zip(found[: len(graphs)], found[len(graphs) :], strict=True)))


# Constants.

VALUES = np.arange(-12, 12).reshape(2, 3, 4)
PADS = [(0, 0), (1, 0), (0, 2)]


@pytest.mark.parametrize(
    ("kind", "parameters", "options", "expected"),
    [
        ("RESHAPE", [int32("to", [6, 4])], ir.ReshapeOptions(), VALUES.reshape(6, 4)),
        ("TRANSPOSE", [int32("order", [2, 0, 1])], Options(), VALUES.transpose(2, 0, 1)),
        ("SLICE", [int32("b", [0, 1, 1]), int32("s", [2, -1, 2])], Options(), VALUES[:, 1:, 1:3]),
        (
            "PAD",
            [int32("p", [[0, 0], [1, 0], [0, 2]])],
            Options(),
            np.pad(VALUES, [(0, 0), (1, 0), (0, 2)], constant_values=3),
        ),
        ("GATHER", [int32("i", [2, 0])], ir.AxisOptions(1), VALUES[:, [2, 0]]),
        ("TILE", [int32("t", [1, 2, 1])], Options(), np.tile(VALUES, (1, 2, 1))),
        ("BROADCAST_TO", [int32("t", [2, 2, 3, 4])], Options(), np.stack([VALUES, VALUES])),
        ("EXPAND_DIMS", [int32("a", 0)], Options(), VALUES[None]),
    ],
)
def test_moved_constants(kind: str, parameters: list[Tensor], options: Options, expected: Array) -> None:
    constant, moved = x("c", 2, 3, 4, data=VALUES), x("moved", *expected.shape)
    source, out = x("in", *expected.shape), x("out", *expected.shape)
    graph = of_operators(
        [
            Operator(kind, [constant, *parameters], [moved], options),
            Operator("ADD", [source, moved], [out], ir.FusedOptions()),
        ],
        [out],
    )
    assert kinds(graph) == ["ADD"]
    assert np.array_equal(folded(graph).operators[0].constant(1), expected)


def test_joined_and_split_constants() -> None:
    a, b = x("a", 2, 3, data=VALUES.flat[:6]), x("b", 2, 1, data=[7, 8])
    joined, left, right, both = x("joined", 2, 4), x("left", 2, 2), x("right", 2, 2), x("both", 2, 2, 2)
    one, other, source, out = x("one", 2, 2), x("other", 2, 2), x("in", 2, 2), x("out", 2, 2)
    graph = of_operators(
        [
            Operator("CONCATENATION", [a, b], [joined], ir.AxisOptions(-1)),
            Operator("SPLIT", [int32("axis", 1), joined], [left, right], ir.SplitOptions(2)),
            Operator("PACK", [left, right], [both], ir.AxisOptions(1, 2)),
            Operator("UNPACK", [both], [one, other], ir.AxisOptions(1, 2)),
            Operator("ADD", [source, other], [out], ir.FusedOptions()),
        ],
        [out],
    )
    assert kinds(graph) == ["ADD"]
    assert folded(graph).operators[0].constant(1).tolist() == [[-10, 7], [-7, 8]]


def test_converted_constants() -> None:
    """Quantized halves, what saturates and both signs; tflite-micro converts them at run time."""
    numbers = np.array([0.025, -0.025, 0.075, -0.074999, 100, -100, 0, 6.2, -6.55, 1e-9], np.float32)
    real, source = Tensor("c", (10,), DType.FLOAT32, data=numbers), x("in", 10)
    made, back, out, float_out = x("made", 10), plain("back", (10,), DType.FLOAT32), x("out", 10), x("again", 10)
    graph = of_operators(
        [
            Operator("QUANTIZE", [real], [made]),
            Operator("DEQUANTIZE", [made], [back]),
            Operator("ADD", [source, made], [out], ir.FusedOptions()),
            Operator("QUANTIZE", [back], [float_out]),
        ],
        [out, float_out],
    )
    result = folded(graph)
    assert kinds(graph) == ["ADD"]
    assert result.operators[0].constant(1).tolist() == [4, 2, 5, 2, 127, -128, 3, 127, -128, 3]
    run = of_operators([*graph.operators], [made, back, out])
    inputs = random_inputs(graph, 2)
    expected = tflite_micro(run, inputs)[0]
    assert np.array_equal(result.operators[0].constant(1), expected[0])
    assert np.array_equal(folded(run).outputs[1].data, expected[1])  # type: ignore[arg-type]


def test_a_constant_that_is_no_number_is_refused() -> None:
    real = Tensor("c", (2,), DType.FLOAT32, data=np.array([np.nan, 1], np.float32))
    made, out = x("made", 2), x("out", 2)
    operators = [Operator("QUANTIZE", [real], [made]), Operator("ADD", [x("in", 2), made], [out], ir.FusedOptions())]
    with pytest.raises(OperatorError, match="no number"):
        folded(of_operators(operators, [out]))


def test_constants_of_other_scales_are_left_to_lowering() -> None:
    constant, moved, out = int8("c", (2,), 0.1, 0, [1, 2]), int8("moved", (1, 2), 0.2, 0), x("out", 1, 2)
    operators = [
        Operator("RESHAPE", [constant, int32("to", [1, 2])], [moved], ir.ReshapeOptions()),
        Operator("ADD", [x("in", 1, 2), moved], [out], ir.FusedOptions()),
    ]
    assert kinds(of_operators(operators, [out])) == ["RESHAPE", "ADD"]


def test_folding_has_a_bound() -> None:
    """A small file may not make a large constant."""
    constant, large, out = x("c", 1, data=[1]), x("large", 1 << 20), x("out", 1 << 20)
    operators = [
        Operator("TILE", [constant, int32("t", [1 << 20])], [large]),
        Operator("ADD", [x("in", 1 << 20), large], [out], ir.FusedOptions()),
    ]
    assert kinds(of_operators(operators, [out])) == ["TILE", "ADD"]


def test_a_constant_may_be_an_output() -> None:
    constant, moved, out = x("c", 2, 3, data=VALUES.flat[:6]), x("moved", 6), x("out", 4)
    operators = [
        Operator("RESHAPE", [constant, int32("to", [6])], [moved], ir.ReshapeOptions()),
        Operator("RELU", [x("in", 4)], [out]),
    ]
    graph = of_operators(operators, [out, moved])
    assert kinds(graph) == ["RELU"]
    (model,) = build([compile_graph(graph, Settings("constant_output"))])
    inputs = random_inputs(graph, 1)
    assert same([model.invoke(inputs[0])], tflite_micro(graph, inputs))


# Structure.


def test_dead_operators_are_dropped() -> None:
    source, dead, deader, out = x("in", 2, 4), x("dead", 2, 4), x("deader", 2, 4), x("out", 2, 2)
    operators = [
        Operator("RELU", [source], [dead]),
        Operator("RELU", [dead], [deader]),
        Operator("SPLIT", [int32("axis", 1), source], [out, x("rest", 2, 2)], ir.SplitOptions(2)),
    ]
    graph = of_operators(operators, [out])
    assert kinds(graph) == ["SLICE"]
    assert unchanged(graph)


def test_requantization_to_the_same_is_dropped() -> None:
    source, copied, out = x("in", 4), x("copied", 4), x("out", 4)
    operators = [Operator("QUANTIZE", [source], [copied]), Operator("RELU", [copied], [out])]
    graph = of_operators(operators, [out])
    assert kinds(graph) == ["RELU"]
    assert unchanged(graph)
    assert kinds(of_operators(operators, [out, copied])) == ["QUANTIZE", "RELU"]
    other = replace(copied, quantization=quantized(SCALE, ZERO + 1))
    operators = [Operator("QUANTIZE", [source], [other]), Operator("RELU", [other], [out])]
    assert kinds(of_operators(operators, [out])) == ["QUANTIZE", "RELU"]


def test_splits_become_slices_of_the_same() -> None:
    source = x("in", 2, 6, 3)
    thirds = [x(f"third{i}", 2, 2, 3) for i in range(3)]
    uneven = [x(f"uneven{i}", 2, 6, 1 + i) for i in range(2)]
    picked = [x(f"picked{i}", 2, 3) for i in range(6)]
    operators = [
        Operator("SPLIT", [int32("axis", -2), source], [*thirds], ir.SplitOptions(3)),
        Operator("SPLIT_V", [source, int32("sizes", [1, -1]), int32("axis", 2)], [*uneven], ir.SplitOptions(2)),
        Operator("UNPACK", [source], [*picked], ir.AxisOptions(-2, 6)),
    ]
    graph = of_operators(operators, [*thirds, *uneven, *picked])
    assert kinds(graph) == ["SLICE"] * 5 + ["STRIDED_SLICE"] * 6
    assert unchanged(graph)


def joins(count: int) -> Graph:
    parts = [x(f"part{i}", 2, 1 + i, 3) for i in range(count)]
    others = [x(f"other{i}", 2, 3) for i in range(count)]
    joined, packed = x("joined", 2, count * (count + 1) // 2, 3), x("packed", 2, count, 3)
    operators = [
        Operator("CONCATENATION", [*parts], [joined], ir.AxisOptions(1)),
        Operator("PACK", [*others], [packed], ir.AxisOptions(1, count)),
    ]
    return of_operators(operators, [joined, packed])


def test_many_are_joined_a_few_at_a_time() -> None:
    graphs = [joins(count) for count in (4, 5, 7, 8, 10)]
    for graph in graphs:
        assert all(len(o.inputs) <= 4 for o in folded(graph).operators if o.kind == "CONCATENATION")
    assert unchanged(*graphs)


# Dilation.


def dilated(
    around: Sequence[Sequence[int]],
    crops: Sequence[Sequence[int]],
    *,
    block: tuple[int, int] = (2, 2),
    window: int = 3,
    size: int = 6,
    zero: int = 0,
    kind: str = "CONV_2D",
    is_open: bool = False,
) -> Graph:
    """Make what TensorFlow makes of a dilated convolution."""
    draw = np.random.default_rng(1)
    channels = 3
    padded = [size + sum(pair) for pair in around]
    places = [length // step for length, step in zip(padded, block, strict=True)]
    kept = [place - window + 1 for place in places]
    final = [length * step - sum(pair) for length, step, pair in zip(kept, block, crops, strict=True)]
    phases = block[0] * block[1]
    source, phased = x("in", 1, size, size, channels, zero=zero), x("phased", phases, *places, channels, zero=zero)
    convolved, out = int8("convolved", (phases, *kept, channels), 0.5, -7), int8("out", (1, *final, channels), 0.5, -7)
    filters = (channels, window, window, channels) if kind == "CONV_2D" else (1, window, window, channels)
    weights = int8(
        "w", filters, [0.01, 0.02, 0.015], 0, draw.integers(-127, 128, filters), 0 if kind == "CONV_2D" else 3
    )
    bias = int32("b", [100, -200, 300], [0.0005, 0.001, 0.00075])
    for tensor in (source, phased, convolved, out) if is_open else ():
        tensor.dynamic = True
    for tensor in (phased, convolved) if is_open else ():
        tensor.shape = (1, 1, 1, channels)  # what a converter writes for a product of what is open
    operators = [
        Operator("SPACE_TO_BATCH_ND", [source, int32("block", block), int32("around", around)], [phased]),
        Operator(kind, [phased, weights, bias], [convolved], ir.ConvOptions(activation=Activation.RELU6)),
        Operator("BATCH_TO_SPACE_ND", [convolved, int32("block2", block), int32("crops", crops)], [out]),
    ]
    return of_operators(operators, [out])


SAME_AROUND = [[2, 2], [2, 2]]
NONE = [[0, 0], [0, 0]]


CONVOLUTIONS = ["CONV_2D", "DEPTHWISE_CONV_2D"]
DILATIONS: list[tuple[dict[str, Any], Padding | None]] = [
    (dict(around=SAME_AROUND, crops=NONE), Padding.SAME),
    (dict(around=NONE, crops=NONE), Padding.VALID),
    (dict(around=NONE, crops=NONE, zero=5), Padding.VALID),
    # Padded to whole blocks, and cropped again.
    (dict(around=[[0, 1], [0, 1]], crops=[[0, 1], [0, 1]], size=7, zero=5), Padding.VALID),
    (dict(around=[[2, 3], [2, 3]], crops=[[0, 1], [0, 1]], size=7), Padding.SAME),
    (dict(around=[[3, 3], [2, 2]], crops=NONE, block=(3, 2)), Padding.SAME),
    (dict(around=[[1, 1], [1, 1]], crops=NONE, window=2), Padding.SAME),
    (dict(around=[[1, 1], [1, 1]], crops=[[0, 0], [1, 1]]), None),  # rows of SAME with less
    (dict(around=[[4, 2], [4, 2]], crops=[[0, 2], [0, 2]]), None),  # shifted
    (dict(around=SAME_AROUND, crops=NONE, zero=5), None),  # tflite-micro does not pad with zero points
]


@pytest.mark.parametrize("kind", CONVOLUTIONS)
@pytest.mark.parametrize(("options", "padding"), DILATIONS)
def test_dilation(kind: str, options: dict[str, Any], padding: Padding | None) -> None:
    graph = dilated(kind=kind, **options)
    if padding is None:
        assert kinds(graph) == ["SPACE_TO_BATCH_ND", kind, "BATCH_TO_SPACE_ND"]
    else:
        (convolution,) = folded(graph).operators
        found = convolution.options_as(ir.ConvOptions)
        assert (found.padding, found.dilation) == (padding, options.get("block", (2, 2)))


def test_dilation_keeps_the_bits() -> None:
    assert unchanged(*[dilated(kind=kind, **options) for kind in CONVOLUTIONS for options, _ in DILATIONS])


def test_an_open_batch_is_padded_with_zero_points() -> None:
    """tflite-micro cannot run it; LiteRT does as TensorFlow does."""
    for zero in (0, 5):
        graph = dilated(SAME_AROUND, NONE, zero=zero, is_open=True)
        assert kinds(parse_model(write(graph), "open.tflite")) == ["CONV_2D"]
        inputs = random_inputs(graph, 3)
        assert same(tflite_micro(folded(graph), inputs), litert(graph, inputs))
        shifted = dilated([[4, 2], [4, 2]], [[0, 2], [0, 2]], zero=zero, is_open=True)
        assert kinds(shifted) == ["PAD", "SPACE_TO_BATCH_ND", "CONV_2D", "BATCH_TO_SPACE_ND"]
        assert same(tflite_micro(folded(shifted), inputs), litert(shifted, inputs))


def sequence(around: tuple[int, int], *, step: int = 2, zero: int = 0, as_column: bool = False) -> Graph:
    """Make what TensorFlow makes of a dilated convolution of a sequence."""
    draw = np.random.default_rng(2)
    length = 12 + sum(around)
    places, kept = length // step, length // step - 2
    axis, window = (2, (3, 1)) if as_column else (1, (1, 3))

    def image(count: int) -> tuple[int, ...]:
        return (step, count, 1, 4) if as_column else (step, 1, count, 4)

    source, phased = x("in", 1, 12, 4, zero=zero), x("phased", step, places, 4, zero=zero)
    given, made = x("given", *image(places), zero=zero), int8("made", image(kept), 0.5, -7)
    flat, out = int8("flat", (step, kept, 4), 0.5, -7), int8("out", (1, kept * step, 4), 0.5, -7)
    weights = int8("w", (4, *window, 4), 0.01, 0, draw.integers(-127, 128, (4, *window, 4)))
    pads, crops = int32("around", [around]), int32("crops", [[0, 0]])
    operators = [
        Operator("SPACE_TO_BATCH_ND", [source, int32("block", [step]), pads], [phased]),
        Operator("EXPAND_DIMS", [phased, int32("axis", axis)], [given]),
        Operator("CONV_2D", [given, weights, int32("b", [0] * 4, 0.0005)], [made], ir.ConvOptions()),
        Operator("SQUEEZE", [made], [flat], ir.ReshapeOptions((axis,))),
        Operator("BATCH_TO_SPACE_ND", [flat, int32("block2", [step]), crops], [out]),
    ]
    return of_operators(operators, [out])


SEQUENCES = [((2, 2), 2), ((0, 0), 2), ((3, 3), 3)]


@pytest.mark.parametrize("as_column", [False, True])
@pytest.mark.parametrize(("around", "step"), SEQUENCES)
def test_dilated_sequences(around: tuple[int, int], step: int, as_column: bool) -> None:
    graph = sequence(around, step=step, as_column=as_column)
    result = folded(graph)
    assert kinds(graph) == ["RESHAPE", "CONV_2D", "RESHAPE"]
    found = result.operators[1].options_as(ir.ConvOptions)
    assert found.dilation == ((step, 1) if as_column else (1, step))
    assert found.padding is (Padding.SAME if any(around) else Padding.VALID)


def test_dilated_sequences_keep_the_bits() -> None:
    assert unchanged(
        *[sequence(around, step=step, as_column=column) for around, step in SEQUENCES for column in (False, True)]
    )


def test_dilation_is_left_alone_where_something_else_reads_its_parts() -> None:
    graph = dilated(SAME_AROUND, NONE)
    for operator in graph.operators[:2]:
        seen = of_operators(graph.operators, [*graph.outputs, operator.output])
        assert len(kinds(seen)) == 3
    graph.operators[1] = replace(graph.operators[1], options=ir.ConvOptions(stride=(1, 1), dilation=(1, 2)))
    with pytest.raises(OperatorError):  # no longer fits
        folded(graph)


def test_dilation_of_several_scales_is_left_to_lowering() -> None:
    graph = dilated(SAME_AROUND, NONE)
    for tensor in graph.operators[0].inputs[0], graph.operators[0].output:
        assert tensor is not None
        tensor.quantization = quantized([0.1, 0.2, 0.3], 0, len(tensor.shape) - 1)
    assert len(kinds(graph)) == 3


def test_the_c_of_what_is_folded_equals_tflite_micro_of_what_was() -> None:
    graphs = [
        dilated(SAME_AROUND, NONE),
        dilated(SAME_AROUND, NONE, zero=5),
        dilated([[0, 1], [0, 1]], [[0, 1], [0, 1]], size=7, zero=5, kind="DEPTHWISE_CONV_2D"),
        sequence((2, 2)),
        sequence((3, 3), step=3, zero=-128),
    ]
    models = build([compile_graph(graph, Settings(f"dilated_{number}")) for number, graph in enumerate(graphs)])
    for graph, model in zip(graphs, models, strict=True):
        inputs = random_inputs(graph, 5)
        assert same([model.invoke(values) for values in inputs], tflite_micro(graph, inputs))


def test_fold_of_fold_is_fold() -> None:
    for graph in itertools.chain([dilated(SAME_AROUND, NONE), dilated(SAME_AROUND, NONE, zero=5), sequence((2, 2))]):
        once = folded(graph)
        assert [operator.kind for operator in folded(once).operators] == [operator.kind for operator in once.operators]
