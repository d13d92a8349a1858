"""Draw operators that move elements, each with what numpy says it does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen import ir
from codegen.ir import DType, Graph, Options, Tensor
from tests.tflite.single import int8, int32, one_operator, plain

Array = NDArray[Any]
Expected = Callable[..., Sequence[Array]]
SCALE, ZERO = 0.05, 3


@dataclass(frozen=True)
class Move:
    """Name a graph of one operator, and compute its outputs from its inputs."""

    name: str
    graph: Graph
    expected: Expected


def tensor(name: str, shape: Sequence[int], dtype: DType = DType.INT8, data: Any = None) -> Tensor:
    """Make a tensor; those of int8 have one scale and zero point in all graphs."""
    return int8(name, shape, SCALE, ZERO, data) if dtype is DType.INT8 else plain(name, shape, dtype)


def move(
    kind: str,
    what: object,
    shapes: Sequence[Sequence[int]],
    parameters: Sequence[Tensor],
    options: Options,
    expected: Expected,
    *,
    dtype: DType = DType.INT8,
    first: bool = False,
) -> Move:
    """Make a graph of inputs of these shapes; numpy's result tells the shapes of the outputs.

    `first` puts the constant parameters before the inputs.
    """
    inputs = [tensor(f"in{place}", shape, dtype) for place, shape in enumerate(shapes)]
    results = expected(*(np.zeros(shape, dtype.numpy) for shape in shapes))
    outputs = [tensor(f"out{place}", result.shape, dtype) for place, result in enumerate(results)]
    everything = [*parameters, *inputs] if first else [*inputs, *parameters]
    return Move(f"{kind} {what} {dtype.value}", one_operator(kind, everything, outputs, options), expected)


def shapes_of(draw: np.random.Generator, count: int, least: int, most: int) -> list[tuple[int, ...]]:
    """Draw shapes of `least` to `most` axes."""
    return [tuple(draw.integers(1, 6, draw.integers(least, most + 1)).tolist()) for _ in range(count)]


def reshapes() -> Iterator[Move]:
    for dtype in (DType.INT8, DType.FLOAT32, DType.INT32):
        yield move(
            "RESHAPE", "-1", [(2, 3, 4)], [int32("to", [4, -1])], ir.ReshapeOptions(), lambda x: [x.reshape(4, 6)],
            dtype=dtype,
        )  # fmt: skip
    yield move("RESHAPE", "option", [(2, 3, 4)], [], ir.ReshapeOptions((6, 4)), lambda x: [x.reshape(6, 4)])
    yield move("SQUEEZE", "some", [(1, 2, 1, 3)], [], ir.ReshapeOptions((0,)), lambda x: [x[0]])
    yield move("SQUEEZE", "all", [(1, 2, 1, 3)], [], ir.ReshapeOptions(), lambda x: [x.squeeze()])
    for axis in (0, 2, -1):
        to = int32("axis", axis)
        yield move("EXPAND_DIMS", axis, [(2, 3)], [to], Options(), lambda x, a=axis: [np.expand_dims(x, a)])


def transposes() -> Iterator[Move]:
    orders = [*itertools.permutations(range(3)), *itertools.permutations(range(4)), (4, 2, 0, 3, 1), (0, 2, 1, 3, 4)]
    for order in orders:
        shape = (2, 3, 4, 5, 2)[: len(order)]
        yield move("TRANSPOSE", order, [shape], [int32("order", order)], Options(), lambda x, o=order: [x.transpose(o)])
    yield move(
        "TRANSPOSE", "float", [(2, 3, 4)], [int32("order", [1, 2, 0])], Options(), lambda x: [x.transpose(1, 2, 0)],
        dtype=DType.FLOAT32,
    )  # fmt: skip


def slices(draw: np.random.Generator) -> Iterator[Move]:
    for number, shape in enumerate(shapes_of(draw, 20, 1, 5)):
        begins = [int(draw.integers(length)) for length in shape]
        sizes = [int(draw.integers(1, length - begin + 1)) for length, begin in zip(shape, begins, strict=True)]
        where = tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))
        written = [-1 if draw.integers(3) == 0 else size for size in sizes]
        rest = tuple(
            slice(cut.start, None if size == -1 else cut.stop) for cut, size in zip(where, written, strict=True)
        )
        dtype = (DType.INT8, DType.FLOAT32, DType.INT32)[number % 3]
        lists = [int32("begin", begins), int32("size", written)]
        yield move("SLICE", number, [shape], lists, Options(), lambda x, r=rest: [x[r]], dtype=dtype)


def strided_slices(draw: np.random.Generator, count: int = 60) -> Iterator[Move]:
    """Yield cuts as Python's own slices have them: negative indices, strides and bounds beyond the ends."""
    found = 0
    while found < count:
        (shape,) = shapes_of(draw, 1, 1, 4)
        begins, ends, steps, where = [], [], [], []
        masks = {"begin": 0, "end": 0, "shrink_axis": 0}
        for axis, length in enumerate(shape):
            begin, end = (int(draw.integers(-length - 2, length + 3)) for _ in range(2))
            step = int(draw.choice([1, 1, 2, 3, -1, -2]))
            flags = {name: bool(draw.integers(4) == 0) for name in masks}
            if flags["shrink_axis"]:
                begin, step = int(draw.integers(-length, length)), 1
                flags["begin"] = False
            for name, flag in flags.items():
                masks[name] |= flag << axis
            begins.append(begin)
            ends.append(end)
            steps.append(step)
            cut = slice(None if flags["begin"] else begin, None if flags["end"] else end, step)
            where.append(begin if flags["shrink_axis"] else cut)
        if np.zeros(shape)[tuple(where)].size == 0:
            continue
        options = ir.SliceOptions(**{f"{name}_mask": bits for name, bits in masks.items()})
        lists = [int32("begin", begins), int32("end", ends), int32("step", steps)]
        dtype = (DType.INT8, DType.FLOAT32)[found % 5 == 0]
        yield move(
            "STRIDED_SLICE", f"{shape} {where}", [shape], lists, options,
            lambda x, w=tuple(where): [np.asarray(x[w])], dtype=dtype,
        )  # fmt: skip
        found += 1


def paddings(draw: np.random.Generator) -> Iterator[Move]:
    for number, shape in enumerate(shapes_of(draw, 16, 1, 4)):
        around = draw.integers(0, 3, (len(shape), 2))
        given = [int32("around", around)]
        yield move(
            "PAD", number, [shape], given, Options(),
            lambda x, a=around: [np.pad(x, a, constant_values=ZERO if x.dtype == np.int8 else 0)],
            dtype=(DType.INT8, DType.FLOAT32, DType.INT32)[number % 3],
        )  # fmt: skip
        value = tensor("value", (), data=[-77])
        yield move(
            "PADV2", number, [shape], [*given, value], Options(),
            lambda x, a=around: [np.pad(x, a, constant_values=-77)],
        )  # fmt: skip
    for repeats_edge, mode in ((False, "reflect"), (True, "symmetric")):
        for around in (
            [[0, 0], [1, 2], [3, 1], [0, 0]],
            [[0, 0], [0, 2], [0, 0], [0, 0]],
            [[1, 0], [1, 1], [0, 2], [1, 1]],
        ):
            yield move(
                "MIRROR_PAD", f"{mode} {around}", [(2, 3, 4, 2)], [int32("around", around)],
                ir.MirrorOptions(repeats_edge), lambda x, a=around, m=mode: [np.pad(x, a, mode=m)],
            )  # fmt: skip


def joins(draw: np.random.Generator) -> Iterator[Move]:
    for count, rank in itertools.product((1, 2, 3, 4, 5, 10), (1, 2, 4)):
        axis = int(draw.integers(-rank, rank))
        shape = draw.integers(1, 5, rank)
        shapes = []
        for _ in range(count):
            shape[axis] = draw.integers(1, 5)
            shapes.append(tuple(shape.tolist()))
        dtype = (DType.INT8, DType.INT8, DType.FLOAT32, DType.INT32)[(count + rank) % 4]
        yield move(
            "CONCATENATION", f"{shapes} {axis}", shapes, [], ir.AxisOptions(axis),
            lambda *x, a=axis: [np.concatenate(x, a)], dtype=dtype,
        )  # fmt: skip
        whole = [shapes[0]] * count
        yield move(
            "PACK", f"{whole} {axis}", whole, [], ir.AxisOptions(axis, count), lambda *x, a=axis: [np.stack(x, a)]
        )


def splits() -> Iterator[Move]:
    for axis, count in ((0, 2), (1, 3), (-1, 4), (2, 1)):
        yield move(
            "SPLIT", (axis, count), [(2, 3, 4)], [int32("axis", axis)], ir.SplitOptions(count),
            lambda x, a=axis, n=count: np.split(x, n, a), first=True,
        )  # fmt: skip
        yield move(
            "UNPACK", axis, [(2, 3, 4)], [], ir.AxisOptions(axis, (2, 3, 4)[axis]),
            lambda x, a=axis: list(np.moveaxis(x, a, 0)),
        )  # fmt: skip
    for sizes, ends in (([1, 4, 2], [1, 5]), ([3, -1], [3]), ([7], [])):
        yield move(
            "SPLIT_V", sizes, [(3, 7, 2)], [int32("sizes", sizes), int32("axis", 1)], ir.SplitOptions(len(sizes)),
            lambda x, e=ends: np.split(x, e, 1),
        )  # fmt: skip


def gathers() -> Iterator[Move]:
    for axis, indices in ((0, [1, 0, 1]), (1, [2]), (-1, [[3, 0], [1, 1]]), (1, [0, 1])):
        yield move(
            "GATHER", (axis, indices), [(2, 3, 4)], [int32("indices", indices)], ir.AxisOptions(axis),
            lambda x, i=indices, a=axis: [np.take(x, i, a)],
        )  # fmt: skip
    for given, asked in (((1, 3, 1), (4, 3, 2)), ((3,), (2, 2, 3)), ((2, 1), (2, 5))):
        yield move(
            "BROADCAST_TO", (given, asked), [given], [int32("to", asked)], Options(),
            lambda x, s=asked: [np.broadcast_to(x, s)],
        )  # fmt: skip


def phases(x: Array, block: Sequence[int], around: Array, fill: int) -> Array:
    """Collect the pixels of each phase of the block into images of their own, by plain indexing."""
    spatial = len(block)
    padded = np.pad(x, [(0, 0), *around, (0, 0)], constant_values=fill)
    images = []
    for phase in itertools.product(*map(range, block)):
        images.append(padded[(slice(None), *(slice(p, None, b) for p, b in zip(phase, block, strict=True)))])
    assert padded.ndim == spatial + 2
    return np.concatenate(images)


def unphased(x: Array, block: Sequence[int], crops: Array) -> Array:
    """Put the pixels back, and crop."""
    count = int(np.prod(block))
    parts = np.split(x, count)
    lengths = [length * size for length, size in zip(x.shape[1:-1], block, strict=True)]
    whole = np.zeros((x.shape[0] // count, *lengths, x.shape[-1]), x.dtype)
    for part, phase in zip(parts, itertools.product(*map(range, block)), strict=True):
        whole[(slice(None), *(slice(p, None, b) for p, b in zip(phase, block, strict=True)))] = part
    kept = [slice(before, length - after) for length, (before, after) in zip(lengths, crops, strict=True)]
    return whole[(slice(None), *kept)]


def blocks(draw: np.random.Generator) -> Iterator[Move]:
    for number in range(16):
        spatial = 1 + number % 2
        block = draw.integers(1, 4, spatial)
        around = draw.integers(0, 3, (spatial, 2)) * (number % 3 > 0)
        places = draw.integers(2, 4, spatial)
        image = np.maximum(places * block - around.sum(1), 1)
        around[:, 1] += places * block - around.sum(1) - image
        around[:, 1] += -(image + around.sum(1)) % block
        shape = (int(draw.integers(1, 3)), *image.tolist(), int(draw.integers(1, 4)))
        given = [int32("block", block), int32("around", around)]
        # tflite-micro pads with the integer 0.
        yield move(
            "SPACE_TO_BATCH_ND", f"{shape} {block} {around.tolist()}", [shape], given, Options(),
            lambda x, b=block, a=around: [phases(x, b, a, 0)],
        )  # fmt: skip
        batch = (int(draw.integers(1, 3) * np.prod(block)), *places.tolist(), shape[-1])
        crops = draw.integers(0, 2, (spatial, 2))
        yield move(
            "BATCH_TO_SPACE_ND", f"{batch} {block} {crops.tolist()}", [batch],
            [int32("block", block), int32("crops", crops)], Options(), lambda x, b=block, c=crops: [unphased(x, b, c)],
        )  # fmt: skip
    for size in (2, 3):
        yield move(
            "SPACE_TO_DEPTH", size, [(2, 2 * size, 3 * size, 3)], [], ir.BlockOptions(size),
            lambda x, s=size: [np.concatenate([x[:, i::s, j::s] for i in range(s) for j in range(s)], -1)],
        )  # fmt: skip
        yield move(
            "DEPTH_TO_SPACE",
            size,
            [(2, 2, 3, 2 * size * size)],
            [],
            ir.BlockOptions(size),
            lambda x, s=size: [depth_to_space(x, s)],
        )


def depth_to_space(x: Array, size: int) -> Array:
    """Spread the channels of each pixel over a block."""
    batch, rows, columns, channels = x.shape
    whole = np.zeros((batch, rows * size, columns * size, channels // size**2), x.dtype)
    for part, (i, j) in zip(np.split(x, size**2, -1), itertools.product(range(size), repeat=2), strict=True):
        whole[:, i::size, j::size] = part
    return whole


def beyond_tflite_micro() -> Iterator[Move]:
    """Yield what tflite-micro refuses, for its kinds, ranks or numbers of inputs."""
    for times, dtype in (([1, 2, 1], DType.INT8), ([3, 1, 2], DType.INT8), ([2, 2, 2], DType.FLOAT32)):
        yield move(
            "TILE", times, [(2, 3, 4)], [int32("times", times)], Options(), lambda x, t=times: [np.tile(x, t)],
            dtype=dtype,
        )  # fmt: skip
    yield move(
        "TRANSPOSE", "rank 6", [(2, 3, 1, 2, 3, 2)], [int32("order", [5, 1, 0, 3, 4, 2])], Options(),
        lambda x: [x.transpose(5, 1, 0, 3, 4, 2)],
    )  # fmt: skip
    yield move("CONCATENATION", "11", [(2, 3)] * 11, [], ir.AxisOptions(-1), lambda *x: [np.concatenate(x, -1)])
    shape = (2, 3, 4, 5)
    for begins, ends, steps, options, where in (
        ([0, 1], [0, 3], [1, 2], ir.SliceOptions(ellipsis_mask=1), np.s_[..., 1:3:2]),
        ([1, 0, 2], [2, 0, 4], [1, 1, 1], ir.SliceOptions(ellipsis_mask=2), np.s_[1:2, ..., 2:4]),
        ([0, 1, 0, 1], [2, 2, 0, 9], [1, 1, 1, 1], ir.SliceOptions(ellipsis_mask=4), np.s_[0:2, 1:2, ..., 1:9]),
        ([0, 0], [0, 2], [1, 1], ir.SliceOptions(new_axis_mask=1), np.s_[None, 0:2]),
        ([0, 0, 3], [0, 0, 0], [1, 1, 1], ir.SliceOptions(0, 0, 2, 1, 4), np.s_[None, ..., 3]),
        ([1], [2], [1], ir.SliceOptions(), np.s_[1:2]),
        ([0, 1], [2, 2], [1, 1], ir.SliceOptions(offset=True), np.s_[0:2, 1:3]),
    ):
        lists = [int32("begin", begins), int32("end", ends), int32("step", steps)]
        yield move("STRIDED_SLICE", where, [shape], lists, options, lambda x, w=where: [x[w]])
    five = [int32("begin", [0] * 5), int32("end", [1, 2, 3, 1, 2]), int32("step", [1] * 5)]
    yield move("STRIDED_SLICE", "rank 5", [(1, 2, 3, 2, 2)], five, ir.SliceOptions(), lambda x: [x[:, :, :, :1]])


def all_moves() -> list[Move]:
    """Return every kind; tflite-micro runs all of them."""
    draw = np.random.default_rng(7)
    return [
        *reshapes(), *transposes(), *slices(draw), *strided_slices(draw), *paddings(draw), *joins(draw), *splits(),
        *gathers(), *blocks(draw),
    ]  # fmt: skip
