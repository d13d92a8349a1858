"""Optimizers against steps worked out by hand, and against float64 (SPEC.md 3.7)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gossamer.spec.constants import CONFIG_WORDS, Optimizer
from gossamer.spec.nn import Model
from gossamer.spec.optimizer import Steps
from gossamer.spec.settings import Settings

F = np.float32


def settings(**changes: Any) -> Settings:
    words = dict.fromkeys(CONFIG_WORDS, 0) | Model.dense((1, 1)).words() | {"bits": 32}
    return Settings.from_words(words | changes)


def test_momentum_and_decay_by_hand() -> None:
    w, g = np.array([[2.0]], F), np.array([[1.0]], F)
    chosen = settings(momentum=0.5, weight_decay=0.5)
    steps = Steps.fresh(chosen, w)
    assert steps.velocity is not None
    steps.velocity[:] = 4
    steps.take(chosen, w, g, np.array([0.25], F))
    # g = 1 + 0.5 * 2 = 2; v = 0.5 * 4 + 2 = 4; w = 2 - 0.25 * 4
    assert (steps.velocity[0, 0], w[0, 0]) == (4.0, 1.0)


def test_plain_descent_keeps_nothing() -> None:
    w = np.array([[1.0, 2.0]], F)
    steps = Steps.fresh(settings(), w)
    assert steps.arrays() == {}
    steps.take(settings(), w, np.array([[0.5, -0.5]], F), np.array([1, 2], F))
    assert w.tolist() == [[0.5, 3.0]]


def test_adam_by_hand() -> None:
    """All numbers are exact in binary32: betas of a half and three quarters, gradients whose averages are squares."""
    chosen = settings(optimizer=Optimizer.ADAM, beta1=0.5, beta2=0.75, epsilon=1.0)
    w = np.array([[10.0]], F)
    steps = Steps.fresh(chosen, w)
    steps.take(chosen, w, np.array([[4.0]], F), np.array([3.0], F))
    # pow = 1/2, 3/4; a = 3 / (1/2) = 6; c = 1 / (1/4) = 4; m = 2; v = 16 / 4 = 4; w = 10 - 6 * 2 / (sqrt(16) + 1) = 7.6
    assert (steps.mean[0, 0], steps.velocity[0, 0]) == (2.0, 4.0)  # type: ignore[index]
    assert (steps.power1[0], steps.power2[0]) == (0.5, 0.75)  # type: ignore[index]
    assert w[0, 0] == F(10) - F(12) / F(5)
    steps.take(chosen, w, np.array([[-2.0]], F), np.array([3.0], F))
    # pow = 1/4, 9/16; m = 2/2 - 2/2 = 0, so w stays; v = 3 + 4/4 = 4
    assert (steps.mean[0, 0], steps.velocity[0, 0]) == (0.0, 4.0)  # type: ignore[index]
    assert (steps.power1[0], steps.power2[0]) == (0.25, 0.5625)  # type: ignore[index]
    assert w[0, 0] == F(10) - F(12) / F(5)


def test_adam_is_near_that_of_the_paper() -> None:
    random = np.random.default_rng(4)
    chosen = settings(optimizer=Optimizer.ADAM, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.01)
    start = random.normal(size=(50, 3))
    w, exact = start.astype(F), start.astype(F).astype(np.float64)
    m = v = np.zeros_like(exact)
    steps = Steps.fresh(chosen, w)
    for t in range(1, 40):
        g = random.normal(size=w.shape).astype(F)
        steps.take(chosen, w, g, np.full(3, 0.01, F))
        decayed = g + 0.01 * exact
        m, v = 0.9 * m + 0.1 * decayed, 0.999 * v + 0.001 * decayed**2
        exact = exact - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(w, exact, rtol=2e-4, atol=2e-5)


def test_some_nodes_start_anew() -> None:
    chosen = settings(optimizer=Optimizer.ADAM, beta1=0.5, beta2=0.5, epsilon=1.0)
    w = np.ones((2, 3), F)
    steps = Steps.fresh(chosen, w)
    part = steps.of(np.array([0, 2]))
    part.take(chosen, w[:, [0, 2]], np.ones((2, 2), F), np.ones(2, F))
    steps.put(np.array([0, 2]), part)
    assert steps.power1 is not None and steps.power1.tolist() == [0.5, 1.0, 0.5]
    steps.reset(np.array([True, False, False]))
    assert steps.power1.tolist() == [1.0, 1.0, 0.5]
    assert steps.mean is not None and steps.mean.tolist() == [[0, 0, 0.5], [0, 0, 0.5]]
