"""Shapes found anew: those of TensorFlow, for open batches and shapes that are computed; contradictions refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen import _schema, ir
from codegen._shape_rules import output_shapes
from codegen.fold import fold
from codegen.ir import DType, Graph, ModelError, Operator, OperatorError, Options, Padding, Tensor
from codegen.read import parse_model
from codegen.shapes import infer
from codegen.write import write
from tests.tflite.single import int8, int32, litert, of_operators, one_operator, plain, random_inputs

SAME, VALID = Padding.SAME, Padding.VALID


def shapes_of(kind: str, inputs: Sequence[Tensor | None], outputs: int, options: Options) -> list[tuple[int, ...]]:
    """Infer the shapes of an operator's outputs, of which nothing is known."""
    unknown = [Tensor(f"out{place}", (), DType.INT8, dynamic=True) for place in range(outputs)]
    return list(map(tuple, output_shapes(Operator(kind, list(inputs), unknown, options))))


def x(*shape: int) -> Tensor:
    return int8("x", shape)


CASES: list[tuple[str, list[Tensor | None], Options, list[tuple[int, ...]]]] = [
    # Windows: worked out by hand from TensorFlow's definition of SAME and VALID.
    ("CONV_2D", [x(1, 7, 8, 4), int8("w", (6, 3, 3, 4)), None], ir.ConvOptions(SAME, (2, 3)), [(1, 4, 3, 6)]),
    ("CONV_2D", [x(1, 7, 8, 4), int8("w", (6, 3, 3, 4)), None], ir.ConvOptions(VALID, (2, 3)), [(1, 3, 2, 6)]),
    ("CONV_2D", [x(2, 9, 9, 4), int8("w", (6, 3, 2, 2)), None], ir.ConvOptions(VALID, (1, 1), (2, 4)), [(2, 5, 5, 6)]),
    (
        "DEPTHWISE_CONV_2D",
        [x(1, 5, 5, 3), int8("w", (1, 2, 2, 6)), None],
        ir.ConvOptions(depth_multiplier=2),
        [(1, 4, 4, 6)],
    ),
    ("AVERAGE_POOL_2D", [x(1, 6, 7, 3)], ir.PoolOptions(VALID, (2, 2), (3, 2)), [(1, 2, 3, 3)]),
    ("MAX_POOL_2D", [x(1, 6, 7, 3)], ir.PoolOptions(SAME, (4, 4), (3, 2)), [(1, 2, 2, 3)]),
    (
        "TRANSPOSE_CONV",
        [int32("to", [1, 6, 6, 5]), int8("w", (5, 3, 3, 4)), x(1, 3, 3, 4)],
        ir.ConvOptions(SAME, (2, 2)),
        [(1, 6, 6, 5)],
    ),
    ("FULLY_CONNECTED", [x(3, 2, 4), int8("w", (5, 8)), None], ir.DenseOptions(), [(3, 5)]),
    ("FULLY_CONNECTED", [x(3, 2, 4), int8("w", (5, 4)), None], ir.DenseOptions(keep_dims=True), [(3, 2, 5)]),
    ("MEAN", [x(1, 4, 5, 6), int32("axes", [1, -2])], ir.ReduceOptions(), [(1, 6)]),
    ("SUM", [x(1, 4, 5, 6), int32("axes", [1, 2])], ir.ReduceOptions(True), [(1, 1, 1, 6)]),
    ("ARG_MAX", [x(1, 4, 5), int32("axis", -1)], Options(), [(1, 4)]),
    ("ADD", [x(1, 4, 5), int8("y", (4, 1))], ir.FusedOptions(), [(1, 4, 5)]),
    ("PRELU", [x(1, 4, 5), int8("y", (1, 5))], Options(), [(1, 4, 5)]),
    ("SOFTMAX", [x(1, 4)], ir.SoftmaxOptions(), [(1, 4)]),
    ("SHAPE", [x(1, 4, 5)], Options(), [(3,)]),
    ("RANK", [x(1, 4, 5)], Options(), [()]),
    ("RANGE", [int32("a", 7), int32("b", 0), int32("c", -3)], Options(), [(3,)]),
    ("RANGE", [int32("a", 0), int32("b", 7), int32("c", 2)], Options(), [(4,)]),
    ("RANGE", [int32("a", 3), int32("b", 0), int32("c", 1)], Options(), [(0,)]),
    ("FILL", [int32("to", [2, 3]), int8("v", ())], Options(), [(2, 3)]),
    ("SVDF", [x(1, 8), int8("f", (6, 8)), int8("t", (6, 4)), None, int8("s", (1, 24))], ir.SvdfOptions(2), [(1, 3)]),
]


@pytest.mark.parametrize(("kind", "inputs", "options", "expected"), CASES, ids=itertools.count())
def test_rules(kind: str, inputs: list[Tensor | None], options: Options, expected: list[tuple[int, ...]]) -> None:
    assert shapes_of(kind, inputs, len(expected), options) == expected


def test_every_kind_has_a_rule() -> None:
    for kind in _schema.KINDS:
        with pytest.raises(OperatorError) as caught:
            shapes_of(kind, [], 1, _schema.KINDS[kind].options())
        assert "not supported" not in caught.value.reason, kind


NAN = Tensor("b", (1,), DType.FLOAT32, data=np.array([np.nan], np.float32))
REFUSED: list[tuple[str, list[Tensor | None], Options, str]] = [
    ("CONV_2D", [x(1, 7, 8, 4), int8("w", (6, 3, 3, 3)), None], ir.ConvOptions(), "6 filters of 3 channels"),
    ("CONV_2D", [x(1, 7, 8, 4), int8("w", (5, 3, 3, 2)), None], ir.ConvOptions(), "5 filters of 2 channels"),
    ("CONV_2D", [x(1, 7, 8, 4), int8("w", (6, 9, 3, 4)), None], ir.ConvOptions(), "does not fit"),
    ("CONV_2D", [x(1, 7, 8, 4), int8("w", (6, 0, 3, 4)), None], ir.ConvOptions(), "below 1"),
    ("CONV_2D", [x(7, 8, 4), int8("w", (6, 3, 3, 4)), None], ir.ConvOptions(), "needs 4 dimensions"),
    ("CONV_2D", [x(1, 7, 8, 4), int8("w", (6, 3, 3, 4)), int32("b", [0] * 5)], ir.ConvOptions(), "its bias is 5"),
    ("CONV_2D", [x(1, 7, 8, 4)], ir.ConvOptions(), "input 1 is missing"),
    ("DEPTHWISE_CONV_2D", [x(1, 7, 8, 4), int8("w", (1, 3, 3, 6)), None], ir.ConvOptions(), "do not go with 4"),
    ("FULLY_CONNECTED", [x(1, 7), int8("w", (6, 3)), None], ir.DenseOptions(), "do not go with an input of 1x7"),
    ("FULLY_CONNECTED", [x(1, 7), int8("w", (6, 0)), None], ir.DenseOptions(), "do not go with"),
    (
        "TRANSPOSE_CONV",
        [int32("to", [1, 9, 6, 5]), int8("w", (5, 3, 3, 4)), x(1, 3, 3, 4)],
        ir.ConvOptions(SAME, (2, 2)),
        "takes an input of 5x3, not 3x3",
    ),
    ("MEAN", [x(1, 4), int32("axes", [2])], ir.ReduceOptions(), "axis 2 of a tensor with 2"),
    ("ADD", [x(1, 4), int8("y", (3,))], ir.FusedOptions(), "do not go together"),
    ("PRELU", [x(1, 4), int8("y", (2, 4))], Options(), "larger than its input"),
    ("RESHAPE", [x(2, 3), int32("to", [4, -1])], ir.ReshapeOptions(), "cannot become"),
    ("RESHAPE", [x(2, 3), int32("to", [-1, -1])], ir.ReshapeOptions(), "cannot become"),
    ("RESHAPE", [x(2, 3), int32("to", [0, -1])], ir.ReshapeOptions(), "cannot become"),
    ("SQUEEZE", [x(2, 3)], ir.ReshapeOptions((0,)), "not all 1"),
    ("TRANSPOSE", [x(2, 3), int32("order", [0, 0])], Options(), "no order"),
    ("TRANSPOSE", [x(2, 3), int32("order", [0, 2])], Options(), "axis 2"),
    ("SLICE", [x(2, 3), int32("b", [0, 2]), int32("s", [1, 2])], Options(), "of an axis of 3"),
    ("SLICE", [x(2, 3), int32("b", [-1, 0]), int32("s", [1, 2])], Options(), "of an axis of 2"),
    ("SLICE", [x(2, 3), int32("b", [0]), int32("s", [1])], Options(), "1 begins"),
    ("STRIDED_SLICE", [x(2, 3), int32("b", [0]), int32("e", [1]), int32("s", [0])], ir.SliceOptions(), "stride is 0"),
    (
        "STRIDED_SLICE",
        [x(2, 3), int32("b", [2]), int32("e", [3]), int32("s", [1])],
        ir.SliceOptions(shrink_axis_mask=1),
        "index 2 of an axis of 2",
    ),
    (
        "STRIDED_SLICE",
        [x(2), int32("b", [0, 0]), int32("e", [1, 1]), int32("s", [1, 1])],
        ir.SliceOptions(),
        "more axes",
    ),
    ("CONCATENATION", [x(2, 3), int8("y", (3, 3))], ir.AxisOptions(1), "cannot be joined"),
    ("CONCATENATION", [x(3), x()], ir.AxisOptions(0), "cannot be joined"),
    ("SLICE", [x(2), NAN, int32("s", [1])], Options(), "not integers"),
    ("CONCATENATION", [], ir.AxisOptions(1), "no inputs"),
    ("PACK", [x(2, 3), int8("y", (3, 3))], ir.AxisOptions(1), "are not one"),
    ("UNPACK", [x(2, 3)], ir.AxisOptions(1), "it has 1 outputs for 3"),
    ("SPLIT_V", [x(2, 3), int32("s", [2]), int32("a", 1)], ir.SplitOptions(), "are not axis 1"),
    ("PAD", [x(2, 3), int32("p", [[0, 0], [-1, 0]])], Options(), "pairs of at least 0"),
    ("PAD", [x(2, 3), int32("p", [[0, 0]])], Options(), "2 pairs"),
    ("MIRROR_PAD", [x(2, 3), int32("p", [[0, 0], [3, 0]])], ir.MirrorOptions(), "mirrors 3 of an axis of 3"),
    ("GATHER", [x(2, 3), int32("i", [3])], ir.AxisOptions(1), "out of axis 1"),
    ("GATHER", [x(2, 3), int32("i", [-1])], ir.AxisOptions(1), "out of axis 1"),
    ("BROADCAST_TO", [x(2, 3), int32("to", [2, 6])], Options(), "do not go together"),
    ("TILE", [x(2, 3), int32("to", [2])], Options(), "does not repeat"),
    ("SPACE_TO_BATCH_ND", [x(1, 4, 4, 2), int32("b", [2, 2]), int32("p", [[0, 1], [0, 0]])], Options(), "whole blocks"),
    ("SPACE_TO_BATCH_ND", [x(1, 4, 4, 2), int32("b", [2]), int32("p", [[0, 1]])], Options(), "2 numbers"),
    ("BATCH_TO_SPACE_ND", [x(3, 4, 4, 2), int32("b", [2, 2]), int32("p", [[0, 0], [0, 0]])], Options(), "a batch of 3"),
    ("BATCH_TO_SPACE_ND", [x(4, 1, 4, 2), int32("b", [2, 2]), int32("p", [[1, 1], [0, 0]])], Options(), "crops leave"),
    ("SPACE_TO_DEPTH", [x(1, 3, 4, 2)], ir.BlockOptions(2), "whole blocks"),
    ("DEPTH_TO_SPACE", [x(1, 3, 4, 2)], ir.BlockOptions(2), "no blocks"),
    ("RESIZE_BILINEAR", [x(1, 3, 4, 2), int32("size", [0, 4])], ir.ResizeOptions(), "cannot become 0x4"),
    ("RANGE", [int32("a", 0), int32("b", 7), int32("c", 0)], Options(), "step is 0"),
]


@pytest.mark.parametrize(("kind", "inputs", "options", "reason"), REFUSED, ids=itertools.count())
def test_contradictions_are_refused(kind: str, inputs: list[Tensor | None], options: Options, reason: str) -> None:
    with pytest.raises(OperatorError, match=reason):
        shapes_of(kind, inputs, 1, options)


def test_the_file_may_not_say_otherwise() -> None:
    graph = one_operator("SOFTMAX", [x(1, 4)], int8("y", (1, 5)), ir.SoftmaxOptions())
    with pytest.raises(OperatorError, match="y is 1x4, but 1x5 in the file") as caught:
        infer(graph)
    assert "batch_size=1" in caught.value.mend


def test_outputs_are_counted() -> None:
    outputs = [int8("y", (2, 3)), int8("z", (2, 3))]
    with pytest.raises(OperatorError, match="2 outputs, not 1"):
        infer(one_operator("SOFTMAX", [x(2, 3)], outputs, ir.SoftmaxOptions()))


def test_a_dense_layer_may_keep_its_rows_apart() -> None:
    weights = int8("w", (5, 4), data=np.zeros((5, 4)))
    graph = one_operator("FULLY_CONNECTED", [x(1, 3, 4), weights], int8("y", (1, 3, 5)), ir.DenseOptions())
    assert infer(graph).outputs[0].shape == (1, 3, 5)


def test_sizes_have_bounds() -> None:
    graph = one_operator("TILE", [x(2, 3), int32("to", [1 << 20, 1 << 20])], int8("y", (1, 1)), Options())
    graph.outputs[0].dynamic = True
    with pytest.raises(OperatorError, match="beyond 2\\^28 elements"):
        infer(graph)
    graph = one_operator("TRANSPOSE", [x(*[1] * 7), int32("o", range(7))], int8("y", [1] * 7), Options())
    with pytest.raises(OperatorError, match="7 dimensions"):
        infer(graph)
    graph = one_operator("SLICE", [x(2, 3), int32("b", [0, 0]), int32("s", [0, 3])], int8("y", (0, 3)), Options())
    with pytest.raises(OperatorError, match="no elements"):
        infer(graph)


def test_the_given_graph_stays_as_it_is() -> None:
    graph = open_flatten()
    before = [(tensor.shape, tensor.dynamic, tensor.data is None) for tensor in graph.tensors()]
    infer(graph)
    assert before == [(tensor.shape, tensor.dynamic, tensor.data is None) for tensor in graph.tensors()]


# Open batches, as Keras's converters write them.


def opened(*tensors: Tensor) -> None:
    for tensor in tensors:
        tensor.dynamic = True


def whole(name: str, shape: Sequence[int] = ()) -> Tensor:
    return plain(name, shape, DType.INT32)


def open_flatten() -> Graph:
    """Make what Flatten becomes: SHAPE, STRIDED_SLICE, PACK, RESHAPE."""
    source, flat, out = x(1, 2, 3), int8("flat", (1, 1)), int8("out", (1, 1), 1 / 256, -128)
    shape, batch, to = whole("shape", (3,)), whole("batch"), whole("to", (2,))
    opened(source, flat, out)
    operators = [
        Operator("SHAPE", [source], [shape]),
        Operator(
            "STRIDED_SLICE",
            [shape, int32("b", [0]), int32("e", [1]), int32("s", [1])],
            [batch],
            ir.SliceOptions(shrink_axis_mask=1),
        ),
        Operator("PACK", [batch, int32("rest", 6)], [to], ir.AxisOptions(0, 2)),
        Operator("RESHAPE", [source, to], [flat], ir.ReshapeOptions()),
        Operator("SOFTMAX", [flat], [out], ir.SoftmaxOptions()),
    ]
    return of_operators(operators, [out])


@pytest.mark.parametrize("batch", [1, 5])
def test_an_open_batch_is_fixed(batch: int) -> None:
    graph = fold(infer(open_flatten(), batch))
    assert [operator.kind for operator in graph.operators] == ["RESHAPE", "SOFTMAX"]
    assert graph.inputs[0].shape == (batch, 2, 3)
    assert graph.outputs[0].shape == (batch, 6)
    assert not any(tensor.dynamic for tensor in graph.tensors())


def test_only_the_batch_may_be_open() -> None:
    graph = one_operator("SOFTMAX", [x(4, 1)], int8("y", (4, 1)), ir.SoftmaxOptions())
    opened(*graph.inputs, *graph.outputs)
    with pytest.raises(ModelError, match="more open than the batch"):
        infer(graph)


def computed_shape(operators: Callable[[Tensor, Tensor], list[Operator]], count: int) -> tuple[int, ...]:
    """Return the shape into which six elements come by what `operators` compute of the input's shape."""
    source, shape, to, out = x(1, 2, 3), whole("shape", (3,)), whole("to", (count,)), int8("out", [1] * count)
    opened(source, out)
    found = [Operator("SHAPE", [source], [shape]), *operators(shape, to)]
    graph = of_operators([*found, Operator("RESHAPE", [source, to], [out], ir.ReshapeOptions())], [out])
    return infer(graph).outputs[0].shape


def test_computed_shapes() -> None:
    part, total = whole("part", (2,)), whole("total", (1,))
    axes = int32("axes", [0])
    keep = ir.ReduceOptions(keep_dims=True)
    assert computed_shape(
        lambda shape, to: [
            Operator("GATHER", [shape, int32("i", [2, 1])], [part], ir.AxisOptions(0)),
            Operator("REDUCE_PROD", [part, axes], [total], keep),
            Operator("CONCATENATION", [total, int32("one", [1])], [to], ir.AxisOptions(0)),
        ],
        2,
    ) == (6, 1)
    assert computed_shape(
        lambda shape, to: [
            Operator("SLICE", [shape, int32("b", [1]), int32("s", [-1])], [part]),
            Operator("MUL", [part, int32("two", [1, 2])], [whole("m", (2,))], ir.FusedOptions()),
            Operator("FLOOR_DIV", [part, int32("d", [2, 3])], [whole("d", (2,))]),
            Operator("SUB", [part, int32("s", [1, 0])], [second := whole("s", (2,))], ir.FusedOptions()),
            Operator("MAXIMUM", [second, int32("m", [2, 0])], [third := whole("t", (2,))]),
            Operator("CAST", [third], [to]),
        ],
        2,
    ) == (2, 3)
    assert computed_shape(
        lambda shape, to: [
            Operator("RANGE", [int32("a", 3), int32("b", 0), int32("c", -1)], [whole("r", (3,))]),
            Operator("FILL", [int32("n", [1]), int32("v", 1)], [total]),
            Operator("UNPACK", [shape], [a := whole("a"), b := whole("b"), c := whole("c")], ir.AxisOptions(0, 3)),
            Operator("PACK", [b, c, a], [to], ir.AxisOptions(0, 3)),
        ],
        3,
    ) == (2, 3, 1)


def test_a_shape_of_values_is_refused() -> None:
    source, to, out = x(1, 6), whole("to", (2,)), int8("out", (1, 1))
    opened(source, out)
    operators = [
        Operator("ARG_MAX", [source, int32("axis", [1])], [most := whole("most", (1,))]),
        Operator("CONCATENATION", [most, int32("rest", [-1])], [to], ir.AxisOptions(0)),
        Operator("RESHAPE", [source, to], [out], ir.ReshapeOptions()),
    ]
    with pytest.raises(OperatorError, match="computed at run time") as caught:
        infer(of_operators(operators, [out]))
    assert "batch_size=1" in caught.value.mend


def test_division_by_zero_is_refused() -> None:
    with pytest.raises(OperatorError, match="divides by 0"):
        computed_shape(lambda shape, to: [Operator("FLOOR_DIV", [shape, int32("z", [1, 0, 1])], [to])], 3)


def test_an_open_batch_equals_litert() -> None:
    """LiteRT runs the graph as it is; we, what is left of it, written anew."""
    graph = open_flatten()
    inputs = random_inputs(graph, 3)
    rewritten = fold(infer(parse_model(write(graph), "open.tflite")))
    assert np.array_equal(litert(graph, inputs), litert(rewritten, inputs))


# Whatever comes in, it is refused or sound.

NUMBERS = st.integers(-3, 5) | st.sampled_from([-(2**31), 2**31 - 1, 1 << 20])
SHAPES = st.lists(st.integers(0, 5), max_size=5).map(tuple)


@st.composite
def wild_operators(draw: Any) -> Operator:
    kind = draw(st.sampled_from(sorted(_schema.KINDS)))
    inputs: list[Tensor | None] = []
    for place in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            inputs.append(int8(f"in{place}", draw(SHAPES)))
        else:
            inputs.append(int32(f"list{place}", draw(st.lists(NUMBERS, max_size=5) | NUMBERS)))
    options = _schema.KINDS[kind].options()
    if isinstance(options, ir.AxisOptions):
        options = ir.AxisOptions(draw(NUMBERS))
    if isinstance(options, ir.SliceOptions):
        options = ir.SliceOptions(*(draw(st.integers(0, 31)) for _ in range(5)), draw(st.booleans()))
    if isinstance(options, ir.ReshapeOptions):
        options = ir.ReshapeOptions(tuple(draw(st.lists(NUMBERS, max_size=4))))
    if isinstance(options, ir.ConvOptions):
        options = ir.ConvOptions(draw(st.sampled_from([SAME, VALID])), (draw(st.integers(1, 3)), 1))
    dtype = draw(st.sampled_from([DType.INT8, DType.INT32]))
    outputs = [Tensor(f"out{place}", (1,) * draw(st.integers(0, 5)), dtype, dynamic=True) for place in range(2)]
    return Operator(kind, inputs, outputs[: draw(st.integers(1, 2))], options)


@given(wild_operators())
@settings(max_examples=600, deadline=None)
def test_wild_operators_are_refused_or_sound(operator: Operator) -> None:
    try:
        graph = fold(infer(of_operators([operator], operator.outputs)))
    except OperatorError:
        return
    for tensor in graph.outputs:
        assert min(tensor.shape, default=1) >= 0
        assert np.prod([length for length in tensor.shape if length], dtype=object) <= 1 << 28
        assert tensor.data is None or tensor.data.shape == tensor.shape
