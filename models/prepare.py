"""Put an experiment and its data together into a job."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ExperimentError, Problem
from gossamer.experiment import Experiment
from gossamer.job import Job
from gossamer.spec.constants import FeatureType
from gossamer.spec.image import build_image
from models import partition
from models.data import Dataset, load

_SHARD_MAX = 65535  # SPEC.md 4.1
_CLASSES_MAX = 256  # labels are bytes


def prepare(experiment: Experiment, dataset: Dataset | None = None) -> Job:
    """Split the data, deal it to the nodes and build the experiment image.

    `dataset` stands in for the one that `data.set` names.

    Raises: ExperimentError, which names everything in which data and experiment do not fit.
    """
    dataset = load(experiment.data.set) if dataset is None else dataset
    problems = list(_misfits(experiment, dataset))
    if problems:
        raise ExperimentError(problems)

    test, rest = partition.split(experiment.experiment.seed, len(dataset.y), experiment.data.test_fraction)
    shards = [rest[own] for own in _deal(experiment, dataset.y[rest])]
    largest = max(map(len, shards))
    if largest > _SHARD_MAX:
        what = f"the largest shard has {largest} samples, a node holds {_SHARD_MAX}"
        raise ExperimentError([Problem("", "data.partition", what, "raise experiment.nodes or data.alpha")])

    plan = experiment.plan()
    config = experiment.config_words(
        test_count=len(test),
        shard_max=largest,
        peers_max=plan.peers_max,
        feature_type=FeatureType.U8 if dataset.x.dtype == np.uint8 else FeatureType.F32,
        feature_scale=dataset.feature_scale,
        feature_offset=dataset.feature_offset,
    )
    test_x, test_y = dataset.x[test], dataset.y[test]
    return Job(
        experiment=experiment,
        config=config,
        plan=plan,
        image=build_image(config, test_x, test_y),
        shards=[(dataset.x[own], dataset.y[own]) for own in shards],
        test_x=test_x,
        test_y=test_y,
    )


def _deal(experiment: Experiment, y: NDArray[np.uint8]) -> list[partition.Indices]:
    """Return each node's samples as indices into `y`."""
    seed, nodes, data = experiment.experiment.seed, experiment.experiment.nodes, experiment.data
    match data.partition:
        case "iid":
            return partition.iid(seed, y, nodes)
        case "dirichlet":
            return partition.dirichlet(seed, y, nodes, data.alpha)
        case "labels":
            return partition.labels(seed, y, nodes, data.labels_per_node)
        case "quantity":
            return partition.quantity(seed, y, nodes, data.alpha)


def _misfits(experiment: Experiment, dataset: Dataset) -> Iterator[Problem]:
    """Yield every way in which data and experiment do not fit."""
    data, nodes, layers = experiment.data, experiment.experiment.nodes, experiment.model.layers
    called = f"{dataset.name} has"

    def problem(key: str, what: str, mend: str | None = None) -> Problem:
        return Problem("", key, what, mend)

    yield from (problem("data.set", f"{dataset.name}: {what}", "mend the data set") for what in _damages(dataset))

    width = dataset.x.shape[1]
    if layers[0] != width:
        what = f"the first width is {layers[0]}, {called} {width} features"
        yield problem("model.layers", what, f"begin with {width}")
    if layers[-1] != dataset.classes:
        what = f"the last width is {layers[-1]}, {called} {dataset.classes} classes"
        yield problem("model.layers", what, f"end with {dataset.classes}")
    if data.partition == "labels" and data.labels_per_node > dataset.classes:
        what = f"{data.labels_per_node} labels a node, but {called} {dataset.classes} classes"
        yield problem("data.labels_per_node", what, f"give {dataset.classes} at most")

    samples = len(dataset.y)
    left = samples - partition.test_count(samples, data.test_fraction) if samples else 0
    if left < partition.SHARD_MIN * nodes:
        what = f"{nodes} nodes need {partition.SHARD_MIN} samples each, {called} {left} after the test set is held back"
        most = left // partition.SHARD_MIN
        yield problem("experiment.nodes", what, f"{most} nodes at most, or lower data.test_fraction")


def _damages(dataset: Dataset) -> Iterator[str]:
    """Yield what makes a data set unfit for every experiment."""
    x, y = dataset.x, dataset.y
    if len(x) != len(y):
        yield f"{len(x)} rows of features for {len(y)} labels"
    if x.dtype not in (np.uint8, np.float32):
        yield f"features of type {x.dtype}; nodes hold uint8 or float32"
    elif not np.isfinite(x).all():
        yield "a feature is not finite"
    if dataset.classes > _CLASSES_MAX:
        yield f"{dataset.classes} classes; a label is a byte"
    if len(np.unique(y)) < 2:
        yield "all samples have the same label: there is nothing to learn"
    if len(y) and y.max() >= dataset.classes:
        yield f"label {y.max()} is not below the number of classes, {dataset.classes}"
