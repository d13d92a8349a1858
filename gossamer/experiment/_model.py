"""Put the sections of an experiment together."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer.experiment._sections import (
    ChurnSection,
    DataSection,
    ExperimentSection,
    LinkSection,
    ModelSection,
    PolicySection,
    RingTopology,
    ScheduleSection,
    Section,
    TopologySection,
    TrainSection,
)


class Experiment(Section):
    """Hold one experiment, complete and consistent."""

    experiment: ExperimentSection
    data: DataSection
    model: ModelSection
    train: TrainSection
    schedule: ScheduleSection = ScheduleSection()
    policy: PolicySection
    topology: TopologySection
    link: LinkSection = LinkSection()
    churn: ChurnSection = ChurnSection()


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment file; `overrides` are `section.key=value` texts."""
    return Experiment.model_validate(_frozen(tomllib.loads(path.read_text("utf-8"))))


def _frozen(value: Any) -> Any:
    """Turn lists into tuples: sections never change."""
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
