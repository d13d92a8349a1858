"""The claim: numpy, native and host hold the same bits, and count the same frames, in every node and round."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
import twin_sim
from gossamer.experiment import load_experiment
from gossamer.job import Job
from gossamer.place import Row
from tests.conformance.random_experiments import BITS, POLICIES, SCHEDULES, random_experiment, to_toml

PLACES = {"numpy": ("sim", "numpy"), "native": ("sim", "native"), "host": ("host", "auto")}
SMALL_SEEDS, ALL_SEEDS = range(12), range(200)
COMBINATIONS = list(itertools.product(POLICIES, BITS, SCHEDULES))


def prepare(tables: dict[str, Any], folder: Path) -> Job:
    path = folder / "experiment.toml"
    path.write_text(to_toml(tables))
    return models.prepare(load_experiment(path))


def run(job: Job, name: str, folder: Path, tamper: Callable[[Any, int], None] | None = None) -> list[list[Row]]:
    where, engine = PLACES[name]
    with twin_sim.open_place(job, where, engine, folder / name, threads=2) as place:
        place.start(0)
        rounds = []
        for number in range(job.experiment.experiment.rounds):
            if tamper is not None:
                tamper(place, number)
            rounds.append(place.round(number))
        return rounds


def first_difference(first: list[list[Row]], second: list[list[Row]]) -> str | None:
    """Name the first round, node and column in which two runs differ; NaN equals NaN."""
    for number, (mine, theirs) in enumerate(zip(first, second, strict=True)):
        for one, other in zip(mine, theirs, strict=True):
            for key in {*one, *other}:
                a, b = one.get(key), other.get(key)  # type: ignore[attr-defined]
                if a != b and not (a != a and b != b):
                    return f"round {number} node {one['node']} {key}: {a} against {b}"
    return None


def assert_equal_everywhere(tables: dict[str, Any], folder: Path, names: tuple[str, ...] = tuple(PLACES)) -> None:
    job = prepare(tables, folder)
    runs = {name: run(job, name, folder) for name in names}
    for name in names[1:]:
        difference = first_difference(runs[names[0]], runs[name])
        assert difference is None, f"{names[0]} and {name} part in {tables}: {difference}"


def combination(policy: str, bits: int, schedule: str) -> dict[str, Any]:
    """Return a short digits experiment with this policy, these bits and this schedule."""
    options: dict[str, Any] = {"gist": {"threshold": 2, "sends": 4}, "topk": {"ratio": 0.05}}.get(policy, {})
    return {
        "experiment": {"name": "combination", "seed": 7, "nodes": 6, "rounds": 5},
        "data": {"set": "digits", "partition": "dirichlet", "alpha": 0.5},
        "model": {"layers": [64, 32, 10]},
        "train": {"batch": 8, "local_steps": 3, "lr": 0.3},
        "schedule": {"policy": schedule, "reference": "best", "patience": [0.1, 0.1]},
        "policy": {"name": policy, "bits": bits, **options},
        "topology": {"kind": "watts_strogatz", "degree": 4, "rewire": 0.3},
        "link": {"loss": 0.1},
    }


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_small(policy: str, tmp_path: Path) -> None:
    number = POLICIES.index(policy)
    tables = combination(policy, BITS[number % len(BITS)], SCHEDULES[number % len(SCHEDULES)])
    assert_equal_everywhere(tables, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "bits", "schedule"), COMBINATIONS)
def test_every_combination(policy: str, bits: int, schedule: str, tmp_path: Path) -> None:
    assert_equal_everywhere(combination(policy, bits, schedule), tmp_path)


@pytest.mark.parametrize("seed", SMALL_SEEDS)
def test_random_experiments_small(seed: int, tmp_path: Path) -> None:
    assert_equal_everywhere(random_experiment(seed), tmp_path, ("numpy", "native"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL_SEEDS)
def test_random_experiments(seed: int, tmp_path: Path) -> None:
    assert_equal_everywhere(random_experiment(seed), tmp_path)


def test_a_planted_bit_is_found(tmp_path: Path) -> None:
    """Flip one weight's last bit before round 3 in one engine: round, node and tensor must be named."""
    job = prepare(combination("gist", 32, "constant"), tmp_path)
    honest = run(job, "native", tmp_path)

    def flip(place: Any, number: int) -> None:
        if number == 3:
            bits = place._w.view(np.uint32)
            bits[64 * 32 + 5, 2] ^= 1  # bias 5 of layer 0, node 2

    tampered = run(job, "numpy", tmp_path, flip)
    difference = first_difference(honest, tampered)
    assert difference is not None and difference.startswith("round 3 ")
