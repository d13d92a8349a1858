"""Time one training step of the core beside numpy with BLAS on one thread, and beside plain loops in C.

All three do the same arithmetic; the core and the plain loops give the same bits. Times are the least of several
runs that take turns, so that the ratios hold on a busy machine.

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

from gossamer.native import FAST, FIRMWARE, shared_library

STEPS = [((784, 12, 10), 50), ((784, 128, 10), 50), ((64, 32, 10), 16)]  # layers, batch
TURNS, TURN_S = 15, 0.02
LR = 0.01

# BLAS reads these when it is loaded. The first two would stop it from choosing its kernels by itself.
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
CHILD = "GOSSAMER_BENCHMARK_CHILD"

CDEF = """
typedef struct { uint32_t layers; uint32_t dims[33]; } gs_nn_t;
typedef struct {
    const uint8_t *features;
    const uint8_t *labels;
    uint32_t type;
    float scale;
    float offset;
} gs_samples_t;
size_t gs_nn_scratch_floats(const gs_nn_t *nn, uint32_t batch);
float gs_nn_gradient(const gs_nn_t *nn, const float *w, const gs_samples_t *samples, const uint16_t *rows,
                     uint32_t batch, float *g, float *scratch);
float plain_gradient(const gs_nn_t *nn, const float *w, const gs_samples_t *samples, const uint16_t *rows,
                     uint32_t batch, float *g);
void gs_nn_update(uint32_t parameters, float *w, float *velocity, const float *g, float lr, float momentum,
                  float weight_decay);
"""


class Batch:
    """Hold byte samples and initial weights."""

    def __init__(self, dims: Sequence[int], batch: int) -> None:
        random = np.random.default_rng(1)
        self.dims, self.batch = dims, batch
        self.x = random.integers(0, 256, (1000, dims[0]), np.uint8)
        self.labels = random.integers(0, dims[-1], 1000).astype(np.uint8)
        self.rows = random.integers(0, 1000, batch).astype(np.uint16)
        self.layers = [
            (random.normal(size=(o, i)).astype(np.float32) / np.float32(i**0.5), np.zeros(o, np.float32))
            for i, o in zip(dims[:-1], dims[1:], strict=True)
        ]

    @property
    def flat(self) -> NDArray[np.float32]:
        """Copy the weights into one vector (SPEC.md 3.1)."""
        return np.concatenate([part.ravel() for layer in self.layers for part in layer])


def numpy_step(batch: Batch) -> Callable[[], None]:
    """Return a step as numpy is meant to be used: matrix products by BLAS."""
    layers = [(weights.copy(), bias.copy()) for weights, bias in batch.layers]
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

    def __init__(self, ffi: Any, lib: Any, batch: Batch, plain: bool) -> None:
        self.w = batch.flat
        self._lib, self._null, self._plain = lib, ffi.NULL, plain
        dims = list(batch.dims)
        nn = ffi.new("gs_nn_t *", {"layers": len(dims) - 1, "dims": dims})
        features, labels = (ffi.from_buffer("uint8_t[]", part) for part in (batch.x, batch.labels))
        fields = {"features": features, "labels": labels, "type": 0, "scale": 1 / 255, "offset": 0}
        self._g = ffi.new("float[]", len(self.w))
        self._scratch = ffi.new("float[]", lib.gs_nn_scratch_floats(nn, batch.batch))
        self._w = ffi.from_buffer("float[]", self.w)
        self._rows = ffi.from_buffer("uint16_t[]", batch.rows)
        self._held = features, labels
        self._given = nn, self._w, ffi.new("gs_samples_t *", fields), self._rows, batch.batch, self._g

    def __call__(self) -> None:
        """Take one step."""
        if self._plain:
            self._lib.plain_gradient(*self._given)
        else:
            self._lib.gs_nn_gradient(*self._given, self._scratch)
        self._lib.gs_nn_update(len(self.w), self._w, self._null, self._g, LR, 0.0, 0.0)


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


def measure() -> None:
    """Print a table in Markdown."""
    core = [FIRMWARE / "core" / f"gs_{module}.c" for module in ("nn", "math", "rng")]
    plain = Path(__file__).with_name("training_plain.c")
    ffi, lib = shared_library("training", [*core, plain], CDEF, FAST)
    print("| layers | batch | core | numpy, BLAS, 1 thread | core / numpy | plain loops / core |")
    print("|---|---|---|---|---|---|")
    for dims, size in STEPS:
        batch = Batch(dims, size)
        check = CoreStep(ffi, lib, batch, plain=False), CoreStep(ffi, lib, batch, plain=True)
        for step in check:
            step()
        if check[0].w.tobytes() != check[1].w.tobytes():
            raise SystemExit(f"{dims}: the core and the plain loops part")
        fast, blas, slow = microseconds(
            [CoreStep(ffi, lib, batch, plain=False), numpy_step(batch), CoreStep(ffi, lib, batch, plain=True)]
        )
        layers = "-".join(map(str, dims))
        print(f"| {layers} | {size} | {fast:.1f} µs | {blas:.1f} µs | {fast / blas:.2f} | {slow / fast:.1f} |")


def main() -> None:
    """Measure in a process whose BLAS has one thread and chooses its own kernels."""
    if CHILD in os.environ:
        measure()
        return
    environment = {name: value for name, value in os.environ.items() if name not in UNSET} | ONE_THREAD | {CHILD: "1"}
    raise SystemExit(subprocess.run([sys.executable, __file__], env=environment).returncode)


if __name__ == "__main__":
    main()
