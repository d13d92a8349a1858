"""Leave out of a graph what need not happen on the device, and write what is left with fewer kinds of operators.

Every step keeps the bits of the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from codegen._dilation import dilate
from codegen._evaluate import evaluate, same_quantization
from codegen.ir import (
    Activation,
    AxisOptions,
    DType,
    Graph,
    Operator,
    Options,
    ReshapeOptions,
    SliceOptions,
    Tensor,
)

JOIN_MOST: Final = 4  # inputs of gs_q8_join
_FOLDED_MOST: Final = 1 << 25  # elements; beyond it, files are hostile


def fold(graph: Graph) -> Graph:
    """Return an equivalent graph of fixed shapes: constants computed, splits made slices, dead operators dropped.

    Raises OperatorError where a constant cannot be computed.
    """
    for step in (_compute, _drop_copies, _drop_dead, dilate, _simplify, _drop_dead):
        graph = step(graph)
    return graph


def _compute(graph: Graph) -> Graph:
    """Make constant what depends on constants only."""
    now: dict[int, Tensor] = {}
    operators = []
    folded = 0
    for operator in graph.operators:
        mine = _renamed(operator, now)
        if all(tensor.data is not None for tensor in mine.outputs):
            continue
        values = evaluate(mine) if folded <= _FOLDED_MOST else None
        if values is None:
            operators.append(mine)
            continue
        folded += sum(array.size for array in values)
        now |= {id(tensor): replace(tensor, data=array) for tensor, array in zip(mine.outputs, values, strict=True)}
    return replace(graph, operators=operators, outputs=[now.get(id(tensor), tensor) for tensor in graph.outputs])


def _renamed(operator: Operator, now: dict[int, Tensor]) -> Operator:
    inputs = [None if tensor is None else now.get(id(tensor), tensor) for tensor in operator.inputs]
    return replace(operator, inputs=inputs)


def _drop_copies(graph: Graph) -> Graph:
    """Drop requantization to the same scale: the factor of 1 is exact."""
    now: dict[int, Tensor] = {}
    operators = []
    kept = {id(tensor) for tensor in graph.outputs}
    for operator in graph.operators:
        mine = _renamed(operator, now)
        if mine.kind == "QUANTIZE" and id(mine.output) not in kept:
            source = mine.input(0)
            if source.dtype is mine.output.dtype is DType.INT8 and same_quantization(source, mine.output):
                now[id(mine.output)] = source
                continue
        operators.append(mine)
    return replace(graph, operators=operators)


def _simplify(graph: Graph) -> Graph:
    """Make slices of splits, and join many tensors a few at a time."""
    return replace(graph, operators=[simple for operator in graph.operators for simple in _simpler(operator)])


def _simpler(operator: Operator) -> Iterator[Operator]:
    if operator.kind in ("SPLIT", "SPLIT_V", "UNPACK") and len(operator.outputs) > 1:
        yield from _slices(operator) if operator.kind != "UNPACK" else _picks(operator)
    elif operator.kind == "PACK" and len(operator.inputs) > JOIN_MOST:
        yield from _joins_of_pack(operator)
    elif operator.kind == "CONCATENATION" and len(operator.inputs) > JOIN_MOST:
        yield from _joins(operator)
    else:
        yield operator


def _slices(operator: Operator) -> Iterator[Operator]:
    """Cut the parts of a split one by one."""
    value, where = (1, 0) if operator.kind == "SPLIT" else (0, 2)
    source = operator.input(value)
    axis = int(operator.constant(where).reshape(-1)[0]) % len(source.shape)
    begin = [0] * len(source.shape)
    for output in operator.outputs:
        lists = [_list(output, "begin", begin), _list(output, "size", output.shape)]
        yield Operator("SLICE", [source, *lists], [output], Options(), operator.index)
        begin[axis] += output.shape[axis]


def _picks(operator: Operator) -> Iterator[Operator]:
    """Take the parts of UNPACK one by one."""
    source = operator.input(0)
    rank = len(source.shape)
    axis = operator.options_as(AxisOptions).axis % rank
    others = ((1 << rank) - 1) ^ (1 << axis)
    options = SliceOptions(begin_mask=others, end_mask=others, shrink_axis_mask=1 << axis)
    for number, output in enumerate(operator.outputs):
        begins = [number if place == axis else 0 for place in range(rank)]
        ends = [number + 1 if place == axis else 0 for place in range(rank)]
        lists = [_list(output, "begin", begins), _list(output, "end", ends), _list(output, "step", [1] * rank)]
        yield Operator("STRIDED_SLICE", [source, *lists], [output], options, operator.index)


def _joins_of_pack(operator: Operator) -> Iterator[Operator]:
    """Give every part the new axis, then join."""
    shape = operator.output.shape
    axis = operator.options_as(AxisOptions).axis % len(shape)
    parts: list[Tensor | None] = []
    for position in range(len(operator.inputs)):
        source = operator.input(position)
        part = _like(operator.output, f"in{position}", (*shape[:axis], 1, *shape[axis + 1 :]))
        # What it is decides how it is joined, so the type and scale stay the input's.
        part = replace(part, dtype=source.dtype, quantization=source.quantization)
        yield Operator("RESHAPE", [source], [part], ReshapeOptions(part.shape), operator.index)
        parts.append(part)
    yield from _joins(Operator("CONCATENATION", parts, operator.outputs, AxisOptions(axis), operator.index))


def _joins(operator: Operator) -> Iterator[Operator]:
    """Join the first few inputs, then that with the next few, and so on: no more memory than all of them take."""
    options = operator.options_as(AxisOptions)
    axis = options.axis % len(operator.output.shape)
    waiting = [operator.input(position) for position in range(len(operator.inputs))]
    while len(waiting) > JOIN_MOST:
        few, waiting = waiting[:JOIN_MOST], waiting[JOIN_MOST:]
        length = sum(tensor.shape[axis] for tensor in few)
        shape = operator.output.shape
        joined = _like(operator.output, f"first{length}", (*shape[:axis], length, *shape[axis + 1 :]))
        yield replace(
            operator, inputs=list(few), outputs=[joined], options=replace(options, activation=Activation.NONE)
        )
        waiting.insert(0, joined)
    yield replace(operator, inputs=list(waiting))


def _like(tensor: Tensor, name: str, shape: tuple[int, ...]) -> Tensor:
    return replace(tensor, name=f"{tensor.name}/{name}", shape=shape, index=-1)


def _list(tensor: Tensor, name: str, values: Sequence[int]) -> Tensor:
    return Tensor(f"{tensor.name}/{name}", (len(values),), DType.INT32, data=np.array(values, np.int32))


def _drop_dead(graph: Graph) -> Graph:
    """Drop operators that nothing needs."""
    needed = {id(tensor) for tensor in graph.outputs}
    operators = []
    for operator in reversed(graph.operators):
        if any(id(tensor) in needed for tensor in operator.outputs):
            needed |= {id(tensor) for tensor in operator.inputs}
            operators.append(operator)
    return replace(graph, operators=operators[::-1])
