"""What the reader makes of sound, damaged and hostile files."""

from __future__ import annotations

import hashlib
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import tflite
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from codegen import ir
from codegen.ir import ModelError
from codegen.program import compile_graph
from codegen.read import parse_model, read_model
from codegen.write import write
from tests.tflite import fuzz_reader
from tests.tflite.single import int8, int32, of_operators, one_operator

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.tflite"))


def small() -> ir.Graph:
    """Make a convolution, a reshape and a sum with a constant."""
    x = int8("x", (1, 4, 4, 2), 0.5, -1)
    hidden, flat, y = int8("hidden", (1, 2, 2, 3), 0.25, 3), int8("flat", (1, 12), 0.25, 3), int8("y", (1, 12), 1.0)
    weights = int8("w", (3, 3, 3, 2), [0.5, 1.0, 2.0], data=np.arange(54) - 27)
    operators = [
        ir.Operator("CONV_2D", [x, weights, int32("b", [1, 2, 3], [0.25, 0.5, 1.0])], [hidden], ir.ConvOptions()),
        ir.Operator("RESHAPE", [hidden, int32("shape", [1, 12])], [flat], ir.ReshapeOptions()),
        ir.Operator("ADD", [flat, int8("c", (12,), data=range(-6, 6), bits=4)], [y], ir.FusedOptions()),
    ]
    return of_operators(operators, [y])


def changed(change: Callable[[Any], None]) -> bytes:
    """Write the small model, changed with the classes of another package."""
    model = schema.ModelT.InitFromPackedBuf(write(small()), 0)
    change(model)
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def refusal(data: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        parse_model(data, "m.tflite")
    message = str(caught.value)
    assert "\n" not in message
    return message


# What is changed in the subgraph's tensors (0 x, 1 w, 2 b, 3 hidden, 4 shape, 5 flat, 6 c, 7 y), and the message.
DAMAGED = "; the file is damaged: convert the model again"
INT8_ONLY = "; quantize the model fully to int8 (TFLITE_BUILTINS_INT8)"
CONV = "m.tflite: operator 0 (CONV_2D) hidden: "
TENSORS: list[tuple[str, int, Callable[[Any], object], str]] = [
    (
        "negative",
        0,
        lambda t: set_(t, shape=[1, -4, 4, 2]),
        "tensor 0 (x): the shape 1x-4x4x2 has a negative dimension",
    ),
    (
        "huge",
        0,
        lambda t: set_(t, shape=[2**31 - 1] * 4),
        "tensor 0 (x): the shape 2147483647x2147483647x2147483647x2147483647 is beyond 268435456 elements",
    ),
    (
        "huge and empty",
        0,
        lambda t: set_(t, shape=[2**31 - 1, 0]),
        "tensor 0 (x): the shape 2147483647x0 is beyond 268435456 elements",
    ),
    ("rank", 0, lambda t: set_(t, shape=[1] * 9), "tensor 0 (x): a list (Shape) of 9 numbers; at most 8 make sense"),
    ("empty input", 0, lambda t: set_(t, shape=[1, 0]), "the model's input x is a constant"),
    ("signature", 0, lambda t: set_(t, shapeSignature=[-1]), "tensor 0 (x): its shapes have 4 and 1 dimensions"),
    ("float16", 0, lambda t: set_(t, type=1), f"tensor 0 (x): elements of type FLOAT16 are not supported{INT8_ONLY}"),
    (
        "unknown",
        0,
        lambda t: set_(t, type=99),
        f"tensor 0 (x): elements of type number 99 are not supported{INT8_ONLY}",
    ),
    ("int4 input", 0, lambda t: set_(t, type=17), f"tensor 0 (x): four-bit activations are not supported{INT8_ONLY}"),
    ("buffer", 0, lambda t: set_(t, buffer=77), "tensor 0 (x): its buffer 77 does not exist"),
    ("constant input", 0, lambda t: set_(t, shape=[54], buffer=1), "the model's input x is a constant"),
    ("variable input", 0, lambda t: set_(t, isVariable=True), "the model's input x is a variable"),
    ("NUL", 0, lambda t: set_(t, name=b"a\0b"), r"the name of tensor 0 holds control characters: 'a\x00b'"),
    ("newline", 0, lambda t: set_(t, name=b"a\nb"), r"the name of tensor 0 holds control characters: 'a\nb'"),
    ("UTF-8", 0, lambda t: set_(t, name=b"a\xff"), "the name of tensor 0 is no UTF-8"),
    ("sparse", 1, lambda t: set_(t, sparsity=schema.SparsityParametersT()), "tensor 1 (w): sparse tensors are not"),
    ("both", 1, lambda t: set_(t, isVariable=True), "tensor 1 (w): it is both a constant and a variable"),
    (
        "buffer size",
        1,
        lambda t: set_(t, shape=[3, 3, 3, 3], quantization=None),
        "tensor 1 (w): its shape 3x3x3x3 of int8 takes 81 bytes, its buffer holds 54",
    ),
    ("empty constant", 1, lambda t: set_(t, shape=[3, 0, 3, 2]), "its shape 3x0x3x2 of int8 takes 0 bytes"),
    ("int4 size", 1, lambda t: set_(t, type=17), "of int8 takes 27 bytes, its buffer holds 54"),
    (
        "int32 size",
        2,
        lambda t: set_(t, type=4),
        "tensor 2 (b): its shape 3 of int64 takes 24 bytes, its buffer holds 12",
    ),
    ("no constant", 1, lambda t: set_(t, buffer=0), f"tensor 1 (w) is read before anything writes it{DAMAGED}"),
    ("written constant", 3, lambda t: set_(t, shape=[54], buffer=1), "tensor 3 (hidden) is written although it has a"),
    ("written variable", 3, lambda t: set_(t, isVariable=True), "tensor 3 (hidden) is written although it has a value"),
    (
        "zero scale",
        0,
        lambda t: set_(t.quantization, scale=[0.0]),
        "tensor 0 (x): a scale of 0.0; scales are finite and",
    ),
    ("negative scale", 0, lambda t: set_(t.quantization, scale=[-0.5]), "tensor 0 (x): a scale of -0.5; scales are"),
    ("NaN", 1, lambda t: set_(t.quantization, scale=[1, np.nan, 1]), "tensor 1 (w): a scale of nan; scales are finite"),
    ("infinity", 1, lambda t: set_(t.quantization, scale=[1, 1, np.inf]), "tensor 1 (w): a scale of inf; scales are"),
    (
        "scales",
        1,
        lambda t: set_(t.quantization, scale=[1, 1]),
        "tensor 1 (w): 2 scales for axis 0 of the shape 3x3x3x2",
    ),
    (
        "axis",
        1,
        lambda t: set_(t.quantization, quantizedDimension=4),
        "tensor 1 (w): its scales are for axis 4, the shape",
    ),
    ("axis < 0", 1, lambda t: set_(t.quantization, quantizedDimension=-1), "tensor 1 (w): its scales are for axis -1"),
    ("zero points", 1, lambda t: set_(t.quantization, zeroPoint=[0, 0]), "tensor 1 (w): 2 zero points for 3 scales"),
    ("no zero point", 0, lambda t: set_(t.quantization, zeroPoint=None), "tensor 0 (x): 0 zero points for 1 scales"),
    ("zero point", 0, lambda t: set_(t.quantization, zeroPoint=[128]), "tensor 0 (x): a zero point of 128 is no int8"),
    (
        "64 bits",
        0,
        lambda t: set_(t.quantization, zeroPoint=[-(2**63)]),
        "a zero point of -9223372036854775808 is no int8",
    ),
    (
        "custom quantization",
        0,
        lambda t: set_(t.quantization, detailsType=1, details=schema.CustomQuantizationT()),
        f"tensor 0 (x): custom quantization is not supported{INT8_ONLY}",
    ),
]


def set_(target: Any, **values: Any) -> None:
    for name, value in values.items():
        assert hasattr(target, name)
        setattr(target, name, value)


@pytest.mark.parametrize(
    ("position", "change", "message"), [row[1:] for row in TENSORS], ids=[row[0] for row in TENSORS]
)
def test_wrong_tensors(position: int, change: Callable[[Any], object], message: str) -> None:
    found = refusal(changed(lambda model: change(model.subgraphs[0].tensors[position])))
    assert found.startswith("m.tflite: ") and message in found


def operators(model: Any) -> Any:
    return model.subgraphs[0].operators


def swap(model: Any) -> None:
    first, second, third = operators(model)
    model.subgraphs[0].operators = [second, first, third]


MODELS: list[tuple[str, Callable[[Any], object], str]] = [
    ("version", lambda m: set_(m, version=2), "m.tflite: schema version 2, not 3; convert the model again"),
    ("no subgraph", lambda m: set_(m, subgraphs=[]), "m.tflite: 0 subgraphs, not one; control flow and several"),
    ("two subgraphs", lambda m: set_(m, subgraphs=m.subgraphs * 2), "m.tflite: 2 subgraphs, not one; control flow"),
    (
        "no operators",
        lambda m: set_(m.subgraphs[0], operators=[]),
        "m.tflite: the model has no operators: its outputs are its inputs; there is nothing to export",
    ),
    ("no inputs", lambda m: set_(m.subgraphs[0], inputs=[]), f"m.tflite: the model has no inputs{DAMAGED}"),
    ("no outputs", lambda m: set_(m.subgraphs[0], outputs=None), f"m.tflite: the model has no outputs{DAMAGED}"),
    ("input", lambda m: set_(m.subgraphs[0], inputs=[8]), f"m.tflite: tensor 8 does not exist: there are 8{DAMAGED}"),
    ("input -1", lambda m: set_(m.subgraphs[0], inputs=[-1]), "m.tflite: tensor -1 does not exist: there are 8"),
    (
        "open image",
        lambda m: set_(m.subgraphs[0].tensors[0], shape=[1, 1, 1, 2], shapeSignature=[-1, -1, -1, 2]),
        "m.tflite: the input x leaves more open than the batch: ?x?x?x2; give the Input layer a whole shape",
    ),
    ("inputs", lambda m: set_(m.subgraphs[0], inputs=[0, 0]), "m.tflite: a tensor is twice among the model's inputs"),
    (
        "outputs",
        lambda m: set_(m.subgraphs[0], outputs=[7, 7]),
        "m.tflite: a tensor is twice among the model's outputs",
    ),
    ("kind", lambda m: set_(operators(m)[1], opcodeIndex=3), "m.tflite: operator 1 is of kind 3: there are 3"),
    ("order", swap, "m.tflite: operator 0 (RESHAPE) flat: tensor 3 (hidden) is read before anything writes it"),
    (
        "cycle",
        lambda m: set_(operators(m)[0], inputs=[7, 1, 2]),
        f"{CONV}tensor 7 (y) is read before anything writes it",
    ),
    ("itself", lambda m: set_(operators(m)[0], inputs=[3, 1, 2]), f"{CONV}tensor 3 (hidden) is read before anything"),
    ("twice", lambda m: set_(operators(m)[2], outputs=[5]), "(ADD) flat: tensor 5 (flat) is written although it has a"),
    ("twice at once", lambda m: set_(operators(m)[2], outputs=[7, 7]), "operator 2 (ADD) y: it writes the same tensor"),
    (
        "writes input",
        lambda m: set_(operators(m)[2], outputs=[0]),
        "(ADD) x: tensor 0 (x) is written although it has a",
    ),
    ("unwritten", lambda m: set_(operators(m)[2], outputs=[3]), "tensor 3 (hidden) is written although it has a value"),
    (
        "no result",
        lambda m: set_(operators(m)[2], outputs=[]),
        f"m.tflite: operator 2 (ADD): it has no outputs{DAMAGED}",
    ),
    (
        "output -1",
        lambda m: set_(operators(m)[2], outputs=[-1]),
        "m.tflite: operator 2 (ADD): tensor -1 does not exist",
    ),
    ("operand", lambda m: set_(operators(m)[2], inputs=[5, 99]), "operator 2 (ADD) y: tensor 99 does not exist: there"),
    ("operand -2", lambda m: set_(operators(m)[2], inputs=[5, -2]), "operator 2 (ADD) y: tensor -2 does not exist"),
    (
        "many operands",
        lambda m: set_(operators(m)[2], inputs=[5] * 513),
        "operator 2 (ADD) y: a list (Inputs) of 513 numbers; at most 512 make sense",
    ),
    (
        "options",
        lambda m: set_(operators(m)[0], builtinOptionsType=11, builtinOptions=schema.AddOptionsT()),
        f"{CONV}its options are number 11, not Conv2DOptions{DAMAGED}",
    ),
    (
        "no options",
        lambda m: set_(operators(m)[0], builtinOptionsType=0, builtinOptions=None),
        f"{CONV}its options are number 0, not Conv2DOptions",
    ),
    ("stride", lambda m: set_(operators(m)[0].builtinOptions, strideW=0), f"{CONV}its option StrideW is 0, below 1"),
    ("dilation", lambda m: set_(operators(m)[0].builtinOptions, dilationHFactor=-1), "DilationHFactor is -1, below 1"),
    ("padding", lambda m: set_(operators(m)[0].builtinOptions, padding=2), "option Padding has the unknown value 2"),
    (
        "activation",
        lambda m: set_(operators(m)[2].builtinOptions, fusedActivationFunction=6),
        "operator 2 (ADD) y: its option FusedActivationFunction has the unknown value 6",
    ),
    (
        "not supported",
        lambda m: set_(m.operatorCodes[0], deprecatedBuiltinCode=127, builtinCode=128),
        "operator 2 (CUMSUM) y: this operator is not supported; replace it in the model; `gossamer codegen",
    ),
    (
        "custom",
        lambda m: set_(m.operatorCodes[0], deprecatedBuiltinCode=32, builtinCode=32, customCode=b"MyOp"),
        "operator 2 (CUSTOM MyOp) y: this operator is not supported",
    ),
    (
        "custom, badly named",
        lambda m: set_(m.operatorCodes[0], deprecatedBuiltinCode=32, builtinCode=32, customCode=b"My\nOp"),
        r"the name of a custom operator holds control characters: 'My\nOp'",
    ),
    (
        "no such operator",
        lambda m: set_(m.operatorCodes[0], deprecatedBuiltinCode=127, builtinCode=9999),
        "operator 2 (code 9999) y: this operator is not supported",
    ),
    (
        "external",
        lambda m: set_(m.buffers[1], offset=4096, size=54),
        "tensor 1 (w): its data are outside the flatbuffer",
    ),
    ("buffer cut", lambda m: set_(m.buffers[1], data=[1, 2, 3]), "of int8 takes 54 bytes, its buffer holds 3"),
    ("odd int4", lambda m: set_(m.buffers[4], data=[1] * 7), "its shape 12 of int8 takes 6 bytes, its buffer holds 7"),
]


@pytest.mark.parametrize(("change", "message"), [row[1:] for row in MODELS], ids=[row[0] for row in MODELS])
def test_wrong_models(change: Callable[[Any], object], message: str) -> None:
    found = refusal(changed(change))
    assert found.startswith("m.tflite: ") and message in found


def test_messages_are_short() -> None:
    """Converters name a tensor after all that was fused into it; a damaged file may hold any number of paddings."""

    def fused(model: Any) -> None:
        model.subgraphs[0].tensors[3].name = b"conv/Relu;conv/BiasAdd;norm/add_1"
        operators(model)[0].inputs = [7, 1, 2]

    assert refusal(changed(fused)).startswith("m.tflite: operator 0 (CONV_2D) conv/Relu: tensor 7 (y) is read before")
    paddings = int32("paddings", np.full((100, 2), -1_000_000))
    graph = one_operator("PAD", [int8("x", (1, 4)), paddings], int8("y", (1, 4)), ir.Options())
    with pytest.raises(ModelError, match="input 1 is .*-1000000, .*[.]{3}; the file is damaged") as caught:
        compile_graph(graph)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("member", "value"), [("beta", np.nan), ("beta", np.inf)])
def test_wrong_real_options(member: str, value: float) -> None:
    graph = one_operator("SOFTMAX", [int8("x", (1, 2))], int8("y", (1, 2)), ir.SoftmaxOptions(value))
    assert f"its option Beta is {value}" in refusal(write(graph))


def test_diagonal_lstm() -> None:
    data = write(one_operator("UNIDIRECTIONAL_SEQUENCE_LSTM", [int8("x", (1, 2))], int8("y", (1, 2)), ir.LstmOptions()))
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    operators(model)[0].builtinOptions.diagonalRecurrentTensors = True
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    assert "its option DiagonalRecurrentTensors is True, which is not supported" in refusal(bytes(builder.Output()))


@pytest.mark.parametrize("data", [b"", b"TFL3", b"\0" * 7, b"\x1c\0\0\0TFL2" + bytes(100), b"{}\n" * 100])
def test_other_files(data: bytes) -> None:
    assert refusal(data) == "m.tflite: this is no .tflite file: bytes 4 to 7 are not TFL3"


@pytest.mark.parametrize("root", [0, 1, 5, 10**6, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_wrong_root(root: int) -> None:
    assert refusal(struct.pack("<I", root) + write(small())[4:]).startswith("m.tflite: ")


def position_of(table: Any, field: int) -> int:
    """Find where a table's member is."""
    return int(table._tab.Pos + table._tab.Offset(4 + 2 * field))


@pytest.mark.parametrize("value", [0, 1, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("what", ["tensors", "operators", "buffers", "shape", "scale", "name", "vtable"])
def test_wrong_offsets_and_lengths(what: str, value: int) -> None:
    """Put nonsense where an offset is, and where the length of what it leads to is."""
    data = write(small())
    model = tflite.Model.GetRootAs(data)
    subgraph = model.Subgraphs(0)
    place = {
        "tensors": lambda: position_of(subgraph, 0),
        "operators": lambda: position_of(subgraph, 3),
        "buffers": lambda: position_of(model, 4),
        "shape": lambda: position_of(subgraph.Tensors(0), 0),
        "scale": lambda: position_of(subgraph.Tensors(0).Quantization(), 2),
        "name": lambda: position_of(subgraph.Tensors(0), 3),
        "vtable": lambda: subgraph.Tensors(0)._tab.Pos,
    }[what]()
    length = place + struct.unpack_from("<I", data, place)[0]
    for offset in {place, length} if length + 4 <= len(data) else {place}:
        damaged = bytearray(data)
        struct.pack_into("<I", damaged, offset, value)
        assert_survives(bytes(damaged))


def assert_survives(data: bytes) -> bool:
    """Tell whether the bytes are a model; whatever is raised but ModelError fails."""
    try:
        graph = parse_model(data, "m.tflite")
    except ModelError as error:
        assert "\n" not in str(error)
        return False
    assert graph.operators and all(tensor.name.isprintable() for tensor in graph.tensors())
    return True


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_every_truncation(path: Path) -> None:
    data = path.read_bytes()
    assert assert_survives(data)
    for length in range(len(data)):
        assert_survives(data[:length])


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_bytes_flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for place in range(0, len(data), 1 + len(data) // 1500):
        data[place] ^= 0xFF
        assert_survives(bytes(data))
        data[place] ^= 0xFF ^ 1 << place % 8
        assert_survives(bytes(data))
        data[place] ^= 1 << place % 8


def count_calls(work: Callable[[], object]) -> int:
    """Count calls of functions: a measure of time that is the same on every machine."""
    calls = 0

    def on_event(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def hostile(tensors: int = 1, operators: int = 1, links: int = 1, name: bytes = b"", filler: int = 0) -> bytes:
    """Write a file in which many offsets lead to the same tables and vectors."""
    build = flatbuffers.Builder(0)

    def table(of: str, **members: int) -> int:
        getattr(tflite, f"{of}Start")(build)
        for member, value in members.items():
            getattr(tflite, f"{of}Add{member}")(build, value)
        return int(getattr(tflite, f"{of}End")(build))

    def same(offset: int, count: int) -> int:
        build.StartVector(4, count, 4)
        for _ in range(count):
            build.PrependUOffsetTRelative(offset)
        return int(build.EndVector())

    text = build.CreateString(name)
    numbers = build.CreateNumpyVector(np.arange(links, dtype=np.int32))
    filled = build.CreateByteVector(bytes(filler))
    tensor = table("Tensor", Type=9, Name=text)
    operator = table("Operator", Inputs=numbers, Outputs=numbers)
    buffers = same(table("Buffer", Data=filled), 1)
    subgraph = table(
        "SubGraph",
        Tensors=same(tensor, tensors),
        Inputs=build.CreateNumpyVector(np.zeros(1, np.int32)),
        Outputs=build.CreateNumpyVector(np.zeros(1, np.int32)),
        Operators=same(operator, operators),
    )
    codes = same(table("OperatorCode", BuiltinCode=tflite.BuiltinOperator.RELU), 1)
    model = table("Model", Version=3, OperatorCodes=codes, Subgraphs=same(subgraph, 1), Buffers=buffers)
    build.Finish(model, file_identifier=b"TFL3")
    return bytes(build.Output())


@pytest.mark.parametrize(
    "data",
    [
        hostile(tensors=1 << 18),
        hostile(operators=1 << 18),
        hostile(tensors=512, operators=4096, links=512),
        hostile(tensors=4096, operators=4096, links=1, name=b"x" * 1_000_000),
        hostile(tensors=1 << 12, operators=1 << 12, links=1 << 18),
        hostile(tensors=512, links=512, operators=4096, filler=1 << 21),
    ],
    ids=["tensors", "operators", "links", "names", "long lists", "filled"],
)
def test_what_is_used_many_times(data: bytes) -> None:
    """The work is bounded by the length of the file, not by what its offsets pretend."""
    assert count_calls(lambda: refusal(data)) < 1_000_000
    tracemalloc.start()
    refusal(data)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 * len(data) + 8_000_000


def test_a_sound_model() -> None:
    graph = parse_model(write(small()), "folder/kws.tflite")
    assert graph.name == "kws"
    assert graph.sha256 == hashlib.sha256(write(small())).hexdigest()
    conv, reshape, add = graph.operators
    assert [operator.kind for operator in graph.operators] == ["CONV_2D", "RESHAPE", "ADD"]
    assert conv.output is reshape.input(0) and reshape.output is add.input(0) and add.output is graph.outputs[0]
    assert add.constant(1).tolist() == list(range(-6, 6))
    assert [tensor.index for tensor in graph.tensors()] == list(range(8))


def test_names_are_there_and_differ() -> None:
    def change(model: Any) -> None:
        names = [b"a", b"", b"a", b"a_3", b"a", b"", b"tensor_1", b"a"]
        for tensor, name in zip(model.subgraphs[0].tensors, names, strict=True):
            tensor.name = name

    found = [tensor.name for tensor in parse_model(changed(change), "m").tensors()]
    assert len(set(found)) == 8 and all(found)
    assert found[0] == "a"


def test_an_empty_constant_is_a_constant() -> None:
    graph = one_operator("RESHAPE", [int8("x", (1, 1)), int32("shape", [])], int8("y", ()), ir.ReshapeOptions())
    assert parse_model(write(graph), "m").operators[0].constant(1).shape == (0,)


def test_one_zero_point_serves_all_channels() -> None:
    found = parse_model(changed(lambda m: set_(m.subgraphs[0].tensors[1].quantization, zeroPoint=[0])), "m")
    quantization = found.operators[0].input(1).quantization
    assert quantization is not None and quantization.zero_points.tolist() == [0, 0, 0]


def test_constants_need_not_be_aligned() -> None:
    data = write(small())
    model = tflite.Model.GetRootAs(data)
    offset = position_of(model.Buffers(2), 0)
    vector = offset + struct.unpack_from("<I", data, offset)[0]
    moved = bytearray(data) + b"\0" + data[vector : vector + 16]  # length and three int32, one byte further
    moved_to = len(data) + 1
    while (moved_to - offset) % 4 == 0:
        moved_to += 1
    struct.pack_into("<I", moved, offset, moved_to - offset)
    np.testing.assert_array_equal(parse_model(bytes(moved), "m").operators[0].constant(2), [1, 2, 3])


def test_what_tensorflow_writes() -> None:
    """The file was written by TensorFlow 2.21's converter from five Keras layers; the numbers are theirs."""
    graph = read_model(Path(__file__).parent / "corpus" / "keras.tflite")
    kinds = [operator.kind for operator in graph.operators]
    assert kinds == ["CONV_2D", "DEPTHWISE_CONV_2D", "RESHAPE", "FULLY_CONNECTED", "SOFTMAX"]
    conv, depthwise, reshape, dense, softmax = graph.operators
    assert conv.options == ir.ConvOptions(ir.Padding.VALID, activation=ir.Activation.RELU)
    assert depthwise.options == ir.ConvOptions(ir.Padding.SAME)
    assert softmax.options == ir.SoftmaxOptions(1.0)
    assert dense.optional(2) is None
    assert reshape.constant(1).tolist() == [1, 144]
    weights, bias = depthwise.input(1).quantization, depthwise.input(2).quantization
    assert weights is not None and bias is not None and (len(weights.scales), weights.axis) == (4, 3)
    np.testing.assert_allclose(bias.scales, conv.output.scale * weights.scales, rtol=1e-6)
    assert (softmax.output.scale, softmax.output.zero_point) == (np.float32(1 / 256), -128)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(write(small()))
    assert read_model(path).name == "m"
    with pytest.raises(ModelError, match=r"gone.tflite: no such file; give a .tflite file"):
        read_model(tmp_path / "gone.tflite")
    with pytest.raises(ModelError, match="this is no file"):
        read_model(tmp_path)
    with path.open("r+b") as file:
        file.truncate((1 << 26) + 1)
    with pytest.raises(ModelError, match="more than 64 MiB; no microcontroller holds this model"):
        read_model(path)


def test_random_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a file that fails would be left
    assert fuzz_reader.run_plain(fuzz_reader.read, seed=1, count=3000) == 3000
