"""Lay out a model: shapes of values, places of parameters, words of the image (SPEC.md 3.1, 3.2, 3.8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gossamer.spec import fmath, rng
from gossamer.spec.constants import LAYER_WORDS, LAYERS_MAX, Init, LayerKind, Padding, Stream

F32 = NDArray[np.float32]
Pair = tuple[int, int]

WINDOWED = (LayerKind.CONV, LayerKind.POOL_MAX, LayerKind.POOL_AVERAGE)


class Shape(NamedTuple):
    """Size a value; its numbers stand in the order [height][width][channels]."""

    height: int
    width: int
    channels: int

    @property
    def numbers(self) -> int:
        """Count the numbers."""
        return self.height * self.width * self.channels

    def __str__(self) -> str:
        return " x ".join(map(str, self))


@dataclass(frozen=True)
class Layer:
    """Describe one layer; what its kind has no option for keeps the default."""

    kind: LayerKind
    relu: bool = False
    outputs: int = 0
    kernel: Pair = (0, 0)
    stride: Pair = (0, 0)
    padding: Padding = Padding.VALID
    groups: int = 0
    source: int = 0
    rate24: int = 0
    frozen: bool = False

    @classmethod
    def from_words(cls, words: Mapping[str, int]) -> Self:
        """Build from the words of `LAYER_WORDS`; raises ValueError for an unknown kind or padding."""
        return cls(
            kind=LayerKind(words["kind"]),
            relu=bool(words["relu"]),
            outputs=words["outputs"],
            kernel=(words["kernel_height"], words["kernel_width"]),
            stride=(words["stride_height"], words["stride_width"]),
            padding=Padding(words["padding"]),
            groups=words["groups"],
            source=words["source"],
            rate24=words["rate24"],
            frozen=bool(words["frozen"]),
        )

    def words(self) -> dict[str, int]:
        """Return the words of `LAYER_WORDS`, in order."""
        values = (self.kind, self.relu, self.outputs, *self.kernel, *self.stride, self.padding, self.groups)
        rest = (self.source, self.rate24, self.frozen)
        return {name: int(value) for name, value in zip(LAYER_WORDS, (*values, *rest), strict=True)}

    def before(self, size: Shape) -> Pair:
        """Return the positions of padding above and to the left."""
        out = self.output(size)
        return self._before(0, size.height, out.height), self._before(1, size.width, out.width)

    def _before(self, axis: int, size: int, outputs: int) -> int:
        needed = (outputs - 1) * self.stride[axis] + self.kernel[axis] - size
        return max(0, needed) // 2 if self.padding is Padding.SAME else 0

    def output(self, size: Shape) -> Shape:
        """Return the shape of the output for an input of a fitting shape."""
        match self.kind:
            case LayerKind.DENSE:
                return Shape(1, 1, self.outputs)
            case LayerKind.FLATTEN:
                return Shape(1, 1, size.numbers)
            case LayerKind.CONV | LayerKind.POOL_MAX | LayerKind.POOL_AVERAGE:
                height, width = (
                    -(-n // s) if self.padding is Padding.SAME else (n - k) // s + 1
                    for n, k, s in zip(size[:2], self.kernel, self.stride, strict=True)
                )
                return Shape(height, width, self.outputs if self.kind is LayerKind.CONV else size.channels)
            case _:
                return size


@dataclass(frozen=True)
class Block:
    """Place a layer's parameters in the vector of all of them: W[outputs][taps][inputs] from `at`, then b[outputs]."""

    layer: int
    frozen: bool
    at: int
    outputs: int
    kernel: Pair
    inputs: int  # channels that one output reads
    groups: int

    @property
    def taps(self) -> int:
        """Count the positions of the kernel."""
        return self.kernel[0] * self.kernel[1]

    @property
    def weights(self) -> int:
        """Count the numbers of W."""
        return self.outputs * self.taps * self.inputs

    @property
    def size(self) -> int:
        """Count the parameters."""
        return self.weights + self.outputs


@dataclass(frozen=True)
class Model:
    """Hold a model whose layers fit each other (see `faults`)."""

    input: Shape
    layers: tuple[Layer, ...]

    @classmethod
    def dense(cls, dims: tuple[int, ...]) -> Self:
        """Return a multi-layer perceptron of these widths, input first."""
        last = len(dims) - 2
        layers = (Layer(LayerKind.DENSE, relu=at < last, outputs=width) for at, width in enumerate(dims[1:]))
        return cls(Shape(1, 1, dims[0]), tuple(layers))

    @classmethod
    def from_words(cls, words: Mapping[str, int | float]) -> Self:
        """Build from the words of an image; raises ValueError for what no layer can be."""
        count = int(words["layers"])
        if not 1 <= count <= LAYERS_MAX:
            raise ValueError(f"{count} layers")
        layers = (
            Layer.from_words({name: int(words[f"layer{at}_{name}"]) for name in LAYER_WORDS}) for at in range(count)
        )
        return cls(Shape(*(int(words[f"input_{name}"]) for name in ("height", "width", "channels"))), tuple(layers))

    def words(self) -> dict[str, int]:
        """Return the words of an image that describe the model."""
        found = {f"input_{name}": size for name, size in zip(("height", "width", "channels"), self.input, strict=True)}
        found["layers"] = len(self.layers)
        for at in range(LAYERS_MAX):
            values = self.layers[at].words() if at < len(self.layers) else dict.fromkeys(LAYER_WORDS, 0)
            found |= {f"layer{at}_{name}": value for name, value in values.items()}
        return found

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """List the shape of the input and of each layer's output, L + 1 in all."""
        found = [self.input]
        for layer in self.layers:
            found.append(layer.output(found[-1]))
        return tuple(found)

    @cached_property
    def dropout_sizes(self) -> dict[int, int]:
        """Return layer -> numbers of its output, of the DROPOUT layers."""
        kinds = enumerate(layer.kind for layer in self.layers)
        return {number: self.shapes[number].numbers for number, kind in kinds if kind is LayerKind.DROPOUT}

    @cached_property
    def classes(self) -> int:
        """Count the logits."""
        return self.shapes[-1].numbers

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """List the parameters of all layers that have any."""
        found: list[Block] = []
        at = 0
        for number, (layer, size) in enumerate(zip(self.layers, self.shapes, strict=False)):
            match layer.kind:
                case LayerKind.DENSE:
                    block = Block(number, layer.frozen, at, layer.outputs, (1, 1), size.numbers, 1)
                case LayerKind.CONV:
                    inputs = size.channels // layer.groups
                    block = Block(number, layer.frozen, at, layer.outputs, layer.kernel, inputs, layer.groups)
                case LayerKind.NORM:
                    block = Block(number, layer.frozen, at, size.channels, (1, 1), 1, size.channels)
                case _:
                    continue
            found.append(block)
            at += block.size
        return tuple(found)

    @cached_property
    def trainable(self) -> tuple[Block, ...]:
        """List the blocks that are not frozen, placed in the vector of the parameters (SPEC.md 3.8)."""
        return tuple(_packed(block for block in self.blocks if not block.frozen))

    @cached_property
    def frozen(self) -> tuple[Block, ...]:
        """List the frozen blocks, placed one behind the other."""
        return tuple(_packed(block for block in self.blocks if block.frozen))

    @cached_property
    def parameters(self) -> int:
        """Count the parameters that are not frozen: P."""
        return sum(block.size for block in self.trainable)

    @cached_property
    def tensors(self) -> tuple[tuple[str, slice], ...]:
        """List (name, place in the vector of the parameters) of each W and b; layers are named from 1."""
        found = []
        for block in self.trainable:
            edge, end = block.at + block.weights, block.at + block.size
            found.append((f"layer {block.layer + 1} weights", slice(block.at, edge)))
            found.append((f"layer {block.layer + 1} bias", slice(edge, end)))
        return tuple(found)

    def initial(self, seed: int, init: Init) -> F32:
        """Draw the common initial values of all parameters, frozen or not (SPEC.md 3.2); `init` is not GIVEN."""
        values = np.zeros(sum(block.size for block in self.blocks), np.float32)
        for block in self.blocks:
            place = slice(block.at, block.at + block.weights)
            if self.layers[block.layer].kind is LayerKind.NORM:
                values[place] = 1
                continue
            fan_in = block.taps * block.inputs
            fan_out = block.taps * (block.outputs // block.groups)
            fan = fan_in + fan_out if init is Init.GLOROT else fan_in
            limit = fmath.sqrt(np.float32(6) / np.float32(fan))
            draws = rng.draws(seed, Stream.INIT, 0, 0, np.arange(place.start, place.stop))
            values[place] = (rng.unit(draws) * np.float32(2) - np.float32(1)) * limit
        return values

    def part(self, values: F32, frozen: bool) -> F32:
        """Return the values of the frozen layers, or of the others, from those of all parameters."""
        pieces = [values[block.at : block.at + block.size] for block in self.blocks if block.frozen is frozen]
        return np.concatenate([np.zeros(0, np.float32), *pieces])

    def start(self, seed: int, init: Init, given: F32) -> tuple[F32, F32]:
        """Return the common initial parameters [P] and the frozen ones [Q]; `given` is what the image holds."""
        if init is Init.GIVEN:
            return self.part(given, False), self.part(given, True)
        return self.part(self.initial(seed, init), False), given

    def given(self, init: Init) -> int:
        """Count the parameters that an image holds (SPEC.md 11)."""
        return sum(block.size for block in self.blocks if block.frozen or init is Init.GIVEN)


def _packed(blocks: Iterator[Block]) -> Iterator[Block]:
    at = 0
    for block in blocks:
        yield Block(block.layer, block.frozen, at, block.outputs, block.kernel, block.inputs, block.groups)
        at += block.size
