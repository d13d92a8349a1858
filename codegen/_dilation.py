"""Recognise dilated convolutions that are written as SPACE_TO_BATCH_ND, a plain convolution, BATCH_TO_SPACE_ND."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from codegen._evaluate import same_quantization
from codegen._move_rules import block_of, pairs
from codegen.ir import ConvOptions, DType, Graph, Operator, Padding

_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")


def dilate(graph: Graph) -> Graph:
    """Replace each such triple by one convolution, where the bits stay the same.

    Every phase of the blocks is convolved as if its pixels were neighbours, so that the kernel reads pixels a block
    apart. What is padded and not cropped again is the border of SAME, or nothing.
    """
    uses = Counter(id(tensor) for operator in graph.operators for tensor in operator.inputs)
    uses.update(id(tensor) for tensor in graph.outputs)
    maker = {id(tensor): operator for operator in graph.operators for tensor in operator.outputs}
    gone: set[int] = set()
    operators = []
    for last in graph.operators:
        triple = _triple(last, maker)
        if triple is not None and all(uses[id(operator.output)] == 1 for operator in triple[:2]):
            first, middle, _ = triple
            padding = _padding(*triple)
            if padding is not None:
                gone |= {id(first), id(middle)}
                options = replace(middle.options_as(ConvOptions), dilation=block_of(first), padding=padding)
                inputs = [first.input(0), *middle.inputs[1:]]
                last = replace(middle, inputs=inputs, outputs=last.outputs, options=options)
        operators.append(last)
    return replace(graph, operators=[operator for operator in operators if id(operator) not in gone])


def _triple(last: Operator, maker: Mapping[int, Operator]) -> tuple[Operator, Operator, Operator] | None:
    """Walk back from the last of the three."""
    if last.kind != "BATCH_TO_SPACE_ND":
        return None
    middle = maker.get(id(last.input(0)))
    if middle is None or middle.kind not in _CONVOLUTIONS:
        return None
    first = maker.get(id(middle.input(0)))
    if first is None or first.kind != "SPACE_TO_BATCH_ND":
        return None
    return first, middle, last


def _padding(first: Operator, middle: Operator, last: Operator) -> Padding | None:
    """Return the padding of the one convolution that does the same, or None if there is none."""
    options = middle.options_as(ConvOptions)
    block = block_of(first)
    if block != block_of(last) or (options.stride, options.dilation) != ((1, 1), (1, 1)):
        return None
    if options.padding is not Padding.VALID or not _keep_meaning(first) or not _keep_meaning(last):
        return None
    is_valid = is_same = True
    for axis, (around, crops) in enumerate(zip(pairs(first, 2, 2), pairs(last, 2, 2), strict=True)):
        length, kept = first.input(0).shape[1 + axis], last.output.shape[1 + axis]
        reach = (middle.input(1).shape[1 + axis] - 1) * block[axis]
        lead = around[0] - crops[0]  # rows of padding before the first row that is kept
        is_valid &= lead == 0 and kept == length - reach
        is_same &= lead == reach // 2 and kept == length
    if is_valid:
        return Padding.VALID
    # SAME means zero points around the image, SPACE_TO_BATCH_ND in tflite-micro means zeros.
    return Padding.SAME if is_same and first.output.zero_point == 0 else None


def _keep_meaning(operator: Operator) -> bool:
    source, output = operator.input(0), operator.output
    return source.dtype is output.dtype is DType.INT8 and same_quantization(source, output)
