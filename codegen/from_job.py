"""Turn what a node of an experiment has learned into an int8 model, calibrated on that node's own data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen import host
from codegen.accuracy import Samples, accuracy
from codegen.ir import Graph
from codegen.program import Program
from codegen.quantize import of_bytes, quantize_network
from gossamer.job import Job
from gossamer.spec.constants import FeatureType
from gossamer.spec.nn import F32, Network, forward
from gossamer.spec.settings import Settings

Array = NDArray[Any]


def graph_of(job: Job, flat: F32, node: int, name: str) -> Graph:
    """Quantize the model with the weights `flat` [P] of a node; its shard calibrates. Raises ModelError."""
    samples = _real(job, job.shards[node][0])
    given = None
    if job.config["feature_type"] == FeatureType.U8:
        given = of_bytes(float(job.config["feature_scale"]), float(job.config["feature_offset"]))
    return quantize_network(_network(job), flat, samples, name, given)


def accuracies(job: Job, flat: F32, program: Program) -> tuple[float, float]:
    """Return the accuracy on the test samples: of the float model, and of the int8 model's C run on this machine."""
    real = _real(job, job.test_x)
    logits = forward(_network(job), flat[:, None], real.T[:, :, None])[..., 0]
    (model,) = host.build([program])
    labels = job.test_y.astype(np.int64)
    return float(np.mean(logits.argmax(axis=0) == labels)), accuracy(model, Samples(real, labels), program.file)


def _network(job: Job) -> Network:
    settings = Settings.from_words(job.config)
    _, frozen = settings.model.start(settings.seed, settings.init, job.given)
    return Network(settings.model, frozen)


def _real(job: Job, stored: Array) -> F32:
    """Return features [n, d] as the model sees them (SPEC.md 3.3)."""
    values = stored.astype(np.float32)
    if stored.dtype == np.uint8:
        values = values * np.float32(job.config["feature_scale"]) + np.float32(job.config["feature_offset"])
    return values
