"""Tell how options stand in a .tflite file and how in `codegen.ir`: one table, for reading and for writing.

Source: TensorFlow Lite's schema, version 3, as the `tflite` package gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import tflite

from codegen import ir

IDENTIFIER: Final = b"TFL3"
VERSION: Final = 3

DTYPES: Final = {
    tflite.TensorType.BOOL: ir.DType.BOOL,
    tflite.TensorType.INT8: ir.DType.INT8,
    tflite.TensorType.UINT8: ir.DType.UINT8,
    tflite.TensorType.INT16: ir.DType.INT16,
    tflite.TensorType.INT32: ir.DType.INT32,
    tflite.TensorType.INT64: ir.DType.INT64,
    tflite.TensorType.FLOAT32: ir.DType.FLOAT32,
}
TYPE_OF: Final = {ours: code for code, ours in DTYPES.items()}

_PADDINGS = {tflite.Padding.SAME: ir.Padding.SAME, tflite.Padding.VALID: ir.Padding.VALID}
_ACTIVATIONS = {
    tflite.ActivationFunctionType.NONE: ir.Activation.NONE,
    tflite.ActivationFunctionType.RELU: ir.Activation.RELU,
    tflite.ActivationFunctionType.RELU_N1_TO_1: ir.Activation.RELU_N1_TO_1,
    tflite.ActivationFunctionType.RELU6: ir.Activation.RELU6,
    tflite.ActivationFunctionType.TANH: ir.Activation.TANH,
    tflite.ActivationFunctionType.SIGN_BIT: ir.Activation.SIGN_BIT,
}


@dataclass(frozen=True)
class Field:
    """Name one member of an options table as the schema does and as ours is."""

    schema: str
    ours: str = ""  # none: `dtype_of` says what is written, and nothing is read
    position: int | None = None  # in a pair of ours
    values: Mapping[int, Enum | bool] | None = None  # of an enumeration
    positive: bool = False
    must_be: bool | None = None  # the only value that means something for int8
    dtype_of: str = ""  # "inputs" or "outputs": the type of the first of them


@dataclass(frozen=True)
class Kind:
    """Say where the options of a kind of operator are."""

    table: str = ""  # of the schema; none for operators without
    options: type[ir.Options] = ir.Options
    fields: tuple[Field, ...] = ()
    vector: str = ""  # the only member, a vector; ours is `shape`
    optional: bool = False  # the table may be left out


_ACTIVATION = Field("FusedActivationFunction", "activation", values=_ACTIVATIONS)
_STRIDED = (
    Field("Padding", "padding", values=_PADDINGS),
    Field("StrideH", "stride", 0, positive=True),
    Field("StrideW", "stride", 1, positive=True),
    _ACTIVATION,
)
_DILATED = (
    *_STRIDED,
    Field("DilationHFactor", "dilation", 0, positive=True),
    Field("DilationWFactor", "dilation", 1, positive=True),
)
_POOL = Kind(
    "Pool2DOptions",
    ir.PoolOptions,
    (
        *_STRIDED,
        Field("FilterHeight", "window", 0, positive=True),
        Field("FilterWidth", "window", 1, positive=True),
    ),
)
_REDUCE = Kind("ReducerOptions", ir.ReduceOptions, (Field("KeepDims", "keep_dims"),))
_RESIZE = (Field("AlignCorners", "align_corners"), Field("HalfPixelCenters", "half_pixel_centers"))
_BLOCK = (Field("BlockSize", "size", positive=True),)
_OUTPUT_TYPE = (Field("OutputType", dtype_of="outputs"),)
_SLICE_MASKS = ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")
_SLICE_NAMES = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")

KINDS: Final[dict[str, Kind]] = {
    "CONV_2D": Kind("Conv2DOptions", ir.ConvOptions, _DILATED),
    "DEPTHWISE_CONV_2D": Kind(
        "DepthwiseConv2DOptions", ir.ConvOptions, (*_DILATED, Field("DepthMultiplier", "depth_multiplier"))
    ),
    "TRANSPOSE_CONV": Kind("TransposeConvOptions", ir.ConvOptions, _STRIDED),
    "FULLY_CONNECTED": Kind(
        "FullyConnectedOptions",
        ir.DenseOptions,
        (
            _ACTIVATION,
            Field("KeepNumDims", "keep_dims"),
            Field(
                "WeightsFormat",
                "shuffled",
                values={
                    tflite.FullyConnectedOptionsWeightsFormat.DEFAULT: False,
                    tflite.FullyConnectedOptionsWeightsFormat.SHUFFLED4x16INT8: True,
                },
            ),
        ),
    ),
    "AVERAGE_POOL_2D": _POOL,
    "MAX_POOL_2D": _POOL,
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), _REDUCE),
    **{kind: Kind(f"{kind.title()}Options", ir.FusedOptions, (_ACTIVATION,)) for kind in ("ADD", "SUB", "MUL", "DIV")},
    "CONCATENATION": Kind("ConcatenationOptions", ir.AxisOptions, (Field("Axis", "axis"), _ACTIVATION)),
    "PACK": Kind("PackOptions", ir.AxisOptions, (Field("Axis", "axis"), Field("ValuesCount", "count"))),
    "UNPACK": Kind("UnpackOptions", ir.AxisOptions, (Field("Axis", "axis"), Field("Num", "count"))),
    "GATHER": Kind("GatherOptions", ir.AxisOptions, (Field("Axis", "axis"), Field("BatchDims", "batch_dims"))),
    "RESHAPE": Kind("ReshapeOptions", ir.ReshapeOptions, vector="NewShape", optional=True),
    "SQUEEZE": Kind("SqueezeOptions", ir.ReshapeOptions, vector="SqueezeDims", optional=True),
    "STRIDED_SLICE": Kind(
        "StridedSliceOptions",
        ir.SliceOptions,
        (
            *(Field(f"{theirs}Mask", f"{ours}_mask") for theirs, ours in zip(_SLICE_MASKS, _SLICE_NAMES, strict=True)),
            Field("Offset", "offset"),
        ),
    ),
    "SPLIT": Kind("SplitOptions", ir.SplitOptions, (Field("NumSplits", "count", positive=True),)),
    "SPLIT_V": Kind("SplitVOptions", ir.SplitOptions, (Field("NumSplits", "count", positive=True),)),
    "SOFTMAX": Kind("SoftmaxOptions", ir.SoftmaxOptions, (Field("Beta", "beta"),)),
    "LEAKY_RELU": Kind("LeakyReluOptions", ir.LeakyOptions, (Field("Alpha", "alpha"),)),
    "RESIZE_BILINEAR": Kind("ResizeBilinearOptions", ir.ResizeOptions, _RESIZE),
    "RESIZE_NEAREST_NEIGHBOR": Kind("ResizeNearestNeighborOptions", ir.ResizeOptions, _RESIZE),
    "MIRROR_PAD": Kind(
        "MirrorPadOptions",
        ir.MirrorOptions,
        (
            Field(
                "Mode",
                "repeats_edge",
                values={tflite.MirrorPadMode.REFLECT: False, tflite.MirrorPadMode.SYMMETRIC: True},
            ),
        ),
    ),
    "DEPTH_TO_SPACE": Kind("DepthToSpaceOptions", ir.BlockOptions, _BLOCK),
    "SPACE_TO_DEPTH": Kind("SpaceToDepthOptions", ir.BlockOptions, _BLOCK),
    "SVDF": Kind("SVDFOptions", ir.SvdfOptions, (Field("Rank", "rank", positive=True), _ACTIVATION)),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Kind(
        "UnidirectionalSequenceLSTMOptions",
        ir.LstmOptions,
        (
            _ACTIVATION,
            Field("CellClip", "cell_clip"),
            Field("ProjClip", "projection_clip"),
            Field("TimeMajor", "time_major"),
            Field("DiagonalRecurrentTensors", must_be=False),
        ),
    ),
    "ARG_MAX": Kind("ArgMaxOptions", fields=_OUTPUT_TYPE, optional=True),
    "ARG_MIN": Kind("ArgMinOptions", fields=_OUTPUT_TYPE, optional=True),
    "SHAPE": Kind("ShapeOptions", fields=(Field("OutType", dtype_of="outputs"),), optional=True),
    "CAST": Kind(
        "CastOptions",
        fields=(Field("InDataType", dtype_of="inputs"), Field("OutDataType", dtype_of="outputs")),
        optional=True,
    ),
    # Without options, or with a table that has no members.
    **dict.fromkeys(
        """
        ABS BATCH_TO_SPACE_ND BROADCAST_ARGS BROADCAST_TO CEIL DEQUANTIZE ELU EXP EXPAND_DIMS FILL FLOOR FLOOR_DIV
        FLOOR_MOD HARD_SWISH LOG LOGISTIC MAXIMUM MINIMUM NEG PAD PADV2 PRELU QUANTIZE RANGE RANK RELU RELU6
        RELU_0_TO_1 RELU_N1_TO_1 ROUND RSQRT SLICE SPACE_TO_BATCH_ND SQRT SQUARE TANH TILE TRANSPOSE ZEROS_LIKE
        """.split(),
        Kind(optional=True),
    ),
}


def code_of(kind: str) -> int:
    """Return the number of a kind of operator."""
    code: int = getattr(tflite.BuiltinOperator, kind)
    return code


def table_code(kind: Kind) -> int:
    """Return the number of an options table in the schema's union; 0 for none."""
    code: int = getattr(tflite.BuiltinOptions, kind.table or "NONE")
    return code


def kind_of(code: int) -> str | None:
    """Name a kind of operator; None for a number the schema does not have."""
    return _KIND_NAMES.get(code)


def type_name(code: int) -> str:
    """Name an element type for a message."""
    return _TYPE_NAMES.get(code, f"number {code}")


def _names(enumeration: Any) -> dict[int, str]:
    return {code: name for name, code in vars(enumeration).items() if isinstance(code, int)}


_KIND_NAMES = _names(tflite.BuiltinOperator)
_TYPE_NAMES = _names(tflite.TensorType)
