"""Read one tensor of a .tflite file: shape, type, quantization and constant data, all checked."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import tflite
from numpy.typing import NDArray

from codegen import _schema
from codegen._vectors import FileError, Vectors
from codegen.ir import DType, Quantization, Tensor, shape_text

_RANK_MOST: Final = 8
_SIZE_MOST: Final = 1 << 28  # elements: byte counts and offsets stay far from 2^31
_QUANTIZED: Final = {DType.INT8, DType.UINT8, DType.INT16, DType.INT32}
_INT8_MEND: Final = "quantize the model fully to int8 (TFLITE_BUILTINS_INT8)"


def read_tensor(table: Any, index: int, model: Any, vectors: Vectors) -> Tensor:
    """Return a tensor whose name may be empty. Raises FileError, or one of `DAMAGE`."""
    name = vectors.text(table.Name(), f"the name of tensor {index}")
    try:
        return _read(table, name, index, model, vectors)
    except FileError as damaged:
        raise FileError(f"tensor {index}{f' ({name})' if name else ''}: {damaged.what}", damaged.mend) from None


def _read(table: Any, name: str, index: int, model: Any, vectors: Vectors) -> Tensor:
    code = table.Type()
    four_bit = code == tflite.TensorType.INT4
    dtype = DType.INT8 if four_bit else _schema.DTYPES.get(code)
    if dtype is None:
        raise FileError(f"elements of type {_schema.type_name(code)} are not supported", _INT8_MEND)
    if table.Sparsity() is not None:
        raise FileError("sparse tensors are not supported", "convert the model without sparsity")
    shape = tuple(vectors.numbers(table, "Shape", _RANK_MOST))
    if min(shape, default=1) < 0:
        raise FileError(f"the shape {shape_text(shape)} has a negative dimension")
    if math.prod(filter(None, shape)) > _SIZE_MOST:
        raise FileError(f"the shape {shape_text(shape)} is beyond {_SIZE_MOST} elements")
    signature = vectors.numbers(table, "ShapeSignature", _RANK_MOST)
    if signature and len(signature) != len(shape):
        raise FileError(f"its shapes have {len(shape)} and {len(signature)} dimensions")
    raw = _data(table.Buffer(), model, vectors)
    tensor = Tensor(
        name,
        tuple(1 if open_end == -1 else length for length, open_end in zip(shape, signature or shape, strict=True)),
        dtype,
        bits=4 if four_bit else 8,
        variable=table.IsVariable(),
        dynamic=-1 in signature,
        index=index,
    )
    tensor.quantization = _quantization(table.Quantization(), tensor, vectors)
    if raw.size or 0 in tensor.shape:
        tensor.data = _constant(raw, tensor, vectors)
    elif four_bit:
        raise FileError("four-bit activations are not supported", _INT8_MEND)
    return tensor


def _data(number: int, model: Any, vectors: Vectors) -> NDArray[np.uint8]:
    """Return the bytes of a buffer: a view into the file, empty for what is no constant."""
    if number >= model.BuffersLength():
        raise FileError(f"its buffer {number} does not exist")
    buffer = model.Buffers(number)
    if buffer.Offset() > 1 or buffer.Size() > 1:  # 0 and 1 stand for none
        raise FileError("its data are outside the flatbuffer", "convert the model to a file below 2 GB")
    return vectors.array(buffer, "Data").view(np.uint8)


def _constant(raw: NDArray[np.uint8], tensor: Tensor, vectors: Vectors) -> NDArray[Any]:
    if tensor.variable:
        raise FileError("it is both a constant and a variable")
    stored = tensor.dtype.numpy.newbyteorder("<")
    expected = (tensor.size + 1) // 2 if tensor.bits == 4 else tensor.size * stored.itemsize
    if raw.size != expected:
        raise FileError(
            f"its shape {shape_text(tensor.shape)} of {tensor.dtype.value} takes {expected} bytes, "
            f"its buffer holds {raw.size}"
        )
    if tensor.bits == 4:
        vectors.spend(tensor.size)
        values = _unpack_nibbles(raw, tensor.size)
    elif tensor.dtype is DType.BOOL:
        vectors.spend(tensor.size)
        values = raw != 0
    else:
        values = raw.view(stored)
        if not values.flags.aligned or not stored.isnative:
            vectors.spend(raw.size)
            values = values.astype(tensor.dtype.numpy)
    return values.reshape(tensor.shape)


def _unpack_nibbles(raw: NDArray[np.uint8], count: int) -> NDArray[np.int8]:
    """Return signed four-bit numbers, the low half of each byte first."""
    halves = np.empty(2 * raw.size, np.int8)
    halves[0::2] = (raw << 4).view(np.int8) >> 4
    halves[1::2] = raw.view(np.int8) >> 4
    return halves[:count]


def _quantization(table: Any, tensor: Tensor, vectors: Vectors) -> Quantization | None:
    if table is None or tensor.dtype not in _QUANTIZED:
        return None
    if table.DetailsType() != 0:
        raise FileError("custom quantization is not supported", _INT8_MEND)
    scales, zero_points = vectors.array(table, "Scale"), vectors.array(table, "ZeroPoint")
    vectors.spend(scales.nbytes + zero_points.nbytes)
    if scales.size == 0:
        return None
    axis = table.QuantizedDimension()
    if not 0 <= axis < max(len(tensor.shape), 1):
        raise FileError(f"its scales are for axis {axis}, the shape is {shape_text(tensor.shape)}")
    if scales.size not in (1, tensor.shape[axis] if tensor.shape else 1):
        raise FileError(f"{scales.size} scales for axis {axis} of the shape {shape_text(tensor.shape)}")
    if zero_points.size not in (1, scales.size):
        raise FileError(f"{zero_points.size} zero points for {scales.size} scales")
    wrong = scales[~(np.isfinite(scales) & (scales > 0))]
    if wrong.size:
        raise FileError(f"a scale of {wrong[0]}; scales are finite and above 0")
    limits = np.iinfo(tensor.dtype.numpy)
    beyond = zero_points[(zero_points < limits.min) | (zero_points > limits.max)]
    if beyond.size:
        raise FileError(f"a zero point of {beyond[0]} is no {tensor.dtype.value}")
    # One zero point may serve all channels.
    return Quantization(
        scales.astype(np.float32), np.broadcast_to(zero_points.astype(np.int32), scales.shape).copy(), axis
    )
