"""Set each node's learning rate: constant, AdaStair, AdaLoss or both (SPEC.md 8), many nodes at once.

Source: "Adaptive Decentralized Federated Gossip Learning for Resource-Constrained IoT Devices", DistributedML 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.spec.constants import LossReference, LrPolicy
from gossamer.spec.settings import Settings

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]


@dataclass
class LearningRate:
    """Hold the state of SPEC.md 8, each field [N]."""

    lr: F32
    stairs_done: I64
    patience_index: I64
    bad: I64
    total: F32
    count: I64
    best: F32
    ema: F32

    @classmethod
    def fresh(cls, settings: Settings) -> LearningRate:
        """Start all nodes at the configured rate."""
        n = settings.nodes
        reals = [np.zeros(n, np.float32) for _ in range(3)]
        wholes = [np.zeros(n, np.int64) for _ in range(4)]
        return cls(np.full(n, settings.lr), wholes[0], wholes[1], wholes[2], reals[0], wholes[3], reals[1], reals[2])

    def begin_round(self, settings: Settings, round_: int, present: Bool) -> None:
        """Take the stairs that are due."""
        if not settings.lr_policy & LrPolicy.ADASTAIR:
            return
        for number, milestone in enumerate(settings.stair_at):
            due = present & (self.stairs_done == number) & (milestone <= round_)
            self._divide(due, settings.stair_factor, settings.lr_floor)
            self.stairs_done[due] += 1

    def see_loss(self, settings: Settings, loss: F32, present: Bool) -> None:
        """Count good and bad rounds by the round's training loss [N] and halve where patience ended."""
        if not settings.lr_policy & LrPolicy.ADALOSS:
            return
        finite = np.isfinite(loss)
        earlier = self.count > 0
        good = finite & (~earlier | (loss < self._reference(settings.loss_reference)))
        self.bad[present] = np.where(good, 0, self.bad + 1)[present]
        limits = np.array([*settings.loss_patience, 0], np.int64)
        left = self.patience_index < len(settings.loss_patience)
        due = present & ~good & left & (self.bad > limits[self.patience_index])
        self._divide(due, settings.loss_factor, settings.lr_floor)
        self.bad[due] = 0
        self.patience_index[due] += 1

        seen = present & finite
        self.total[seen] = (self.total + loss)[seen]
        self.best[seen] = np.where(earlier & (self.best < loss), self.best, loss)[seen]
        moved = self.ema + settings.loss_ema * (loss - self.ema)
        self.ema[seen] = np.where(earlier, moved, loss)[seen]
        self.count[seen] += 1

    def _reference(self, kind: LossReference) -> F32:
        match kind:
            case LossReference.MEAN:
                return np.divide(self.total, np.maximum(self.count, 1).astype(np.float32), dtype=np.float32)
            case LossReference.BEST:
                return self.best
            case LossReference.EMA:
                return self.ema

    def _divide(self, which: Bool, factor: np.float32, floor: np.float32) -> None:
        self.lr[which] = np.maximum(self.lr / factor, floor)[which]
