"""SPEC.md 3 read word by word, for one node and one binary32 number at a time: slow, and nothing like gossamer.spec.nn.

Layers are the words of SPEC.md 3.1; every sum is a loop over its indices in the order of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from gossamer.spec import rng
from tests.core.naive import add, exp, log

F = np.float32
F32 = NDArray[np.float32]
Words = Mapping[str, int]
Place = tuple[int, int, int]
DENSE, CONV, NORM, POOL_MAX, POOL_AVERAGE, ADD, FLATTEN, DROPOUT = range(8)
SAME = 1
EPSILON = F(1e-5)


def places(shape: Sequence[int]) -> Iterator[Place]:
    """Give (y, x, c) in flat order."""
    yield from product(*map(range, shape))  # type: ignore[misc]


def axis(n: int, k: int, s: int, padding: int) -> tuple[int, int]:
    """Return outputs and `before` of a window (3.1)."""
    if padding != SAME:
        return (n - k) // s + 1, 0
    out = (n + s - 1) // s
    return out, max(0, (out - 1) * s + k - n) // 2


@dataclass
class Naive:
    """Hold a model; `values` are all parameters in flat order, frozen ones too."""

    size: Place
    layers: Sequence[Words]
    values: F32
    shapes: list[Place] = field(init=False)
    weights: dict[int, tuple[int, int]] = field(init=False)  # layer -> numbers of W, numbers of b
    at: dict[int, int] = field(init=False)  # layer -> where W starts

    def __post_init__(self) -> None:
        self.shapes, self.weights, self.at = [self.size], {}, {}
        end = 0
        for number, layer in enumerate(self.layers):
            h, w, c = self.shapes[-1]
            kind = layer["kind"]
            if kind == DENSE:
                self.weights[number] = (layer["outputs"] * h * w * c, layer["outputs"])
                shape = (1, 1, layer["outputs"])
            elif kind in (CONV, POOL_MAX, POOL_AVERAGE):
                out_h, _ = axis(h, layer["kernel_height"], layer["stride_height"], layer["padding"])
                out_w, _ = axis(w, layer["kernel_width"], layer["stride_width"], layer["padding"])
                shape = (out_h, out_w, layer["outputs"] if kind == CONV else c)
                if kind == CONV:
                    taps = layer["kernel_height"] * layer["kernel_width"] * (c // layer["groups"])
                    self.weights[number] = (layer["outputs"] * taps, layer["outputs"])
            elif kind == FLATTEN:
                shape = (1, 1, h * w * c)
            else:
                shape = (h, w, c)
                if kind == NORM:
                    self.weights[number] = (c, c)
            if number in self.weights:
                self.at[number] = end
                end += sum(self.weights[number])
            self.shapes.append(shape)
        self.parameters = end

    # --- initialisation (3.2) ------------------------------------------------------------------------------------

    def initial(self, seed: int, he: bool) -> F32:
        result = np.zeros(self.parameters, F)
        for number, (weights, outputs) in self.weights.items():
            layer = self.layers[number]
            for p in range(self.at[number], self.at[number] + weights):
                if layer["kind"] == NORM:
                    result[p] = 1
                    continue
                fan_in, fan_out = weights // outputs, outputs
                if layer["kind"] == CONV:
                    fan_out = layer["kernel_height"] * layer["kernel_width"] * (outputs // layer["groups"])
                limit = np.sqrt(F(6) / F(fan_in if he else fan_in + fan_out))
                result[p] = (rng.unit(rng.draws(seed, 1, 0, 0, p)) * F(2) - F(1)) * limit
        return result

    # --- reading parameters --------------------------------------------------------------------------------------

    def taps(self, number: int, y: int, x: int) -> Iterator[tuple[int, int, int, int]]:
        """Give (k_y, k_x, row, column) of the inputs that output (y, x) reads, in order."""
        layer, (h, w, _) = self.layers[number], self.shapes[number]
        k_h, k_w, s_h, s_w = (layer[f"{a}_{b}"] for a in ("kernel", "stride") for b in ("height", "width"))
        _, above = axis(h, k_h, s_h, layer["padding"])
        _, left = axis(w, k_w, s_w, layer["padding"])
        for k_y in range(k_h):
            for k_x in range(k_w):
                row, column = y * s_h + k_y - above, x * s_w + k_x - left
                if 0 <= row < h and 0 <= column < w:
                    yield k_y, k_x, row, column

    def index(self, number: int, o: int, k_y: int, k_x: int, i: int) -> int:
        """Return the place of W[o][k_y][k_x][i] of a CONV layer."""
        layer = self.layers[number]
        inputs = self.shapes[number][2] // layer["groups"]
        return self.at[number] + ((o * layer["kernel_height"] + k_y) * layer["kernel_width"] + k_x) * inputs + i

    def bias(self, number: int, o: int) -> int:
        return self.at[number] + self.weights[number][0] + o

    def channels(self, number: int, o: int) -> range:
        """Return the channels that output o of a CONV layer reads."""
        layer = self.layers[number]
        inputs = self.shapes[number][2] // layer["groups"]
        group = o // (layer["outputs"] // layer["groups"])
        return range(group * inputs, (group + 1) * inputs)

    def group_sum(self, number: int, t: F32, c: int) -> np.float32:
        h, w, all_channels = t.shape
        size = all_channels // self.layers[number]["groups"]
        first = c // size * size
        sums = []
        for channel in range(first, first + size):
            sums.append(add(F(0), (t[y, x, channel] for y in range(h) for x in range(w))))
        return add(F(0), sums)

    # --- forward (3.4) -------------------------------------------------------------------------------------------

    def forward(self, features: Iterable[np.float32], dropped: Callable[[int, int], bool] | None) -> list[F32]:
        """Return the input and each layer's output; dropped(layer, e) is None outside of training."""
        values = [np.array(list(features), F).reshape(self.size)]
        for number, layer in enumerate(self.layers):
            z = self.output(number, layer, values, dropped)
            if layer["relu"]:
                z = np.array([v if v > 0 else F(0) for v in z.ravel()], F).reshape(z.shape)
            values.append(z)
        return values

    def output(self, number: int, layer: Words, values: list[F32], dropped: Callable[[int, int], bool] | None) -> F32:
        v, kind, x_in = self.values, layer["kind"], values[number]
        z = np.zeros(self.shapes[number + 1], F)
        if kind == DENSE:
            flat = x_in.ravel()
            for o in range(layer["outputs"]):
                row = v[self.at[number] + o * len(flat) :]
                z[0, 0, o] = add(v[self.bias(number, o)], (row[i] * flat[i] for i in range(len(flat))))
        elif kind == CONV:
            for y, x, o in places(z.shape):
                channels = self.channels(number, o)
                terms = (
                    v[self.index(number, o, k_y, k_x, i)] * x_in[row, column, c]
                    for k_y, k_x, row, column in self.taps(number, y, x)
                    for i, c in enumerate(channels)
                )
                z[y, x, o] = add(v[self.bias(number, o)], terms)
        elif kind == POOL_MAX:
            for y, x, c in places(z.shape):
                z[y, x, c] = x_in[(*self.winner(number, x_in, y, x, c), c)]
        elif kind == POOL_AVERAGE:
            for y, x, c in places(z.shape):
                read = [x_in[row, column, c] for _, _, row, column in self.taps(number, y, x)]
                z[y, x, c] = add(F(0), read) / F(len(read))
        elif kind == NORM:
            h, _, _ = self.normal(number, x_in)
            for y, x, c in places(z.shape):
                z[y, x, c] = v[self.at[number] + c] * h[y, x, c] + v[self.bias(number, c)]
        elif kind == ADD:
            z = x_in + values[layer["source"] + 1]
        elif kind == DROPOUT and dropped is not None:
            z = self.drop(number, x_in, dropped)
        else:
            z = x_in.reshape(z.shape)
        return z

    def winner(self, number: int, x_in: F32, y: int, x: int, c: int) -> tuple[int, int]:
        best: tuple[int, int] | None = None
        for _, _, row, column in self.taps(number, y, x):
            if best is None or x_in[row, column, c] > x_in[(*best, c)]:
                best = row, column
        assert best is not None
        return best

    def normal(self, number: int, x_in: F32) -> tuple[F32, F32, np.float32]:
        """Return h, and r by channel, and n."""
        height, width, channels = x_in.shape
        n = F(height * width * channels // self.layers[number]["groups"])
        d = np.zeros_like(x_in)
        for c in range(channels):
            d[:, :, c] = x_in[:, :, c] - self.group_sum(number, x_in, c) / n
        r = np.array([F(1) / np.sqrt(self.group_sum(number, d * d, c) / n + EPSILON) for c in range(channels)], F)
        return d * r, r, n

    def drop(self, number: int, t: F32, dropped: Callable[[int, int], bool]) -> F32:
        keep = F(1) - F(self.layers[number]["rate24"]) * F(2.0**-24)
        scale = F(1) / keep
        out = [F(0) if dropped(number, e) else value * scale for e, value in enumerate(t.ravel())]
        return np.array(out, F).reshape(t.shape)

    def dropper(self, seed: int, round_: int, node: int, step: int, batch: int, b: int) -> Callable[[int, int], bool]:
        """Return dropped(layer, e) of a sample of a step."""
        sizes = {n: int(np.prod(self.shapes[n])) for n, layer in enumerate(self.layers) if layer["kind"] == DROPOUT}
        all_sizes = sum(sizes.values())

        def dropped(number: int, e: int) -> bool:
            before = sum(size for other, size in sizes.items() if other < number)
            u = rng.draws(seed, 12, round_, node, (step * batch + b) * all_sizes + before + e)
            return bool(u >> 8 < self.layers[number]["rate24"])

        return dropped

    # --- loss and backward (3.5, 3.6) ----------------------------------------------------------------------------

    def gradient(
        self,
        samples: Sequence[tuple[Sequence[np.float32], int]],
        droppers: Sequence[Callable[[int, int], bool]] | None,
    ) -> tuple[np.float32, F32]:
        """Return the batch's loss and the gradient by all parameters, frozen or not."""
        g = np.zeros(self.parameters, F)
        inv = F(1) / F(len(samples))
        loss = F(0)
        for b, (features, label) in enumerate(samples):
            dropped = droppers[b] if droppers is not None else None
            values = self.forward(features, dropped)
            z = values[-1].ravel()
            top = 0
            for i in range(len(z)):
                top = i if z[i] > z[top] else top
            e = [exp(value - z[top]) for value in z]
            total = add(F(0), e)
            loss = loss + (log(total) - (z[label] - z[top]))
            p = [value / total for value in e]
            d = np.array([(p[i] - F(1) if i == label else p[i]) * inv for i in range(len(z))], F)
            self.back(values, d.reshape(values[-1].shape), g, dropped)
        return loss / F(len(samples)), g

    def back(self, values: list[F32], d: F32, g: F32, dropped: Callable[[int, int], bool] | None) -> None:
        """Add one sample to the sums of g."""
        given: dict[int, list[F32]] = {len(self.layers): [d]}  # by value: from the highest reader down
        for number in reversed(range(len(self.layers))):
            layer, x_in, y_out = self.layers[number], values[number], values[number + 1]
            total, *more = given[number + 1]
            for other in more:
                total = total + other
            dz = np.where(y_out > 0, total, F(0)) if layer["relu"] else total
            self.by_parameters(number, layer, x_in, dz, g)
            given.setdefault(number, []).append(self.by_input(number, layer, x_in, dz, dropped))
            if layer["kind"] == ADD:
                given.setdefault(layer["source"] + 1, []).append(dz)

    def by_parameters(self, number: int, layer: Words, x_in: F32, dz: F32, g: F32) -> None:
        kind = layer["kind"]
        if kind == DENSE:
            flat = x_in.ravel()
            for o in range(layer["outputs"]):
                for i in range(len(flat)):
                    g[self.at[number] + o * len(flat) + i] += dz[0, 0, o] * flat[i]
                g[self.bias(number, o)] += dz[0, 0, o]
        elif kind == CONV:
            for y, x, o in places(dz.shape):
                for k_y, k_x, row, column in self.taps(number, y, x):
                    for i, c in enumerate(self.channels(number, o)):
                        g[self.index(number, o, k_y, k_x, i)] += dz[y, x, o] * x_in[row, column, c]
                g[self.bias(number, o)] += dz[y, x, o]
        elif kind == NORM:
            h, _, _ = self.normal(number, x_in)
            for y, x, c in places(dz.shape):
                g[self.at[number] + c] += dz[y, x, c] * h[y, x, c]
                g[self.bias(number, c)] += dz[y, x, c]

    def by_input(
        self, number: int, layer: Words, x_in: F32, dz: F32, dropped: Callable[[int, int], bool] | None
    ) -> F32:
        v, kind = self.values, layer["kind"]
        dx = np.zeros(x_in.shape, F)
        if kind == DENSE:
            for i in range(x_in.size):
                terms = (dz[0, 0, o] * v[self.at[number] + o * x_in.size + i] for o in range(layer["outputs"]))
                dx.flat[i] = add(F(0), terms)
        elif kind == CONV:
            for y, x, o in places(dz.shape):  # ascending for every input
                for k_y, k_x, row, column in self.taps(number, y, x):
                    for i, c in enumerate(self.channels(number, o)):
                        dx[row, column, c] += dz[y, x, o] * v[self.index(number, o, k_y, k_x, i)]
        elif kind == POOL_MAX:
            for y, x, c in places(dz.shape):
                dx[(*self.winner(number, x_in, y, x, c), c)] += dz[y, x, c]
        elif kind == POOL_AVERAGE:
            for y, x, c in places(dz.shape):
                read = list(self.taps(number, y, x))
                for _, _, row, column in read:
                    dx[row, column, c] += dz[y, x, c] / F(len(read))
        elif kind == NORM:
            h, r, n = self.normal(number, x_in)
            q = np.zeros_like(dz)
            for y, x, c in places(dz.shape):
                q[y, x, c] = dz[y, x, c] * v[self.at[number] + c]
            for c in range(dz.shape[2]):
                s1, s2 = self.group_sum(number, q, c) / n, self.group_sum(number, q * h, c) / n
                for y, x in product(range(dz.shape[0]), range(dz.shape[1])):
                    dx[y, x, c] = ((q[y, x, c] - s1) - h[y, x, c] * s2) * r[c]
        elif kind == DROPOUT and dropped is not None:
            dx = self.drop(number, dz, dropped)
        else:
            dx = dz.reshape(x_in.shape)
        return dx
