"""Learning-rate policies against sequences worked out by hand (SPEC.md 8)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from gossamer.spec.constants import LossReference, LrPolicy
from gossamer.spec.lr import LearningRate
from gossamer.spec.settings import Settings

ALL = np.array([True])


def settings(**changes: Any) -> Settings:
    values: dict[str, Any] = {
        "nodes": 1,
        "lr": np.float32(0.5),
        "lr_policy": LrPolicy.ADALOSS,
        "lr_floor": np.float32(1e-5),
        "stair_at": (4, 7, 8),
        "stair_factor": np.float32(8),
        "loss_patience": (2, 1),
        "loss_factor": np.float32(2),
        "loss_reference": LossReference.MEAN,
        "loss_ema": np.float32(0.5),
    }
    return cast(Settings, SimpleNamespace(**values | changes))


def rates_after(chosen: Settings, losses: list[float]) -> list[float]:
    state = LearningRate.fresh(chosen)
    rates = []
    for number, loss in enumerate(losses):
        state.begin_round(chosen, number, ALL)
        state.see_loss(chosen, np.array([loss], np.float32), ALL)
        rates.append(float(state.lr[0]))
    return rates


def test_adastair_divides_by_eight_at_each_milestone_once() -> None:
    rates = rates_after(settings(lr_policy=LrPolicy.ADASTAIR), [1.0] * 10)
    assert rates == [0.5] * 4 + [0.0625] * 3 + [0.0078125] + [0.0009765625] * 2


def test_adastair_stops_at_the_floor() -> None:
    rates = rates_after(settings(lr_policy=LrPolicy.ADASTAIR, lr_floor=np.float32(0.25)), [1.0] * 10)
    assert rates == [0.5] * 4 + [0.25] * 6


def test_a_node_that_was_away_catches_up_on_its_milestones() -> None:
    chosen = settings(lr_policy=LrPolicy.ADASTAIR)
    state = LearningRate.fresh(chosen)
    for number in range(8):
        state.begin_round(chosen, number, np.array([number in (0, 7)]))
    assert state.lr[0] == 0.5 / 64


@pytest.mark.parametrize(
    ("reference", "losses", "expected"),
    [
        # Against the mean of 4, 2, ...: rounds 2 to 4 are no better than it; the third bad round is beyond patience 2.
        (LossReference.MEAN, [4, 2, 3, 3, 3], [0.5, 0.5, 0.5, 0.5, 0.25]),
        # The mean of falling losses stays above them: nothing ever happens.
        (LossReference.MEAN, [8, 7, 6, 5, 4, 4, 4, 4], [0.5] * 8),
        # Against the best, the same losses run out of patience.
        (LossReference.BEST, [8, 7, 6, 5, 4, 4, 4, 4], [0.5] * 7 + [0.25]),
        # Patience is taken in turn: 2, then 1, then never again.
        (LossReference.BEST, [1] * 10, [0.5] * 3 + [0.25] * 2 + [0.125] * 5),
        # ema after 4, 2 is 3; 3 is not below it; then it stays 3.
        (LossReference.EMA, [4, 2, 3, 3, 3], [0.5, 0.5, 0.5, 0.5, 0.25]),
        # A loss that is not finite is a bad round and leaves no trace in the reference.
        (LossReference.BEST, [1, float("nan"), float("inf"), float("nan"), 0.5], [0.5, 0.5, 0.5, 0.25, 0.25]),
    ],
)
def test_adaloss(reference: LossReference, losses: list[float], expected: list[float]) -> None:
    assert rates_after(settings(loss_reference=reference), losses) == expected


def test_both_act_on_one_rate() -> None:
    chosen = settings(lr_policy=LrPolicy.ADASTAIR | LrPolicy.ADALOSS, loss_reference=LossReference.BEST)
    assert rates_after(chosen, [1] * 6) == [0.5, 0.5, 0.5, 0.25, 0.25 / 8, 0.25 / 16]
