"""Parts of random models that move elements: shapes, pieces, borders, blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from codegen.ir import (
    AxisOptions,
    BlockOptions,
    DType,
    MirrorOptions,
    Options,
    ReshapeOptions,
    ResizeOptions,
    SliceOptions,
    SplitOptions,
    Tensor,
)
from tests.tflite.random_graphs import SIZE_MOST, Drawing, part, size_of
from tests.tflite.random_parts import conv, depthwise


@part("RESHAPE")
def reshape(d: Drawing, x: Tensor) -> Tensor | None:
    shape = d.pick([(1, x.size), (1, 1, 1, x.size), (*x.shape[:-1], 1, x.shape[-1]), (1, x.size, 1)])
    if len(shape) > 4:
        return None
    asked = [-1 if i == len(shape) - 1 and d.chance(50) else n for i, n in enumerate(shape)]
    inputs: list[Tensor | None] = [x, d.numbers("shape", asked)]
    if d.chance(30):
        return d.add("RESHAPE", inputs[:1], d.like(x, shape), ReshapeOptions(tuple(asked)))
    return d.add("RESHAPE", inputs, d.like(x, shape), ReshapeOptions())


@part("SHAPE", "STRIDED_SLICE", "PACK", "RESHAPE")
def flatten_by_shape(d: Drawing, x: Tensor) -> Tensor | None:
    """Flatten as models with an open batch do: the shape is computed at run time."""
    if len(x.shape) < 2:
        return None
    shape = d.add("SHAPE", [x], d.activation((len(x.shape),), None, DType.INT32), Options())
    ends: list[Tensor | None] = [d.numbers(name, [value]) for name, value in (("begin", 0), ("end", 1), ("step", 1))]
    batch = d.activation((), None, DType.INT32)
    d.add("STRIDED_SLICE", [shape, *ends], batch, SliceOptions(shrink_axis_mask=1))
    rest = d.numbers("rest", x.size // x.shape[0])
    packed = d.add("PACK", [batch, rest], d.activation((2,), None, DType.INT32), AxisOptions(0, 2))
    y = d.like(x, (x.shape[0], x.size // x.shape[0]))
    return d.add("RESHAPE", [x, packed], y, ReshapeOptions())


@part("EXPAND_DIMS")
def expand_dims(d: Drawing, x: Tensor) -> Tensor | None:
    if len(x.shape) > 3:
        return None
    axis = d.integer(0, len(x.shape))
    shape = [*x.shape[:axis], 1, *x.shape[axis:]]
    return d.add("EXPAND_DIMS", [x, d.numbers("axis", [axis])], d.like(x, shape), Options())


@part("SQUEEZE")
def squeeze(d: Drawing, x: Tensor) -> Tensor | None:
    axes = [axis for axis in range(1, len(x.shape)) if x.shape[axis] == 1]
    if not axes:
        return None
    dropped = d.pick(axes)
    shape = [n for i, n in enumerate(x.shape) if i != dropped]
    return d.add("SQUEEZE", [x], d.like(x, shape), ReshapeOptions((dropped,)))


@part("CONCATENATION")
def concatenation(d: Drawing, x: Tensor) -> Tensor | None:
    if not x.shape:
        return None
    axis = d.integer(0 if len(x.shape) == 1 else 1, len(x.shape) - 1)
    suits = [
        value
        for value in d.values
        if len(value.shape) == len(x.shape)
        and all(i == axis or n == m for i, (n, m) in enumerate(zip(value.shape, x.shape, strict=True)))
        and value.scale == x.scale
        and value.zero_point == x.zero_point
    ]
    chosen: list[Tensor | None] = [x, *(d.pick(suits) for _ in range(d.integer(1, 3)))]
    if d.chance(25):
        chosen.append(d.constant("tail", d.weights(x.shape), x.quantization))
    d.random.shuffle(chosen)  # type: ignore[arg-type]
    length = sum(tensor.shape[axis] for tensor in chosen if tensor is not None)
    shape = [length if i == axis else n for i, n in enumerate(x.shape)]
    if size_of(shape) > SIZE_MOST:
        return None
    signed = axis - len(shape) if d.chance(30) else axis
    return d.add("CONCATENATION", chosen, d.like(x, shape), AxisOptions(signed))


@part("PAD")
def pad(d: Drawing, x: Tensor) -> Tensor | None:
    return _padded(d, x, "PAD")


@part("PADV2")
def pad_v2(d: Drawing, x: Tensor) -> Tensor | None:
    return _padded(d, x, "PADV2")


@part("PAD", "CONV_2D")
def pad_then_conv(d: Drawing, x: Tensor) -> Tensor | None:
    padded = _padded(d, x, "PAD")
    return conv(d, padded) or padded if padded else None


def _padded(d: Drawing, x: Tensor, kind: str) -> Tensor | None:
    if not 2 <= len(x.shape) <= 4:
        return None
    amounts = [(0, 0), *(d.pair(0, 2) for _ in x.shape[1:])]
    shape = [before + n + after for n, (before, after) in zip(x.shape, amounts, strict=True)]
    if size_of(shape) > SIZE_MOST:
        return None
    inputs: list[Tensor | None] = [x, d.numbers("amounts", amounts)]
    if kind == "PADV2":
        inputs.append(d.constant("value", np.array([d.integer(-128, 127)], np.int8), x.quantization))
    return d.add(kind, inputs, d.like(x, shape), Options())


@part("MIRROR_PAD")
def mirror_pad(d: Drawing, x: Tensor) -> Tensor | None:
    repeats = d.chance(50)
    most = [0, *(min(n - (not repeats), 2) for n in x.shape[1:])]
    if not 2 <= len(x.shape) <= 4 or min(most) < 0:
        return None
    amounts = [d.pair(0, n) for n in most]
    shape = [before + n + after for n, (before, after) in zip(x.shape, amounts, strict=True)]
    y = d.like(x, shape)
    return d.add("MIRROR_PAD", [x, d.numbers("amounts", amounts)], y, MirrorOptions(repeats))


@part("SLICE")
def slice_(d: Drawing, x: Tensor) -> Tensor | None:
    if not x.shape:
        return None
    begin = [d.integer(0, n - 1) for n in x.shape]
    size = [d.integer(1, n - b) for n, b in zip(x.shape, begin, strict=True)]
    asked = [-1 if b + s == n and d.chance(50) else s for n, b, s in zip(x.shape, begin, size, strict=True)]
    return d.add("SLICE", [x, d.numbers("begin", begin), d.numbers("size", asked)], d.like(x, size), Options())


@part("STRIDED_SLICE")
def strided_slice(d: Drawing, x: Tensor) -> Tensor | None:
    if not 1 <= len(x.shape) <= 4:
        return None
    begins, ends, steps, shape = [], [], [], []
    masks = [0, 0, 0]
    for axis, length in enumerate(x.shape):
        step = d.pick([1, 1, 2, 3, -1, -2])
        begin = d.integer(0, length - 1)
        end = d.integer(begin + 1, length) if step > 0 else d.integer(-1, begin - 1)
        if d.chance(25):
            masks[0] |= 1 << axis
            begin = 0 if step > 0 else length - 1
        if d.chance(25) or end == -1:
            masks[1] |= 1 << axis
            end = length if step > 0 else -1
        if axis > 0 and d.chance(10):
            masks[2] |= 1 << axis
            masks[0] &= ~(1 << axis)
            masks[1] &= ~(1 << axis)
            begin, step = d.integer(0, length - 1), 1
            end = begin + 1
        else:
            shape.append(len(range(begin, end, step)))
        # Positions may be counted from the end.
        begins.append(begin - length if d.chance(20) else begin)
        ends.append(end - length if 0 <= end < length and d.chance(20) else end)
        steps.append(step)
    inputs: list[Tensor | None] = [
        x,
        d.numbers("begin", begins),
        d.numbers("end", ends),
        d.numbers("step", steps),
    ]
    options = SliceOptions(masks[0], masks[1], shrink_axis_mask=masks[2])
    return d.add("STRIDED_SLICE", inputs, d.like(x, shape), options)


@part("SPLIT")
def split(d: Drawing, x: Tensor) -> Tensor | None:
    choices = [(axis, n) for axis in range(1, len(x.shape)) for n in (2, 3, 4) if x.shape[axis] % n == 0]
    if not choices:
        return None
    axis, count = d.pick(choices)
    shape = [n // count if i == axis else n for i, n in enumerate(x.shape)]
    pieces = _pieces(d, x, [shape] * count)
    return d.add("SPLIT", [d.numbers("axis", axis), x], pieces, SplitOptions(count))


@part("SPLIT_V")
def split_v(d: Drawing, x: Tensor) -> Tensor | None:
    axes = [axis for axis in range(1, len(x.shape)) if x.shape[axis] > 2]
    if not axes:
        return None
    axis = d.pick(axes)
    first = d.integer(1, x.shape[axis] - 1)
    sizes = [first, x.shape[axis] - first]
    pieces = _pieces(d, x, [[size if i == axis else n for i, n in enumerate(x.shape)] for size in sizes])
    inputs: list[Tensor | None] = [x, d.numbers("sizes", sizes), d.numbers("axis", axis)]
    return d.add("SPLIT_V", inputs, pieces, SplitOptions(len(sizes)))


def _pieces(d: Drawing, x: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    pieces = [d.like(x, shape) for shape in shapes]
    for number, piece in enumerate(pieces):
        piece.name += f"_{number}"
    return pieces


@part("UNPACK")
def unpack(d: Drawing, x: Tensor) -> Tensor | None:
    axes = [axis for axis in range(1, len(x.shape)) if x.shape[axis] <= 4]
    if len(x.shape) < 3 or not axes:
        return None
    axis = d.pick(axes)
    shape = [n for i, n in enumerate(x.shape) if i != axis]
    pieces = _pieces(d, x, [shape] * x.shape[axis])
    return d.add("UNPACK", [x], pieces, AxisOptions(axis, x.shape[axis]))


@part("PACK")
def pack(d: Drawing, x: Tensor) -> Tensor | None:
    if not 1 <= len(x.shape) <= 3 or 2 * x.size > SIZE_MOST:
        return None
    axis = d.integer(1, len(x.shape))
    other = d.constant("other", d.weights(x.shape), x.quantization)
    y = d.like(x, [*x.shape[:axis], 2, *x.shape[axis:]])
    return d.add("PACK", [x, other], y, AxisOptions(axis, 2))


@part("TRANSPOSE")
def transpose(d: Drawing, x: Tensor) -> Tensor | None:
    if len(x.shape) < 2:
        return None
    order = [0, *(1 + d.random.permutation(len(x.shape) - 1)).tolist()]
    y = d.like(x, [x.shape[axis] for axis in order])
    return d.add("TRANSPOSE", [x, d.numbers("order", order)], y, Options())


def _resize(kind: str) -> None:
    @part(kind)
    def resize(d: Drawing, x: Tensor) -> Tensor | None:
        if len(x.shape) != 4:
            return None
        size = d.pair(1, 12)
        if size_of(size) * x.shape[3] > SIZE_MOST:
            return None
        aligns, centers = d.pick([(False, False), (True, False), (False, True)])
        y = d.like(x, (x.shape[0], *size, x.shape[3]))
        return d.add(kind, [x, d.numbers("size", size)], y, ResizeOptions(aligns, centers))


for _kind in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
    _resize(_kind)


@part("DEPTH_TO_SPACE")
def depth_to_space(d: Drawing, x: Tensor) -> Tensor | None:
    if len(x.shape) != 4 or x.shape[3] % 4:
        return None
    y = d.like(x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3] // 4))
    return d.add("DEPTH_TO_SPACE", [x], y, BlockOptions(2))


@part("SPACE_TO_DEPTH")
def space_to_depth(d: Drawing, x: Tensor) -> Tensor | None:
    if len(x.shape) != 4 or x.shape[1] % 2 or x.shape[2] % 2:
        return None
    y = d.like(x, (x.shape[0], x.shape[1] // 2, x.shape[2] // 2, 4 * x.shape[3]))
    return d.add("SPACE_TO_DEPTH", [x], y, BlockOptions(2))


@part("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "DEPTHWISE_CONV_2D")
def dilated_depthwise(d: Drawing, x: Tensor) -> Tensor | None:
    return _dilated(d, x, depthwise)


@part("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "CONV_2D")
def dilated_conv(d: Drawing, x: Tensor) -> Tensor | None:
    return _dilated(d, x, conv)


@part("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def there_and_back(d: Drawing, x: Tensor) -> Tensor | None:
    return _dilated(d, x, lambda d, x: None)


def _dilated(d: Drawing, x: Tensor, between: Callable[[Drawing, Tensor], Tensor | None]) -> Tensor | None:
    """Spread the pixels over a batch, work on each, and put them together: the old way to dilate."""
    if len(x.shape) != 4 or x.shape[0] != 1:
        return None
    block = d.pair(1, 3)
    before = d.pair(0, 2)
    after = [before[i] + -(x.shape[1 + i] + 2 * before[i]) % block[i] for i in (0, 1)]
    sizes = [(before[i] + x.shape[1 + i] + after[i]) // block[i] for i in (0, 1)]
    if size_of(sizes) * size_of(block) * x.shape[3] > SIZE_MOST:
        return None
    spread = d.like(x, (size_of(block), *sizes, x.shape[3]))
    amounts = [[before[i], after[i]] for i in (0, 1)]
    d.add("SPACE_TO_BATCH_ND", [x, d.numbers("block", block), d.numbers("amounts", amounts)], spread, Options())
    worked = between(d, spread) or spread
    full = [worked.shape[1 + i] * block[i] for i in (0, 1)]
    crops = [[d.integer(0, min(2, (n - 1) // 2)), d.integer(0, min(2, (n - 1) // 2))] for n in full]
    y = d.like(worked, (1, *(n - sum(crop) for n, crop in zip(full, crops, strict=True)), worked.shape[3]))
    return d.add("BATCH_TO_SPACE_ND", [worked, d.numbers("block", block), d.numbers("crops", crops)], y, Options())
