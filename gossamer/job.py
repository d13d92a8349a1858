"""Hold everything a place needs to run one experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.experiment import Experiment
from gossamer.spec.plan import Plan


@dataclass(frozen=True)
class Job:
    """Bind an experiment to its data; every place computes the same from it.

    `config` has exactly the keys of `CONFIG_WORDS`. A shard is (features [n, d0] uint8 or float32 as stored,
    labels [n] uint8), one a node in id order; `test_x` and `test_y` likewise. `image` is the experiment image
    (SPEC.md 11), `given` the parameters in it.
    """

    experiment: Experiment
    config: Mapping[str, int | float]
    plan: Plan
    image: bytes
    shards: Sequence[tuple[NDArray[Any], NDArray[Any]]]
    test_x: NDArray[Any]
    test_y: NDArray[Any]
    given: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
