"""Lower a graph; what leaves int8 for floats and comes back, a function of one value, becomes one look-up.

The converter leaves such islands around operators that TensorFlow Lite has no int8 form of: DEQUANTIZE, NEG, QUANTIZE
is a part of every PReLU of Keras 3. Of the functions that are exact in float32 a table holds every result to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen._evaluate import REAL_FUNCTIONS, evaluate
from codegen.ir import DType, Graph, Operator, Tensor
from codegen.lower._calls import Lowered, lower, supported
from codegen.lower._quantized import int8, same_shape
from codegen.lower.tables import table_call

_INSIDE: Final = frozenset({"DEQUANTIZE", *REAL_FUNCTIONS})
_EVERY: Final[NDArray[Any]] = np.arange(-128, 128).astype(np.int8)


def lower_graph(graph: Graph) -> list[Lowered]:
    """Lower the operators of a graph in order, those of an island together. Raises OperatorError.

    The graph keeps its operators, so that it can still be written and judged; floats that only islands read are never
    computed, and have no place in memory.
    """
    makers = {id(tensor): operator for operator in graph.operators for tensor in operator.outputs}
    islands = {id(operator): _island(operator, makers) for operator in graph.operators}
    needed = {id(tensor) for tensor in graph.outputs}
    steps: list[Sequence[Operator]] = []
    for operator in reversed(graph.operators):
        if any(id(tensor) in needed for tensor in operator.outputs):
            steps.append(islands[id(operator)] or [operator])
            needed |= {id(tensor) for tensor in steps[-1][0].inputs}
    return [lower(step[0]) if len(step) == 1 else _look_up(step) for step in reversed(steps)]


def only_in_islands() -> tuple[str, ...]:
    """List the kinds of operators that can be lowered between DEQUANTIZE and QUANTIZE, and nowhere else."""
    return tuple(sorted({*REAL_FUNCTIONS} - {*supported()}))


def _island(last: Operator, makers: Mapping[int, Operator]) -> Sequence[Operator]:
    """Return the operators from a DEQUANTIZE to this QUANTIZE; none if its input is anything else."""
    if last.kind != "QUANTIZE":
        return []
    path = [last]
    while path[-1].kind != "DEQUANTIZE":
        source = path[-1].input(0)
        maker = makers.get(id(source))
        if maker is None or maker.kind not in _INSIDE or source.dtype is not DType.FLOAT32:
            return []
        path.append(maker)
    return path[::-1]


def _look_up(island: Sequence[Operator]) -> Lowered:
    """Work out an island for every int8."""
    first, last = island[0], island[-1]
    source, output = int8(first, first.input(0)), int8(last, last.output)
    same_shape(last, output, source.shape)
    value = Tensor(source.name, _EVERY.shape, source.dtype, source.quantization, _EVERY)
    for operator in island:
        made = replace(operator.output, shape=_EVERY.shape)
        values = evaluate(replace(operator, inputs=[value], outputs=[made]))
        assert values is not None, operator.kind
        value = replace(made, data=values[0])
    table = value.data
    assert table is not None
    return table_call(last, source, lambda x: int(table[x + 128]))
