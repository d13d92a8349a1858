"""Show that nodes learn from each other: final test accuracy of the digits experiment, by policy, over seeds.

Run: python benchmarks/learning.py [--seeds 5]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import models
import twin_sim
from gossamer.experiment import Experiment, load_experiment

EXPERIMENT = Path(__file__).parents[1] / "examples" / "digits_gist.toml"

POLICIES: dict[str, dict[str, Any]] = {
    "local": {"name": "local"},
    "gist": {},  # as the example has it
    "segmented_gossip": {"name": "segmented_gossip", "segments": 5, "pulls": 2},
    "gossipfl": {"name": "gossipfl", "ratio": 1.0},
    "dpsgd": {"name": "dpsgd"},
    "epidemic": {"name": "epidemic", "fanout": 2},
    "topk": {"name": "topk", "ratio": 0.2},
    "fedavg": {"name": "fedavg"},
}


def measure(policy: dict[str, Any], seed: int) -> tuple[float, float, float]:
    """Return final accuracy (mean and least over nodes, in percent) and megabytes sent."""
    experiment = load_experiment(EXPERIMENT, [f"experiment.seed={seed}"])
    if policy:
        tables = experiment.model_dump(by_alias=True) | {"policy": {"bits": experiment.policy.bits, **policy}}
        experiment = Experiment.model_validate(tables)
    with (
        tempfile.TemporaryDirectory() as folder,
        twin_sim.open_place(models.prepare(experiment), "sim", "native", Path(folder), None) as place,
    ):
        place.start(0)
        rounds = [place.round(number) for number in range(experiment.experiment.rounds)]
    accuracy = [100 * row["test_correct"] / row["test_count"] for row in rounds[-1]]
    sent = sum(row["bytes_sent"] for rows in rounds for row in rows)
    return float(np.mean(accuracy)), min(accuracy), sent / 1e6


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(1, parser.parse_args().seeds + 1)
    print("| policy | test accuracy, mean over nodes | worst node | MB sent |")
    print("|---|---|---|---|")
    for name, policy in POLICIES.items():
        means, worst, sent = zip(*(measure(policy, seed) for seed in seeds), strict=True)
        spread = np.std(means, ddof=1) if len(means) > 1 else 0.0
        print(f"| {name} | {np.mean(means):.1f} ± {spread:.1f} % | {np.mean(worst):.1f} % | {np.mean(sent):.2f} |")


if __name__ == "__main__":
    main()
