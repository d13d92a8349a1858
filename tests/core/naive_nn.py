"""SPEC.md 3 read word by word, one binary32 number at a time: any model, one node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from gossamer.spec.constants import LAYER_WORDS, LAYERS_MAX, NORM_EPSILON, LayerKind, Padding, Unit
from tests.core.naive import F, add, exp, log

Value = list[np.float32]  # in flat order
Shape = tuple[int, int, int]
Draw = Callable[[int], int]  # number of a draw of stream DROPOUT -> its 32 bits
ZERO, ONE = F(0), F(1)


@dataclass(frozen=True)
class Layer:
    """The words of a layer (3.1)."""

    kind: LayerKind
    relu: bool = False
    outputs: int = 0
    kernel: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (0, 0)
    padding: Padding = Padding.VALID
    groups: int = 0
    source: int = 0
    rate24: int = 0
    frozen: bool = False

    def words(self) -> dict[str, int]:
        numbers = self.kind, self.relu, self.outputs, *self.kernel, *self.stride, self.padding, self.groups
        return dict(zip(LAYER_WORDS, map(int, (*numbers, self.source, self.rate24, self.frozen)), strict=True))


def dense(outputs: int, relu: bool = True, frozen: bool = False) -> Layer:
    return Layer(LayerKind.DENSE, relu, outputs, frozen=frozen)


def perceptron(*dims: int) -> list[Layer]:
    """Return the layers of a multi-layer perceptron; dims[0] is the input."""
    return [dense(width, relu=i < len(dims) - 2) for i, width in enumerate(dims[1:])]


def model_words(shape: Shape, layers: Sequence[Layer]) -> dict[str, int]:
    """Return the words of the image that tell of the model."""
    words = dict(zip(("input_height", "input_width", "input_channels", "layers"), (*shape, len(layers)), strict=True))
    nothing = dict.fromkeys(LAYER_WORDS, 0)
    for i in range(LAYERS_MAX):
        own = layers[i].words() if i < len(layers) else nothing
        words |= {f"layer{i}_{name}": value for name, value in own.items()}
    return words


@dataclass(frozen=True)
class Axis:
    """Where windows stand (3.1)."""

    n: int
    kernel: int
    stride: int
    padding: Padding

    @property
    def out(self) -> int:
        if self.padding == Padding.VALID:
            return (self.n - self.kernel) // self.stride + 1
        return (self.n + self.stride - 1) // self.stride

    @property
    def before(self) -> int:
        if self.padding == Padding.VALID:
            return 0
        return max(0, (self.out - 1) * self.stride + self.kernel - self.n) // 2

    def reads(self, position: int) -> Iterator[tuple[int, int]]:
        """Give (tap, input position) of those that are not skipped."""
        for tap in range(self.kernel):
            if 0 <= position * self.stride + tap - self.before < self.n:
                yield tap, position * self.stride + tap - self.before


class Part:
    """One layer in its place: shapes, and rules of 3.4 and 3.6."""

    def __init__(self, layer: Layer, shape: Shape) -> None:
        self.layer, self.shape = layer, shape
        height, width, channels = shape
        self.out: Shape = shape
        self.weights = self.biases = 0
        kind = layer.kind
        if kind in (LayerKind.CONV, LayerKind.POOL_MAX, LayerKind.POOL_AVERAGE):
            self.y = Axis(height, layer.kernel[0], layer.stride[0], layer.padding)
            self.x = Axis(width, layer.kernel[1], layer.stride[1], layer.padding)
            self.out = (self.y.out, self.x.out, layer.outputs or channels)
        if kind == LayerKind.DENSE:
            self.out, self.weights = (1, 1, layer.outputs), height * width * channels * layer.outputs
        if kind == LayerKind.CONV:
            self.inputs = channels // layer.groups
            self.weights = layer.outputs * layer.kernel[0] * layer.kernel[1] * self.inputs
        if kind == LayerKind.NORM:
            self.weights = channels
        if kind == LayerKind.FLATTEN:
            self.out = (1, 1, height * width * channels)
        if self.weights:
            self.biases = self.out[2]

    @property
    def numbers(self) -> int:
        return self.out[0] * self.out[1] * self.out[2]

    def fans(self) -> tuple[int, int]:
        """Return fan_in and fan_out (3.2)."""
        if self.layer.kind == LayerKind.DENSE:
            return self.weights // self.biases, self.biases
        taps = self.layer.kernel[0] * self.layer.kernel[1]
        return self.weights // self.biases, taps * (self.biases // self.layer.groups)

    def _in(self, y: int, x: int, c: int) -> int:
        return (y * self.shape[1] + x) * self.shape[2] + c

    def _weight(self, o: int, k_y: int, k_x: int, i: int) -> int:
        return ((o * self.layer.kernel[0] + k_y) * self.layer.kernel[1] + k_x) * self.inputs + i

    def _taps(self, y: int, x: int) -> list[tuple[int, int, int, int]]:
        """Return (k_y, k_x, input y, input x) of a window, in order."""
        return [(k_y, k_x, v, u) for k_y, v in self.y.reads(y) for k_x, u in self.x.reads(x)]

    def _channel_in(self, o: int, i: int) -> int:
        return o // (self.biases // self.layer.groups) * self.inputs + i

    def _positions(self) -> list[tuple[int, int]]:
        return [(y, x) for y in range(self.out[0]) for x in range(self.out[1])]

    def forward(self, w: Value, b: Value, x: Value, other: Value, drop: Callable[[int], bool] | None) -> Value:
        """Return z (3.4)."""
        kind, channels = self.layer.kind, self.out[2]
        if kind == LayerKind.DENSE:
            return [add(b[o], (w[o * len(x) + i] * x[i] for i in range(len(x)))) for o in range(channels)]
        if kind == LayerKind.CONV:
            return [
                add(
                    b[o],
                    (
                        w[self._weight(o, k_y, k_x, i)] * x[self._in(v, u, self._channel_in(o, i))]
                        for k_y, k_x, v, u in self._taps(y, p)
                        for i in range(self.inputs)
                    ),
                )
                for y, p in self._positions()
                for o in range(channels)
            ]
        if kind == LayerKind.POOL_MAX:
            return [x[self._greatest(x, y, p, c)[2]] for y, p in self._positions() for c in range(channels)]
        if kind == LayerKind.POOL_AVERAGE:
            z = []
            for y, p in self._positions():
                taps = self._taps(y, p)
                z += [add(ZERO, (x[self._in(v, u, c)] for *_, v, u in taps)) / F(len(taps)) for c in range(channels)]
            return z
        if kind == LayerKind.NORM:
            h, _ = self._normalised(x)
            return [w[j % channels] * h[j] + b[j % channels] for j in range(len(x))]
        if kind == LayerKind.ADD:
            return [p + q for p, q in zip(x, other, strict=True)]
        if kind == LayerKind.DROPOUT and drop:
            scale = self._scale()
            return [ZERO if drop(e) else v * scale for e, v in enumerate(x)]
        return list(x)

    def _scale(self) -> np.float32:
        keep = ONE - F(self.layer.rate24) * F(2.0**-24)
        return ONE / keep

    def _greatest(self, x: Value, y: int, p: int, c: int) -> tuple[int, int, int]:
        """Return (input y, input x, place) of a window's maximum."""
        best = None
        for _, _, v, u in self._taps(y, p):
            place = self._in(v, u, c)
            if best is None or x[place] > x[best[2]]:
                best = (v, u, place)
        assert best is not None
        return best

    def _group_sum(self, t: Value, c: int) -> np.float32:
        """Return the sum over the group of channel c."""
        channels = self.shape[2]
        size = channels // self.layer.groups
        first = c // size * size
        return add(ZERO, (add(ZERO, t[j::channels]) for j in range(first, first + size)))

    def _n(self) -> np.float32:
        return F(self.shape[0] * self.shape[1] * self.shape[2] // self.layer.groups)

    def _normalised(self, x: Value) -> tuple[Value, Value]:
        """Return h, and r of each channel."""
        channels, n = self.shape[2], self._n()
        mean = [self._group_sum(x, c) / n for c in range(channels)]
        d = [v - mean[j % channels] for j, v in enumerate(x)]
        squares = [v * v for v in d]
        epsilon = F(float.fromhex(NORM_EPSILON))
        r = [ONE / np.sqrt(self._group_sum(squares, c) / n + epsilon) for c in range(channels)]
        return [v * r[j % channels] for j, v in enumerate(d)], r

    def backward(
        self, w: Value, x: Value, dz: Value, gw: Value, gb: Value, drop: Callable[[int], bool] | None
    ) -> Value:
        """Add a sample's terms to gw and gb; return dx (3.6)."""
        kind, channels = self.layer.kind, self.out[2]
        dx = [ZERO] * len(x)
        if kind == LayerKind.DENSE:
            for o in range(channels):
                gb[o] = gb[o] + dz[o]
                for i in range(len(x)):
                    gw[o * len(x) + i] = gw[o * len(x) + i] + dz[o] * x[i]
                    dx[i] = dx[i] + dz[o] * w[o * len(x) + i]
        elif kind == LayerKind.CONV:
            for at, (y, p) in enumerate(self._positions()):
                for o in range(channels):
                    d = dz[at * channels + o]
                    gb[o] = gb[o] + d
                    for k_y, k_x, v, u in self._taps(y, p):
                        for i in range(self.inputs):
                            place, weight = self._in(v, u, self._channel_in(o, i)), self._weight(o, k_y, k_x, i)
                            gw[weight] = gw[weight] + d * x[place]
                            dx[place] = dx[place] + d * w[weight]
        elif kind in (LayerKind.POOL_MAX, LayerKind.POOL_AVERAGE):
            for at, (y, p) in enumerate(self._positions()):
                taps = self._taps(y, p)
                for c in range(channels):
                    d = dz[at * channels + c]
                    if kind == LayerKind.POOL_MAX:
                        place = self._greatest(x, y, p, c)[2]
                        dx[place] = dx[place] + d
                    else:
                        for *_, v, u in taps:
                            dx[self._in(v, u, c)] = dx[self._in(v, u, c)] + d / F(len(taps))
        elif kind == LayerKind.NORM:
            h, r = self._normalised(x)
            for j, d in enumerate(dz):
                gw[j % channels] = gw[j % channels] + d * h[j]
                gb[j % channels] = gb[j % channels] + d
            q = [d * w[j % channels] for j, d in enumerate(dz)]
            qh = [a * b for a, b in zip(q, h, strict=True)]
            s1 = [self._group_sum(q, c) / self._n() for c in range(channels)]
            s2 = [self._group_sum(qh, c) / self._n() for c in range(channels)]
            for j in range(len(dz)):
                c = j % channels
                dx[j] = ((q[j] - s1[c]) - h[j] * s2[c]) * r[c]
        elif kind == LayerKind.DROPOUT and drop:
            scale = self._scale()
            dx = [ZERO if drop(e) else d * scale for e, d in enumerate(dz)]
        else:
            dx = list(dz)
        return dx


@dataclass
class Net:
    """A model with its parameters: `w` learned, `frozen` not; both in the order of 3.1."""

    shape: Shape
    layers: Sequence[Layer]
    w: Value
    frozen: Value = field(default_factory=list)

    @staticmethod
    def parts_of(shape: Shape, layers: Sequence[Layer]) -> list[Part]:
        """Return the layers, each in its place."""
        parts: list[Part] = []
        for layer in layers:
            parts.append(Part(layer, parts[-1].out if parts else shape))
        return parts

    def __post_init__(self) -> None:
        self.parts = self.parts_of(self.shape, self.layers)
        self.state = [[ZERO] * len(self.w), [ZERO] * len(self.w)]  # v; m, v
        self.powers = [ONE, ONE]
        assert len(self.w) == self.count(False) and len(self.frozen) == self.count(True)

    def count(self, frozen: bool) -> int:
        return sum(part.weights + part.biases for part in self.parts if part.layer.frozen == frozen)

    @property
    def dropped(self) -> int:
        return sum(part.numbers for part in self.parts if part.layer.kind == LayerKind.DROPOUT)

    def _own(self, number: int) -> tuple[Value, Value, int]:
        """Return W, b and the place of W among those alike."""
        part = self.parts[number]
        whole = self.frozen if part.layer.frozen else self.w
        at = sum(p.weights + p.biases for p in self.parts[:number] if p.layer.frozen == part.layer.frozen)
        middle = at + part.weights
        return whole[at:middle], whole[middle : middle + part.biases], at

    def _drop(self, number: int, draw: Draw | None, first: int) -> Callable[[int], bool] | None:
        if draw is None:
            return None
        before = sum(part.numbers for part in self.parts[:number] if part.layer.kind == LayerKind.DROPOUT)
        return lambda e: draw(first + before + e) >> 8 < self.layers[number].rate24

    def forward(self, x: Value, draw: Draw | None = None, first: int = 0) -> list[Value]:
        """Return the input and every layer's output; with `draw`, as in training."""
        values = [list(x)]
        for number, part in enumerate(self.parts):
            w, b, _ = self._own(number)
            other = values[part.layer.source + 1] if part.layer.kind == LayerKind.ADD else []
            z = part.forward(w, b, values[-1], other, self._drop(number, draw, first))
            values.append([v if v > 0 else ZERO for v in z] if part.layer.relu else z)
        return values

    @staticmethod
    def loss(z: Value, label: int) -> tuple[np.float32, Value, int]:
        """Return loss, probabilities and predicted class of a sample (3.5, 3.6)."""
        best = 0
        for i in range(1, len(z)):
            if z[i] > z[best]:
                best = i
        e = [exp(v - z[best]) for v in z]
        s = add(ZERO, e)
        return log(s) - (z[label] - z[best]), [v / s for v in e], best

    def gradient(
        self, x: Sequence[Value], labels: Sequence[int], draw: Draw | None = None, step: int = 0
    ) -> tuple[np.float32, Value]:
        """Return loss and gradient of a batch (3.6)."""
        inv, losses = ONE / F(len(x)), []
        g = [ZERO] * len(self.w)
        for b, (sample, label) in enumerate(zip(x, labels, strict=True)):
            first = (step * len(x) + b) * self.dropped
            values = self.forward(sample, draw, first)
            loss, probabilities, _ = self.loss(values[-1], label)
            losses.append(loss)
            arrived: dict[int, Value] = {}  # layer -> what is known of the gradient by its output
            arrived[len(self.parts) - 1] = [(p - ONE if i == label else p) * inv for i, p in enumerate(probabilities)]
            for number in reversed(range(len(self.parts))):
                part = self.parts[number]
                d = arrived.pop(number)
                dz = (
                    [v if y > 0 else ZERO for v, y in zip(d, values[number + 1], strict=True)] if part.layer.relu else d
                )
                w, biases, at = self._own(number)
                if part.layer.frozen or not part.weights:
                    gw, gb = [ZERO] * len(w), [ZERO] * len(biases)
                else:
                    gw, gb = g[at : at + len(w)], g[at + len(w) : at + len(w) + len(biases)]
                dx = part.backward(w, values[number], dz, gw, gb, self._drop(number, draw, first))
                if part.weights and not part.layer.frozen:
                    g[at : at + len(w) + len(biases)] = gw + gb
                for reader, term in (
                    (number - 1, dx),
                    *([(part.layer.source, dz)] * (part.layer.kind == LayerKind.ADD)),
                ):
                    if reader in arrived:
                        arrived[reader] = [a + t for a, t in zip(arrived[reader], term, strict=True)]
                    else:
                        arrived[reader] = term
        return add(ZERO, losses) / F(len(x)), g

    def sgd(self, g: Value, lr: np.float32, momentum: np.float32, decay: np.float32) -> None:
        """Section 3.7, SGD."""
        for p, step in enumerate(g):
            if decay != 0:
                step = step + decay * self.w[p]
            if momentum != 0:
                step = self.state[0][p] = momentum * self.state[0][p] + step
            self.w[p] = self.w[p] - lr * step

    def adam(
        self, g: Value, lr: np.float32, betas: tuple[np.float32, np.float32], epsilon: np.float32, decay: np.float32
    ) -> None:
        """Section 3.7, ADAM."""
        self.powers = [power * beta for power, beta in zip(self.powers, betas, strict=True)]
        a, c = lr / (ONE - self.powers[0]), ONE / (ONE - self.powers[1])
        rest1, rest2 = ONE - betas[0], ONE - betas[1]
        m, v = self.state
        for p, step in enumerate(g):
            if decay != 0:
                step = step + decay * self.w[p]
            m[p] = betas[0] * m[p] + rest1 * step
            v[p] = betas[1] * v[p] + rest2 * (step * step)
            self.w[p] = self.w[p] - (a * m[p]) / (np.sqrt(v[p] * c) + epsilon)


def _layer_units(part: Part, kind: Unit, at: int) -> list[list[int]]:
    """List the units of one layer, whose W starts at `at`."""
    bias, layer = at + part.weights, part.layer
    filter_ = part.weights // part.biases
    biases = list(range(bias, bias + part.biases))
    match kind:
        case Unit.PARAMETER:
            return [[p] for p in range(at, bias + part.biases)]
        case Unit.KERNEL:
            return [[*range(at + o * filter_, at + (o + 1) * filter_), bias + o] for o in range(part.biases)]
        case Unit.LAYER:
            return [list(range(at, bias + part.biases))]
    if layer.kind == LayerKind.NORM:
        return [*([at + c] for c in range(part.weights)), biases]
    if layer.kind == LayerKind.DENSE:
        return [*([at + o * filter_ + i for o in range(part.biases)] for i in range(filter_)), biases]
    taps, of_group = layer.kernel[0] * layer.kernel[1], part.biases // layer.groups
    found = []
    for g in range(layer.groups):
        for i in range(part.inputs):
            outputs = range(g * of_group, (g + 1) * of_group)
            found.append([at + (o * taps + k) * part.inputs + i for o in outputs for k in range(taps)])
    return [*found, biases]


def units(shape: Shape, layers: Sequence[Layer], kind: Unit) -> list[list[int]]:
    """List each unit's parameters (6.2)."""
    found, at = [], 0
    for part in Net.parts_of(shape, layers):
        if part.weights and not part.layer.frozen:
            found += _layer_units(part, kind, at)
            at += part.weights + part.biases
    return found
