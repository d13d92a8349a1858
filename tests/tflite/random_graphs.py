"""Draw random int8 models: chains with branches, odd sizes and the situations that break other exporters.

The same seed and the same kinds of operators give the same model. Nothing here knows how a model is exported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from codegen.ir import Activation, DType, Graph, Operator, Options, Quantization, Tensor
from tests.tflite.single import of_operators, quantized

T = TypeVar("T")
SIZE_MOST = 1500  # elements of a tensor, so that hundreds of models are compared in seconds

NASTY = ["*/ int x; /*", "//", "\\", "??/", '"', "'", "%s%n", "#if 0", "{}", "größe;模型", "<b>&amp;", " ", "@" * 300]

Part = Callable[["Drawing", Tensor], Tensor | None]
"""Grow the model by an operator or a few that take this tensor; None where they cannot."""

PARTS: list[tuple[frozenset[str], Part]] = []


def part(*kinds: str, weight: int = 1) -> Callable[[Part], Part]:
    """Register a part that needs these kinds of operators, to be drawn `weight` times as often as others."""

    def register(function: Part) -> Part:
        PARTS.extend([(frozenset(kinds), function)] * weight)
        return function

    return register


class Drawing:
    """Hold a model that grows."""

    def __init__(self, seed: int, kinds: Collection[str]) -> None:
        from tests.tflite import random_moves, random_parts  # noqa: F401  (they register the parts)

        self.kinds = frozenset(kinds)
        self.random = np.random.default_rng(seed)
        self.operators: list[Operator] = []
        self.values: list[Tensor] = []

    # What is drawn

    def chance(self, percent: int) -> bool:
        return bool(self.random.integers(100) < percent)

    def integer(self, least: int, most: int) -> int:
        return int(self.random.integers(least, most, endpoint=True))

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.random.integers(len(choices)))]

    def pair(self, least: int, most: int) -> tuple[int, int]:
        return self.integer(least, most), self.integer(least, most)

    def clamp(self) -> Activation:
        """Draw an activation that a kernel fuses."""
        return self.pick([Activation.NONE] * 3 + [Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1])

    def scale(self, center: float = 0.05) -> float:
        """Draw a scale around one, now and then far from it; products of products stay within reason."""
        far, center = self.chance(10), min(max(center, 2.0**-16), 2.0**10)
        return center * 2.0 ** float(self.random.uniform(-6, 6) if far else self.random.uniform(-1.5, 1.5))

    def zero_point(self) -> int:
        return self.pick([-128, 127, 0, -1]) if self.chance(35) else self.integer(-128, 127)

    def weights(self, shape: Sequence[int], bits: int = 8) -> NDArray[np.int8]:
        most = 127 if bits == 8 else 7
        return self.random.integers(-most, most, tuple(shape), np.int8, endpoint=True)

    # What is made of it

    def name(self, what: str) -> str:
        """Name a tensor; now and then so that it would break the C it is mentioned in."""
        return f"{what}_{len(self.operators)}{self.pick(NASTY) if self.chance(5) else ''}"

    def constant(
        self, what: str, data: NDArray[Any], quantization: Quantization | None = None, bits: int = 8
    ) -> Tensor:
        return Tensor(self.name(what), data.shape, DType(data.dtype.name), quantization, data, bits=bits)

    def numbers(self, what: str, values: Any) -> Tensor:
        """Make an int32 constant."""
        return self.constant(what, np.asarray(values, np.int32))

    def fresh(self, shape: Sequence[int], center: float = 0.05) -> Tensor:
        """Make an activation with a quantization of its own."""
        return self.activation(shape, quantized(self.scale(center), self.zero_point()))

    def like(self, source: Tensor, shape: Sequence[int]) -> Tensor:
        """Make an activation with the quantization of another."""
        return self.activation(shape, source.quantization)

    def activation(self, shape: Sequence[int], quantization: Quantization | None, dtype: DType = DType.INT8) -> Tensor:
        return Tensor(self.name("y"), tuple(shape), dtype, quantization)

    def channel_scales(self, count: int, center: float = 0.01) -> NDArray[np.float32]:
        """Draw scales of weights: one for all, or one a channel, now and then one of them 50 times the others."""
        if self.chance(25):
            return np.array([self.scale(center)], np.float32)
        scales = center * 2.0 ** self.random.uniform(-2, 2, count)
        if self.chance(25):
            scales[self.integer(0, count - 1)] *= 50
        return scales.astype(np.float32)

    def bias(self, x: Tensor, scales: NDArray[np.float32], count: int) -> Tensor | None:
        if self.chance(20):
            return None
        most = self.pick([100, 10_000, 10_000, 1 << 22])
        values = self.random.integers(-most, most, count, np.int32)
        return self.constant("bias", values, quantized((x.scale * scales).tolist()))

    def add(self, kind: str, inputs: list[Tensor | None], outputs: Tensor | list[Tensor], options: Options) -> Tensor:
        """Append an operator; return its first output, which the model can grow from."""
        made = outputs if isinstance(outputs, list) else [outputs]
        self.operators.append(Operator(kind, inputs, made, options))
        self.values += [tensor for tensor in made if tensor.dtype is DType.INT8]
        return made[0]

    def partner(self, shape: Sequence[int]) -> Tensor | None:
        """Find an earlier activation of this shape, if there is one."""
        found = [value for value in self.values if value.shape == tuple(shape)]
        return self.pick(found) if found else None


def random_graph(seed: int, kinds: Collection[str]) -> Graph:
    """Draw a model of 1 to 12 parts made of these kinds of operators, with one input or two."""
    drawing = Drawing(seed, kinds)
    for _ in range(1 if drawing.chance(75) else 2):
        shape = _input_shape(drawing)
        tensor = drawing.activation(shape, quantized(drawing.scale(), drawing.zero_point()))
        tensor.name = f"x_{len(drawing.values)}"
        drawing.values.append(tensor)
    parts = [function for needed, function in PARTS if needed <= drawing.kinds]
    wanted = drawing.integer(1, 12)
    for _ in range(20 * wanted):
        if wanted == 0:
            break
        source = drawing.values[-1] if drawing.chance(75) else drawing.pick(drawing.values)
        wanted -= drawing.pick(parts)(drawing, source) is not None
    graph = of_operators(drawing.operators, _outputs(drawing), f"random_{seed}")
    # With an open batch tflite-micro cannot run SPACE_TO_BATCH_ND of a true export, so what it says is no measure.
    if drawing.chance(15) and not any(operator.kind == "SPACE_TO_BATCH_ND" for operator in graph.operators):
        _open_batch(graph)
    return graph


def _input_shape(drawing: Drawing) -> tuple[int, ...]:
    rank = drawing.pick([4, 4, 4, 4, 4, 2, 2, 3])
    if rank == 4:
        return 1, drawing.integer(1, 10), drawing.integer(1, 10), drawing.integer(1, 9)
    return 1, *(drawing.integer(1, 33) for _ in range(rank - 1))


def _outputs(drawing: Drawing) -> list[Tensor]:
    """Take what nothing reads, and now and then something that is read as well."""
    read = {id(tensor) for operator in drawing.operators for tensor in operator.inputs}
    made = [tensor for operator in drawing.operators for tensor in operator.outputs]
    return [tensor for tensor in made if id(tensor) not in read or drawing.chance(8)]


def _open_batch(graph: Graph) -> None:
    """Leave the batch open, as exports without a batch size do."""
    for tensor in graph.tensors():
        if tensor.data is None and tensor.shape[:1] == (1,):
            tensor.dynamic = True


def inputs_of(graph: Graph, seed: int) -> list[list[NDArray[np.int8]]]:
    """Draw sets of inputs: anything, all that is least, all that is greatest, and all far below zero."""
    random = np.random.default_rng(seed)
    ranges = [(-128, 127), (-128, 127), (-128, 127), (-128, -128), (127, 127), (-128, -100)]
    return [
        [random.integers(least, most, tensor.shape, np.int8, endpoint=True) for tensor in graph.inputs]
        for least, most in ranges
    ]


def size_of(shape: Sequence[int]) -> int:
    """Count elements."""
    return math.prod(shape)
