"""Do `gossamer experiment check`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gossamer.experiment import Experiment, load_experiment


def check_experiment(path: Path, overrides: Sequence[str]) -> None:
    """Print the complete experiment; the data set is checked as a run would."""
    import models

    experiment = load_experiment(path, overrides)
    models.prepare(experiment)
    warn(experiment)
    print(experiment.resolved().dumps(), end="")


def print_size(path: Path, overrides: Sequence[str]) -> None:
    """Print the bytes of each part of a node's memory, as a processor without vectors has them."""
    import models
    from twin_sim.native import node_parts

    experiment = load_experiment(path, overrides)
    parts = node_parts(models.prepare(experiment).image, "GS_LANES=1")
    for name, size_bytes in parts.items():
        if size_bytes:
            print(f"{size_bytes:>9,}  {name}")
    print(f"{sum(parts.values()):>9,}  in all, of {1 << 16:,} in 64 KiB; without the stack")


def warn(experiment: Experiment) -> None:
    """Print what is allowed but rarely meant."""
    for text in experiment.warnings():
        print(f"warning: {text}", file=sys.stderr)
