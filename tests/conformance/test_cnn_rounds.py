"""Rounds of convolutional models: against a slow reading of SPEC.md, and what must hold over a whole run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
import twin_sim
from gossamer.experiment import load_experiment
from gossamer.job import Job
from gossamer.place import Row
from gossamer.spec import local
from tests.conformance.random_experiments import random_cnn_experiment, to_toml
from tests.conformance.test_equal import first_difference
from tests.spec.naive_nn import Naive

F = np.float32
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "digits_cnn.toml"

ALONE: dict[str, Any] = {
    "experiment": {"name": "alone", "seed": 11, "nodes": 2, "rounds": 2},
    "data": {"set": "digits", "validation": 0.01, "test_fraction": 0.9},
    "model": {
        "input": [8, 8, 1],
        "layers": [
            {"kind": "conv", "filters": 2, "kernel": 3, "stride": 2, "activation": "relu"},
            {"kind": "dropout", "rate": 0.3},
            {"kind": "group_norm"},
            {"kind": "dropout", "rate": 0.1},
            {"kind": "dense", "width": 10},
        ],
    },
    "train": {"batch": 3, "local_steps": 2, "lr": 0.05, "optimizer": "adam", "weight_decay": 0.01},
    "policy": {"name": "local"},
    "topology": {"kind": "full"},
}


def prepare(tables: dict[str, Any], folder: Path) -> Job:
    path = folder / "e.toml"
    path.write_text(to_toml(tables))
    return models.prepare(load_experiment(path))


def simulate(job: Job, folder: Path) -> tuple[list[list[Row]], np.ndarray]:
    with twin_sim.open_place(job, "sim", "numpy", folder, threads=2) as place:
        place.start(0)
        rows = [place.round(number) for number in range(job.experiment.experiment.rounds)]
        weights = place.weights()
    assert weights is not None
    return rows, weights


class _Adam:
    """SPEC.md 3.7, for one parameter after the other."""

    def __init__(self, parameters: int) -> None:
        self.m, self.v = np.zeros(parameters, F), np.zeros(parameters, F)
        self.pow1 = self.pow2 = F(1)

    def step(self, w: np.ndarray, g: np.ndarray, lr: np.float32, decay: np.float32) -> None:
        beta1, beta2, epsilon = F(0.9), F(0.999), F(1e-8)
        self.pow1, self.pow2 = self.pow1 * beta1, self.pow2 * beta2
        a, c = lr / (F(1) - self.pow1), F(1) / (F(1) - self.pow2)
        for p in range(len(w)):
            moved = g[p] + decay * w[p]
            self.m[p] = beta1 * self.m[p] + (F(1) - beta1) * moved
            self.v[p] = beta2 * self.v[p] + (F(1) - beta2) * (moved * moved)
            w[p] = w[p] - (a * self.m[p]) / (np.sqrt(self.v[p] * c) + epsilon)


@pytest.mark.parametrize("trainable", ["all", 1])
def test_rounds_are_those_of_the_text(trainable: Any, tmp_path: Path) -> None:
    """Two nodes, two rounds: steps, dropout and Adam go on where they should, and frozen layers stay."""
    tables = ALONE | {"train": ALONE["train"] | {"trainable": trainable}}
    job = prepare(tables, tmp_path)
    model = job.experiment.network
    rows, weights = simulate(job, tmp_path)
    for node in range(2):
        slow = Naive(tuple(model.input), [layer.words() for layer in model.layers], np.zeros(0, F))
        slow.values = slow.initial(11, he=False)
        own = np.zeros(slow.parameters, bool)
        for block in model.blocks:
            own[block.at : block.at + block.size] = not block.frozen
        w, adam = slow.values[own], _Adam(int(own.sum()))
        x, y = job.shards[node]
        _, training = local.split(11, node, len(y), 10)
        for round_ in range(2):
            drawn = local.batch_positions(11, round_, np.array([node]), np.array([len(training)]), 6)[:, 0]
            total = F(0)
            for step in range(2):
                batch = training[drawn[3 * step : 3 * step + 3]]
                samples = [([F(byte) * F(1 / 16) + F(0) for byte in x[i].tolist()], int(y[i])) for i in batch]
                loss, g = slow.gradient(samples, [slow.dropper(11, round_, node, step, 3, b) for b in range(3)])
                total = total + loss
                adam.step(w, g[own], F(0.05), F(0.01))
                slow.values[own] = w
            assert rows[round_][node]["train_loss"] == total / F(2)
        assert weights[:, node].tobytes() == w.tobytes()


def test_a_diverged_round_starts_adam_anew(tmp_path: Path) -> None:
    """A rate that overflows undoes every round; the rounds then differ by their batches alone."""
    tables = ALONE | {"train": ALONE["train"] | {"lr": 3e38, "local_steps": 1}}
    job = prepare(tables, tmp_path)
    with twin_sim.open_place(job, "sim", "numpy", tmp_path, threads=1) as place:
        place.start(0)
        start = place.weights()
        for number in range(2):
            assert all(row["diverged"] for row in place.round(number))
        assert place.weights().tobytes() == start.tobytes()  # type: ignore[union-attr]
        steps = place._steps  # type: ignore[attr-defined]
    assert not steps.mean.any() and not steps.velocity.any()
    assert steps.power1.tolist() == steps.power2.tolist() == [1, 1]


@pytest.mark.parametrize("seed", range(8))
def test_a_continued_run_ends_with_the_same_bits(seed: int, tmp_path: Path) -> None:
    job = prepare(random_cnn_experiment(seed), tmp_path)
    whole, _ = simulate(job, tmp_path / "whole")
    rows = []
    for number in range(job.experiment.experiment.rounds):
        with twin_sim.open_place(job, "sim", "numpy", tmp_path / "pieces", threads=2) as place:
            assert place.start(number) == number
            rows.append(place.round(number))
            place.save()
    assert first_difference(whole, rows) is None


def test_the_example_learns_alone(tmp_path: Path) -> None:
    overrides = [
        "experiment.nodes=2", "experiment.rounds=4", "experiment.eval_every=4", "data.partition=iid",
        "policy.name=local", "topology.kind=full", "train.local_steps=40",
    ]  # fmt: skip
    job = models.prepare(load_experiment(EXAMPLE, overrides))
    rows, _ = simulate(job, tmp_path)
    for row in rows[-1]:
        assert row["test_correct"] / row["test_count"] > 0.9
        assert math.isfinite(row["train_loss"]) and len(row["tensor_crcs"]) == 6
