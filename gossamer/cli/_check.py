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


def warn(experiment: Experiment) -> None:
    """Print what is allowed but rarely meant."""
    for text in experiment.warnings():
        print(f"warning: {text}", file=sys.stderr)
