"""Do `gossamer experiment`, and prepare the jobs of the other commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gossamer.errors import ExperimentError
from gossamer.experiment import Experiment, load_experiment, place_problems
from gossamer.job import Job


def prepare(path: Path, overrides: Sequence[str]) -> Job:
    """Load an experiment and its data; whatever is wrong is named with its line. Prints warnings."""
    import models

    experiment = load_experiment(path, overrides)
    _warn(experiment)
    try:
        return models.prepare(experiment)
    except ExperimentError as error:
        raise place_problems(error, path, overrides) from error


def check_experiment(path: Path, overrides: Sequence[str]) -> None:
    """Print the complete experiment; the data set is checked as a run would."""
    print(prepare(path, overrides).experiment.resolved().dumps(), end="")


def print_size(path: Path, overrides: Sequence[str]) -> None:
    """Print the bytes of each part of a node's memory, as a processor without vectors has them."""
    from twin_sim.native import node_parts

    parts = node_parts(prepare(path, overrides).image, "GS_LANES=1")
    for name, size_bytes in parts.items():
        if size_bytes:
            print(f"{size_bytes:>9,}  {name}")
    print(f"{sum(parts.values()):>9,}  in all, of {1 << 16:,} in 64 KiB; without the stack")


def _warn(experiment: Experiment) -> None:
    """Print what is allowed but rarely meant."""
    for text in experiment.warnings():
        print(f"warning: {text}", file=sys.stderr)
