"""Lower CONV_2D and DEPTHWISE_CONV_2D."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen.ir import ConvOptions, Operator, OperatorError, Padding, Tensor, shape_text
from codegen.lower._calls import Call, Field, Lowered, Struct, Table, lowers
from codegen.lower._quantized import DAMAGED, int8, same_shape
from codegen.lower._weights import Weights, channel_fields, check_elements, factors, matrix_fields, read_weights
from codegen.lower._windows import Windows, check_windows

_COLUMNS: Final = 2  # GS_Q8_MATRIX_COLUMNS
_TAP_BYTES: Final = 4  # of the offset that gs_q8_depthwise keeps


@dataclass(frozen=True, eq=False)
class _Convolution:
    """What both operators have in common."""

    operator: Operator
    options: ConvOptions
    source: Tensor
    output: Tensor
    weights: Weights
    rows: Windows
    columns: Windows

    @property
    def images(self) -> int:
        return self.source.shape[0]

    @property
    def pixel(self) -> int:
        return self.source.shape[3]

    def place_fields(self, channels: int) -> dict[str, Field]:
        """Return the members that say where the windows are; each takes `channels` of a pixel."""
        fields: dict[str, Field] = {
            "window.pixel": self.pixel,
            "window.channels": channels,
            "window.zero_point": self.source.zero_point,
            "images": self.images,
        }
        for axis, windows in (("rows", self.rows), ("columns", self.columns)):
            fields |= {
                f"window.{axis}": windows.size,
                f"window.tap_{axis}": windows.taps,
                f"window.dilation_{axis}": windows.dilation,
                f"out_{axis}": windows.count,
                f"stride_{axis}": windows.stride,
                f"pad_{axis}": windows.pad,
            }
        return fields

    def matrix_fields(self, rows: NDArray[Any]) -> dict[str, Field]:
        """Return the members of the matrix of all groups, [output channels, terms]."""
        factor = factors(self.source, self.weights, self.output)
        return matrix_fields(self.weights, [rows], self.source, self.output, self.options.activation, factor)

    def grouped(self, rows: NDArray[Any], groups: int) -> Call:
        """Call a kernel for rows [output channels, taps * channels of a group]."""
        fields = self.matrix_fields(rows)
        suffix, ends = self.weights.suffix, ((self.source,), (self.output,))
        if groups == 1 and self._sees_pixels:
            struct = Struct("gs_q8_dense_t", fields | {"columns": self.images * self.rows.count * self.columns.count})
            return Call(self.operator, f"gs_q8_dense{suffix}", struct, *ends)
        fields |= self.place_fields(self.pixel // groups)
        fields |= {"groups": groups, "matrix.rows": len(rows) // groups}
        scratch_bytes = _COLUMNS * rows.shape[1]
        return Call(self.operator, f"gs_q8_conv{suffix}", Struct("gs_q8_conv_t", fields), *ends, scratch_bytes)

    @property
    def _sees_pixels(self) -> bool:
        """Tell whether the inputs of all outputs follow each other: pixel by pixel, or each a whole image."""
        along = (self.rows, self.columns)
        by_pixel = all(windows.taps == windows.stride == 1 for windows in along)
        whole = all(windows.taps == windows.size and windows.dilation == 1 and not windows.pad for windows in along)
        return by_pixel or (whole and self.rows.count == self.columns.count == 1)


def _read(operator: Operator, axis: int) -> _Convolution:
    options = operator.options_as(ConvOptions)
    source, output = int8(operator, operator.input(0)), int8(operator, operator.output)
    weights = read_weights(operator, 1, 2, axis, rank=4)
    if len(source.shape) != 4:
        raise OperatorError(operator, f"the input is {shape_text(source.shape)}, not NHWC", "reshape it before")
    same = options.padding is Padding.SAME
    sizes, taps = source.shape[1:3], weights.tensor.shape[1:3]
    rows, columns = (
        Windows(*numbers, same) for numbers in zip(sizes, taps, options.stride, options.dilation, strict=True)
    )
    check_windows(operator, rows, columns)
    check_elements(operator, source, output)
    same_shape(operator, output, (source.shape[0], rows.count, columns.count, weights.channels))
    return _Convolution(operator, options, source, output, weights, rows, columns)


@lowers("CONV_2D")
def _conv(operator: Operator) -> Lowered:
    found = _read(operator, axis=0)
    outputs, _, _, channels = found.weights.tensor.shape
    groups = found.pixel // channels
    if found.pixel != groups * channels or outputs % groups != 0:
        raise OperatorError(
            operator,
            f"{found.pixel} channels cannot be cut into groups for weights {shape_text(found.weights.tensor.shape)}",
            DAMAGED,
        )
    return found.grouped(found.weights.values.reshape(outputs, -1), groups)


@lowers("DEPTHWISE_CONV_2D")
def _depthwise(operator: Operator) -> Lowered:
    found = _read(operator, axis=3)
    weights = found.weights
    first, *_, outputs = weights.tensor.shape
    multiplier = found.options.depth_multiplier
    if first != 1 or outputs != found.pixel * multiplier:
        raise OperatorError(
            operator,
            f"{found.pixel} channels times {multiplier} do not match weights {shape_text(weights.tensor.shape)}",
            DAMAGED,
        )
    if multiplier > 1 or weights.values.min() == -128:  # its kernel adds two products in 16 bits
        return found.grouped(weights.values.reshape(-1, outputs).T, found.pixel)
    sums = weights.values.sum(axis=(0, 1, 2), dtype=np.int64)
    factor = factors(found.source, weights, found.output)
    fields = channel_fields(weights, sums, found.source, found.output, found.options.activation, factor)
    fields |= found.place_fields(found.pixel)
    fields["weights"] = Table(weights.values, "weights")
    scratch_bytes = _TAP_BYTES * found.rows.taps * found.columns.taps
    struct = Struct("gs_q8_depthwise_t", fields)
    return Call(operator, "gs_q8_depthwise", struct, (found.source,), (found.output,), scratch_bytes)
