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
from gossamer.compare import Parting, compare
from gossamer.experiment import load_experiment
from gossamer.job import Job
from gossamer.place import Row
from gossamer.record import Recorder, Run, read_run
from gossamer.spec import rng
from gossamer.spec.constants import Stream
from tests.conformance.random_experiments import (
    BITS,
    POLICIES,
    SCHEDULES,
    random_cnn_experiment,
    random_experiment,
    to_toml,
)

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


@pytest.mark.parametrize("seed", SMALL_SEEDS)
def test_random_layers_small(seed: int, tmp_path: Path) -> None:
    assert_equal_everywhere(random_cnn_experiment(seed), tmp_path, ("numpy", "native"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL_SEEDS)
def test_random_layers(seed: int, tmp_path: Path) -> None:
    assert_equal_everywhere(random_cnn_experiment(seed), tmp_path)


@pytest.mark.parametrize("trainable", ["all", 1])
def test_weights_of_a_file_are_where_all_places_start(trainable: str | int, tmp_path: Path) -> None:
    tables = random_cnn_experiment(1)
    del tables["model"]["init"]
    count = sum(block.size for block in prepare(tables, tmp_path).experiment.network.blocks)
    np.save(tmp_path / "weights.npy", np.random.default_rng(1).normal(size=(count, 3)).astype(np.float32) * 0.1)
    tables["model"]["weights"] = "weights.npy"
    tables["train"]["trainable"] = trainable
    assert_equal_everywhere(tables, tmp_path)


# --- a difference of one bit must be found ----------------------------------------------------------------------------


def recorded(job: Job, name: str, folder: Path, tamper: Callable[[Any, int], None] | None = None) -> Run:
    where, engine = PLACES[name]
    with Recorder.create(folder / f"run-{name}", job.experiment, where, engine) as recorder:
        for rows in run(job, name, folder, tamper):
            recorder.append(rows)
    return read_run(folder / f"run-{name}")


def planted(folder: Path, tamper: Callable[[Any, int], None]) -> Parting | None:
    """Compare an honest run of the firmware with a tampered one of the specification."""
    tables = combination("local", 32, "constant")
    job = prepare(tables, folder)
    (comparison,) = compare([recorded(job, "native", folder), recorded(job, "numpy", folder, tamper)])
    return comparison.parting


def test_nothing_planted_nothing_found(tmp_path: Path) -> None:
    assert planted(tmp_path, lambda place, number: None) is None


def test_the_last_bit_of_one_float_is_found(tmp_path: Path) -> None:
    def flip(place: Any, number: int) -> None:
        if number == 3:
            # The weight of the first pixel, which no digit ever inks: no gradient moves it, nothing hides the bit.
            place._w.view(np.uint32)[64 * 7, 2] ^= 1

    assert planted(tmp_path, flip) == Parting(3, 2, "layer 1 weights", 1)


def test_one_random_counter_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = rng.draws

    def draws(seed: int, stream: int, round_: Any, node: Any, index: Any) -> Any:
        words = honest(seed, stream, round_, node, index)
        if stream == Stream.BATCH and round_ == 2:
            shifted = honest(seed, stream, round_, node, np.asarray(index) + 1)
            words = np.where(np.asarray(node) == 4, shifted, words)
        return words

    monkeypatch.setattr(rng, "draws", draws)
    found = planted(tmp_path, lambda place, number: None)
    assert found is not None
    assert (found.round, found.node, found.nodes) == (2, 4, 1)


# --- a run that was interrupted ends with the same bits --------------------------------------------------------------


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize(
    ("policy", "optimizer"), [("gist", "sgd"), ("topk", "sgd"), ("fedavg", "sgd"), ("gist", "adam")]
)
def test_a_continued_run_ends_with_the_same_bits(name: str, policy: str, optimizer: str, tmp_path: Path) -> None:
    tables = combination(policy, 4, "adastair+adaloss")
    tables["churn"] = {"away": 0.3, "span": 2}
    tables["train"] |= {"momentum": 0.5} if optimizer == "sgd" else {"optimizer": "adam", "lr": 0.01}
    if policy != "topk":
        tables["policy"]["error_feedback"] = True
    job = prepare(tables, tmp_path)
    whole = run(job, name, tmp_path)
    where, engine = PLACES[name]
    folder = tmp_path / "interrupted"
    with twin_sim.open_place(job, where, engine, folder, threads=2) as place:
        place.start(0)
        rows = [place.round(number) for number in range(3)]
        place.save()
    with twin_sim.open_place(job, where, engine, folder, threads=2) as place:
        assert place.start(3) == 3
        rows += [place.round(number) for number in range(3, 5)]
    assert first_difference(whole, rows) is None
