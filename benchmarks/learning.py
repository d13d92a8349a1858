"""Show that nodes learn from each other: final test accuracy of the digits experiment, by policy, over seeds.

Run: python benchmarks/learning.py [--seeds 5]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import models
import twin_sim
from gossamer.experiment import load_experiment

EXPERIMENT = Path(__file__).parents[1] / "examples" / "digits_gist.toml"

POLICIES: dict[str, list[str]] = {
    "local": ["policy.name=local"],
    "gist": [],  # as the example has it
    "segmented_gossip": ["policy.name=segmented_gossip", "policy.segments=5", "policy.pulls=2"],
    "gossipfl": ["policy.name=gossipfl", "policy.ratio=1.0"],
    "dpsgd": ["policy.name=dpsgd"],
    "epidemic": ["policy.name=epidemic", "policy.fanout=2"],
    "topk": ["policy.name=topk", "policy.ratio=0.2"],
    "fedavg": ["policy.name=fedavg"],
}


def measure(overrides: list[str], seed: int) -> tuple[float, float, float]:
    """Return final accuracy (mean and least over nodes, in percent) and megabytes sent."""
    experiment = load_experiment(EXPERIMENT, [*overrides, f"experiment.seed={seed}"])
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
    for name, overrides in POLICIES.items():
        means, worst, sent = zip(*(measure(overrides, seed) for seed in seeds), strict=True)
        spread = np.std(means, ddof=1) if len(means) > 1 else 0.0
        print(f"| {name} | {np.mean(means):.1f} ± {spread:.1f} % | {np.mean(worst):.1f} % | {np.mean(sent):.2f} |")


if __name__ == "__main__":
    main()
