"""Say what shapes the outputs of operators have that only move elements, and read their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from codegen import ir
from codegen._cuts import cuts_of
from codegen._shape_rules import Shape, axis_of, broadcast, integers, only, ranked, require, rule
from codegen.ir import Operator, OperatorError, shape_text


@rule("RESHAPE")
def _reshape(operator: Operator) -> Sequence[Shape]:
    given = operator.input(0)
    asked = operator.optional(1)
    if asked is None:
        lengths = list(operator.options_as(ir.ReshapeOptions).shape)
    elif asked.data is None and not operator.output.dynamic:  # the file says it all the same
        lengths = list(operator.output.shape)
    else:
        lengths = integers(operator, 1)
    if lengths.count(-1) == 1:
        others = prod(length for length in lengths if length != -1)
        lengths[lengths.index(-1)] = given.size // others if others > 0 else 0
    require(
        operator,
        min(lengths, default=1) >= 0 and prod(lengths) == given.size,
        f"{shape_text(given.shape)} cannot become {shape_text(lengths)}",
    )
    return [tuple(lengths)]


@rule("SQUEEZE")
def _squeeze(operator: Operator) -> Sequence[Shape]:
    shape = operator.input(0).shape
    named = [axis_of(operator, axis, len(shape)) for axis in operator.options_as(ir.ReshapeOptions).shape]
    gone = named or [axis for axis, length in enumerate(shape) if length == 1]
    require(operator, all(shape[axis] == 1 for axis in gone), f"axes {named} of {shape_text(shape)} are not all 1")
    return [tuple(length for axis, length in enumerate(shape) if axis not in gone)]


@rule("EXPAND_DIMS")
def _expand_dims(operator: Operator) -> Sequence[Shape]:
    shape = operator.input(0).shape
    axis = axis_of(operator, only(operator, integers(operator, 1), "axes"), len(shape) + 1)
    return [(*shape[:axis], 1, *shape[axis:])]


@rule("TRANSPOSE")
def _transpose(operator: Operator) -> Sequence[Shape]:
    shape, order = operator.input(0).shape, integers(operator, 1)
    places = [axis_of(operator, axis, len(shape)) for axis in order]
    require(operator, sorted(places) == list(range(len(shape))), f"{order} is no order of {len(shape)} axes")
    return [tuple(shape[place] for place in places)]


@rule("SLICE STRIDED_SLICE")
def _cut(operator: Operator) -> Sequence[Shape]:
    _, shape = cuts_of(operator)
    return [shape]


@rule("CONCATENATION")
def _concatenation(operator: Operator) -> Sequence[Shape]:
    shapes = [operator.input(position).shape for position in range(len(operator.inputs))]
    require(operator, bool(shapes), "it has no inputs")
    axis = axis_of(operator, operator.options_as(ir.AxisOptions).axis, len(shapes[0]))
    others = {(len(shape), shape[:axis], shape[axis + 1 :]) for shape in shapes}
    named = ", ".join(map(shape_text, shapes))
    require(operator, len(others) == 1, f"the shapes {named} cannot be joined at axis {axis}")
    return [(*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])]


@rule("PACK")
def _pack(operator: Operator) -> Sequence[Shape]:
    shapes = [operator.input(position).shape for position in range(len(operator.inputs))]
    require(operator, len(set(shapes)) == 1, f"the shapes {', '.join(map(shape_text, shapes))} are not one")
    axis = axis_of(operator, operator.options_as(ir.AxisOptions).axis, len(shapes[0]) + 1)
    return [(*shapes[0][:axis], len(shapes), *shapes[0][axis:])]


@rule("UNPACK")
def _unpack(operator: Operator) -> Sequence[Shape]:
    shape = operator.input(0).shape
    axis = axis_of(operator, operator.options_as(ir.AxisOptions).axis, len(shape))
    require(operator, shape[axis] == len(operator.outputs), f"it has {len(operator.outputs)} outputs for {shape[axis]}")
    return [shape[:axis] + shape[axis + 1 :]] * len(operator.outputs)


@rule("SPLIT")
def _split(operator: Operator) -> Sequence[Shape]:
    shape, count = operator.input(1).shape, len(operator.outputs)
    axis = axis_of(operator, only(operator, integers(operator, 0), "axes"), len(shape))
    require(operator, shape[axis] % count == 0, f"axis {axis} of {shape_text(shape)} has no {count} equal parts")
    return [(*shape[:axis], shape[axis] // count, *shape[axis + 1 :])] * count


@rule("SPLIT_V")
def _split_v(operator: Operator) -> Sequence[Shape]:
    shape, sizes = operator.input(0).shape, integers(operator, 1)
    axis = axis_of(operator, only(operator, integers(operator, 2), "axes"), len(shape))
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = shape[axis] - sum(sizes) - 1
    require(
        operator,
        len(sizes) == len(operator.outputs) and min(sizes, default=0) >= 0 and sum(sizes) == shape[axis],
        f"{len(operator.outputs)} parts of {sizes} are not axis {axis} of {shape_text(shape)}",
    )
    return [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]


def pairs(operator: Operator, position: int, count: int) -> list[tuple[int, int]]:
    """Return a constant input of `count` pairs, such as paddings or crops, none below 0. Raises OperatorError."""
    values = integers(operator, position)
    require(
        operator,
        len(values) == 2 * count and min(values, default=0) >= 0,
        f"input {position} is {values}, not {count} pairs of at least 0",
    )
    return list(zip(values[0::2], values[1::2], strict=True))


@rule("PAD PADV2")
def _pad(operator: Operator) -> Sequence[Shape]:
    shape = operator.input(0).shape
    around = pairs(operator, 1, len(shape))
    return [tuple(length + before + after for length, (before, after) in zip(shape, around, strict=True))]


@rule("MIRROR_PAD")
def _mirror_pad(operator: Operator) -> Sequence[Shape]:
    shape = operator.input(0).shape
    around = pairs(operator, 1, len(shape))
    edge = 0 if operator.options_as(ir.MirrorOptions).repeats_edge else 1
    for length, both in zip(shape, around, strict=True):
        require(operator, max(both) <= max(0, length - edge), f"it mirrors {max(both)} of an axis of {length}")
    return _pad(operator)


@rule("GATHER")
def _gather(operator: Operator) -> Sequence[Shape]:
    shape, options = operator.input(0).shape, operator.options_as(ir.AxisOptions)
    axis = axis_of(operator, options.axis, len(shape))
    if options.batch_dims:
        raise OperatorError(operator, "batch dimensions are not supported", "gather with batch_dims=0")
    indices = operator.input(1)
    require(
        operator,
        indices.data is None or all(0 <= index < shape[axis] for index in integers(operator, 1)),
        f"an index leads out of axis {axis} of {shape_text(shape)}",
    )
    return [(*shape[:axis], *indices.shape, *shape[axis + 1 :])]


@rule("BROADCAST_TO")
def _broadcast_to(operator: Operator) -> Sequence[Shape]:
    shape, target = operator.input(0).shape, tuple(integers(operator, 1))
    require(
        operator,
        min(target, default=1) >= 0 and broadcast(operator, shape, target) == target,
        f"{shape_text(shape)} cannot become {shape_text(target)}",
    )
    return [target]


@rule("TILE")
def _tile(operator: Operator) -> Sequence[Shape]:
    shape, times = operator.input(0).shape, integers(operator, 1)
    require(
        operator,
        len(times) == len(shape) and min(times, default=0) >= 0,
        f"{times} does not repeat {shape_text(shape)}",
    )
    return [tuple(length * count for length, count in zip(shape, times, strict=True))]


def block_of(operator: Operator) -> tuple[int, int]:
    """Return the block of SPACE_TO_BATCH_ND or BATCH_TO_SPACE_ND, rows and columns; one row of rank 3 is a column.

    Raises OperatorError.
    """
    rank = len(ranked(operator, 0, 3, 4).shape)
    block = integers(operator, 1)
    require(
        operator,
        len(block) == rank - 2 and min(block) >= 1,
        f"its block is {block}; {rank - 2} numbers above 0 are due",
    )
    return block[0], block[1] if rank == 4 else 1


@rule("SPACE_TO_BATCH_ND")
def _space_to_batch(operator: Operator) -> Sequence[Shape]:
    block = block_of(operator)
    batch, *image, channels = operator.input(0).shape
    around = pairs(operator, 2, len(image))
    padded = [length + before + after for length, (before, after) in zip(image, around, strict=True)]
    places = list(zip(padded, block, strict=False))
    require(
        operator,
        all(length % size == 0 for length, size in places),
        f"{shape_text(padded)} has no whole blocks of {shape_text(block)}",
    )
    return [(batch * prod(block), *(length // size for length, size in places), channels)]


@rule("BATCH_TO_SPACE_ND")
def _batch_to_space(operator: Operator) -> Sequence[Shape]:
    block = block_of(operator)
    batch, *image, channels = operator.input(0).shape
    require(operator, batch % prod(block) == 0, f"a batch of {batch} has no whole blocks of {shape_text(block)}")
    crops = pairs(operator, 2, len(image))
    lengths = [
        length * size - before - after for length, size, (before, after) in zip(image, block, crops, strict=False)
    ]
    require(operator, min(lengths) >= 1, f"its crops leave {shape_text(lengths)}")
    return [(batch // prod(block), *lengths, channels)]


@rule("SPACE_TO_DEPTH")
def _space_to_depth(operator: Operator) -> Sequence[Shape]:
    batch, rows, columns, channels = ranked(operator, 0, 4).shape
    size = operator.options_as(ir.BlockOptions).size
    require(operator, rows % size == 0 and columns % size == 0, f"{rows}x{columns} has no whole blocks of {size}")
    return [(batch, rows // size, columns // size, channels * size * size)]


@rule("DEPTH_TO_SPACE")
def _depth_to_space(operator: Operator) -> Sequence[Shape]:
    batch, rows, columns, channels = ranked(operator, 0, 4).shape
    size = operator.options_as(ir.BlockOptions).size
    require(operator, channels % (size * size) == 0, f"{channels} channels are no blocks of {size}x{size}")
    return [(batch, rows * size, columns * size, channels // (size * size))]


@rule("RESIZE_NEAREST_NEIGHBOR RESIZE_BILINEAR")
def _resize(operator: Operator) -> Sequence[Shape]:
    batch, rows, columns, channels = ranked(operator, 0, 4).shape
    size = integers(operator, 1)
    require(
        operator,
        len(size) == 2 and min(rows, columns, *size) >= 1,
        f"{rows}x{columns} cannot become {shape_text(size)}",
    )
    return [(batch, *size, channels)]
