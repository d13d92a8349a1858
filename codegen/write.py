"""Write a graph as a .tflite file, so that other interpreters can run what a pass or a test made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite

from codegen import _schema, ir

_ALIGN_BYTES = 16  # of constants, as the schema demands


def write(graph: ir.Graph) -> bytes:
    """Return the graph as a .tflite file that `codegen.read.parse_model` reads back.

    Four-bit tensors are packed two to a byte, low half first; those of two bits or one are written as INT8.
    A dynamic tensor's first axis of length 1 is left open. Raises KeyError for a kind of operator that
    `codegen._schema` does not know.
    """
    return _Writer(graph).file()


class _Writer:
    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.tensors = graph.tensors()
        self.index = {id(tensor): index for index, tensor in enumerate(self.tensors)}
        self.kinds = sorted({operator.kind for operator in graph.operators})
        self.builder = flatbuffers.Builder(1024)

    def file(self) -> bytes:
        build = self.builder
        buffers = [self._buffer(None)]  # number 0 is empty by convention
        tensors = []
        for tensor in self.tensors:
            if tensor.data is None:
                tensors.append(self._tensor(tensor, 0))
            else:
                tensors.append(self._tensor(tensor, len(buffers)))
                buffers.append(self._buffer(tensor))
        subgraph = self._table(
            "SubGraph",
            Tensors=self._offsets(tensors),
            Inputs=self._vector([self.index[id(tensor)] for tensor in self.graph.inputs], np.int32),
            Outputs=self._vector([self.index[id(tensor)] for tensor in self.graph.outputs], np.int32),
            Operators=self._offsets([self._operator(operator) for operator in self.graph.operators]),
            Name=build.CreateString("main"),
        )
        model = self._table(
            "Model",
            Version=_schema.VERSION,
            OperatorCodes=self._offsets([self._code(kind) for kind in self.kinds]),
            Subgraphs=self._offsets([subgraph]),
            Description=build.CreateString(self.graph.name),
            Buffers=self._offsets(buffers),
        )
        build.Finish(model, file_identifier=_schema.IDENTIFIER)
        return bytes(build.Output())

    def _code(self, kind: str) -> int:
        code = _schema.code_of(kind)
        return self._table("OperatorCode", DeprecatedBuiltinCode=min(code, 127), Version=1, BuiltinCode=code)

    def _buffer(self, tensor: ir.Tensor | None) -> int:
        if tensor is None or tensor.data is None:
            return self._table("Buffer")
        values = np.ascontiguousarray(tensor.data, tensor.dtype.numpy.newbyteorder("<"))
        raw = _pack_nibbles(values) if _is_four_bit(tensor) else values.tobytes()
        self.builder.Prep(_ALIGN_BYTES, len(raw))
        return self._table("Buffer", Data=self.builder.CreateByteVector(raw))

    def _tensor(self, tensor: ir.Tensor, buffer: int) -> int:
        fields: dict[str, int] = {
            "Shape": self._vector(tensor.shape, np.int32),
            "Type": tflite.TensorType.INT4 if _is_four_bit(tensor) else _schema.TYPE_OF[tensor.dtype],
            "Buffer": buffer,
            "Name": self.builder.CreateString(tensor.name),
            "IsVariable": tensor.variable,
            "HasRank": True,
        }
        if tensor.quantization is not None:
            fields["Quantization"] = self._quantization(tensor.quantization)
        if tensor.dynamic:
            signature = list(tensor.shape)
            signature[signature.index(1)] = -1
            fields["ShapeSignature"] = self._vector(signature, np.int32)
        return self._table("Tensor", **fields)

    def _quantization(self, quantization: ir.Quantization) -> int:
        return self._table(
            "QuantizationParameters",
            Scale=self._vector(quantization.scales, np.float32),
            ZeroPoint=self._vector(quantization.zero_points, np.int64),
            QuantizedDimension=quantization.axis,
        )

    def _operator(self, operator: ir.Operator) -> int:
        kind = _schema.KINDS[operator.kind]
        fields: dict[str, int] = {
            "OpcodeIndex": self.kinds.index(operator.kind),
            "Inputs": self._vector([-1 if t is None else self.index[id(t)] for t in operator.inputs], np.int32),
            "Outputs": self._vector([self.index[id(tensor)] for tensor in operator.outputs], np.int32),
        }
        if kind.table:
            fields["BuiltinOptionsType"] = _schema.table_code(kind)
            fields["BuiltinOptions"] = self._options(operator, kind)
        return self._table("Operator", **fields)

    def _options(self, operator: ir.Operator, kind: _schema.Kind) -> int:
        if kind.vector:
            shape = operator.options_as(ir.ReshapeOptions).shape
            return self._table(kind.table, **({kind.vector: self._vector(shape, np.int32)} if shape else {}))
        return self._table(kind.table, **{field.schema: _value(operator, field) for field in kind.fields})

    def _vector(self, values: Sequence[int] | np.ndarray[Any, Any], dtype: type[np.generic]) -> int:
        offset: int = self.builder.CreateNumpyVector(np.asarray(values, np.dtype(dtype).newbyteorder("<")))
        return offset

    def _offsets(self, offsets: Sequence[int]) -> int:
        build = self.builder
        build.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            build.PrependUOffsetTRelative(offset)
        vector: int = build.EndVector()
        return vector

    def _table(self, name: str, **fields: Any) -> int:
        _call(f"{name}Start")(self.builder)
        for field, value in fields.items():
            _call(f"{name}Add{field}")(self.builder, value)
        offset: int = _call(f"{name}End")(self.builder)
        return offset


def _call(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(tflite, name)
    return function


def _value(operator: ir.Operator, field: _schema.Field) -> Any:
    if field.dtype_of:
        first = getattr(operator, field.dtype_of)[0]
        return _schema.TYPE_OF[first.dtype]
    if field.must_be is not None:
        return field.must_be
    value = getattr(operator.options, field.ours)
    if field.position is not None:
        value = value[field.position]
    if field.values is not None:
        return next(code for code, ours in field.values.items() if ours == value)
    return value


def _is_four_bit(tensor: ir.Tensor) -> bool:
    return tensor.bits == 4 and tensor.dtype is ir.DType.INT8


def _pack_nibbles(values: np.ndarray[Any, Any]) -> bytes:
    assert values.min(initial=0) >= -8 and values.max(initial=0) <= 7
    flat = values.reshape(-1).astype(np.uint8) & 15
    padded = np.concatenate([flat, np.zeros(flat.size % 2, np.uint8)])
    packed: np.ndarray[Any, Any] = padded[0::2] | padded[1::2] << 4
    return packed.tobytes()
