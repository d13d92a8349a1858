"""Draw convolutions and dense layers of every kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.ir import Activation, ConvOptions, DenseOptions, Graph, Padding, Tensor
from tests.tflite.agree import drawn_scale, drawn_zero_point
from tests.tflite.single import int8, int32, one_operator

Pair = tuple[int, int]
CLAMPS = (Activation.NONE, Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1)


class Drawn:
    """Draw layers one after the other; what is given to a method is not drawn."""

    def __init__(self, *seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def pair(self, least: int, most: int) -> Pair:
        row, column = self.random.integers(least, most, 2, endpoint=True).tolist()
        return row, column

    def number(self, least: int, most: int) -> int:
        return int(self.random.integers(least, most, endpoint=True))

    def activation(self) -> Activation:
        return CLAMPS[self.number(0, len(CLAMPS) - 1)]

    def image(self, name: str, shape: tuple[int, ...], scale: float | None = None) -> Tensor:
        return int8(name, shape, scale or drawn_scale(self.random, 0.01, 0.2), drawn_zero_point(self.random))

    def weights(self, shape: tuple[int, ...], axis: int, bits: int = 8, per_channel: bool | None = None) -> Tensor:
        """Draw weights that use all of their bits, one channel's scale perhaps far from the others."""
        limit = 1 << (bits - 1)
        values: NDArray[Any] = self.random.integers(1 - limit, limit, shape)
        if bits == 1:
            values = self.random.choice([-1, 1], shape)
        if per_channel is None:
            per_channel = self.chance(0.7)
        scales = [drawn_scale(self.random, 0.002, 0.02) for _ in range(shape[axis] if per_channel else 1)]
        if self.chance(0.3):
            scales[0] *= 50
        return int8("w", shape, scales, 0, values, axis, bits)

    def bias(self, weights: Tensor, source: Tensor, channels: int) -> list[Tensor | None]:
        """Draw the last input of an operator, or none."""
        if self.chance(0.2):
            return []
        assert weights.quantization is not None
        scales = [float(np.float32(source.scale) * scale) for scale in weights.quantization.scales]
        return [int32("b", self.random.integers(-3000, 3000, channels), scales)]

    def output(self, shape: tuple[int, ...], terms: int) -> Tensor:
        """Draw an output that few sums leave."""
        reach = 0.1 * 0.01 * 128 * 64 * math.sqrt(terms) / 128
        return self.image("y", shape, drawn_scale(self.random, reach / 3, reach * 3))

    def dense(self, bits: int = 8, per_channel: bool | None = None, terms: int = 0, units: int = 0) -> Graph:
        rows, terms, units = self.number(1, 5), terms or self.number(1, 200), units or self.number(1, 40)
        x, w = self.image("x", (rows, terms)), self.weights((units, terms), 0, bits, per_channel)
        bias = self.bias(w, x, units) or [None]
        options = DenseOptions(self.activation())
        return one_operator("FULLY_CONNECTED", [x, w, *bias], self.output((rows, units), terms), options)

    def window(self, size: Pair, taps: Pair, dilation: Pair, padding: Padding | None) -> Padding:
        """Draw the padding; VALID only where a window fits."""
        if any((k - 1) * d + 1 > n for n, k, d in zip(size, taps, dilation, strict=True)):
            return Padding.SAME
        return padding or (Padding.SAME if self.chance(0.5) else Padding.VALID)

    def conv(
        self,
        bits: int = 8,
        *,
        size: Pair | None = None,
        taps: Pair | None = None,
        stride: Pair | None = None,
        dilation: Pair = (1, 1),
        padding: Padding | None = None,
        groups: int = 1,
        channels: int = 0,
        outputs: int = 0,
        per_channel: bool | None = None,
    ) -> Graph:
        """Draw CONV_2D; channels and outputs are those of a group."""
        size, taps, stride = size or self.pair(1, 9), taps or self.pair(1, 4), stride or self.pair(1, 3)
        channels, outputs = channels or self.number(1, 24), outputs or self.number(1, 20)
        padding = self.window(size, taps, dilation, padding)
        x = self.image("x", (self.number(1, 2), *size, channels * groups))
        w = self.weights((outputs * groups, *taps, channels), 0, bits, per_channel)
        shape = (x.shape[0], *windows(size, taps, stride, dilation, padding), outputs * groups)
        y = self.output(shape, math.prod(taps) * channels)
        options = ConvOptions(padding, stride, dilation, 1, self.activation())
        return one_operator("CONV_2D", [x, w, *self.bias(w, x, outputs * groups)], y, options)

    def depthwise(self, multiplier: int = 1, *, dilation: Pair = (1, 1), channels: int = 0, low: bool = False) -> Graph:
        """Draw DEPTHWISE_CONV_2D; `low` puts -128 among the weights."""
        size, taps, stride = self.pair(1, 9), self.pair(1, 4), self.pair(1, 3)
        channels = channels or self.number(1, 80)
        padding = self.window(size, taps, dilation, None)
        x = self.image("x", (self.number(1, 2), *size, channels))
        w = self.weights((1, *taps, channels * multiplier), 3)
        assert w.data is not None
        if low:
            w.data[0, 0, 0, :] = -128
        shape = (x.shape[0], *windows(size, taps, stride, dilation, padding), channels * multiplier)
        options = ConvOptions(padding, stride, dilation, multiplier, self.activation())
        inputs = [x, w, *self.bias(w, x, channels * multiplier)]
        return one_operator("DEPTHWISE_CONV_2D", inputs, self.output(shape, math.prod(taps)), options)

    def transpose(self, bits: int = 8, *, taps: Pair | None = None, stride: Pair | None = None) -> Graph:
        size, taps, stride = self.pair(1, 6), taps or self.pair(1, 5), stride or self.pair(1, 3)
        channels, outputs = self.number(1, 20), self.number(1, 20)
        padding = Padding.SAME if self.chance(0.5) else Padding.VALID
        x = self.image("x", (self.number(1, 2), *size, channels))
        w = self.weights((outputs, *taps, channels), 0, bits)
        same = padding is Padding.SAME
        sides = [n * s if same else (n - 1) * s + k for n, k, s in zip(size, taps, stride, strict=True)]
        shape = (x.shape[0], *sides, outputs)
        options = ConvOptions(padding, stride, (1, 1), 1, self.activation())
        inputs = [int32("shape", shape), w, x, *self.bias(w, x, outputs)]
        return one_operator("TRANSPOSE_CONV", inputs, self.output(shape, channels), options)


def windows(size: Pair, taps: Pair, stride: Pair, dilation: Pair, padding: Padding) -> list[int]:
    """Count windows along rows and columns, one by one."""
    counts = []
    for n, k, s, d in zip(size, taps, stride, dilation, strict=True):
        reach = (k - 1) * d + 1
        starts = range(0, n, s) if padding is Padding.SAME else range(0, n - reach + 1, s)
        counts.append(len(starts))
    return counts
