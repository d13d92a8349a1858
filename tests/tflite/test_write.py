"""Graphs that are written mean to other readers what they mean here."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from codegen import _schema, ir
from codegen.read import parse_model
from codegen.write import write
from tests.tflite.single import int8, int32, litert, of_operators, one_operator, plain, random_inputs, tflite_micro


def unpack(data: bytes) -> Any:
    """Read a file with the classes of another package, made by the schema's compiler."""
    return schema.ModelT.InitFromPackedBuf(data, 0)


SAME, VALID = 0, 1
RELU, RELU_N1_TO_1, RELU6, TANH = 1, 2, 3, 4  # as the schema numbers them

# Kind -> our options, and the members of the schema's table with their numbers.
OPTIONS: list[tuple[str, ir.Options, dict[str, Any]]] = [
    (
        "CONV_2D",
        ir.ConvOptions(ir.Padding.VALID, (2, 3), (4, 5), activation=ir.Activation.RELU6),
        dict(padding=VALID, strideH=2, strideW=3, dilationHFactor=4, dilationWFactor=5, fusedActivationFunction=RELU6),
    ),
    (
        "DEPTHWISE_CONV_2D",
        ir.ConvOptions(ir.Padding.SAME, (2, 3), (4, 5), 6, ir.Activation.RELU),
        dict(padding=SAME, strideH=2, strideW=3, dilationHFactor=4, dilationWFactor=5, depthMultiplier=6)
        | dict(fusedActivationFunction=RELU),
    ),
    (
        "TRANSPOSE_CONV",
        ir.ConvOptions(ir.Padding.VALID, (2, 3), activation=ir.Activation.RELU_N1_TO_1),
        dict(padding=VALID, strideH=2, strideW=3, fusedActivationFunction=RELU_N1_TO_1),
    ),
    (
        "FULLY_CONNECTED",
        ir.DenseOptions(ir.Activation.RELU, keep_dims=True, shuffled=True),
        dict(fusedActivationFunction=RELU, keepNumDims=True, weightsFormat=1),
    ),
    (
        "MAX_POOL_2D",
        ir.PoolOptions(ir.Padding.VALID, (2, 3), (4, 5), ir.Activation.RELU),
        dict(padding=VALID, strideH=2, strideW=3, filterHeight=4, filterWidth=5, fusedActivationFunction=RELU),
    ),
    ("AVERAGE_POOL_2D", ir.PoolOptions(ir.Padding.SAME, window=(4, 5)), dict(padding=SAME, filterHeight=4, strideW=1)),
    ("MEAN", ir.ReduceOptions(True), dict(keepDims=True)),
    ("REDUCE_MAX", ir.ReduceOptions(True), dict(keepDims=True)),
    ("ADD", ir.FusedOptions(ir.Activation.RELU), dict(fusedActivationFunction=RELU)),
    ("SUB", ir.FusedOptions(ir.Activation.RELU6), dict(fusedActivationFunction=RELU6)),
    ("MUL", ir.FusedOptions(ir.Activation.RELU), dict(fusedActivationFunction=RELU)),
    ("CONCATENATION", ir.AxisOptions(-2, activation=ir.Activation.RELU), dict(axis=-2, fusedActivationFunction=RELU)),
    ("PACK", ir.AxisOptions(2, 3), dict(axis=2, valuesCount=3)),
    ("UNPACK", ir.AxisOptions(2, 3), dict(axis=2, num=3)),
    ("GATHER", ir.AxisOptions(2, batch_dims=1), dict(axis=2, batchDims=1)),
    ("RESHAPE", ir.ReshapeOptions((2, -1)), dict(newShape=[2, -1])),
    ("SQUEEZE", ir.ReshapeOptions((0, 3)), dict(squeezeDims=[0, 3])),
    (
        "STRIDED_SLICE",
        ir.SliceOptions(1, 2, 4, 8, 16, True),
        dict(beginMask=1, endMask=2, ellipsisMask=4, newAxisMask=8, shrinkAxisMask=16, offset=True),
    ),
    ("SPLIT", ir.SplitOptions(3), dict(numSplits=3)),
    ("SPLIT_V", ir.SplitOptions(3), dict(numSplits=3)),
    ("SOFTMAX", ir.SoftmaxOptions(0.5), dict(beta=0.5)),
    ("LEAKY_RELU", ir.LeakyOptions(0.25), dict(alpha=0.25)),
    ("RESIZE_BILINEAR", ir.ResizeOptions(True, False), dict(alignCorners=True, halfPixelCenters=False)),
    ("RESIZE_NEAREST_NEIGHBOR", ir.ResizeOptions(False, True), dict(alignCorners=False, halfPixelCenters=True)),
    ("MIRROR_PAD", ir.MirrorOptions(False), dict(mode=0)),
    ("MIRROR_PAD", ir.MirrorOptions(True), dict(mode=1)),
    ("DEPTH_TO_SPACE", ir.BlockOptions(3), dict(blockSize=3)),
    ("SPACE_TO_DEPTH", ir.BlockOptions(3), dict(blockSize=3)),
    ("SVDF", ir.SvdfOptions(2, ir.Activation.RELU), dict(rank=2, fusedActivationFunction=RELU)),
    (
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        ir.LstmOptions(ir.Activation.TANH, 1.5, 2.5, True),
        dict(fusedActivationFunction=TANH, cellClip=1.5, projClip=2.5, timeMajor=True, diagonalRecurrentTensors=False),
    ),
    ("ARG_MAX", ir.Options(), dict(outputType=9)),  # what the output is: int8
    ("SHAPE", ir.Options(), dict(outType=9)),
    ("CAST", ir.Options(), dict(inDataType=9, outDataType=9)),
]


@pytest.mark.parametrize(("kind", "options", "expected"), OPTIONS, ids=[kind for kind, _, _ in OPTIONS])
def test_options_mean_the_same_to_others(kind: str, options: ir.Options, expected: dict[str, Any]) -> None:
    graph = one_operator(kind, [int8("x", (1, 2))], int8("y", (1, 2)), options)
    data = write(graph)
    model = unpack(data)
    operator = model.subgraphs[0].operators[0]
    code = model.operatorCodes[operator.opcodeIndex]
    assert max(code.builtinCode, code.deprecatedBuiltinCode) == getattr(schema.BuiltinOperator, kind)
    found = {name: getattr(operator.builtinOptions, name) for name in expected}
    assert {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()} == (
        expected
    )
    assert parse_model(data, "x").operators[0].options == options


def test_the_options_table_leaves_nothing_out() -> None:
    """Every kind with members stands in the table above, each kind of a group at least once."""
    tables = {_schema.KINDS[kind].table for kind, _, _ in OPTIONS} | {"DivOptions", "ArgMinOptions"}
    assert tables == {kind.table for kind in _schema.KINDS.values()} - {""}


def test_tensors_mean_the_same_to_others() -> None:
    weights = int8("w", (2, 3), [0.5, 0.25], data=[[1, -2, 3], [-4, 5, -6]], axis=0)
    state = replace(int8("state", (1, 3)), variable=True)
    graph = one_operator(
        "SVDF", [int8("x", (1, 3), 0.125, -7), weights, state], int8("y", (1, 2), 2.0, 127), ir.SvdfOptions()
    )
    model = unpack(write(graph))
    assert (model.version, len(model.buffers[0].data or [])) == (3, 0)
    x, w, s, y = model.subgraphs[0].tensors
    assert [t.name for t in (x, w, s, y)] == [b"x", b"w", b"state", b"y"]
    assert [t.type for t in (x, w, s, y)] == [schema.TensorType.INT8] * 4
    assert [t.isVariable for t in (x, w, s, y)] == [False, False, True, False]
    assert x.shape.tolist() == [1, 3] and x.shapeSignature is None
    assert (x.quantization.scale.tolist(), x.quantization.zeroPoint.tolist()) == ([0.125], [-7])
    assert (w.quantization.scale.tolist(), w.quantization.zeroPoint.tolist()) == ([0.5, 0.25], [0, 0])
    assert bytes(model.buffers[w.buffer].data) == bytes([1, 254, 3, 252, 5, 250])
    assert x.buffer == s.buffer == y.buffer == 0
    assert (model.subgraphs[0].inputs.tolist(), model.subgraphs[0].outputs.tolist()) == ([0], [3])


def test_constants_start_at_a_multiple_of_16() -> None:
    constants: list[ir.Tensor | None] = [int32(f"c{size}", [1000 + size] * size) for size in range(1, 9)]
    data = write(one_operator("CONCATENATION", constants, plain("y", (36,), ir.DType.INT32), ir.AxisOptions()))
    assert [data.index(np.full(size, 1000 + size, np.int32).tobytes()) % 16 for size in range(1, 9)] == [0] * 8


@pytest.mark.parametrize("count", [1, 2, 3, 15, 16])
def test_four_bit_constants_are_packed(count: int) -> None:
    values = np.resize([-8, 7, -1, 3, 0], count)
    graph = one_operator(
        "FULLY_CONNECTED",
        [int8("x", (1, count)), int8("w", (1, count), data=values, bits=4), None],
        int8("y", (1, 1), 3.0),
        ir.DenseOptions(),
    )
    data = write(graph)
    model = unpack(data)
    stored = model.subgraphs[0].tensors[1]
    nibbles = [*(int(value) % 16 for value in values), 0]
    assert stored.type == schema.TensorType.INT4
    assert model.buffers[stored.buffer].data.tolist() == [
        low + 16 * high for low, high in zip(nibbles[0:count:2], nibbles[1::2], strict=False)
    ]
    again = parse_model(data, "x").operators[0].input(1)
    assert (again.bits, again.dtype) == (4, ir.DType.INT8)
    np.testing.assert_array_equal(again.data, values.reshape(1, count))
    # tflite-micro reads them as we do, whatever it does with the spare half.
    plain_graph = one_operator(
        "FULLY_CONNECTED",
        [int8("x", (1, count)), int8("w", (1, count), data=values), None],
        int8("y", (1, 1), 3.0),
        ir.DenseOptions(),
    )
    inputs = random_inputs(graph, 8)
    np.testing.assert_array_equal(tflite_micro(graph, inputs), tflite_micro(plain_graph, inputs))


def test_a_dynamic_batch_is_left_open() -> None:
    x, y = replace(int8("x", (1, 4)), dynamic=True), replace(int8("y", (1, 4)), dynamic=True)
    data = write(one_operator("RELU", [x], y, ir.Options()))
    assert unpack(data).subgraphs[0].tensors[0].shapeSignature.tolist() == [-1, 4]
    again = parse_model(data, "x")
    assert (again.inputs[0].dynamic, again.inputs[0].shape) == (True, (1, 4))


def test_both_interpreters_run_what_is_written() -> None:
    draw = np.random.default_rng(1)
    x = int8("x", (1, 5, 6, 3), 0.1, 3)
    hidden = int8("hidden", (1, 3, 3, 4), 2.0, -3)
    y = int8("y", (1, 3, 3, 4), 1 / 256, -128)
    weights = int8("w", (4, 3, 3, 3), [0.1, 0.2, 0.3, 0.4], data=draw.integers(-127, 128, (4, 3, 3, 3)))
    bias = int32("b", [100, -2, 3, 4], [0.01, 0.02, 0.03, 0.04])
    conv = ir.Operator("CONV_2D", [x, weights, bias], [hidden], ir.ConvOptions(ir.Padding.SAME, (2, 2)))
    graph = of_operators([conv, ir.Operator("SOFTMAX", [hidden], [y], ir.SoftmaxOptions())], [y])
    inputs = random_inputs(graph, 20)
    found = tflite_micro(graph, inputs)
    np.testing.assert_array_equal(found, litert(graph, inputs))
    assert len(np.unique(found)) > 10


# Any graph at all: kinds, options and tensors that need not suit each other, for neither side should care.

NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=12)
SHAPES = st.lists(st.integers(1, 5), max_size=4).map(tuple)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def tensors(draw: st.DrawFn, name: str, constant: bool) -> ir.Tensor:
    shape = draw(SHAPES)
    dtype = draw(st.sampled_from(list(ir.DType)))
    data = np.zeros(shape, dtype.numpy)
    if dtype is ir.DType.FLOAT32:
        data[...] = draw(FLOATS)
    elif dtype is ir.DType.BOOL:
        data[...] = draw(st.booleans())
    else:
        limits = np.iinfo(dtype.numpy)
        data.flat[:] = [draw(st.integers(int(limits.min), int(limits.max))) for _ in range(min(data.size, 3))]
    quantization = None
    if dtype in (ir.DType.INT8, ir.DType.INT32) and draw(st.booleans()):
        axis = draw(st.integers(0, max(len(shape) - 1, 0)))
        count = shape[axis] if shape and draw(st.booleans()) else 1
        scales = draw(st.lists(st.floats(2**-140, 2**100, width=32), min_size=count, max_size=count))
        zero_points = draw(st.lists(st.integers(-128, 127), min_size=count, max_size=count))
        quantization = ir.Quantization(np.array(scales, np.float32), np.array(zero_points, np.int32), axis)
    dynamic = shape[:1] == (1,) and not constant and draw(st.booleans())
    return ir.Tensor(name, shape, dtype, quantization, data if constant else None, dynamic=dynamic)


@st.composite
def options(draw: st.DrawFn, kind: str) -> ir.Options:
    found = _schema.KINDS[kind].options
    written = {field.ours for field in _schema.KINDS[kind].fields} | (
        {"shape"} if _schema.KINDS[kind].vector else set()
    )
    values: dict[str, Any] = {}
    for field in fields(found):
        if field.name not in written:
            continue
        default = field.default
        values[field.name] = draw(
            st.sampled_from(list(type(default)))
            if isinstance(default, ir.Activation | ir.Padding)
            else st.booleans()
            if isinstance(default, bool)
            else FLOATS
            if isinstance(default, float)
            else st.lists(st.integers(-9, 9), max_size=3).map(tuple)
            if field.name == "shape"
            else st.tuples(st.integers(1, 9), st.integers(1, 9))
            if isinstance(default, tuple)
            else st.integers(1, 99)
        )
    return found(**values)


@st.composite
def graphs(draw: st.DrawFn) -> ir.Graph:
    names = iter(draw(st.lists(NAMES, min_size=40, max_size=40, unique=True)))
    inputs = [draw(tensors(next(names), False)) for _ in range(draw(st.integers(1, 2)))]
    values, operators = list(inputs), []
    for index in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(sorted(_schema.KINDS)))
        taken: list[ir.Tensor | None] = [
            draw(st.sampled_from(values) | st.none() | tensors(next(names), True))
            for _ in range(draw(st.integers(1, 3)))
        ]
        made = [draw(tensors(next(names), False)) for _ in range(draw(st.integers(1, 2)))]
        operators.append(ir.Operator(kind, taken, made, draw(options(kind)), index))
        values += made
    return ir.Graph("model", operators, inputs, draw(st.lists(st.sampled_from(values), min_size=1, unique_by=id)))


def assert_same(found: ir.Graph, expected: ir.Graph) -> None:
    numbers: dict[int, int] = {}
    pairs = list(zip(expected.tensors(), found.tensors(), strict=True))
    for number, (ours, theirs) in enumerate(pairs):
        numbers[id(ours)] = numbers[id(theirs)] = number
        assert_same_tensor(theirs, ours)
        assert theirs.index == number
    for ours_of, theirs_of in zip(expected.operators, found.operators, strict=True):
        assert (theirs_of.kind, theirs_of.options, theirs_of.index) == (ours_of.kind, ours_of.options, ours_of.index)

    def links(graph: ir.Graph) -> list[list[int | None]]:
        lists = [graph.inputs, graph.outputs, *(end for op in graph.operators for end in (op.inputs, op.outputs))]
        return [[None if tensor is None else numbers[id(tensor)] for tensor in each] for each in lists]

    assert links(found) == links(expected)


def assert_same_tensor(found: ir.Tensor, expected: ir.Tensor) -> None:
    simple = ("name", "shape", "dtype", "bits", "variable", "dynamic")
    assert [getattr(found, name) for name in simple] == [getattr(expected, name) for name in simple]
    if expected.data is None:
        assert found.data is None
    else:
        np.testing.assert_array_equal(found.data, expected.data, strict=True)
    if expected.quantization is None:
        assert found.quantization is None
    else:
        assert found.quantization is not None
        np.testing.assert_array_equal(found.quantization.scales, expected.quantization.scales, strict=True)
        np.testing.assert_array_equal(found.quantization.zero_points, expected.quantization.zero_points, strict=True)
        assert found.quantization.axis == expected.quantization.axis


@given(graphs())
def test_what_is_written_is_read_again(graph: ir.Graph) -> None:
    data = write(graph)
    assert_same(parse_model(data, "dir/model.tflite"), graph)
    assert write(parse_model(data, "dir/model.tflite")) == data
