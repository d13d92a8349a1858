"""Convolutions and dense layers against tflite-micro, in every build; what is refused."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen import host, oracle
from codegen.emit import emit
from codegen.ir import (
    Activation,
    ConvOptions,
    DenseOptions,
    DType,
    Graph,
    Operator,
    OperatorError,
    Padding,
    Quantization,
    Tensor,
)
from codegen.kernels import sources_of
from codegen.lower import Table, lower
from codegen.program import Settings, compile_graph
from codegen.write import write
from gossamer.native import CHECKED, FAST, FIRMWARE
from tests.tflite.agree import agree, call_of, ours
from tests.tflite.conftest import Compared
from tests.tflite.layers import Drawn
from tests.tflite.single import int8, int32, one_operator, plain, random_inputs

Array = NDArray[Any]
WHAT = "convolutions and dense layers"


def some(graph: Graph) -> list[list[Array]]:
    return random_inputs(graph, 5)


def test_fully_connected(compared: Compared) -> None:
    agree([Drawn(seed).dense() for seed in range(40)], some, compared, WHAT)


def test_sizes_around_those_of_the_kernels(compared: Compared) -> None:
    """Groups of 16 terms, what is left of them, blocks and strips of rows, in all combinations."""
    sizes = [(terms, units) for terms in (1, 2, 15, 16, 17, 31, 32, 33) for units in (1, 2, 3, 4, 5, 15, 16, 17, 33)]
    agree([Drawn(*size).dense(terms=size[0], units=size[1]) for size in sizes], some, compared, WHAT)


@pytest.mark.parametrize("kind", ["FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_scales_are_multiplied_in_float64(kind: str, per_channel: bool, compared: Compared) -> None:
    """Sums of 10^9, ever so near to halves, tell float64 from the float32 of TensorFlow Lite's dense layers."""
    graphs = []
    channels = 500
    for seed in range(4):
        draw = Drawn(7, seed)
        scales = (draw.random.uniform(1, 2, 3) * [4e-4, 4e-4, 1]).astype(np.float32)
        factor = float(scales[0]) * float(scales[1]) / float(scales[2])
        near = np.rint((draw.random.integers(-120, 120, channels) + 0.5) / factor)
        bias = int32("b", near + draw.random.integers(-9, 10, channels), float(scales[0] * scales[1]))
        several = [float(scales[1])] * (channels if per_channel else 1)
        graphs.append(biased(kind, bias, several, float(scales[0]), float(scales[2])))
    agree(graphs, lambda graph: [[np.zeros(graph.inputs[0].shape, np.int8)]], compared, WHAT)


def biased(kind: str, bias: Tensor, scales: list[float], in_scale: float, out_scale: float) -> Graph:
    """Make a layer of one pixel whose weights are 0."""
    channels = bias.size
    depthwise = kind == "DEPTHWISE_CONV_2D"
    shape = (1, 1, 1, channels) if depthwise else (channels, 1, 1, 1)
    if kind == "FULLY_CONNECTED":
        x, y, w = int8("x", (1, 1), in_scale), int8("y", (1, channels), out_scale), int8("w", (channels, 1), scales)
    else:
        x, y = int8("x", (1, 1, 1, channels if depthwise else 1), in_scale), int8("y", (1, 1, 1, channels), out_scale)
        w = int8("w", shape, scales, axis=3 if depthwise else 0)
    w.data = np.zeros(w.shape, np.int8)
    if kind == "TRANSPOSE_CONV":
        return one_operator(kind, [int32("shape", y.shape), w, x, bias], y, ConvOptions())
    return one_operator(kind, [x, w, bias], y, DenseOptions() if kind == "FULLY_CONNECTED" else ConvOptions())


def test_scales_are_multiplied_in_float64_without_a_bias_too(compared: Compared) -> None:
    """The same with sums that only weights make: 255 times most of them, and 1 time the first."""
    terms, units = 4000, 500
    scales = np.array([1.13e-3, 1.77e-3, 2.3], np.float32)
    factor = float(scales[0]) * float(scales[1]) / float(scales[2])
    draw = Drawn(7)
    sums = np.rint((draw.random.integers(-110, 110, units) + 0.5) / factor) + draw.random.integers(-3, 4, units)
    times_255 = np.rint(sums / 255).astype(np.int64)
    weights = np.zeros((units, terms), np.int64)
    weights[:, 0] = sums - 255 * times_255
    whole, left = np.divmod(np.abs(times_255), terms - 1)
    weights[:, 1:] = np.sign(times_255)[:, None] * (whole[:, None] + (np.arange(terms - 1) < left[:, None]))
    w = int8("w", (units, terms), float(scales[1]), 0, weights)
    x, y = int8("x", (1, terms), float(scales[0]), -128), int8("y", (1, units), float(scales[2]))
    given = np.full((1, terms), 127, np.int8)
    given[0, 0] = -127
    agree([one_operator("FULLY_CONNECTED", [x, w, None], y, DenseOptions())], lambda _: [[given]], compared, WHAT)


def test_factors_of_every_size(compared: Compared) -> None:
    """Shifts in both directions and none, biases that make halves; one kernel serves layers that only shift right."""
    graphs = []
    for seed, least in enumerate((-28, -20, -9, -9)):
        draw = Drawn(8, seed)
        exponents = draw.random.uniform(least, -1.01 if seed == 3 else 3, 400)
        factors = (2.0**exponents).astype(np.float32)
        halves = np.rint((draw.random.integers(-130, 130, 400) + 0.5) / factors)
        bias = np.clip(halves, -(2**31) + 1, 2**31 - 1)
        w = int8("w", (400, 1), factors.tolist(), 0, np.ones(400))
        x, y = int8("x", (1, 1), 1.0, 5), int8("y", (1, 400), 1.0, seed)
        graphs.append(one_operator("FULLY_CONNECTED", [x, w, int32("b", bias, factors.tolist())], y, DenseOptions()))
    rights = [call_of(graph).parameters.fields["matrix.channels.all_right"] for graph in graphs]
    assert rights == [0, 0, 0, 1]
    agree(graphs, some, compared, WHAT)


def test_what_dense_layers_may_look_like(compared: Compared) -> None:
    """More than two axes, kept or not; the input may come in another shape."""
    w = Drawn(9).weights((6, 12), 0)
    graphs = []
    for x_shape, y_shape, keep in [((2, 3, 12), (2, 3, 6), True), ((2, 3, 12), (6, 6), False), ((4, 3), (1, 6), False)]:
        x, y = int8("x", x_shape, 0.05, 3), int8("y", y_shape, 1.0, -4)
        graphs.append(one_operator("FULLY_CONNECTED", [x, w, None], y, DenseOptions(keep_dims=keep)))
    agree(graphs, some, compared, WHAT)


def test_convolutions(compared: Compared) -> None:
    agree([Drawn(1, seed).conv() for seed in range(40)], some, compared, WHAT)


@pytest.mark.parametrize("dilation", [(2, 1), (1, 2), (2, 3)])
def test_dilation(dilation: tuple[int, int], compared: Compared) -> None:
    graphs = [Drawn(2, seed).conv(dilation=dilation, size=(9, 8)) for seed in range(8)]
    graphs += [Drawn(3, seed).depthwise(dilation=dilation) for seed in range(8)]
    agree(graphs, some, compared, WHAT)


def test_groups(compared: Compared) -> None:
    agree([Drawn(4, seed).conv(groups=2 + seed % 4) for seed in range(16)], some, compared, WHAT)


@pytest.mark.parametrize(
    "traits",
    [
        dict(size=(8, 8), taps=(3, 3), stride=(2, 2), padding=Padding.SAME),  # pads only below and to the right
        dict(size=(11, 13), taps=(3, 3), stride=(3, 4), padding=Padding.SAME),
        dict(size=(6, 6), taps=(6, 6), padding=Padding.VALID, stride=(1, 1)),  # a dense layer
        dict(size=(6, 6), taps=(6, 6), padding=Padding.SAME, stride=(1, 1)),
        dict(size=(6, 6), taps=(6, 6), padding=Padding.SAME, stride=(6, 6)),
        dict(size=(7, 5), taps=(1, 1), stride=(1, 1)),
        dict(size=(7, 5), taps=(1, 1), stride=(2, 3)),
        dict(size=(7, 5), taps=(3, 5), stride=(1, 1), padding=Padding.VALID),  # windows of whole rows
        dict(size=(1, 40), taps=(1, 5), stride=(1, 2)),  # in one dimension
        dict(size=(40, 1), taps=(5, 1), stride=(2, 1)),
        dict(size=(3, 3), taps=(7, 7), padding=Padding.SAME),  # larger than the image
        dict(size=(5, 5), taps=(3, 3), channels=1, outputs=1),
        dict(size=(5, 5), taps=(3, 3), channels=32, outputs=32, per_channel=False),
    ],
    ids=str,
)
def test_shapes_of_convolutions(traits: dict[str, Any], compared: Compared) -> None:
    agree([Drawn(5, seed).conv(**traits) for seed in range(4)], some, compared, WHAT)


def test_convolutions_that_are_dense_layers() -> None:
    whole = Drawn(1).conv(size=(4, 3), taps=(4, 3), padding=Padding.VALID)
    by_pixel = Drawn(1).conv(taps=(1, 1), stride=(1, 1))
    assert [call_of(graph).kernel for graph in (whole, by_pixel)] == ["gs_q8_dense"] * 2
    assert [call_of(graph).scratch_bytes for graph in (whole, by_pixel)] == [0, 0]


def test_depthwise(compared: Compared) -> None:
    graphs = [Drawn(6, seed).depthwise() for seed in range(30)]
    graphs += [Drawn(6, channels).depthwise(channels=channels) for channels in (1, 7, 8, 31, 32, 33, 40, 64, 72)]
    agree(graphs, some, compared, WHAT)


def test_depthwise_with_several_outputs_a_channel(compared: Compared) -> None:
    agree([Drawn(7, seed).depthwise(2 + seed % 3, channels=1 + seed) for seed in range(12)], some, compared, WHAT)


def test_depthwise_with_a_weight_that_two_products_overflow(compared: Compared) -> None:
    graphs = [Drawn(8, seed).depthwise(low=True) for seed in range(4)]
    assert {call_of(graph).kernel for graph in graphs} == {"gs_q8_conv"}
    agree(graphs, lambda graph: [[np.full(graph.inputs[0].shape, -128, np.int8)], *some(graph)], compared, WHAT)


def test_transposed_convolutions(compared: Compared) -> None:
    graphs = [Drawn(9, seed).transpose() for seed in range(40)]
    graphs += [Drawn(10, seed).transpose(taps=(1, 2), stride=(3, 3)) for seed in range(4)]  # outputs that see nothing
    graphs += [Drawn(11, seed).transpose(taps=(5, 5), stride=(1, 2)) for seed in range(4)]
    agree(graphs, some, compared, WHAT)


def test_transposed_convolutions_of_odd_sizes(compared: Compared) -> None:
    """Several shapes of the output go with one of the input."""
    graphs = []
    for padding, side in ((Padding.SAME, 7), (Padding.SAME, 8), (Padding.VALID, 9), (Padding.VALID, 10)):
        draw = Drawn(12, side)
        x, w, y = int8("x", (1, 4, 4, 3), 0.1, 9), draw.weights((5, 3, 3, 3), 0), int8("y", (1, side, side, 5), 0.5)
        options = ConvOptions(padding, (2, 2))
        graphs.append(one_operator("TRANSPOSE_CONV", [int32("shape", y.shape), w, x], y, options))
    agree(graphs, some, compared, WHAT)


def test_weights_of_four_bits(compared: Compared) -> None:
    """As files hold them, with one scale: tflite-micro takes no more. Odd counts are among them."""
    draw = Drawn(13)
    graphs = [draw.dense(4, False) for _ in range(12)] + [draw.conv(4, per_channel=False) for _ in range(12)]
    assert {call_of(graph).kernel[-3:] for graph in graphs} == {"_w4"}
    agree(graphs, some, compared, WHAT)


BUILDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "gcc-O0": ("gcc", ("-O0",)),
    "gcc-O2": ("gcc", ("-O2",)),
    "gcc-one-lane": ("gcc", ("-O2", "-DGS_Q8_LANES=1")),
    "gcc-fast": ("gcc", FAST),
    "clang-O2": ("clang", ("-O2",)),
    "clang-one-lane": ("clang", ("-O2", "-DGS_Q8_LANES=1")),
    "clang-fast": ("clang", FAST),
}


def mixture() -> list[Graph]:
    """Draw layers of every kind and of all bits."""
    graphs = []
    for seed in range(2):
        draw = Drawn(14, seed)
        for bits in (8, 4, 2, 1):
            graphs += [draw.dense(bits), draw.dense(bits, terms=200 + seed), draw.conv(bits), draw.conv(bits, groups=2)]
            graphs += [draw.conv(bits, taps=(3, 3), channels=40), draw.transpose(bits)]
            graphs += [draw.dense(bits, terms=128 // bits - 128 // bits // 16 + 1)]  # what is left takes a whole group
        graphs += [draw.depthwise(), draw.depthwise(3), draw.depthwise(channels=45)]
    return graphs


@pytest.fixture(scope="module")
def judged() -> list[tuple[Graph, list[list[Array]], list[list[Array]]]]:
    """Give graphs, their inputs, and what tflite-micro makes of them with weights of the same values in bytes."""
    graphs = mixture()
    inputs = [random_inputs(graph, 3) for graph in graphs]
    answers = oracle.run_many([(write(in_bytes(graph)), sets) for graph, sets in zip(graphs, inputs, strict=True)])
    outputs = []
    for answer in answers:
        assert isinstance(answer, oracle.Answer), answer
        outputs.append(answer.outputs)
    return list(zip(graphs, inputs, outputs, strict=True))


def in_bytes(graph: Graph) -> Graph:
    (operator,) = graph.operators
    inputs = [None if tensor is None else replace(tensor, bits=8) for tensor in operator.inputs]
    rewired = one_operator(operator.kind, inputs, operator.output, operator.options)
    assert len(rewired.inputs) == len(graph.inputs) == 1
    return rewired


@pytest.mark.parametrize("name", BUILDS)
def test_every_build_gives_the_same_bits(
    name: str, judged: list[tuple[Graph, list[list[Array]], list[list[Array]]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, flags = BUILDS[name]
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    monkeypatch.setenv("CC", compiler)
    models = host.build([compile_graph(graph, Settings(f"m{n}")) for n, (graph, _, _) in enumerate(judged)], flags)
    for model, (graph, inputs, outputs) in zip(models, judged, strict=True):
        for given, expected in zip(inputs, outputs, strict=True):
            np.testing.assert_array_equal(model.invoke(given)[0].ravel(), expected[0].ravel(), str(graph.operators[0]))


@pytest.mark.parametrize(
    "options",
    [
        ("gcc",),
        pytest.param(("gcc", "-DGS_Q8_LANES=1"), marks=pytest.mark.slow),
        pytest.param(("clang",), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_no_sanitizer_objects(
    options: tuple[str, ...], judged: list[tuple[Graph, list[list[Array]], list[list[Array]]]], tmp_path: Path
) -> None:
    """Inputs, outputs and arenas stand alone in memory, of exactly their size."""
    compiler, *flags = options
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    headers, sources, calls, kernels, data = [], [], [], set(), b""
    for number, (graph, inputs, outputs) in enumerate(judged):
        program = compile_graph(graph, Settings(f"m{number}"))
        for name, text in emit(program).items():
            (tmp_path / name).write_text(text)
        headers.append(f'#include "m{number}.h"')
        sources.append(tmp_path / f"m{number}.c")
        sizes = f"{inputs[0][0].size}, {outputs[0][0].size}, {program.arena.peak_bytes}"
        calls.append(f"    failed += run(m{number}_invoke, {sizes});")
        kernels.update(call.kernel for call in program.calls)
        data += inputs[0][0].tobytes() + outputs[0][0].tobytes()
    (tmp_path / "data").write_bytes(data)
    (tmp_path / "main.c").write_text("\n".join([*headers, MAIN, *calls, "    return failed;", "}", ""]))
    core = [f"-I{FIRMWARE / 'core'}", *map(str, sources_of(kernels))]
    command = [compiler, "-std=c11", *CHECKED, *flags, *core, *map(str, sources), str(tmp_path / "main.c")]
    subprocess.run([*command, "-o", str(tmp_path / "run")], check=True)
    done = subprocess.run([tmp_path / "run"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *data;

static int run(int (*invoke)(const int8_t *, int8_t *, void *), size_t in_bytes, size_t out_bytes, size_t arena_bytes)
{
    int8_t *in = malloc(in_bytes), *out = malloc(out_bytes), *expected = malloc(out_bytes);
    void *arena = arena_bytes ? aligned_alloc(16, arena_bytes) : NULL;
    int failed = fread(in, 1, in_bytes, data) != in_bytes || fread(expected, 1, out_bytes, data) != out_bytes;
    failed = failed || invoke(in, out, arena) != 0 || memcmp(out, expected, out_bytes) != 0;
    free(in), free(out), free(expected), free(arena);
    return failed;
}

int main(void)
{
    int failed = 0;
    data = fopen("data", "rb");"""


def test_a_bias_may_wrap() -> None:
    """Sums are those of 32 bits, as they are in tflite-micro, whose own C++ does not define them: no judge here."""
    bias = [2**31 - 1, -(2**31), 2**31 - 1]
    w = int8("w", (3, 1), [2.0**-24] * 3, 0, [[-100], [100], [1]])
    x, y = int8("x", (1, 1), 1.0, 127), int8("y", (1, 3), 1.0)
    graph = one_operator("FULLY_CONNECTED", [x, w, int32("b", bias)], y, DenseOptions())
    given = np.array([[-128]], np.int8)
    sums = [b + 100 * s * 255 for b, s in ((bias[0], 1), (bias[1], -1))] + [bias[2] - 255]
    wrapped = [(total + 2**31) % 2**32 - 2**31 for total in sums]
    expected = [int(np.sign(total)) * ((abs(total) + 2**23) >> 24) for total in wrapped]
    assert np.sign(wrapped).tolist() == [-1, 1, 1]  # the first two did wrap
    assert ours([graph], [[[given]]])[0][0][0].ravel().tolist() == [-128, 127, 127]
    assert np.clip(expected, -128, 127).tolist() == [-128, 127, 127]


def test_constants_are_as_small_as_can_be() -> None:
    """Nine bytes a channel, the weights, and at most what the last group may be read beyond."""
    graph = Drawn(1).dense(terms=30, units=20)
    tables = [field for field in call_of(graph).parameters.fields.values() if isinstance(field, Table)]
    assert sum(table.values.nbytes for table in tables) == 20 * 30 + 20 * 9 + 2


Change = Callable[[Operator], None]


def put(position: int, **changes: Any) -> Change:
    """Change an input."""

    def change(operator: Operator) -> None:
        operator.inputs[position] = replace(operator.input(position), **changes)

    return change


def option(**changes: Any) -> Change:
    def change(operator: Operator) -> None:
        operator.options = replace(operator.options, **changes)

    return change


def output(**changes: Any) -> Change:
    def change(operator: Operator) -> None:
        operator.outputs[0] = replace(operator.outputs[0], **changes)

    return change


def scales(count: int, zero_point: int = 0, axis: int = 0) -> Quantization:
    return Quantization(np.full(count, 0.1, np.float32), np.full(count, zero_point, np.int32), axis)


REFUSALS: list[tuple[str, Change, str]] = [
    ("dense", put(0, dtype=DType.INT16), "x is int16, not int8"),
    ("dense", put(0, quantization=scales(2)), "x has 2 scales"),
    ("dense", put(1, data=None), r"input 1 \(w\) is computed at run time"),
    ("dense", put(1, dtype=DType.FLOAT32), r"the weights \(w\) are float32, not int8"),
    ("dense", put(1, quantization=None), r"the weights \(w\) have no scale"),
    ("dense", put(1, quantization=scales(1, 3)), r"a zero point of the weights \(w\) is not 0"),
    ("dense", put(1, quantization=scales(8, axis=1)), "8 scales along axis 1; the outputs are the 8 of axis 0"),
    ("dense", put(1, quantization=scales(5)), "5 scales along axis 0"),
    ("dense", put(1, quantization=Quantization(np.float32([np.nan]), np.int32([0]))), "is no positive number"),
    ("dense", put(1, shape=(8, 8, 1)), r"the weights \(w\) are 8x8x1"),
    ("dense", put(2, dtype=DType.INT64), r"the bias \(b\) is int64, not int32"),
    ("dense", put(2, data=np.zeros(7, np.int32), shape=(7,)), r"the bias \(b\) has 7 elements, not 8"),
    ("dense", put(2, data=None), r"input 2 \(b\) is computed at run time"),
    ("dense", put(0, shape=(1, 9)), "1x9 times weights 8x8 does not make 1x8"),
    ("dense", output(shape=(1, 9)), "1x8 times weights 8x8 does not make 1x9"),
    ("dense", option(shuffled=True), "shuffled for one processor"),
    ("dense", option(activation=Activation.TANH), "the fused activation tanh is no clamp"),
    ("conv", put(0, shape=(5, 5, 4)), "the input is 5x5x4, not NHWC"),
    ("conv", put(0, shape=(1, 5, 5, 7)), "7 channels cannot be cut into groups for weights 6x3x3x4"),
    ("conv", put(0, shape=(1, 5, 5, 16)), "16 channels cannot be cut into groups"),
    ("conv", output(shape=(1, 5, 4, 6)), "y is 1x5x4x6, not 1x5x5x6"),
    ("conv", option(padding=Padding.VALID), "y is 1x5x5x6, not 1x3x3x6"),
    ("conv", option(stride=(0, 1)), "stride 0"),
    ("conv", option(stride=(1, 40_000)), "longer than 32,767"),
    ("conv", put(1, quantization=scales(6, axis=3)), "6 scales along axis 3"),
    ("depthwise", put(1, shape=(2, 3, 3, 4)), "do not match weights 2x3x3x4"),
    ("depthwise", option(depth_multiplier=2), "4 channels times 2 do not match weights 1x3x3x4"),
    ("depthwise", put(1, quantization=scales(4, axis=0)), "4 scales along axis 0; the outputs are the 4 of axis 3"),
    ("transpose", put(2, shape=(1, 5, 5, 7)), "1x5x5x7 does not match weights 6x3x3x4"),
    ("transpose", output(shape=(2, 5, 5, 6)), "the output is 2x5x5x6"),
    ("transpose", option(stride=(1, 0)), "stride 0"),
]


def whole(kind: str) -> Operator:
    """Make an operator with which all is well."""
    x, b, y = int8("x", (1, 5, 5, 4), 0.1), int32("b", np.zeros(6, np.int32), 0.01), int8("y", (1, 5, 5, 6))
    w = int8("w", (6, 3, 3, 4), 0.1, 0, np.ones(216))
    same = ConvOptions(Padding.SAME)
    if kind == "dense":
        inputs: list[Tensor | None] = [int8("x", (1, 8), 0.1), int8("w", (8, 8), 0.1, 0, np.ones(64))]
        return Operator("FULLY_CONNECTED", [*inputs, int32("b", np.zeros(8))], [int8("y", (1, 8))], DenseOptions())
    if kind == "depthwise":
        one = int8("w", (1, 3, 3, 4), 0.1, 0, np.ones(36))
        return Operator("DEPTHWISE_CONV_2D", [x, one], [int8("y", (1, 5, 5, 4))], same)
    if kind == "transpose":
        return Operator("TRANSPOSE_CONV", [int32("shape", y.shape), w, x, b], [y], same)
    return Operator("CONV_2D", [x, w, b], [y], same)


@pytest.mark.parametrize(("kind", "change", "reason"), REFUSALS, ids=[reason for _, _, reason in REFUSALS])
def test_refusals(kind: str, change: Change, reason: str) -> None:
    operator = whole(kind)
    lower(operator)
    change(operator)
    with pytest.raises(OperatorError, match=reason) as refused:
        lower(operator)
    assert refused.value.mend


def test_too_many_terms() -> None:
    x, y = int8("x", (1, 1 << 17)), int8("y", (1, 1))
    w = int8("w", (1, 1 << 17), 0.1, 0, np.ones(1 << 17))
    with pytest.raises(OperatorError, match="an output sums 131,072 products"):
        lower(Operator("FULLY_CONNECTED", [x, w, None], [y], DenseOptions()))


def test_an_input_without_a_scale() -> None:
    operator = whole("dense")
    operator.inputs[0] = plain("x", (1, 8), DType.INT8)
    with pytest.raises(OperatorError, match="x has no scale"):
        lower(operator)
