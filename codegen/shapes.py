"""Find the shape of every tensor anew from those of the inputs, and let nothing through that contradicts itself.

Models exported with an open batch compute shapes at run time; here there is one batch, so those computations are done
now, and whatever depended on them has a fixed shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from codegen._evaluate import evaluate_integers
from codegen._move_rules import pairs
from codegen._shape_rules import DAMAGED, Shape, output_shapes
from codegen.ir import DType, Graph, ModelError, Operator, OperatorError, Tensor, shape_text

_SIZE_MOST: Final = 1 << 28  # elements of a tensor: byte counts and offsets stay far from 2^31
_RANK_MOST: Final = 6
_FIXED: Final = "re-export the model with batch_size=1"


def infer(graph: Graph, batch: int = 1) -> Graph:
    """Return the graph with tensors of its own, all of fixed shape; open batches of the inputs become `batch`.

    What only computes shapes becomes constant (`codegen.fold` drops it). Raises OperatorError: shapes that contradict
    each other or the file, or that depend on more than the batch; ModelError: an input that leaves more open.
    """
    own = {id(tensor): replace(tensor) for tensor in graph.tensors()}
    inputs = [own[id(tensor)] for tensor in graph.inputs]
    for tensor in inputs:
        if tensor.dynamic:
            if tensor.shape[:1] != (1,):
                raise ModelError(f"input {tensor.name} leaves more open than the batch", graph.name, _FIXED)
            tensor.shape, tensor.dynamic = (batch, *tensor.shape[1:]), False
    operators: list[Operator] = []
    for operator in graph.operators:
        mine = replace(
            operator,
            inputs=[None if tensor is None else own[id(tensor)] for tensor in operator.inputs],
            outputs=[own[id(tensor)] for tensor in operator.outputs],
        )
        operators += _settle(mine)
    return replace(graph, operators=operators, inputs=inputs, outputs=[own[id(tensor)] for tensor in graph.outputs])


def _settle(operator: Operator) -> list[Operator]:
    """Give an operator's outputs their shapes and, where they follow from shapes alone, their values.

    Return what does its work: itself, or two instead.
    """
    for tensor in operator.inputs:
        if tensor is not None:
            _check_size(operator, tensor, tensor.shape)
    shapes = _agreed(operator, output_shapes(operator))
    if len(shapes) != len(operator.outputs):
        raise OperatorError(operator, f"it has {len(operator.outputs)} outputs, not {len(shapes)}", DAMAGED)
    was_open = any(tensor.shape != shape for tensor, shape in zip(operator.outputs, shapes, strict=True))
    for tensor, shape in zip(operator.outputs, shapes, strict=True):
        _check_size(operator, tensor, shape)
        _check_declared(operator, tensor, shape)
        tensor.shape, tensor.dynamic = shape, False
    for tensor, values in zip(operator.outputs, evaluate_integers(operator) or [], strict=False):
        tensor.data = values
    return _padded_before(operator) if was_open and operator.kind == "SPACE_TO_BATCH_ND" else [operator]


def _padded_before(operator: Operator) -> list[Operator]:
    """Let an operator of its own pad, with zero points, as TensorFlow does.

    What pads in tflite-micro does so with the integer 0; that is no guide for shapes it could not run.
    """
    source = operator.input(0)
    spatial = len(source.shape) - 2
    around = np.zeros((spatial + 2, 2), np.int32)
    around[1:-1] = pairs(operator, 2, spatial)
    if not around.any():
        return [operator]
    shape = tuple(int(length) for length in np.array(source.shape) + around.sum(axis=1))
    padded = replace(source, name=f"{operator.output.name}/padded", shape=shape, index=-1)
    _check_size(operator, padded, shape)
    paddings = Tensor(f"{padded.name}/around", around.shape, DType.INT32, data=around)
    nothing = Tensor(f"{padded.name}/none", (spatial, 2), DType.INT32, data=np.zeros((spatial, 2), np.int32))
    return [
        Operator("PAD", [source, paddings], [padded], index=operator.index),
        replace(operator, inputs=[padded, operator.inputs[1], nothing]),
    ]


def _agreed(operator: Operator, shapes: Sequence[Shape]) -> Sequence[Shape]:
    """Keep the declared shape of a dense layer where it only groups the rows: not every converter flattens it."""
    declared = operator.output
    if operator.kind == "FULLY_CONNECTED" and not declared.dynamic:
        if prod(declared.shape) == prod(shapes[0]) and declared.shape[-1:] == shapes[0][-1:]:
            return [declared.shape]
    return shapes


def _check_size(operator: Operator, tensor: Tensor, shape: Shape) -> None:
    if len(shape) > _RANK_MOST:
        raise OperatorError(
            operator, f"{tensor.name} has {len(shape)} dimensions, more than {_RANK_MOST}", "merge some of them"
        )
    if min(shape, default=1) < 0 or prod(filter(None, shape)) > _SIZE_MOST:
        raise OperatorError(operator, f"{tensor.name} would be {shape_text(shape)}, beyond 2^28 elements", DAMAGED)
    if 0 in shape and tensor.dtype not in (DType.INT32, DType.INT64):  # shapes may be empty lists
        raise OperatorError(operator, f"{tensor.name} is {shape_text(shape)}: it has no elements", DAMAGED)


def _check_declared(operator: Operator, tensor: Tensor, shape: Shape) -> None:
    """Compare with the file; an open dimension stands there as 1."""
    agrees = len(tensor.shape) == len(shape) and all(
        declared == found or (tensor.dynamic and declared == 1)
        for declared, found in zip(tensor.shape, shape, strict=True)
    )
    if not agrees:
        raise OperatorError(
            operator,
            f"{tensor.name} is {shape_text(shape)}, but {shape_text(tensor.shape)} in the file",
            f"the shapes depend on more than the batch, or the file is damaged: {_FIXED}",
        )
