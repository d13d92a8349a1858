"""Read .tflite files. What leaves here is sound in structure, whatever came in.

The flatbuffers package verifies nothing, so this is the gate: every index, order, length and number is checked once,
and a file that is damaged or hostile ends in one ModelError, in time and memory bounded by its length.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import tflite

from codegen import _schema
from codegen._read_tensor import read_tensor
from codegen._vectors import DAMAGE, FileError, Vectors
from codegen.ir import Graph, ModelError, Operator, OperatorError, Options, ReshapeOptions, Tensor

_FILE_BYTES_MOST: Final = 1 << 26
_TABLES_MOST: Final = 1 << 12  # operators, tensors or buffers
_LINKS_MOST: Final = 1 << 9  # inputs or outputs of one operator, or of the graph
_DAMAGED_MEND: Final = "the file is damaged: convert the model again"


def read_model(path: Path) -> Graph:
    """Read a .tflite file. Raises ModelError, which names the file, what is wrong and the mend."""
    try:
        if not path.is_file():
            what = "this is no file" if path.exists() else "no such file"
            raise ModelError(what, str(path), "give a .tflite file")
        if path.stat().st_size > _FILE_BYTES_MOST:
            raise ModelError(
                f"more than {_FILE_BYTES_MOST >> 20} MiB", str(path), "no microcontroller holds this model"
            )
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", str(path), "check its permissions") from None
    return parse_model(data, str(path))


def parse_model(data: bytes, name: str) -> Graph:
    """Return the graph of a .tflite file's bytes; constants may be views into them.

    `name` is the file's, for messages. Raises ModelError.
    """
    if data[4:8] != _schema.IDENTIFIER:
        raise ModelError(f"this is no .tflite file: bytes 4 to 7 are not {_schema.IDENTIFIER.decode()}", name)
    try:
        return _Model(data, name).graph()
    except OperatorError as refused:
        raise ModelError.of(refused, name) from None
    except FileError as damaged:
        raise ModelError(damaged.what, name, damaged.mend or _DAMAGED_MEND) from None
    except DAMAGE:
        raise ModelError("an offset leads out of the file", name, _DAMAGED_MEND) from None


class _Model:
    def __init__(self, data: bytes, name: str) -> None:
        self.vectors = Vectors(len(data))
        self.model = tflite.Model.GetRootAs(data)
        self.name = Path(name).stem
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.names: set[str] = set()

    def graph(self) -> Graph:
        if self.model.Version() != _schema.VERSION:
            raise FileError(f"schema version {self.model.Version()}, not {_schema.VERSION}", "convert the model again")
        if self.model.SubgraphsLength() != 1:
            raise FileError(
                f"{self.model.SubgraphsLength()} subgraphs, not one",
                "control flow and several signatures are not supported: convert one function without loops",
            )
        self.vectors.count(self.model, "Buffers", _TABLES_MOST)
        self.subgraph = self.model.Subgraphs(0)
        self.kinds = [
            self._kind(self.model.OperatorCodes(i))
            for i in range(self.vectors.count(self.model, "OperatorCodes", _TABLES_MOST))
        ]
        self.tensors: list[Tensor | None] = [None] * self.vectors.count(self.subgraph, "Tensors", _TABLES_MOST)
        inputs = self._ends("Inputs")
        for tensor in inputs:
            self._check_open(tensor)
        operators = [self._operator(i) for i in range(self.vectors.count(self.subgraph, "Operators", _TABLES_MOST))]
        if not operators:
            raise FileError("the model has no operators: its outputs are its inputs", "there is nothing to export")
        graph = Graph(self.name, operators, inputs, self._ends("Outputs"), self.sha256)
        _check_order(graph)
        return graph

    def _kind(self, code: Any) -> str:
        """Name a kind of operator; one that is not supported is so only where it is used."""
        number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
        if number == tflite.BuiltinOperator.CUSTOM:
            return f"CUSTOM {self.vectors.text(code.CustomCode(), 'the name of a custom operator')}".rstrip()
        return _schema.kind_of(number) or f"code {number}"

    def _ends(self, member: str) -> list[Tensor]:
        what = member.lower()
        numbers = self.vectors.numbers(self.subgraph, member, _LINKS_MOST)
        if not numbers:
            raise FileError(f"the model has no {what}")
        if len(set(numbers)) < len(numbers):
            raise FileError(f"a tensor is twice among the model's {what}")
        return [self._tensor(number) for number in numbers]

    def _check_open(self, tensor: Tensor) -> None:
        """Let an input leave its batch open and nothing else: nobody but its author knows how large an image is."""
        signature = self.vectors.numbers(self.subgraph.Tensors(tensor.index), "ShapeSignature", _LINKS_MOST)
        if -1 in signature[1:]:
            shape = "x".join("?" if length == -1 else str(length) for length in signature)
            raise FileError(
                f"the input {tensor.name} leaves more open than the batch: {shape}",
                "give the Input layer a whole shape and convert the model again",
            )

    def _tensor(self, number: int) -> Tensor:
        if not 0 <= number < len(self.tensors):
            raise FileError(f"tensor {number} does not exist: there are {len(self.tensors)}")
        found = self.tensors[number]
        if found is None:
            found = read_tensor(self.subgraph.Tensors(number), number, self.model, self.vectors)
            found.name = self._unused(found.name or f"tensor_{number}", number)
            self.tensors[number] = found
        return found

    def _unused(self, name: str, number: int) -> str:
        while name in self.names:
            name = f"{name}_{number}"
        self.names.add(name)
        return name

    def _operator(self, index: int) -> Operator:
        table = self.subgraph.Operators(index)
        code = table.OpcodeIndex()
        if code >= len(self.kinds):
            raise FileError(f"operator {index} is of kind {code}: there are {len(self.kinds)}")
        operator = Operator(self.kinds[code], [], [], index=index)
        try:
            numbers = self.vectors.numbers(table, "Outputs", _LINKS_MOST)
            operator.outputs = [self._tensor(number) for number in numbers]
            if not operator.outputs:
                raise FileError("it has no outputs")
            kind = _schema.KINDS.get(operator.kind)
            if kind is None:
                raise OperatorError(
                    operator,
                    "this operator is not supported",
                    "replace it in the model; `gossamer codegen --operators` lists what can be exported",
                )
            operator.options = self._options(table, kind)
            operator.inputs = [
                None if number == -1 else self._tensor(number)
                for number in self.vectors.numbers(table, "Inputs", _LINKS_MOST)
            ]
        except FileError as damaged:
            raise OperatorError(operator, damaged.what, damaged.mend or _DAMAGED_MEND) from None
        return operator

    def _options(self, operator: Any, kind: _schema.Kind) -> Options:
        found = operator.BuiltinOptionsType()
        if not kind.table or (found == 0 and kind.optional):
            return kind.options()
        if found != _schema.table_code(kind) or (union := operator.BuiltinOptions()) is None:
            raise FileError(f"its options are number {found}, not {kind.table}")
        table = getattr(tflite, kind.table)()
        table.Init(union.Bytes, union.Pos)
        if kind.vector:
            return ReshapeOptions(tuple(self.vectors.numbers(table, kind.vector, _LINKS_MOST)))
        values: dict[str, Any] = {}
        for field in kind.fields:
            if field.dtype_of:
                continue  # the tensors say it
            value = _checked(getattr(table, field.schema)(), field)
            if field.ours:
                values[field.ours] = value if field.position is None else (*values.get(field.ours, ()), value)
        return kind.options(**values)


def _checked(value: Any, field: _schema.Field) -> Any:
    if field.values is not None and value not in field.values:
        raise FileError(f"its option {field.schema} has the unknown value {value}")
    if field.positive and value < 1:
        raise FileError(f"its option {field.schema} is {value}, below 1")
    if field.must_be is not None and value != field.must_be:
        raise FileError(f"its option {field.schema} is {value}, which is not supported")
    if isinstance(value, float) and not math.isfinite(value):
        raise FileError(f"its option {field.schema} is {value}")
    return value if field.values is None else field.values[value]


def _check_order(graph: Graph) -> None:
    """Let every tensor be written once, before it is read."""
    for tensor in graph.inputs:
        if tensor.data is not None or tensor.variable:
            raise FileError(f"the model's input {tensor.name} is a {'variable' if tensor.variable else 'constant'}")
    known = {id(tensor) for tensor in graph.inputs}

    def is_known(tensor: Tensor) -> bool:
        return id(tensor) in known or tensor.data is not None or tensor.variable

    for operator in graph.operators:
        _check(operator, operator.inputs, is_known, "is read before anything writes it")
        _check(operator, operator.outputs, lambda tensor: not is_known(tensor), "is written although it has a value")
        if len({id(tensor) for tensor in operator.outputs}) < len(operator.outputs):
            raise OperatorError(operator, "it writes the same tensor twice", _DAMAGED_MEND)
        known |= {id(tensor) for tensor in operator.outputs}
    for tensor in graph.outputs:
        if not is_known(tensor):
            raise FileError(f"nothing writes the model's output {tensor.name}")


def _check(operator: Operator, tensors: list[Any], holds: Callable[[Tensor], bool], otherwise: str) -> None:
    for tensor in tensors:
        if tensor is not None and not holds(tensor):
            raise OperatorError(operator, f"tensor {tensor.index} ({tensor.name}) {otherwise}", _DAMAGED_MEND)
