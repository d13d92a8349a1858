"""Say, for each kind of operator, what shapes its outputs have, and refuse inputs that do not go together.

A rule sees an operator whose inputs have their final shapes, and the values of those that are constant by now. What it
accepts is sound in structure: axes exist, windows fit, channels agree. Types and scales are for lowering to check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from codegen import ir
from codegen.ir import Operator, OperatorError, Padding, Tensor, shape_text

Shape = tuple[int, ...]
Rule = Callable[[Operator], Sequence[Shape]]

DAMAGED: Final = "the file is damaged: convert the model again"
_RULES: dict[str, Rule] = {}


def output_shapes(operator: Operator) -> Sequence[Shape]:
    """Return the shapes of an operator's outputs. Raises OperatorError."""
    found = _RULES.get(operator.kind)
    if found is None:
        raise OperatorError(
            operator,
            "this operator is not supported",
            "replace it in the model; `gossamer codegen --operators` lists what can be exported",
        )
    return found(operator)


def rule(kinds: str) -> Callable[[Rule], Rule]:
    """Register a rule for these kinds, named in one string."""

    def register(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(kinds.split(), function))
        return function

    return register


def require(operator: Operator, condition: bool, reason: str) -> None:
    """Refuse an operator that contradicts itself. Raises OperatorError."""
    if not condition:
        raise OperatorError(operator, reason, DAMAGED)


def ranked(operator: Operator, position: int, *ranks: int) -> Tensor:
    """Return an input that must have one of these numbers of axes."""
    tensor = operator.input(position)
    if len(tensor.shape) not in ranks:
        raise OperatorError(
            operator,
            f"input {position} ({tensor.name}) is {shape_text(tensor.shape)}; "
            f"it needs {' or '.join(map(str, ranks))} dimensions",
            "reshape it before",
        )
    return tensor


def integers(operator: Operator, position: int) -> list[int]:
    """Return the integers of a constant input."""
    values = operator.constant(position)
    require(operator, values.dtype.kind == "i", f"input {position} holds {values.dtype}, not integers")
    return [int(value) for value in values.reshape(-1)]


def axis_of(operator: Operator, axis: int, rank: int) -> int:
    """Count an axis from 0, whichever end it was counted from."""
    require(operator, -rank <= axis < rank, f"axis {axis} of a tensor with {rank}")
    return axis % rank


def only(operator: Operator, values: Sequence[int], what: str) -> int:
    """Return the only one of some values."""
    require(operator, len(values) == 1, f"it has {len(values)} {what}, not one")
    return values[0]


def broadcast(operator: Operator, one: Shape, other: Shape) -> Shape:
    """Return the shape of what combines two tensors element by element."""
    rank = max(len(one), len(other))
    pairs = list(zip((1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other, strict=True))
    require(
        operator,
        all(m == n or 1 in (m, n) for m, n in pairs),
        f"the shapes {shape_text(one)} and {shape_text(other)} do not go together",
    )
    return tuple(n if m == 1 else m for m, n in pairs)


@rule(
    """
    ABS CAST CEIL DEQUANTIZE ELU EXP FLOOR HARD_SWISH LEAKY_RELU LOG LOGISTIC NEG QUANTIZE RELU RELU6 RELU_0_TO_1
    RELU_N1_TO_1 ROUND RSQRT SOFTMAX SQRT SQUARE TANH ZEROS_LIKE
    """
)
def _as_input(operator: Operator) -> Sequence[Shape]:
    return [operator.input(0).shape]


@rule("ADD SUB MUL DIV MAXIMUM MINIMUM FLOOR_DIV FLOOR_MOD")
def _of_both(operator: Operator) -> Sequence[Shape]:
    return [broadcast(operator, operator.input(0).shape, operator.input(1).shape)]


@rule("PRELU")
def _prelu(operator: Operator) -> Sequence[Shape]:
    shape = operator.input(0).shape
    require(
        operator, broadcast(operator, shape, operator.input(1).shape) == shape, "its slope is larger than its input"
    )
    return [shape]


# Windows.


def _windows(operator: Operator, image: Shape, window: Shape, stride: Shape, padding: Padding) -> Shape:
    """Count the places of a window, rows and columns; its size includes what dilation adds."""
    require(operator, min(*image, *window, *stride) >= 1, "its window, stride, dilation or image is below 1")
    places = tuple(
        -(-length // step) if padding is Padding.SAME else (length - size) // step + 1
        for length, size, step in zip(image, window, stride, strict=True)
    )
    require(
        operator,
        min(places) >= 1,
        f"its window of {shape_text(window)} does not fit into its image of {shape_text(image)}",
    )
    return places


def _dilated(operator: Operator, window: Shape) -> Shape:
    options = operator.options_as(ir.ConvOptions)
    return tuple((size - 1) * step + 1 for size, step in zip(window, options.dilation, strict=True))


def _check_bias(operator: Operator, position: int, channels: int) -> None:
    bias = operator.optional(position)
    if bias is not None:
        require(
            operator, bias.size == channels, f"its bias is {shape_text(bias.shape)}, for {channels} output channels"
        )


@rule("CONV_2D")
def _conv(operator: Operator) -> Sequence[Shape]:
    batch, *image, channels = ranked(operator, 0, 4).shape
    filters, *window, depth = ranked(operator, 1, 4).shape
    require(
        operator,
        min(filters, depth, channels) >= 1 and channels % depth == 0 and filters % (channels // depth) == 0,
        f"{filters} filters of {depth} channels do not go with {channels} input channels",
    )
    _check_bias(operator, 2, filters)
    options = operator.options_as(ir.ConvOptions)
    places = _windows(operator, tuple(image), _dilated(operator, tuple(window)), options.stride, options.padding)
    return [(batch, *places, filters)]


@rule("DEPTHWISE_CONV_2D")
def _depthwise(operator: Operator) -> Sequence[Shape]:
    batch, *image, channels = ranked(operator, 0, 4).shape
    first, *window, filters = ranked(operator, 1, 4).shape
    options = operator.options_as(ir.ConvOptions)
    require(
        operator,
        first == 1 and filters == channels * options.depth_multiplier,
        f"filters of {shape_text(operator.input(1).shape)} do not go with {channels} input channels, "
        f"{options.depth_multiplier} filters each",
    )
    _check_bias(operator, 2, filters)
    places = _windows(operator, tuple(image), _dilated(operator, tuple(window)), options.stride, options.padding)
    return [(batch, *places, filters)]


@rule("TRANSPOSE_CONV")
def _transpose_conv(operator: Operator) -> Sequence[Shape]:
    shape = tuple(integers(operator, 0))
    filters, *window, depth = ranked(operator, 1, 4).shape
    batch, *places, channels = ranked(operator, 2, 4).shape
    require(operator, len(shape) == 4, f"its output is to be {shape_text(shape)}; 4 dimensions are due")
    options = operator.options_as(ir.ConvOptions)
    require(
        operator,
        shape[0] == batch and shape[3] == filters and channels == depth,
        f"its output is to be {shape_text(shape)}, of {shape_text(operator.input(2).shape)} "
        f"by {filters} filters of {depth} channels",
    )
    _check_bias(operator, 3, filters)
    # It is the gradient of a convolution: what that would make of the output must be the input.
    back = _windows(operator, shape[1:3], tuple(window), options.stride, options.padding)
    require(
        operator,
        back == tuple(places),
        f"an output of {shape_text(shape[1:3])} takes an input of {shape_text(back)}, not {shape_text(places)}",
    )
    return [shape]


@rule("AVERAGE_POOL_2D MAX_POOL_2D")
def _pool(operator: Operator) -> Sequence[Shape]:
    batch, *image, channels = ranked(operator, 0, 4).shape
    options = operator.options_as(ir.PoolOptions)
    return [(batch, *_windows(operator, tuple(image), options.window, options.stride, options.padding), channels)]


@rule("FULLY_CONNECTED")
def _fully_connected(operator: Operator) -> Sequence[Shape]:
    given, (units, depth) = operator.input(0), ranked(operator, 1, 2).shape
    _check_bias(operator, 2, units)
    require(
        operator,
        min(units, depth) >= 1 and given.size % depth == 0,
        f"weights of {shape_text((units, depth))} do not go with an input of {shape_text(given.shape)}",
    )
    if operator.options_as(ir.DenseOptions).keep_dims:
        require(operator, given.shape[-1:] == (depth,), f"its input is {shape_text(given.shape)}, its depth {depth}")
        return [(*given.shape[:-1], units)]
    return [(given.size // depth, units)]


# Reductions.


@rule("MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD")
def _reduce(operator: Operator) -> Sequence[Shape]:
    shape = operator.input(0).shape
    gone = {axis_of(operator, axis, len(shape)) for axis in integers(operator, 1)}
    if operator.options_as(ir.ReduceOptions).keep_dims:
        return [tuple(1 if axis in gone else length for axis, length in enumerate(shape))]
    return [tuple(length for axis, length in enumerate(shape) if axis not in gone)]


@rule("ARG_MAX ARG_MIN")
def _arg(operator: Operator) -> Sequence[Shape]:
    shape = operator.input(0).shape
    axis = axis_of(operator, only(operator, integers(operator, 1), "axes"), len(shape))
    return [shape[:axis] + shape[axis + 1 :]]


# Shapes as values.


@rule("SHAPE")
def _shape(operator: Operator) -> Sequence[Shape]:
    return [(len(operator.input(0).shape),)]


@rule("RANK")
def _rank(operator: Operator) -> Sequence[Shape]:
    operator.input(0)
    return [()]


@rule("RANGE")
def _range(operator: Operator) -> Sequence[Shape]:
    start, limit, step = (only(operator, integers(operator, i), f"values as input {i}") for i in range(3))
    require(operator, step != 0, "its step is 0")
    return [(max(0, -((start - limit) // step)),)]


@rule("FILL")
def _fill(operator: Operator) -> Sequence[Shape]:
    return [tuple(integers(operator, 0))]


@rule("BROADCAST_ARGS")
def _broadcast_args(operator: Operator) -> Sequence[Shape]:
    return [(max(ranked(operator, 0, 1).size, ranked(operator, 1, 1).size),)]


# Sequences.


@rule("SVDF")
def _svdf(operator: Operator) -> Sequence[Shape]:
    batch, depth = ranked(operator, 0, 2).shape
    features, times = ranked(operator, 1, 2).shape, ranked(operator, 2, 2).shape
    rank = operator.options_as(ir.SvdfOptions).rank
    require(
        operator,
        features[1] == depth and features[0] == times[0] and features[0] % rank == 0,
        f"filters of {shape_text(features)} and {shape_text(times)}, of rank {rank}, for an input of {depth}",
    )
    _check_bias(operator, 3, features[0] // rank)
    state = operator.input(4)
    require(
        operator, state.size == batch * prod(times), f"its state is {shape_text(state.shape)}, for {shape_text(times)}"
    )
    return [(batch, features[0] // rank)]


@rule("UNIDIRECTIONAL_SEQUENCE_LSTM")
def _lstm(operator: Operator) -> Sequence[Shape]:
    *steps, depth = ranked(operator, 0, 3).shape
    units, width = ranked(operator, 4, 2).shape  # the output gate is always there
    recurrent = ranked(operator, 8, 2).shape
    require(operator, width == depth and recurrent[0] == units, f"weights of {units}x{width} for an input of {depth}")
    for first, shape in ((1, (units, depth)), (5, recurrent)):
        for position in range(first, first + 4):
            weights = operator.optional(position)
            require(operator, weights is None or weights.shape == shape, f"input {position} is not {shape_text(shape)}")
    for position in range(12, 16):
        _check_bias(operator, position, units)
    batch = steps[1] if operator.options_as(ir.LstmOptions).time_major else steps[0]
    for position, size in ((18, recurrent[1]), (19, units)):
        state = operator.input(position)
        require(operator, state.size == batch * size, f"state {position} is {shape_text(state.shape)}")
    return [(*steps, recurrent[1])]
