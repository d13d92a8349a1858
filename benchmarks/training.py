"""Time one training step of the core beside numpy with BLAS on one thread (perceptrons), and beside plain loops in C.

All do the same arithmetic; the core and the plain loops give the same bits. Times are the least of several runs that
take turns, so that the ratios hold on a busy machine.

Run: python benchmarks/training.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.native import FAST, core_sources, shared_library
from gossamer.spec.constants import CONFIG_WORDS, Init, LayerKind, Padding
from gossamer.spec.nn import Layer, Model, Shape

STEPS = [((784, 12, 10), 50), ((784, 128, 10), 50), ((64, 32, 10), 16)]  # layers, batch


def conv(outputs: int, kernel: int, padding: Padding = Padding.SAME) -> Layer:
    """Return a convolution with ReLU."""
    return Layer(LayerKind.CONV, True, outputs, (kernel, kernel), (1, 1), padding, groups=1)


_POOL = Layer(LayerKind.POOL_MAX, kernel=(2, 2), stride=(2, 2))
_LOGITS = Layer(LayerKind.DENSE, outputs=10)
CNNS = {
    "digits: conv 8, conv 16": (Model(Shape(8, 8, 1), (conv(8, 3), _POOL, conv(16, 3), _POOL, _LOGITS)), 16),
    "LeNet-5": (
        Model(
            Shape(28, 28, 1),
            (
                conv(6, 5), _POOL, conv(16, 5, Padding.VALID), _POOL,
                Layer(LayerKind.DENSE, True, 120), Layer(LayerKind.DENSE, True, 84), _LOGITS,
            ),
        ),
        4,
    ),
    "conv 32, conv 32": (Model(Shape(16, 16, 16), (conv(32, 3), conv(32, 3), _POOL, _LOGITS)), 2),
}  # fmt: skip
TURNS, TURN_S = 15, 0.02
LR = 0.01

# BLAS reads these when it is loaded. The first two would stop it from choosing its kernels by itself.
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
CHILD = "GOSSAMER_BENCHMARK_CHILD"

CDEF = """
typedef struct gs_model gs_model_t;
typedef struct {
    const uint8_t *features;
    const uint8_t *labels;
    uint32_t type;
    float scale;
    float offset;
} gs_samples_t;
typedef struct {
    const gs_samples_t *samples;
    const uint16_t *rows;
    uint32_t first;
    uint32_t count;
} gs_batch_t;
typedef struct { uint32_t kind; float momentum; float beta1; float beta2; float epsilon; float decay; } gs_optimizer_t;
size_t benchmark_model_bytes(void);
uint32_t gs_model_read(gs_model_t *model, const uint8_t *words, bool all_given);
size_t gs_nn_scratch_floats(const gs_model_t *model, uint32_t batch);
float gs_nn_gradient(const gs_model_t *model, const float *w, const gs_batch_t *batch, void *dropout,
                     uint32_t first_draw, float *g, float *scratch);
float plain_gradient(const gs_model_t *model, const float *w, const gs_batch_t *batch, float *g);
float plain_cnn_gradient(const gs_model_t *model, const float *w, const gs_batch_t *batch, float *g);
void gs_optimizer_step(const gs_optimizer_t *optimizer, uint32_t parameters, float lr, float *w, const float *g,
                       float *state);
"""


class Batch:
    """Hold a model, byte samples and initial weights."""

    def __init__(self, model: Model, batch: int) -> None:
        random = np.random.default_rng(1)
        self.model, self.batch = model, batch
        self.x = random.integers(0, 256, (1000, model.input.numbers), np.uint8)
        self.labels = random.integers(0, model.classes, 1000).astype(np.uint8)
        self.rows = random.integers(0, 1000, batch).astype(np.uint16)
        self.flat: NDArray[np.float32] = model.initial(1, Init.HE)

    @property
    def layers(self) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Copy the weights and biases of a perceptron out of the vector (SPEC.md 3.1)."""
        found, at, width = [], 0, self.model.input.numbers
        for layer in self.model.layers:
            middle, end = at + width * layer.outputs, at + (width + 1) * layer.outputs
            found.append((self.flat[at:middle].reshape(layer.outputs, width).copy(), self.flat[middle:end].copy()))
            at, width = end, layer.outputs
        return found


def numpy_step(batch: Batch) -> Callable[[], None]:
    """Return a step as numpy is meant to be used: matrix products by BLAS."""
    layers = batch.layers
    scale, lr, inv = np.float32(1 / 255), np.float32(LR), np.float32(1 / batch.batch)
    samples = np.arange(batch.batch)

    def step() -> None:
        values = [batch.x[batch.rows].astype(np.float32) * scale]
        for number, (weights, bias) in enumerate(layers):
            z = values[-1] @ weights.T + bias
            values.append(z if number == len(layers) - 1 else np.maximum(z, 0))
        labels = batch.labels[batch.rows]
        z = values.pop()
        z -= z.max(axis=1, keepdims=True)
        dz = np.exp(z)
        total = dz.sum(axis=1, keepdims=True)
        (np.log(total[:, 0]) - z[samples, labels]).mean()
        dz /= total
        dz[samples, labels] -= 1
        dz *= inv
        for number in reversed(range(len(layers))):
            weights, bias = layers[number]
            g_weights, g_bias = dz.T @ values[number], dz.sum(axis=0)
            if number:
                dz = (dz @ weights) * (values[number] > 0)
            weights -= lr * g_weights
            bias -= lr * g_bias

    return step


class CoreStep:
    """Step in C, by the core or by the plain loops."""

    def __init__(self, ffi: Any, lib: Any, batch: Batch, plain: str = "") -> None:
        self.w = batch.flat.copy()
        self._lib, self._null, self._plain = lib, ffi.NULL, getattr(lib, plain) if plain else None
        words = batch.model.words()
        memory = ffi.new("uint64_t[]", lib.benchmark_model_bytes() // 8 + 1)
        model = ffi.cast("gs_model_t *", memory)
        lib.gs_model_read(model, np.array([words.get(name, 0) for name in CONFIG_WORDS], np.uint32).tobytes(), False)
        features, labels = (ffi.from_buffer("uint8_t[]", part) for part in (batch.x, batch.labels))
        fields = {"features": features, "labels": labels, "type": 0, "scale": 1 / 255, "offset": 0}
        samples = ffi.new("gs_samples_t *", fields)
        rows = ffi.from_buffer("uint16_t[]", batch.rows)
        self._held = memory, features, labels, samples, rows
        self._batch = ffi.new("gs_batch_t *", {"samples": samples, "rows": rows, "count": batch.batch})
        self._g = ffi.new("float[]", len(self.w))
        self._scratch = ffi.new("float[]", lib.gs_nn_scratch_floats(model, batch.batch))
        self._w = ffi.from_buffer("float[]", self.w)
        self._model, self._sgd = model, ffi.new("gs_optimizer_t *")

    def __call__(self) -> None:
        """Take one step."""
        if self._plain:
            self._plain(self._model, self._w, self._batch, self._g)
        else:
            self._lib.gs_nn_gradient(self._model, self._w, self._batch, self._null, 0, self._g, self._scratch)
        self._lib.gs_optimizer_step(self._sgd, len(self.w), LR, self._w, self._g, self._null)


def microseconds(steps: Sequence[Callable[[], None]]) -> list[float]:
    """Time each step, taking turns; return the least time of each."""
    repeats = []
    for step in steps:
        start = time.perf_counter()
        step()
        step()
        repeats.append(max(1, int(TURN_S / (time.perf_counter() - start) * 2)))
    best = [float("inf")] * len(steps)
    for _ in range(TURNS):
        for number, (step, count) in enumerate(zip(steps, repeats, strict=True)):
            start = time.perf_counter()
            for _ in range(count):
                step()
            best[number] = min(best[number], (time.perf_counter() - start) / count)
    return [1e6 * seconds for seconds in best]


def held_against_plain(ffi: Any, lib: Any, name: str, batch: Batch, plain: str) -> None:
    """Refuse to time what gives other bits."""
    check = CoreStep(ffi, lib, batch), CoreStep(ffi, lib, batch, plain)
    for step in check:
        step()
    if check[0].w.tobytes() != check[1].w.tobytes():
        raise SystemExit(f"{name}: the core and the plain loops part")


def measure() -> None:
    """Print two tables in Markdown."""
    here = Path(__file__).parent
    plain = [here / "training_plain.c", here / "training_plain_cnn.c"]
    core = core_sources()
    ffi, lib = shared_library("training", [*core, *plain], CDEF, FAST)
    print("| layers | batch | core | numpy, BLAS, 1 thread | core / numpy | plain loops / core |")
    print("|---|---|---|---|---|---|")
    for dims, size in STEPS:
        batch = Batch(Model.dense(dims), size)
        layers = "-".join(map(str, dims))
        held_against_plain(ffi, lib, layers, batch, "plain_gradient")
        fast, blas, slow = microseconds(
            [CoreStep(ffi, lib, batch), numpy_step(batch), CoreStep(ffi, lib, batch, "plain_gradient")]
        )
        print(f"| {layers} | {size} | {fast:.1f} µs | {blas:.1f} µs | {fast / blas:.2f} | {slow / fast:.1f} |")
    print("\n| convolutional model | batch | core | plain loops | plain loops / core |")
    print("|---|---|---|---|---|")
    for name, (model, size) in CNNS.items():
        batch = Batch(model, size)
        held_against_plain(ffi, lib, name, batch, "plain_cnn_gradient")
        fast, slow = microseconds([CoreStep(ffi, lib, batch), CoreStep(ffi, lib, batch, "plain_cnn_gradient")])
        print(f"| {name} | {size} | {fast:.1f} µs | {slow:.1f} µs | {slow / fast:.1f} |")


def main() -> None:
    """Measure in a process whose BLAS has one thread and chooses its own kernels."""
    if CHILD in os.environ:
        measure()
        return
    environment = {name: value for name, value in os.environ.items() if name not in UNSET} | ONE_THREAD | {CHILD: "1"}
    raise SystemExit(subprocess.run([sys.executable, __file__], env=environment).returncode)


if __name__ == "__main__":
    main()
