"""Lower TRANSPOSE_CONV."""

from __future__ import annotations

from typing import Any, Final

from numpy.typing import NDArray

from codegen.ir import ConvOptions, Operator, OperatorError, Padding, shape_text
from codegen.lower._calls import Call, Field, Lowered, Struct, lowers
from codegen.lower._quantized import DAMAGED, int8
from codegen.lower._weights import check_elements, factors, matrix_fields, read_weights
from codegen.lower._windows import Windows, check_windows

_COLUMNS: Final = 2  # GS_Q8_MATRIX_COLUMNS


@lowers("TRANSPOSE_CONV")
def _transpose_conv(operator: Operator) -> Lowered:
    """Input 0 is the output's shape, which shape inference has used."""
    options = operator.options_as(ConvOptions)
    source, output = int8(operator, operator.input(2)), int8(operator, operator.output)
    weights = read_weights(operator, 1, 3, axis=0, rank=4)
    outputs, *taps, channels = weights.tensor.shape
    if len(source.shape) != 4 or len(output.shape) != 4 or source.shape[3] != channels:
        raise OperatorError(
            operator, f"{shape_text(source.shape)} does not match weights {shape_text(weights.tensor.shape)}", DAMAGED
        )
    if (output.shape[0], output.shape[3]) != (source.shape[0], outputs):
        raise OperatorError(operator, f"the output is {shape_text(output.shape)}", DAMAGED)
    # The windows of the convolution that this one is the transpose of: from the output's pixels to the input's.
    same = options.padding is Padding.SAME
    along = [
        Windows(size, taps, stride, 1, same)
        for size, taps, stride in zip(output.shape[1:3], taps, options.stride, strict=True)
    ]
    check_windows(operator, *along)
    check_windows(operator, *(Windows(size, 1, 1, 1, same) for size in source.shape[1:3]))
    check_elements(operator, source, output)
    matrices = _phases(weights.values, options.stride)
    factor = factors(source, weights, output)
    fields = matrix_fields(weights, matrices, source, output, options.activation, factor)
    fields |= _place_fields(source.shape, source.zero_point, along)
    struct = Struct("gs_q8_transpose_conv_t", fields)
    scratch_bytes = _COLUMNS * matrices[0].shape[1]
    kernel = f"gs_q8_transpose_conv{weights.suffix}"
    return Call(operator, kernel, struct, (source,), (output,), scratch_bytes)


def _phases(values: NDArray[Any], stride: tuple[int, int]) -> list[NDArray[Any]]:
    """Cut weights [outputs, rows, columns, channels] into those of each phase, the taps in the order of the inputs."""
    return [
        values[:, a :: stride[0], b :: stride[1]][:, ::-1, ::-1].reshape(len(values), -1)
        for a in range(stride[0])
        for b in range(stride[1])
    ]


def _place_fields(shape: tuple[int, ...], zero_point: int, along: list[Windows]) -> dict[str, Field]:
    images, *sizes, channels = shape
    fields: dict[str, Field] = {
        "window.pixel": channels,
        "window.channels": channels,
        "window.zero_point": zero_point,
        "images": images,
    }
    for axis, size, windows in zip(("rows", "columns"), sizes, along, strict=True):
        fields |= {
            f"window.{axis}": size,
            f"window.tap_{axis}": windows.taps,
            f"window.dilation_{axis}": 1,
            f"out_{axis}": windows.size,
            f"stride_{axis}": windows.stride,
            f"pad_{axis}": windows.pad,
        }
    return fields
