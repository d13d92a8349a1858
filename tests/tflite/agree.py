"""Hold the generated C against tflite-micro, many graphs at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen import oracle
from codegen.host import build
from codegen.ir import Graph, Operator
from codegen.lower import Alias, Call, lower
from codegen.program import Settings, compile_graph
from codegen.write import write
from tests.tflite.conftest import Compared

Array = NDArray[Any]
Inputs = Callable[[Graph], list[list[Array]]]


def ours(graphs: Sequence[Graph], inputs: Sequence[Sequence[Sequence[Array]]]) -> list[list[list[Array]]]:
    """Return what the generated C makes of each graph's sets of inputs, in turn."""
    models = build([compile_graph(graph, Settings(f"graph_{number}")) for number, graph in enumerate(graphs)])
    return [[model.invoke(values) for values in sets] for model, sets in zip(models, inputs, strict=True)]


def agree(graphs: Sequence[Graph], inputs_of: Inputs, compared: Compared, what: str) -> None:
    """Fail unless tflite-micro runs every graph and every element of every output is the same."""
    inputs = [inputs_of(graph) for graph in graphs]
    answers = oracle.run_many([(write(graph), sets) for graph, sets in zip(graphs, inputs, strict=True)])
    for graph, found, answer in zip(graphs, ours(graphs, inputs), answers, strict=True):
        assert isinstance(answer, oracle.Answer), f"{describe(graph)}: {answer}"
        compared.add(what, 1, 0)
        for mine, theirs in zip(found, answer.outputs, strict=True):
            for output, expected in zip(mine, theirs, strict=True):
                wrong = output.reshape(-1) != expected.reshape(-1)
                assert not wrong.any(), f"{describe(graph)}: {wrong.sum()} of {wrong.size} elements differ"
                compared.add(what, 0, output.size)


def describe(graph: Graph) -> str:
    """Tell what a graph does."""
    return "; ".join(f"{operator.kind} {operator.options} of {_ends(operator)}" for operator in graph.operators)


def _ends(operator: Operator) -> str:
    tensors = [tensor for tensor in (*operator.inputs, *operator.outputs) if tensor is not None]
    return ", ".join(
        f"{tensor.shape}"
        + (
            f" x {tensor.quantization.scales[0]:g} @ {tensor.quantization.zero_points[0]}"
            if tensor.quantization
            else ""
        )
        for tensor in tensors
    )


def call_of(graph: Graph) -> Call:
    """Lower the only operator of a graph, which must become a call."""
    lowered = lower(graph.operators[0])
    assert isinstance(lowered, Call)
    return lowered


def is_alias(graph: Graph) -> bool:
    """Tell whether the only operator of a graph vanishes."""
    return isinstance(lower(graph.operators[0]), Alias)


def drawn_scale(draw: np.random.Generator, least: float, most: float) -> float:
    """Draw a scale, evenly in its logarithm, of one or two decimal digits.

    Quotients of such scales are short fractions, so that many results are halves: they tell in which precision the
    factors were worked out.
    """
    return float(f"{10 ** draw.uniform(np.log10(least), np.log10(most)):.{draw.integers(0, 2)}e}")


def drawn_zero_point(draw: np.random.Generator) -> int:
    """Draw a zero point, the ends of int8 and 0 among them."""
    return int(draw.choice([-128, 0, 127, draw.integers(-128, 128), draw.integers(-128, 128)]))
