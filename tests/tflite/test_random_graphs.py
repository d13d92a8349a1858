"""Random models: the C that is generated for them against tflite-micro, element by element."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from codegen import oracle
from codegen.host import build
from codegen.ir import ConvOptions, DType, Graph, Operator, Padding, PoolOptions
from codegen.lower import supported
from codegen.program import Settings, compile_graph
from codegen.read import parse_model
from codegen.write import write
from tests.tflite.conftest import Compared
from tests.tflite.random_graphs import PARTS, inputs_of, random_graph
from tests.tflite.single import litert

COUNT = 300
SECOND_OPINIONS = 60
# Only as parts of a shape that is computed, never of int8 alone.
FOLDED = {"SHAPE", "STRIDED_SLICE", "PACK"}
# Where LiteRT's reference kernels mean something else: they pad with the zero point, rescale, sum otherwise, have
# tables of another precision, no state of int8, and more tensors.
OTHERS_DIFFER = {"SPACE_TO_BATCH_ND", "RELU6", "SUM", "LOGISTIC", "TANH", "SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM"}


def kinds_to_draw() -> frozenset[str]:
    """List what can be exported, and what is evaluated when a shape is computed."""
    return frozenset({*supported(), *FOLDED})


@functools.cache
def drawn(count: int, kinds: frozenset[str]) -> list[Graph]:
    return [random_graph(seed, kinds) for seed in range(count)]


def test_generated_c_equals_tflite_micro(compared: Compared) -> None:
    models = [write(graph) for graph in drawn(COUNT, kinds_to_draw())]
    graphs = [parse_model(model, f"random_{number}.tflite") for number, model in enumerate(models)]
    inputs = [inputs_of(graph, seed) for seed, graph in enumerate(graphs)]
    answers = oracle.run_many(list(zip(models, inputs, strict=True)))
    built = build([compile_graph(graph, Settings(f"random_{number}")) for number, graph in enumerate(graphs)])
    wrong = []
    for number, (model, sets, answer) in enumerate(zip(built, inputs, answers, strict=True)):
        assert isinstance(answer, oracle.Answer), f"random_graph({number}): {answer}"
        for values, expected in zip(sets, answer.outputs, strict=True):
            for place, (found, right) in enumerate(zip(model.invoke(values), expected, strict=True)):
                if not same(found, right):
                    wrong.append(f"random_graph({number}), output {place}: {np.sum(found != right)} elements")
                compared.add("random models", 0, right.size)
        compared.add("random models", 1, 0)
    assert not wrong, wrong


def same(found: np.ndarray, right: np.ndarray) -> bool:
    """Compare bits, so that zeros of both signs and NaNs differ as they do."""
    return found.shape == right.shape and found.dtype == right.dtype and found.tobytes() == right.tobytes()


def test_a_second_opinion() -> None:
    """LiteRT's reference kernels agree with tflite-micro where they mean the same."""
    graphs = [
        graph for graph in drawn(COUNT, kinds_to_draw() - OTHERS_DIFFER) if not any(map(lacks_bias, graph.operators))
    ][:SECOND_OPINIONS]
    assert len(graphs) == SECOND_OPINIONS
    inputs = [inputs_of(graph, seed) for seed, graph in enumerate(graphs)]
    answers = oracle.run_many([(write(graph), sets) for graph, sets in zip(graphs, inputs, strict=True)])
    for graph, sets, answer in zip(graphs, inputs, answers, strict=True):
        assert isinstance(answer, oracle.Answer), f"{graph.name}: {answer}"
        for expected, found in zip(answer.outputs, litert(graph, sets), strict=True):
            assert all(itertools.starmap(same, zip(found, expected, strict=True))), graph.name


def lacks_bias(operator: Operator) -> bool:
    """Tell of a convolution without a bias, which LiteRT refuses."""
    return operator.kind == "CONV_2D" and operator.optional(2) is None


def test_every_operator_is_drawn() -> None:
    found = {operator.kind for graph in drawn(COUNT, kinds_to_draw()) for operator in graph.operators}
    parts = {kind for kinds, _ in PARTS for kind in kinds}
    assert found == kinds_to_draw() & parts


# What breaks other exporters, as a question to an operator of a graph.


def same_window(operator: Operator) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]] | None:
    """Return image, window and stride of an operator that pads as it needs."""
    options = operator.options
    if not isinstance(options, ConvOptions | PoolOptions) or options.padding is not Padding.SAME:
        return None
    if operator.kind == "TRANSPOSE_CONV":
        return None
    image = operator.input(0).shape[1:3]
    window = options.window if isinstance(options, PoolOptions) else operator.input(1).shape[1:3]
    return (image[0], image[1]), (window[0], window[1]), options.stride


def pads_unevenly(graph: Graph, operator: Operator) -> bool:
    found = same_window(operator)
    return found is not None and any(
        (max((-(-n // s) - 1) * s + w - n, 0)) % 2 == 1 for n, w, s in zip(*found, strict=True)
    )


def pads_before_conv(graph: Graph, operator: Operator) -> bool:
    made_by = {id(tensor): made.kind for made in graph.operators for tensor in made.outputs}
    x = operator.inputs[0]
    return operator.kind == "CONV_2D" and x is not None and made_by.get(id(x)) == "PAD" and x.zero_point != 0


def outlying_channel(graph: Graph, operator: Operator) -> bool:
    weights = operator.optional(1)
    if operator.kind != "FULLY_CONNECTED" or weights is None or weights.quantization is None:
        return False
    scales = weights.quantization.scales
    return bool(scales.max() > 12 * np.median(scales))


TRAPS: dict[str, Callable[[Graph, Operator], bool]] = {
    "open batch": lambda g, o: g.inputs[0].dynamic,
    "old dilation": lambda g, o: o.kind == "SPACE_TO_BATCH_ND",
    "shape computed": lambda g, o: o.kind == "SHAPE",
    "uneven padding": pads_unevenly,
    "stride (3, 4)": lambda g, o: (found := same_window(o)) is not None and found[2] == (3, 4),
    "a channel scaled": outlying_channel,
    "padding before convolution": pads_before_conv,
    "padded maximum": lambda g, o: o.kind == "MAX_POOL_2D" and same_window(o) is not None,
    "dense without bias": lambda g, o: o.kind == "FULLY_CONNECTED" and o.optional(2) is None,
    "odd count of four-bit weights": lambda g, o: any(t and t.bits == 4 and t.size % 2 == 1 for t in o.inputs),
    "groups": lambda g, o: o.kind == "CONV_2D" and o.input(0).shape[3] > o.input(1).shape[3],
    "dilation": lambda g, o: isinstance(o.options, ConvOptions) and o.options.dilation != (1, 1),
    "float output": lambda g, o: any(tensor.dtype is DType.FLOAT32 for tensor in g.outputs),
    "output that is read as well": lambda g, o: any(tensor in g.outputs for tensor in o.inputs),
    "twice the same operand": lambda g, o: o.kind == "ADD" and o.inputs[0] is o.inputs[1],
}


@pytest.mark.parametrize("trap", TRAPS)
def test_every_trap_is_drawn(trap: str) -> None:
    met = Counter(
        any(TRAPS[trap](graph, operator) for operator in graph.operators) for graph in drawn(COUNT, kinds_to_draw())
    )
    assert met[True] >= 3
