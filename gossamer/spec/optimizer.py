"""Move parameters by gradients: SGD, with momentum where it is not 0, or Adam (SPEC.md 3.7), many nodes at once.

Source of Adam: Kingma, Ba: "Adam: a method for stochastic optimization", ICLR 2015.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from gossamer.spec import fmath
from gossamer.spec.constants import Optimizer
from gossamer.spec.settings import Settings

F32 = NDArray[np.float32]

_ONE = np.float32(1)


@dataclass
class Steps:
    """Hold what the optimizer keeps over rounds; None where it has no such thing."""

    velocity: F32 | None = None  # v [P, N]
    mean: F32 | None = None  # Adam's m [P, N]
    power1: F32 | None = None  # Adam's [N]
    power2: F32 | None = None

    @classmethod
    def fresh(cls, settings: Settings, w: F32) -> Steps:
        """Start for parameters w [P, N]."""
        if settings.optimizer is Optimizer.ADAM:
            ones = [np.ones(w.shape[1], np.float32) for _ in range(2)]
            return cls(np.zeros_like(w), np.zeros_like(w), *ones)
        return cls(np.zeros_like(w) if settings.momentum else None)

    def of(self, nodes: NDArray[np.int64]) -> Steps:
        """Return a copy of some nodes' columns."""
        return Steps(**{name: array[..., nodes] for name, array in self.arrays().items()})

    def put(self, nodes: NDArray[np.int64], steps: Steps) -> None:
        """Take back what `of` returned."""
        changed = steps.arrays()
        for name, array in self.arrays().items():
            array[..., nodes] = changed[name]

    def reset(self, which: NDArray[np.bool_]) -> None:
        """Start the marked nodes anew."""
        for name, array in self.arrays().items():
            array[..., which] = name.startswith("power")

    def arrays(self) -> dict[str, F32]:
        """Name what there is."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: array for name, array in found.items() if array is not None}

    def take(self, settings: Settings, w: F32, g: F32, lr: F32) -> None:
        """Take one step in place; w and g are [P, N], lr [N]."""
        if settings.weight_decay:
            g = g + settings.weight_decay * w
        if self.mean is not None:
            self._adam(settings, w, g, lr)
            return
        if self.velocity is not None:
            self.velocity[:] = settings.momentum * self.velocity + g
            g = self.velocity
        w -= lr * g

    def _adam(self, settings: Settings, w: F32, g: F32, lr: F32) -> None:
        m, v, power1, power2 = self.mean, self.velocity, self.power1, self.power2
        assert m is not None and v is not None and power1 is not None and power2 is not None
        beta1, beta2 = settings.beta1, settings.beta2
        power1 *= beta1
        power2 *= beta2
        a, c = lr / (_ONE - power1), _ONE / (_ONE - power2)
        m[:] = beta1 * m + (_ONE - beta1) * g
        v[:] = beta2 * v + (_ONE - beta2) * (g * g)
        w -= (a * m) / (fmath.sqrt(v * c) + settings.epsilon)
