"""Hold a quantized model as a small typed graph, whatever file it came from.

A graph is a list of operators in an order that can run, over tensors with one fixed shape each. Readers build it,
passes rewrite it, `codegen.lower` turns every operator into one call of a kernel of the firmware core.

Source: the operators and their options are TensorFlow Lite's (schema version 3); names are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import GossamerError

Array = NDArray[Any]
O = TypeVar("O", bound="Options")  # noqa: E741


class DType(Enum):
    """Element types; the value is numpy's name. Four-bit tensors are INT8 with `Tensor.bits` = 4."""

    BOOL = "bool"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"

    @property
    def numpy(self) -> np.dtype[Any]:
        """Return the numpy type of one element."""
        return np.dtype(self.value)


class Padding(Enum):
    """Where a window operator reads beyond its input."""

    SAME = "same"
    VALID = "valid"


class Activation(Enum):
    """A clamp (or more) fused into an operator."""

    NONE = "none"
    RELU = "relu"
    RELU_N1_TO_1 = "relu_n1_to_1"
    RELU6 = "relu6"
    TANH = "tanh"
    SIGN_BIT = "sign_bit"


@dataclass(frozen=True, eq=False)
class Quantization:
    """Say that real = scale * (integer - zero_point); one pair, or one for each index of `axis`."""

    scales: NDArray[np.float32]  # [1], or [channels]
    zero_points: NDArray[np.int32]  # of the same length
    axis: int = 0

    @property
    def is_per_tensor(self) -> bool:
        """Tell whether one pair serves all elements."""
        return len(self.scales) == 1

    @property
    def scale(self) -> np.float32:
        """Return the only scale; meaningless if there are several."""
        return np.float32(self.scales[0])

    @property
    def zero_point(self) -> int:
        """Return the only zero point; meaningless if there are several."""
        return int(self.zero_points[0])


@dataclass(eq=False)
class Tensor:
    """One value of the graph; compared by identity."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    quantization: Quantization | None = None
    data: Array | None = None  # constants only: of `shape` and `dtype`
    bits: int = 8  # of one element of an INT8 constant: 4, 2 or 1 when it holds no greater integers
    variable: bool = False  # keeps its value from one invocation to the next
    dynamic: bool = False  # the file leaves a dimension open; `shape` has 1 there until shapes are inferred
    index: int = -1  # in the file; -1 for what a pass made

    @property
    def size(self) -> int:
        """Count the elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Count the bytes as an activation: whole elements, without gaps."""
        return self.size * self.dtype.numpy.itemsize

    @property
    def scale(self) -> np.float32:
        """Return the per-tensor scale. Raises AttributeError where there is no quantization."""
        assert self.quantization is not None and self.quantization.is_per_tensor, self.name
        return self.quantization.scale

    @property
    def zero_point(self) -> int:
        """Return the per-tensor zero point."""
        assert self.quantization is not None and self.quantization.is_per_tensor, self.name
        return self.quantization.zero_point


@dataclass(frozen=True)
class Options:
    """Options of an operator that has none; the base of the others."""


@dataclass(frozen=True)
class FusedOptions(Options):
    """ADD, SUB, MUL."""

    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class ConvOptions(Options):
    """CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV; pairs are (rows, columns)."""

    padding: Padding = Padding.VALID
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    depth_multiplier: int = 1  # DEPTHWISE_CONV_2D
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class DenseOptions(Options):
    """FULLY_CONNECTED."""

    activation: Activation = Activation.NONE
    keep_dims: bool = False
    shuffled: bool = False  # weights_format SHUFFLED4x16INT8


@dataclass(frozen=True)
class PoolOptions(Options):
    """AVERAGE_POOL_2D, MAX_POOL_2D."""

    padding: Padding = Padding.VALID
    stride: tuple[int, int] = (1, 1)
    window: tuple[int, int] = (1, 1)
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class ReduceOptions(Options):
    """MEAN, SUM, REDUCE_MAX, REDUCE_MIN; the axes are input 1."""

    keep_dims: bool = False


@dataclass(frozen=True)
class AxisOptions(Options):
    """CONCATENATION, PACK, UNPACK, GATHER; `count` where the schema has one (PACK, UNPACK)."""

    axis: int = 0
    count: int = 0
    activation: Activation = Activation.NONE
    batch_dims: int = 0


@dataclass(frozen=True)
class ReshapeOptions(Options):
    """RESHAPE; used when there is no input 1. SQUEEZE: the axes to drop, none for all of length 1."""

    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class SliceOptions(Options):
    """STRIDED_SLICE; bit i of a mask speaks of position i of the begin, end and stride inputs."""

    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0
    offset: bool = False


@dataclass(frozen=True)
class SplitOptions(Options):
    """SPLIT, SPLIT_V."""

    count: int = 1


@dataclass(frozen=True)
class SoftmaxOptions(Options):
    """SOFTMAX."""

    beta: float = 1.0


@dataclass(frozen=True)
class LeakyOptions(Options):
    """LEAKY_RELU."""

    alpha: float = 0.0


@dataclass(frozen=True)
class ResizeOptions(Options):
    """RESIZE_NEAREST_NEIGHBOR, RESIZE_BILINEAR; the size is input 1."""

    align_corners: bool = False
    half_pixel_centers: bool = False


@dataclass(frozen=True)
class MirrorOptions(Options):
    """MIRROR_PAD."""

    repeats_edge: bool = False  # SYMMETRIC; otherwise REFLECT


@dataclass(frozen=True)
class BlockOptions(Options):
    """DEPTH_TO_SPACE, SPACE_TO_DEPTH."""

    size: int = 1


@dataclass(frozen=True)
class SvdfOptions(Options):
    """SVDF."""

    rank: int = 1
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class LstmOptions(Options):
    """UNIDIRECTIONAL_SEQUENCE_LSTM."""

    activation: Activation = Activation.TANH
    cell_clip: float = 0.0
    projection_clip: float = 0.0
    time_major: bool = False


@dataclass(eq=False)
class Operator:
    """One operator; `inputs` may hold None where the schema lets one be left out."""

    kind: str  # the schema's name, such as CONV_2D
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    options: Options = field(default_factory=Options)
    index: int = -1  # in the file; -1 for what a pass made

    @property
    def output(self) -> Tensor:
        """Return the first output."""
        return self.outputs[0]

    def input(self, position: int) -> Tensor:
        """Return an input that must be there; raises OperatorError."""
        found = self.optional(position)
        if found is None:
            raise OperatorError(self, f"input {position} is missing", "the file is damaged: convert the model again")
        return found

    def optional(self, position: int) -> Tensor | None:
        """Return an input, or None where it was left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def constant(self, position: int) -> Array:
        """Return the value of an input that must be known now; raises OperatorError."""
        found = self.input(position)
        if found.data is None:
            raise OperatorError(
                self,
                f"input {position} ({found.name}) is computed at run time",
                "re-export with fixed shapes (batch_size=1) and constant parameters",
            )
        return found.data

    def options_as(self, kind: type[O]) -> O:
        """Return the options, which are of this class."""
        assert isinstance(self.options, kind), (self.kind, self.options)
        return self.options


@dataclass(eq=False)
class Graph:
    """A model: operators in an order that can run."""

    name: str
    operators: list[Operator]
    inputs: list[Tensor]
    outputs: list[Tensor]
    sha256: str = ""  # of the file

    def tensors(self) -> list[Tensor]:
        """List every tensor once, in the order of first use."""
        found: dict[int, Tensor] = {}
        for tensor in _mentioned(self):
            found.setdefault(id(tensor), tensor)
        return list(found.values())


def _mentioned(graph: Graph) -> Iterable[Tensor]:
    yield from graph.inputs
    for operator in graph.operators:
        yield from (tensor for tensor in operator.inputs if tensor is not None)
        yield from operator.outputs
    yield from graph.outputs


class OperatorError(Exception):
    """Say why an operator cannot be exported, and the mend; whoever knows the file makes it a ModelError."""

    def __init__(self, operator: Operator, reason: str, mend: str) -> None:
        self.operator = operator
        self.reason = reason
        self.mend = mend
        super().__init__(reason, mend)


_REASON_MOST = 300


class ModelError(GossamerError):
    """Report a model that cannot be read or exported."""

    @classmethod
    def of(cls, refused: OperatorError, file: str) -> ModelError:
        """Name the file, the operator's index, kind and output; what a damaged file makes long is cut.

        Converters name a tensor after everything that was fused into it: the first of it serves.
        """
        operator, reason = refused.operator, refused.reason
        if len(reason) > _REASON_MOST:
            reason = f"{reason[:_REASON_MOST]}..."
        name = f" {operator.outputs[0].name.split(';')[0]}" if operator.outputs else ""
        return cls(reason, f"{file}: operator {operator.index} ({operator.kind}){name}", refused.mend)


def shape_text(shape: Sequence[int]) -> str:
    """Write a shape as messages do: 1x32x32x3."""
    return "x".join(map(str, shape)) or "scalar"
