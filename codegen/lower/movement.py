"""Lower what moves elements: reshaping, joining, cutting, padding, reordering, and resizing of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from codegen._cuts import cuts_of
from codegen._evaluate import fill_of, same_quantization
from codegen._move_rules import block_of, pairs
from codegen.fold import JOIN_MOST
from codegen.ir import (
    Activation,
    AxisOptions,
    BlockOptions,
    DType,
    MirrorOptions,
    Operator,
    OperatorError,
    ResizeOptions,
    Tensor,
)
from codegen.lower._calls import Alias, Call, Field, Lowered, Struct, Table, lowers

_LOOPS: Final = 6  # of gs_q8_copy_t
_POSITION_BITS: Final = 10  # of gs_q8_resize_t, after the binary point
_SIDE_MOST: Final = 1 << 20  # of an image that is resized: positions fit 32 bits
_CONVERT_AGAIN: Final = "convert the model again"


@dataclass(frozen=True)
class _Loop:
    """One loop of a copy; steps are in elements."""

    count: int
    in_step: int
    out_step: int


def _moved(operator: Operator, position: int = 0) -> Tensor:
    """Return an input whose elements become the output's as they are. Raises OperatorError."""
    source, output = operator.input(position), operator.output
    if source.dtype not in (DType.INT8, DType.INT32, DType.FLOAT32) or source.dtype is not output.dtype:
        raise OperatorError(
            operator,
            f"it moves {source.dtype.value} to {output.dtype.value}",
            "quantize the whole model to int8 (TFLITE_BUILTINS_INT8)",
        )
    if 0 in (source.size, output.size):
        raise OperatorError(operator, "a tensor has no elements", _CONVERT_AGAIN)
    if not same_quantization(source, output):
        raise OperatorError(
            operator,
            f"{source.name} and {output.name} differ in scale or zero point, but elements are moved as they are",
            "convert the model again: converters give both the same scale",
        )
    return source


def _steps(shape: Sequence[int]) -> list[int]:
    """Return how many elements apart two neighbours are, for each axis of a dense tensor."""
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _copy(
    operator: Operator,
    loops: Sequence[_Loop],
    *,
    in_start: int = 0,
    out_start: int = 0,
    fill: int | None = None,
    position: int = 0,
) -> Lowered:
    """Copy element by element in these loops, or in what comes to the same; starts are in elements.

    With `fill`, the output is first filled with that byte.
    """
    source, output = _moved(operator, position), operator.output
    merged = _merged(loops)
    run = 1
    if merged and (merged[-1].in_step, merged[-1].out_step) == (1, 1):
        run = merged.pop().count
    if run == source.size == output.size:
        return Alias(operator, source, output)
    if len(merged) > _LOOPS:
        raise OperatorError(operator, f"it takes more than {_LOOPS} nested loops", "merge some dimensions before it")
    merged = [_Loop(1, 0, 0)] * (_LOOPS - len(merged)) + merged
    element = source.dtype.numpy.itemsize
    fields: dict[str, Field] = {
        "counts": tuple(loop.count for loop in merged),
        "in_steps": tuple(loop.in_step * element for loop in merged),
        "out_steps": tuple(loop.out_step * element for loop in merged),
        "in_start": in_start * element,
        "out_start": out_start * element,
        "run_bytes": run * element,
    }
    if fill is not None:
        fields |= {"fill_bytes": output.bytes, "fill": fill}
    return Call(operator, "gs_q8_copy", Struct("gs_q8_copy_t", fields), (source,), (output,))


def _merged(loops: Sequence[_Loop]) -> list[_Loop]:
    """Leave out loops of one, and make one of two where the inner covers the step of the outer in both tensors."""
    merged: list[_Loop] = []
    for loop in loops:
        if loop.count == 1:
            continue
        last = merged[-1] if merged else None
        if last and (last.in_step, last.out_step) == (loop.count * loop.in_step, loop.count * loop.out_step):
            merged[-1] = _Loop(last.count * loop.count, loop.in_step, loop.out_step)
        else:
            merged.append(loop)
    return merged


@lowers("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def _reshape(operator: Operator) -> Lowered:
    return Alias(operator, _moved(operator), operator.output)


@lowers("SPLIT", "SPLIT_V", "UNPACK")
def _only_part(operator: Operator) -> Lowered:
    """Give the one part its name; `codegen.fold` makes slices where there are several."""
    assert len(operator.outputs) == 1, operator.kind
    return Alias(operator, _moved(operator, 1 if operator.kind == "SPLIT" else 0), operator.output)


@lowers("SLICE", "STRIDED_SLICE")
def _slice(operator: Operator) -> Lowered:
    cuts, _ = cuts_of(operator)
    in_steps = _steps(operator.input(0).shape)
    # Axes that the output lacks, or has besides, are of length 1: they change no step.
    out_steps = _steps([cut.count for cut in cuts])
    loops = [
        _Loop(cut.count, cut.step * in_step, out_step)
        for cut, in_step, out_step in zip(cuts, in_steps, out_steps, strict=True)
    ]
    start = sum(cut.start * step for cut, step in zip(cuts, in_steps, strict=True))
    return _copy(operator, loops, in_start=start)


@lowers("TRANSPOSE")
def _transpose(operator: Operator) -> Lowered:
    source, output = operator.input(0), operator.output
    in_steps = _steps(source.shape)
    order = [int(axis) % len(source.shape) for axis in operator.constant(1).reshape(-1)]
    loops = [
        _Loop(count, in_steps[axis], out_step)
        for axis, count, out_step in zip(order, output.shape, _steps(output.shape), strict=True)
    ]
    return _copy(operator, loops)


@lowers("PAD", "PADV2")
def _pad(operator: Operator) -> Lowered:
    source, out_steps = operator.input(0), _steps(operator.output.shape)
    if operator.optional(2) is not None and not same_quantization(operator.input(2), operator.output):
        raise OperatorError(operator, "the value it pads with has another scale", _CONVERT_AGAIN)
    loops = [_Loop(*loop) for loop in zip(source.shape, _steps(source.shape), out_steps, strict=True)]
    around = pairs(operator, 1, len(source.shape))
    start = sum(before * step for (before, _), step in zip(around, out_steps, strict=True))
    return _copy(operator, loops, out_start=start, fill=_fill_byte(operator))


def _fill_byte(operator: Operator) -> int:
    """Return the byte that the padding consists of."""
    element = np.asarray(fill_of(operator)).tobytes()
    if len(set(element)) > 1:
        raise OperatorError(operator, "it pads with a number whose bytes differ", "pad with 0, or after quantization")
    return element[0]


@lowers("TILE", "BROADCAST_TO")
def _repeat(operator: Operator) -> Lowered:
    source, output = operator.input(0), operator.output
    shape = (1,) * (len(output.shape) - len(source.shape)) + source.shape
    loops = []
    for length, count, in_step, out_step in zip(shape, output.shape, _steps(shape), _steps(output.shape), strict=True):
        loops.append(_Loop(count // length, 0, length * out_step))
        loops.append(_Loop(length, in_step, out_step))
    return _copy(operator, loops)


@lowers("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def _blocks(operator: Operator) -> Lowered:
    """Move between the pixels of a block and the channels of a pixel, which are (row, column, channel) of the block."""
    is_to_depth = operator.kind == "SPACE_TO_DEPTH"
    size = operator.options_as(BlockOptions).size
    space, depth = operator.input(0).shape, operator.output.shape
    if not is_to_depth:
        space, depth = depth, space
    (images, rows, columns, _), channels = depth, space[3]
    apart = _steps((images, rows, size, columns, size, channels))
    near = _steps((images, rows, columns, size, size, channels))
    near[2], near[3] = near[3], near[2]  # in the order of the loops
    loops = []
    for count, in_space, in_depth in zip((images, rows, size, columns, size, channels), apart, near, strict=True):
        loops.append(_Loop(count, in_space, in_depth) if is_to_depth else _Loop(count, in_depth, in_space))
    return _copy(operator, loops)


@lowers("CONCATENATION", "PACK")
def _join(operator: Operator) -> Lowered:
    options = operator.options_as(AxisOptions)
    if options.activation is not Activation.NONE:
        raise OperatorError(operator, "a fused activation is not supported", "make the activation a layer of its own")
    count = len(operator.inputs)
    assert 1 <= count <= JOIN_MOST, count  # `codegen.fold` sees to it
    sources = [_moved(operator, position) for position in range(count)]
    if count == 1:
        return Alias(operator, sources[0], operator.output)
    axis = options.axis % len(operator.output.shape)
    rows = prod(operator.output.shape[:axis])
    runs = [source.bytes // rows for source in sources]
    runs += [0] * (JOIN_MOST - count)
    fields: dict[str, Field] = {"rows": rows, "row_bytes": sum(runs), "run_bytes": tuple(runs)}
    inputs = tuple(sources + sources[:1] * (JOIN_MOST - count))
    return Call(operator, "gs_q8_join", Struct("gs_q8_join_t", fields), inputs, (operator.output,))


# Pixels in an order of their own.


def _grid(
    operator: Operator,
    kernel: str,
    shape: tuple[int, int, int, int],
    image: int,
    rows: Sequence[int],
    columns: Sequence[int],
    fill: int | None = None,
) -> Lowered:
    """Call a kernel of gs_q8_grid_t, if the order of pixels changes.

    `shape` is that of the dense tensor, as images of pixels of some elements; `image`, `rows` and `columns` are offsets
    into the other tensor, in elements.
    """
    source = _moved(operator)
    element = source.dtype.numpy.itemsize
    images, height, width, pixel = shape
    if source.size == operator.output.size and (list(columns), list(rows)) == (
        [place * pixel for place in range(width)],
        [place * pixel * width for place in range(height)],
    ):
        return Alias(operator, source, operator.output)
    fields: dict[str, Field] = {
        "rows": Table(_offsets(rows, element), "rows"),
        "columns": Table(_offsets(columns, element), "columns"),
        "images": images,
        "height": height,
        "width": width,
        "image_bytes": image * element,
        "pixel_bytes": pixel * element,
    }
    if fill is not None:
        fields |= {"fill_bytes": operator.output.bytes, "fill": fill}
    return Call(operator, kernel, Struct("gs_q8_grid_t", fields), (source,), (operator.output,))


def _offsets(elements: Sequence[int], element_bytes: int) -> NDArray[np.uint32]:
    return np.array([offset * element_bytes for offset in elements], np.uint32)


def _image_shape(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return NHWC; where there are three axes, a row is one pixel."""
    images, height, *width, channels = shape
    return images, height, width[0] if width else 1, channels


@lowers("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def _space_and_batch(operator: Operator) -> Lowered:
    """Offer each pixel of the space its place in the batch, in which the phases of the block follow each other."""
    is_to_batch = operator.kind == "SPACE_TO_BATCH_ND"
    space, batch = _image_shape(operator.input(0).shape), _image_shape(operator.output.shape)
    if not is_to_batch:
        space, batch = batch, space
    block = block_of(operator)
    around = [*pairs(operator, 2, len(operator.output.shape) - 2), (0, 0)]
    image_step, row_step, column_step, _ = _steps(batch)
    phase_step = space[0] * image_step
    rows, columns = (
        [(y + before) // size * step + (y + before) % size * phase for y in range(length)]
        for length, (before, _), size, step, phase in zip(
            space[1:3], around, block, (row_step, column_step), (block[1] * phase_step, phase_step), strict=False
        )
    )
    if not is_to_batch:
        return _grid(operator, "gs_q8_gather", space, image_step, rows, columns)
    # tflite-micro pads with the integer 0, whatever the zero point is.
    fill = 0 if prod(batch) > prod(space) else None
    return _grid(operator, "gs_q8_scatter", space, image_step, rows, columns, fill)


@lowers("MIRROR_PAD")
def _mirror_pad(operator: Operator) -> Lowered:
    source, shape = operator.input(0), operator.output.shape
    edge = 0 if operator.options_as(MirrorOptions).repeats_edge else 1
    steps = _steps(source.shape)
    order = [
        [step * _mirrored(place, length, edge) for place in range(-before, length + after)]
        for length, step, (before, after) in zip(source.shape, steps, pairs(operator, 1, len(steps)), strict=True)
    ]
    padded = [axis for axis, length in enumerate(source.shape) if shape[axis] != length]
    if not padded:
        return Alias(operator, _moved(operator), operator.output)
    first, last = padded[0], padded[-1]
    rows = [0]
    for axis in range(first, last):
        rows = [row + offset for row in rows for offset in order[axis]]
    dense = (prod(shape[:first]), len(rows), shape[last], steps[last])
    return _grid(operator, "gs_q8_gather", dense, prod(source.shape[first:]), rows, order[last])


def _mirrored(place: int, length: int, edge: int) -> int:
    """Reflect a place beyond either end; `edge` is 1 if the mirror is the outermost element, 0 if it is behind it."""
    if place < 0:
        return edge - 1 - place
    return place if place < length else 2 * length - 1 - edge - place


@lowers("GATHER")
def _gather(operator: Operator) -> Lowered:
    source, indices = operator.input(0), operator.constant(1)
    axis = operator.options_as(AxisOptions).axis % len(source.shape)
    inner = prod(source.shape[axis + 1 :])
    rows = [int(index) * inner for index in indices.reshape(-1)]
    dense = (prod(source.shape[:axis]), len(rows), 1, inner)
    return _grid(operator, "gs_q8_gather", dense, source.shape[axis] * inner, rows, [0])


@lowers("RESIZE_NEAREST_NEIGHBOR")
def _nearest(operator: Operator) -> Lowered:
    options = operator.options_as(ResizeOptions)
    _, height, width, _ = source = operator.input(0).shape
    dense = operator.output.shape
    image_step, row_step, column_step, _ = _steps(source)
    rows = [row_step * index for index in _nearest_indices(height, dense[1], options)]
    columns = [column_step * index for index in _nearest_indices(width, dense[2], options)]
    return _grid(operator, "gs_q8_gather", _image_shape(dense), image_step, rows, columns)


def _nearest_indices(given: int, asked: int, options: ResizeOptions) -> list[int]:
    """Return which index is nearest, worked out in float32 as the run time does."""
    aligned = options.align_corners and asked > 1
    scale = np.float32(given - 1) / np.float32(asked - 1) if aligned else np.float32(given) / np.float32(asked)
    offset = np.float32(0.5 if options.half_pixel_centers else 0)
    places = ((np.arange(asked).astype(np.float32) + offset) * scale).astype(np.float64)
    nearest = np.floor(places + 0.5 if options.align_corners else places)
    return [min(int(index), given - 1) for index in nearest]


@lowers("RESIZE_BILINEAR")
def _bilinear(operator: Operator) -> Lowered:
    options = operator.options_as(ResizeOptions)
    if options.align_corners and options.half_pixel_centers:
        raise OperatorError(operator, "it both aligns corners and centres pixels", "set one of the two")
    source, output = _moved(operator), operator.output
    if source.dtype is not DType.INT8:
        raise OperatorError(operator, f"it interpolates {source.dtype.value}", "quantize the whole model to int8")
    image_step, row_step, column_step, _ = _steps(source.shape)
    images, height, width, channels = output.shape
    fields: dict[str, Field] = {
        "rows": _positions(operator, source.shape[1], height, row_step, options),
        "columns": _positions(operator, source.shape[2], width, column_step, options),
        "images": images,
        "height": height,
        "width": width,
        "channels": channels,
        "image_bytes": image_step,
    }
    return Call(operator, "gs_q8_resize", Struct("gs_q8_resize_t", fields), (source,), (output,))


def _positions(operator: Operator, given: int, asked: int, step: int, options: ResizeOptions) -> Table:
    """Return, for each index of the output, both neighbours' offsets and the way between them, in integers."""
    if max(given, asked) >= _SIDE_MOST:
        raise OperatorError(operator, f"it resizes {given} to {asked}, beyond {_SIDE_MOST}", "resize a smaller image")
    one = 1 << _POSITION_BITS
    aligned = options.align_corners and asked > 1
    given_steps, asked_steps = (given - 1, asked - 1) if aligned else (given, asked)
    scale = (one * given_steps + asked_steps // 2) // asked_steps
    found = []
    for index in range(asked):
        position = max(0, index * scale + (scale // 2 - one // 2 if options.half_pixel_centers else 0))
        lower, fraction = divmod(position, one)
        if lower >= given:  # the scale was rounded up: tflite-micro would read beyond the image
            raise OperatorError(operator, f"{asked} steps in {given} are too fine", "resize in two steps")
        found.append((lower * step, min(lower + 1, given - 1) * step, fraction))
    return Table(np.array(found, np.int32), "positions")
