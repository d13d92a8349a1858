"""Do `gossamer experiment`, and prepare the jobs of the other commands."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gossamer.errors import ExperimentError
from gossamer.experiment import Experiment, load_experiment, place_problems
from gossamer.job import Job


def prepare(path: Path, overrides: Sequence[str], quiet: bool = False) -> Job:
    """Load an experiment and its data; whatever is wrong is named with its line. Prints warnings, unless quiet."""
    import models

    experiment = load_experiment(path, overrides)
    if not quiet:
        _warn(experiment)
    try:
        return models.prepare(experiment)
    except ExperimentError as error:
        raise place_problems(error, path, overrides) from error


def check_experiment(path: Path, overrides: Sequence[str]) -> None:
    """Print the complete experiment; the data set is checked as a run would."""
    print(prepare(path, overrides).experiment.resolved().dumps(), end="")


def print_size(path: Path, overrides: Sequence[str]) -> None:
    """Print the bytes of each part of a node's memory, as a processor without vectors has them.

    Where layers are frozen, a second column tells what each part would take if none were.
    """
    from twin_sim.native import node_parts

    job = prepare(path, overrides)
    parts = node_parts(job.image, "GS_LANES=1")
    total = sum(parts.values())
    if not job.experiment.network.frozen:
        _print_parts([parts])
        print(f"{total:>9,}  in all, of {1 << 16:,} in 64 KiB; without the stack")
        return
    whole = node_parts(prepare(path, [*overrides, "train.trainable=all"], quiet=True).image, "GS_LANES=1")
    _print_parts([parts, whole])
    saved = sum(whole.values()) - total
    print(f"{total:>9,} {sum(whole.values()):>9,}  in all, of {1 << 16:,} in 64 KiB; without the stack")
    print(f"{saved:>9,}  saved by freezing layers; their {4 * _frozen(job):,} bytes are read from the image")


def _frozen(job: Job) -> int:
    return sum(block.size for block in job.experiment.network.frozen)


def _print_parts(columns: Sequence[Mapping[str, int]]) -> None:
    for name in columns[0]:
        sizes = [column[name] for column in columns]
        if any(sizes):
            print(f"{' '.join(f'{size_bytes:>9,}' for size_bytes in sizes)}  {name}")


def _warn(experiment: Experiment) -> None:
    """Print what is allowed but rarely meant."""
    for text in experiment.warnings():
        print(f"warning: {text}", file=sys.stderr)
