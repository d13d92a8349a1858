"""Models of dense layers only hold the bits that version 1 of the specification gave them (recorded then)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import models
import twin_sim
from gossamer.experiment import load_experiment
from tests.conformance.random_experiments import to_toml

RECORDED: dict[str, tuple[dict[str, Any], list[int]]] = {
    "gist by kernels, with momentum": (
        {
            "model": {"layers": [64, 24, 16, 10]},
            "train": {"batch": 8, "local_steps": 3, "lr": 0.3, "momentum": 0.5, "weight_decay": 1e-4},
            "schedule": {"policy": "adastair", "reference": "best", "patience": [0.1, 0.1]},
            "policy": {"name": "gist", "bits": 8, "threshold": 2, "sends": 4, "unit": "kernel", "score": "taylor"},
        },
        [3124490610, 1103626703, 2314254568, 1984960418],
    ),
    "gist by channels": (
        {
            "model": {"layers": [64, 12, 10], "init": "he"},
            "train": {"batch": 8, "local_steps": 3, "lr": 0.3},
            "schedule": {"policy": "adaloss", "reference": "best", "patience": [0.1, 0.1]},
            "policy": {"name": "gist", "bits": 4, "threshold": 2, "sends": 4, "unit": "channel"},
        },
        [1278003909, 2162945313, 3575663510, 3313394077],
    ),
    "one layer": (
        {
            "model": {"layers": [64, 10]},
            "train": {"batch": 5, "local_steps": 2, "lr": 0.1, "momentum": 0.9},
            "policy": {"name": "dpsgd", "bits": 16},
        },
        [2539118416, 1499993154, 716908587, 2976076946],
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_dense_models_keep_their_bits(name: str, tmp_path: Path) -> None:
    own, expected = RECORDED[name]
    tables = {
        "experiment": {"name": "pinned", "seed": 7, "nodes": 4, "rounds": 4},
        "data": {"set": "digits", "partition": "dirichlet", "alpha": 0.5},
        "topology": {"kind": "ring"},
        "link": {"loss": 0.1},
        **own,
    }
    path = tmp_path / "e.toml"
    path.write_text(to_toml(tables))
    job = models.prepare(load_experiment(path))
    with twin_sim.open_place(job, "sim", "numpy", tmp_path, threads=1) as place:
        place.start(0)
        rows = [place.round(number) for number in range(4)]
    assert [row["weights_crc"] for row in rows[-1]] == expected
