"""Lower pooling over windows and reductions along axes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import prod

from codegen.fixedpoint import rescale
from codegen.ir import DType, Operator, OperatorError, Padding, PoolOptions, ReduceOptions, shape_text
from codegen.lower._calls import Alias, Call, Field, Lowered, Struct, lowers
from codegen.lower._quantized import (
    DAMAGED,
    DIFFERENCE_BITS,
    axes_of,
    clamp,
    factor,
    int8,
    same_quantization,
    same_shape,
)
from codegen.lower.tables import table_call

_SIDE_MAX = (1 << 15) - 1  # rows and columns
_TERMS_MAX = 1 << 23  # of a sum that fits 32 bits whatever its terms are
_SCALE_TOLERANCE = 1e-6  # TensorFlow Lite Micro lets the scales of a pool's ends differ by this
_LOOPS = 2  # of gs_q8_axes_t over what is kept, and over what is reduced


@lowers("AVERAGE_POOL_2D", "MAX_POOL_2D")
def _pool(operator: Operator) -> Lowered:
    options = operator.options_as(PoolOptions)
    source, output = int8(operator, operator.input(0)), int8(operator, operator.output)
    if len(source.shape) != 4:
        raise OperatorError(operator, f"the input is {shape_text(source.shape)}, not NHWC", "reshape it before")
    if source.zero_point != output.zero_point or abs(float(source.scale) - float(output.scale)) > _SCALE_TOLERANCE:
        same_quantization(operator, source, output)
    images, rows, columns, channels = source.shape
    along = [
        _Windows(size, window, stride, options.padding is Padding.SAME)
        for size, window, stride in zip((rows, columns), options.window, options.stride, strict=True)
    ]
    same_shape(operator, output, (images, along[0].count, along[1].count, channels))
    if max(rows, columns, *options.window, *options.stride) > _SIDE_MAX or prod(options.window) > _TERMS_MAX:
        raise OperatorError(operator, "the image or the window is too large", "pool in two steps")
    least, greatest = clamp(operator, options.activation, output)
    fields: dict[str, Field] = {"images": images, "channels": channels, "least": least, "greatest": greatest}
    for axis, windows in zip(("rows", "columns"), along, strict=True):
        fields |= {
            f"in_{axis}": windows.size,
            f"out_{axis}": windows.count,
            f"window_{axis}": windows.window,
            f"stride_{axis}": windows.stride,
            f"pad_{axis}": windows.pad,
        }
    kernel = "gs_q8_average_pool" if operator.kind == "AVERAGE_POOL_2D" else "gs_q8_max_pool"
    return Call(operator, kernel, Struct("gs_q8_pool_t", fields), (source,), (output,))


@dataclass(frozen=True)
class _Windows:
    """Place windows along one axis."""

    size: int
    window: int
    stride: int
    same: bool

    @property
    def count(self) -> int:
        """Count the windows."""
        return max(0, -(-(self.size if self.same else self.size - self.window + 1) // self.stride))

    @property
    def pad(self) -> int:
        """Count the places of the first window that lie before the axis begins."""
        return max(0, (self.count - 1) * self.stride + self.window - self.size) // 2


@lowers("MEAN", "SUM")
def _sum(operator: Operator) -> Lowered:
    source, output = int8(operator, operator.input(0)), int8(operator, operator.output)
    reduced = _reduced(operator)
    count = prod(source.shape[axis] for axis in reduced)
    if not 1 <= count <= _TERMS_MAX:
        raise OperatorError(operator, f"a sum has {count} terms, not 1..{_TERMS_MAX}", "reduce in two steps")
    ratio = float(source.scale) / float(output.scale)
    if operator.kind == "SUM":
        multiplier, shift = factor(operator, ratio, (255 * count).bit_length())
    else:
        # 1 / count goes into the multiplier, which keeps its bits as far as the shift allows.
        multiplier, shift = factor(operator, ratio, DIFFERENCE_BITS + 1)
        more = min(count.bit_length() - 1, 31 + shift)
        multiplier, shift = (multiplier << more) // count, shift - more
    if count == 1:
        return table_call(
            operator, source, lambda x: rescale(x - source.zero_point, multiplier, shift) + output.zero_point
        )
    fields: dict[str, Field] = {
        **_axes(operator, reduced),
        "offset": -source.zero_point * count,
        "multiplier": multiplier,
        "shift": shift,
        "zero_point": output.zero_point,
    }
    return Call(operator, "gs_q8_sum", Struct("gs_q8_sum_t", fields), (source,), (output,))


@lowers("REDUCE_MAX", "REDUCE_MIN")
def _reduce(operator: Operator) -> Lowered:
    source, output = int8(operator, operator.input(0)), int8(operator, operator.output)
    same_quantization(operator, source, output)
    reduced = _reduced(operator)
    if source.size == output.size:
        return Alias(operator, source, output)
    if not source.size:
        raise OperatorError(operator, "the input is empty", DAMAGED)
    fields: dict[str, Field] = {**_axes(operator, reduced), "flip": 0 if operator.kind == "REDUCE_MAX" else -1}
    return Call(operator, "gs_q8_reduce", Struct("gs_q8_reduce_t", fields), (source,), (output,))


def _reduced(operator: Operator) -> tuple[int, ...]:
    """Return the axes to reduce, and check the output's shape."""
    shape = operator.input(0).shape
    reduced = axes_of(operator, 1, len(shape))
    keep = operator.options_as(ReduceOptions).keep_dims
    expected = [1 if axis in reduced else size for axis, size in enumerate(shape) if keep or axis not in reduced]
    same_shape(operator, operator.output, expected)
    return reduced


def _axes(operator: Operator, reduced: tuple[int, ...]) -> dict[str, Field]:
    """Merge neighbouring axes that are both kept or both reduced, and describe the loops over them."""
    shape = operator.input(0).shape
    axes = [axis for axis, size in enumerate(shape) if size != 1]
    kept: list[tuple[int, int]] = []  # (length, elements from one index to the next)
    summed: list[tuple[int, int]] = []
    for is_reduced, group in itertools.groupby(axes, lambda axis: axis in reduced):
        members = list(group)
        merged = prod(shape[axis] for axis in members), prod(shape[members[-1] + 1 :])
        (summed if is_reduced else kept).append(merged)
    run = kept.pop()[0] if kept and kept[-1][1] == 1 else 1
    if len(kept) > _LOOPS or len(summed) > _LOOPS:
        raise OperatorError(operator, "the axes alternate too often", "reduce in two steps")
    kept = [(1, 0)] * (_LOOPS - len(kept)) + kept
    summed = [(1, 0)] * (_LOOPS - len(summed)) + summed
    return {
        "axes.kept": tuple(length for length, _ in kept),
        "axes.kept_step": tuple(step for _, step in kept),
        "axes.run": run,
        "axes.count": tuple(length for length, _ in summed),
        "axes.step": tuple(step for _, step in summed),
    }


@lowers("ARG_MAX", "ARG_MIN")
def _arg(operator: Operator) -> Lowered:
    source, output = int8(operator, operator.input(0)), operator.output
    axes = axes_of(operator, 1, len(source.shape))
    if len(axes) != 1 or source.shape[axes[0]] < 1:
        raise OperatorError(operator, f"there are {len(axes)} axes to search, or nothing in them", DAMAGED)
    axis = axes[0]
    same_shape(operator, output, source.shape[:axis] + source.shape[axis + 1 :])
    kernel = {DType.INT32: "gs_q8_arg", DType.INT64: "gs_q8_arg_wide"}.get(output.dtype)
    if kernel is None:
        raise OperatorError(operator, f"the output is {output.dtype.value}", "set output_type to int32")
    fields: dict[str, Field] = {
        "rows": prod(source.shape[:axis]),
        "count": source.shape[axis],
        "run": prod(source.shape[axis + 1 :]),
        "flip": 0 if operator.kind == "ARG_MAX" else -1,
    }
    return Call(operator, kernel, Struct("gs_q8_arg_t", fields), (source,), (output,))
