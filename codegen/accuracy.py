"""Measure what a model gets right on given data, by running its generated C on this machine."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen import host
from codegen.export import compile_file
from codegen.ir import DType, Graph, ModelError, Tensor
from codegen.program import Settings

Array = NDArray[Any]


@dataclass(frozen=True)
class Samples:
    """Hold inputs [n, ...], as the model takes them or as real numbers, and labels [n]."""

    x: Array
    y: Array


def read_samples(path: Path) -> Samples:
    """Read an .npz with x [n, ...] and y [n]. Raises ModelError."""
    mend = "save it as numpy.savez(FILE, x=inputs, y=labels)"
    try:
        with np.load(path, allow_pickle=False) as stored:
            x, y = stored["x"], stored["y"]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError(f"cannot be read: {error}", str(path), mend) from error
    except KeyError as error:
        raise ModelError("has no x or no y", str(path), mend) from error
    if y.ndim != 1 or len(x) != len(y) or not len(y) or not np.issubdtype(y.dtype, np.integer):
        raise ModelError(f"x of shape {x.shape} and y of shape {y.shape} are no labelled inputs", str(path), mend)
    if not np.issubdtype(x.dtype, np.number) or not np.isfinite(x).all():
        raise ModelError("x has elements that are no finite numbers", str(path), "leave these samples out")
    return Samples(x, y)


def compare_bits(model: Path, settings: Settings, data: Path | None) -> list[str]:
    """Tell what fewer weight bits cost: accuracy at 8 bits and at `settings.weight_bits`. Raises ModelError.

    Without data, tells how often both give the same class to random inputs.
    """
    bits = settings.weight_bits
    whole = compile_file(model, replace(settings, weight_bits=8, name="whole", ram_limit_bytes=None,
                                        flash_limit_bytes=None, psram=False))  # fmt: skip
    packed = compile_file(model, replace(settings, name="packed", psram=False, ram_limit_bytes=None))
    runs = host.build([whole, packed])
    sizes = f"{whole.flash_bytes:,} -> {packed.flash_bytes:,} bytes of constants"
    if data is None:
        from codegen.check import random_inputs

        inputs = random_inputs(whole.graph, 200)
        same = np.mean(np.equal(*(_classes(run, inputs) for run in runs)))
        return [f"8 -> {bits} bits: {sizes}; same class for {same:.1%} of 200 random inputs (--data for accuracy)"]
    samples = read_samples(data)
    before, after = (accuracy(run, samples, str(data)) for run in runs)
    return [f"8 -> {bits} bits: {sizes}; accuracy {before:.2%} -> {after:.2%} of {len(samples.y):,} samples"]


def accuracy(model: host.HostModel, samples: Samples, where: str) -> float:
    """Return the share of samples whose greatest output is their label's. Raises ModelError."""
    inputs = quantized_inputs(model.program.graph, samples.x, where)
    return float(np.mean(_classes(model, inputs) == samples.y))


def quantized_inputs(graph: Graph, x: Array, where: str) -> list[list[Array]]:
    """Turn rows of real numbers into what the model's one input takes; integers of its type pass as they are.

    Raises ModelError when the sizes differ or the model has several inputs.
    """
    if len(graph.inputs) != 1:
        raise ModelError(f"the model has {len(graph.inputs)} inputs, the data are for one", where)
    (tensor,) = graph.inputs
    if x[0].size != tensor.size:
        raise ModelError(f"a sample has {x[0].size:,} numbers, the model takes {tensor.size:,}", where)
    return [[quantize(row, tensor).reshape(tensor.shape)] for row in x]


def quantize(values: Array, tensor: Tensor) -> Array:
    """Quantize real numbers as a tensor is: halves away from zero, clamped."""
    if values.dtype == tensor.dtype.numpy or tensor.dtype is DType.FLOAT32 or tensor.quantization is None:
        return values.astype(tensor.dtype.numpy)
    limits = np.iinfo(tensor.dtype.numpy)
    quotient = values.astype(np.float32) / tensor.scale
    rounded = np.trunc(quotient + np.copysign(np.float32(0.5), quotient)) + tensor.zero_point
    clipped: Array = np.clip(rounded, limits.min, limits.max)
    return clipped.astype(tensor.dtype.numpy)


def _classes(model: host.HostModel, inputs: Sequence[Sequence[Array]]) -> Array:
    return np.array([int(np.argmax(model.invoke(given)[0])) for given in inputs])
