"""Compare the generated C, run on this machine, with TensorFlow Lite Micro, element by element."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen import host, oracle
from codegen.export import compile_file
from codegen.ir import DType, Graph, Operator, Tensor
from codegen.program import Program, Settings
from codegen.read import parse_model, read_model
from codegen.write import write

Array = NDArray[Any]
_SEED: Final = 20_240
_FLOAT_REACH: Final = 4.0  # standard deviations of random float inputs are a quarter of it


@dataclass(frozen=True)
class Outcome:
    """Hold what a comparison found, in words, and how many elements it compared."""

    equal: bool
    elements: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """Name the first tensor in which two runs part."""

    operator: Operator | None  # None: an output of the model
    tensor: Tensor
    sample: int
    ours: Array
    theirs: Array

    def __str__(self) -> str:
        different = self.ours != self.theirs
        first = tuple(int(i) for i in np.argwhere(different)[0])
        where = f"operator {self.operator.index} ({self.operator.kind})" if self.operator else "output"
        return (
            f"{where} {self.tensor.name} parts first: {different.sum():,} of {different.size:,} elements differ at "
            f"input {self.sample}; element {list(first)} is {self.ours[first]}, tflite-micro has {self.theirs[first]}"
        )


def check(model: Path, settings: Settings, *, samples: int = 100, layers: bool = False) -> Outcome:
    """Compile a .tflite file, run it on random inputs, and compare all outputs with tflite-micro's.

    The judge gets the file, or, where weights were requantized or the file leaves shapes open, the graph that was
    compiled, with weights of eight bits. `layers` compares every tensor, in order of computation.
    Raises ModelError, OracleError, BuildError.
    """
    program = compile_file(model, replace(settings, keep_all=layers, psram=settings.psram and not layers))
    is_own = settings.weight_bits != 8 or any(tensor.dynamic for tensor in read_model(model).tensors())
    data = write(with_byte_weights(program.graph)) if is_own else model.read_bytes()
    index_of = {tensor.name: tensor.index for tensor in parse_model(data, str(model)).tensors()} if layers else {}
    inputs = random_inputs(program.graph, samples)
    answer = oracle.run(data, inputs, layers=layers)
    (ours,) = host.build([program])
    elements, tensors = 0, 0
    for sample, given in enumerate(inputs):
        pairs = list(_pairs(program, ours, given, answer, sample, index_of))
        tensors = max(tensors, len(pairs))
        for operator, tensor, mine, theirs in pairs:
            elements += mine.size
            if not _equal(mine, theirs.reshape(mine.shape)):
                found = Difference(operator, tensor, sample, mine, theirs.reshape(mine.shape))
                return Outcome(False, elements, (f"{model}: {found}",))
    what = f"{tensors} tensor{'s' * (tensors != 1)}"
    return Outcome(True, elements, (f"equal to tflite-micro: {samples:,} inputs, {elements:,} elements of {what}",))


def _pairs(
    program: Program,
    ours: host.HostModel,
    given: list[Array],
    answer: oracle.Answer,
    sample: int,
    index_of: Mapping[str, int],
) -> Iterator[tuple[Operator | None, Tensor, Array, Array]]:
    outputs = ours.invoke(given)
    if index_of:
        theirs = answer.tensors[sample]
        for operator in program.graph.operators:
            for tensor in operator.outputs:
                mine = ours.tensor(tensor)
                index = index_of.get(tensor.name)
                if mine is not None and index in theirs:
                    yield operator, tensor, mine, theirs[index]
    for tensor, mine, judged in zip(program.graph.outputs, outputs, answer.outputs[sample], strict=True):
        yield None, tensor, mine, judged


def _equal(ours: Array, theirs: Array) -> bool:
    """Compare bits: a NaN equals itself, +0 and -0 differ."""
    return ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()


def random_inputs(graph: Graph, samples: int, seed: int = _SEED) -> list[list[Array]]:
    """Draw inputs for a graph; the first few are its extremes and its zeros."""
    draw = np.random.default_rng(seed)
    return [[_random_input(tensor, number, draw) for tensor in graph.inputs] for number in range(samples)]


def _random_input(tensor: Tensor, number: int, draw: np.random.Generator) -> Array:
    if tensor.dtype is DType.FLOAT32:
        return draw.normal(0, _FLOAT_REACH / 4, tensor.shape).astype(np.float32)
    if tensor.dtype is DType.BOOL:
        return draw.integers(0, 2, tensor.shape).astype(np.bool_)
    limits = np.iinfo(tensor.dtype.numpy)
    zero = tensor.zero_point if tensor.quantization is not None else 0
    if number < 3:
        return np.full(tensor.shape, (limits.min, limits.max, zero)[number], tensor.dtype.numpy)
    return draw.integers(limits.min, limits.max, tensor.shape, tensor.dtype.numpy, endpoint=True)


def with_byte_weights(graph: Graph) -> Graph:
    """Return the graph with every weight stored in eight bits, of the same value."""
    bytes_of: dict[int, Tensor] = {}

    def widened(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.bits == 8:
            return tensor
        return bytes_of.setdefault(id(tensor), replace(tensor, bits=8))

    operators = [
        replace(operator, inputs=[widened(tensor) for tensor in operator.inputs]) for operator in graph.operators
    ]
    return replace(graph, operators=operators)
