"""Operators that move elements against numpy and tflite-micro, resizing against tflite-micro; what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen import ir, oracle
from codegen.host import build
from codegen.ir import Activation, DType, Graph, ModelError, Operator, Options, Tensor
from codegen.program import Settings, compile_graph
from codegen.write import write
from tests.core.test_parts_checked import run_checked
from tests.tflite.conftest import Compared
from tests.tflite.moves import Move, all_moves, beyond_tflite_micro, move, tensor
from tests.tflite.single import int8, int32, litert, of_operators, one_operator, random_inputs, tflite_micro

Array = NDArray[Any]


def run_all(graphs: Sequence[Graph], inputs: Sequence[Sequence[Sequence[Array]]]) -> list[list[list[Array]]]:
    """Return what the generated C makes of each set of inputs."""
    programs = [compile_graph(graph, Settings(f"move_{number}")) for number, graph in enumerate(graphs)]
    return [[model.invoke(values) for values in sets] for model, sets in zip(build(programs), inputs, strict=True)]


def same(found: Sequence[Array], right: Sequence[Array]) -> bool:
    return len(found) == len(right) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(found, right, strict=True)
    )


@dataclass(frozen=True)
class Batch:
    """Hold several moves side by side in one model, which is compiled faster than many."""

    moves: Sequence[Move]
    inputs: Sequence[Sequence[Array]]

    @property
    def graph(self) -> Graph:
        operators = [operator for one in self.moves for operator in one.graph.operators]
        return of_operators(operators, [output for one in self.moves for output in one.graph.outputs])

    def judged(self, place: int, outputs: Sequence[Array]) -> dict[str, bool]:
        """Compare the outputs of one set of inputs with numpy's, move by move."""
        given, found = iter(self.inputs[place]), iter(outputs)
        answers = {}
        for one in self.moves:
            expected = one.expected(*itertools.islice(given, len(one.graph.inputs)))
            answers[one.name] = same(list(itertools.islice(found, len(expected))), expected)
        return answers


def batches(moves: Iterable[Move], size: int = 10) -> Iterator[Batch]:
    waiting = iter(moves)
    while some := list(itertools.islice(waiting, size)):
        yield Batch(some, random_inputs(Batch(some, []).graph, 2))


def all_right(batch: Batch) -> dict[str, bool]:
    return dict.fromkeys((one.name for one in batch.moves), True)


def test_moves(compared: Compared) -> None:
    """Ours, numpy's and tflite-micro's are one."""
    together = list(batches(all_moves()))
    theirs = oracle.run_many([(write(batch.graph), batch.inputs) for batch in together])
    ours = run_all([batch.graph for batch in together], [batch.inputs for batch in together])
    for batch, mine, answer in zip(together, ours, theirs, strict=True):
        assert isinstance(answer, oracle.Answer), answer
        for place, (found, right) in enumerate(zip(mine, answer.outputs, strict=True)):
            assert batch.judged(place, right) == all_right(batch)
            assert batch.judged(place, found) == all_right(batch)
            compared.add("movement", 0, sum(output.size for output in right))
        compared.add("movement", len(batch.moves), 0)


def test_moves_that_tflite_micro_refuses() -> None:
    moves = list(beyond_tflite_micro())
    jobs = [(write(one.graph), random_inputs(one.graph, 1)) for one in moves]
    assert all(isinstance(answer, oracle.OracleError) for answer in oracle.run_many(jobs))
    together = list(batches(moves))
    ours = run_all([batch.graph for batch in together], [batch.inputs for batch in together])
    for batch, mine in zip(together, ours, strict=True):
        for place, found in enumerate(mine):
            assert batch.judged(place, found) == all_right(batch)


def resize(kind: str, given: tuple[int, int], asked: tuple[int, int], options: ir.ResizeOptions) -> Graph:
    source, output = tensor("in", (2, *given, 3)), tensor("out", (2, *asked, 3))
    return one_operator(kind, [source, int32("size", asked)], output, options)


SIZES = [
    ((4, 5), (8, 10)),
    ((3, 7), (7, 3)),
    ((1, 1), (3, 4)),
    ((5, 6), (1, 2)),
    ((9, 4), (5, 11)),
    ((6, 6), (6, 6)),
    ((13, 31), (29, 17)),
    ((2, 3), (19, 23)),
]


def resizes() -> Iterator[Graph]:
    """Yield one model for each pair of sizes: both kinds, each in three ways."""
    for given, asked in SIZES:
        ways = itertools.product(
            ("RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"),
            (ir.ResizeOptions(), ir.ResizeOptions(True), ir.ResizeOptions(False, True)),
        )
        parts = [resize(kind, given, asked, options) for kind, options in ways]
        operators = [operator for part in parts for operator in part.operators]
        yield of_operators(operators, [part.outputs[0] for part in parts])


def test_resizing(compared: Compared) -> None:
    graphs = list(resizes())
    inputs = [random_inputs(graph, 3, seed) for seed, graph in enumerate(graphs)]
    for graph, sets in zip(graphs, inputs, strict=True):  # sums at their greatest, and halves to round
        sets += [[np.full(one.shape, value, np.int8) for one in graph.inputs] for value in (-128, 127, -1)]
    theirs = oracle.run_many([(write(graph), sets) for graph, sets in zip(graphs, inputs, strict=True)])
    for graph, mine, answer in zip(graphs, run_all(graphs, inputs), theirs, strict=True):
        assert isinstance(answer, oracle.Answer), answer
        for found, right in zip(mine, answer.outputs, strict=True):
            for operator, one, other in zip(graph.operators, found, right, strict=True):
                assert same([one], [other]), (operator.kind, operator.options, operator.output.shape)
        compared.add("resizing", len(graph.operators), sum(output.size for output in mine[0]) * len(mine))


UNDER_SANITIZERS = """
from codegen.host import build
from codegen.program import Settings, compile_graph
from gossamer.native import CHECKED
from tests.tflite.moves import all_moves, beyond_tflite_micro
from tests.tflite.single import random_inputs
from tests.tflite.test_movement import batches, resizes

graphs = [*(batch.graph for batch in batches([*all_moves(), *beyond_tflite_micro()], 40)), *resizes()]
programs = [compile_graph(graph, Settings(f"checked_{number}")) for number, graph in enumerate(graphs)]
for graph, model in zip(graphs, build(programs, CHECKED), strict=True):
    model.invoke([values.copy() for values in random_inputs(graph, 1)[0]])
"""


def test_nothing_is_touched_outside() -> None:
    done = run_checked("gcc", "-c", UNDER_SANITIZERS)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize(
    "graph",
    [
        move("TRANSPOSE", "ones move", [(1, 4, 1, 3)], [int32("order", [2, 1, 0, 3])], Options(), lambda x: [x]),
        move("SLICE", "all", [(2, 3)], [int32("b", [0, 0]), int32("s", [-1, 3])], Options(), lambda x: [x]),
        move("PAD", "none", [(2, 3)], [int32("around", [[0, 0], [0, 0]])], Options(), lambda x: [x]),
        move("MIRROR_PAD", "none", [(2, 3)], [int32("p", [[0, 0], [0, 0]])], ir.MirrorOptions(), lambda x: [x]),
        move("SPLIT_V", "one", [(2, 3)], [int32("s", [3]), int32("a", 1)], ir.SplitOptions(1), lambda x: [x]),
        move("GATHER", "in order", [(2, 3)], [int32("i", [0, 1, 2])], ir.AxisOptions(1), lambda x: [x]),
        move("BROADCAST_TO", "same", [(2, 3)], [int32("to", [2, 3])], Options(), lambda x: [x]),
    ],
    ids=lambda one: one.name,
)
def test_what_moves_nothing_costs_nothing(graph: Move) -> None:
    assert not compile_graph(graph.graph).calls


def refused(graph: Graph) -> str:
    with pytest.raises(ModelError) as caught:
        compile_graph(graph)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "parameters", "shape", "options"),
    [
        ("RESHAPE", [int32("to", [6])], (6,), ir.ReshapeOptions()),
        ("PAD", [int32("around", [[0, 1], [0, 0]])], (3, 3), Options()),
        ("TRANSPOSE", [int32("order", [1, 0])], (3, 2), Options()),
    ],
)
def test_other_scales_are_refused(
    kind: str, parameters: list[Tensor], shape: tuple[int, ...], options: Options
) -> None:
    source = int8("x", (2, 3), 0.1, 3)
    for scale, zero in ((0.2, 3), (0.1, 4)):
        graph = one_operator(kind, [source, *parameters], int8("y", shape, scale, zero), options)
        assert "x and y differ in scale or zero point" in refused(graph)


def test_joined_scales_must_be_one() -> None:
    inputs = [int8("a", (2, 3), 0.1), int8("b", (2, 3), 0.2)]
    graph = one_operator("CONCATENATION", inputs, int8("y", (2, 6), 0.1), ir.AxisOptions(1))
    assert "b and y differ in scale" in refused(graph)
    with pytest.raises(oracle.OracleError):
        tflite_micro(graph, random_inputs(graph, 1))


def test_fused_activations_of_joins_are_refused() -> None:
    options = ir.AxisOptions(1, activation=Activation.RELU)
    graph = one_operator("CONCATENATION", [int8("a", (2, 3)), int8("b", (2, 3))], int8("y", (2, 6)), options)
    assert "fused activation" in refused(graph)


def test_bilinear_beyond_the_image_is_refused() -> None:
    """The scale 103/10000 is rounded up to 11/1024, so the last positions are behind the last pixel."""
    graph = resize("RESIZE_BILINEAR", (103, 1), (10000, 1), ir.ResizeOptions())
    assert "too fine" in refused(graph)


def test_other_types_are_refused() -> None:
    source, output = tensor("x", (2, 3), DType.INT16), tensor("y", (3, 2), DType.INT16)
    source = replace(source, quantization=None)
    graph = one_operator("TRANSPOSE", [source, int32("order", [1, 0])], output, Options())
    assert "int16" in refused(graph)
    graph = resize("RESIZE_BILINEAR", (2, 2), (3, 3), ir.ResizeOptions())
    for end in (*graph.inputs, *graph.outputs):
        end.dtype, end.quantization = DType.FLOAT32, None
    assert "float32" in refused(graph)


def test_indices_that_are_computed_are_refused() -> None:
    source, indices = int8("x", (2, 3)), Tensor("i", (2,), DType.INT32)
    graph = one_operator("GATHER", [source, indices], int8("y", (2, 2)), ir.AxisOptions(1))
    assert "computed at run time" in refused(graph)


def test_padding_of_several_bytes_is_refused() -> None:
    source, output = tensor("x", (2, 3), DType.FLOAT32), tensor("y", (2, 4), DType.FLOAT32)
    value = tensor("v", (), DType.FLOAT32)
    value.data = np.array(1.5, np.float32)
    graph = one_operator("PADV2", [source, int32("around", [[0, 0], [0, 1]]), value], output, Options())
    assert "bytes differ" in refused(graph)


def test_a_chain_of_moves(compared: Compared) -> None:
    """Aliases, slices of one tensor and joins of its parts share memory without harm."""
    x = tensor("x", (2, 4, 6))
    parts = [tensor(f"part{i}", (2, 4, 2)) for i in range(3)]
    turned = [tensor(f"turned{i}", (2, 4, 2)) for i in range(2)]
    joined, flat, y = tensor("joined", (2, 4, 8)), tensor("flat", (64,)), tensor("y", (8, 8))
    operators = [
        Operator("SPLIT", [int32("axis", 2), x], [*parts], ir.SplitOptions(3)),
        Operator("STRIDED_SLICE", [parts[0], *backwards()], [turned[0]], ir.SliceOptions(5, 7)),
        Operator("STRIDED_SLICE", [parts[2], *backwards()], [turned[1]], ir.SliceOptions(5, 7)),
        Operator("CONCATENATION", [turned[0], parts[1], turned[1], parts[0]], [joined], ir.AxisOptions(2)),
        Operator("RESHAPE", [joined], [flat], ir.ReshapeOptions((64,))),
        Operator("RESHAPE", [flat], [y], ir.ReshapeOptions((8, 8))),
    ]
    graph = of_operators(operators, [y, parts[1]])
    inputs = random_inputs(graph, 3)
    (ours,) = run_all([graph], [inputs])
    assert all(itertools.starmap(same, zip(ours, tflite_micro(graph, inputs), strict=True)))
    assert all(itertools.starmap(same, zip(ours, litert(graph, inputs), strict=True)))
    compared.add("movement", 1, 3 * (y.size + parts[1].size))


def backwards() -> list[Tensor]:
    return [int32("begin", [0, 3, 0]), int32("end", [0, 0, 0]), int32("step", [1, -1, 1])]
