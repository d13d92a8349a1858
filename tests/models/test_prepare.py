"""Jobs: they hold the data they were given, and refuse data that does not fit, all problems at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
from gossamer.errors import ExperimentError
from gossamer.experiment import Experiment, load_experiment
from gossamer.spec.image import parse_image
from models import Dataset

DIGITS = Path(__file__).parents[2] / "examples" / "digits_gist.toml"


def experiment(*overrides: str) -> Experiment:
    return load_experiment(DIGITS, overrides)


def small(**changes: Any) -> Dataset:
    """Return 40 samples of 3 float features in 2 classes."""
    x = np.arange(120, dtype=np.float32).reshape(40, 3) / 7
    fine = Dataset("small", x, (np.arange(40) % 2).astype(np.uint8), 2, 1.0, 0.0, "made up", "none")
    return replace(fine, **changes)


def refusal(chosen: Experiment, dataset: Dataset | None = None) -> list[tuple[str, str]]:
    with pytest.raises(ExperimentError) as caught:
        models.prepare(chosen, dataset)
    assert all(problem.mend for problem in caught.value.problems)
    return [(problem.key, problem.what) for problem in caught.value.problems]


def rows(*parts: tuple[Any, Any]) -> list[bytes]:
    return sorted(bytes(x) + bytes([y]) for features, labels in parts for x, y in zip(features, labels, strict=True))


def test_every_sample_is_used_once() -> None:
    job, digits = models.prepare(experiment()), models.load("digits")
    assert len(job.shards) == 16 and len(job.test_y) == 359  # a fifth of 1797, rounded down
    assert rows((job.test_x, job.test_y), *job.shards) == rows((digits.x, digits.y))


def test_the_image_holds_configuration_and_test_set() -> None:
    job = models.prepare(experiment())
    image = parse_image(job.image)
    config = image.config
    assert config == dict(job.config)
    assert (image.test_x == job.test_x).all() and (image.test_y == job.test_y).all()
    assert config["shard_max"] == max(len(y) for _, y in job.shards)
    assert (config["test_count"], config["feature_type"], config["feature_scale"]) == (359, 0, 0.0625)
    assert config["peers_max"] == job.plan.peers_max


def test_policies_meet_the_same_data() -> None:
    """Only so can they be compared."""
    gist, local = (models.prepare(experiment(*o)) for o in ((), ("policy.name=local",)))
    assert rows(*gist.shards) == rows(*local.shards)
    assert [y.tolist() for _, y in gist.shards] == [y.tolist() for _, y in local.shards]


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "labels", "quantity"])
def test_every_partition_is_reached(kind: str) -> None:
    job = models.prepare(experiment(f"data.partition={kind}"))
    sizes, held = [len(y) for _, y in job.shards], [len(set(y.tolist())) for _, y in job.shards]
    assert {
        "iid": max(sizes) - min(sizes) <= 1,
        "dirichlet": max(sizes) > 2 * min(sizes),
        "labels": set(held) == {2},
        "quantity": max(sizes) > 10 * min(sizes),
    }[kind]


def test_data_of_ones_own() -> None:
    job = models.prepare(experiment("experiment.nodes=4", "topology.degree=2", "model.layers=[3,2]"), small())
    assert job.config["feature_type"] == 1
    assert rows((job.test_x, job.test_y), *job.shards) == rows((small().x, small().y))


def test_all_problems_at_once() -> None:
    chosen = experiment("model.layers=[63,11]", "experiment.nodes=900", "data.partition=labels")
    chosen = chosen.model_copy(update={"data": chosen.data.model_copy(update={"labels_per_node": 11})})
    assert refusal(chosen) == [
        ("model.layers", "the first width is 63, digits has 64 features"),
        ("model.layers", "the last width is 11, digits has 10 classes"),
        ("data.labels_per_node", "11 labels a node, but digits has 10 classes"),
        ("experiment.nodes", "900 nodes need 2 samples each, digits has 1438 after the test set is held back"),
    ]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"y": np.zeros(40, np.uint8)}, "all samples have the same label: there is nothing to learn"),
        ({"y": np.full(40, 2, np.uint8) - np.arange(40, dtype=np.uint8) % 2}, "label 2 is not below"),
        ({"y": np.zeros(39, np.uint8) + np.arange(39, dtype=np.uint8) % 2}, "40 rows of features for 39 labels"),
        ({"x": np.zeros((40, 3))}, "features of type float64"),
        ({"x": np.full((40, 3), np.nan, np.float32)}, "a feature is not finite"),
        ({"classes": 257}, "257 classes; a label is a byte"),
        ({"x": np.zeros((0, 3), np.float32), "y": np.zeros(0, np.uint8)}, "there is nothing to learn"),
    ],
)
def test_damaged_data_is_refused(changes: dict[str, Any], what: str) -> None:
    chosen = experiment("experiment.nodes=4", "topology.degree=2", "model.layers=[3,2]")
    found = refusal(chosen, small(**changes))
    assert any(key == "data.set" and what in text for key, text in found), found


def test_a_shard_beyond_what_a_node_holds_is_refused() -> None:
    count = 200_000
    many = small(x=np.zeros((count, 3), np.uint8), y=(np.arange(count) % 2).astype(np.uint8))
    chosen = experiment("experiment.nodes=2", "model.layers=[3,2]", "topology.kind=full", "data.partition=iid")
    assert refusal(chosen, many) == [("data.partition", "the largest shard has 80000 samples, a node holds 65535")]
