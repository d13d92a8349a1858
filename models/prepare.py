"""Put an experiment and its data together into a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ExperimentError, Problem
from gossamer.experiment import Experiment
from gossamer.job import Job
from gossamer.spec.constants import FeatureType
from gossamer.spec.image import build_image
from gossamer.spec.nn import ordered_sum
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
    given = _given(experiment)
    return Job(
        experiment=experiment,
        config=config,
        plan=plan,
        image=build_image(config, test_x, test_y, given),
        shards=[(dataset.x[own], dataset.y[own]) for own in shards],
        test_x=test_x,
        test_y=test_y,
        given=given,
    )


def _given(experiment: Experiment) -> NDArray[np.float32]:
    """Return the parameters that the image holds: of all layers if there is a file of weights, else of frozen ones."""
    network = experiment.network
    if experiment.model.weights is None:
        return network.part(network.initial(experiment.experiment.seed, experiment.init), frozen=True)
    try:
        return load_weights(Path(experiment.model.weights), sum(block.size for block in network.blocks))
    except ValueError as error:
        mend = "give the weights.npy of a finished run of the same model with nothing frozen"
        raise ExperimentError([Problem("", "model.weights", str(error), mend)]) from error


def load_weights(path: Path, parameters: int) -> NDArray[np.float32]:
    """Read parameters [P] from a .npy file of [P], or of [P, N] such as runs leave: then the mean over the nodes.

    Raises: ValueError.
    """
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'no .npy file'}") from error
    if not isinstance(values, np.ndarray) or values.dtype != np.float32 or values.ndim not in (1, 2):
        raise ValueError(f"{path} holds no float32 array of one or two dimensions")
    if values.shape[0] != parameters or not values.size:
        raise ValueError(f"{path} holds {values.shape[0]:,} parameters, the model has {parameters:,}")
    if not np.isfinite(values).all():
        raise ValueError(f"{path} holds a number that is not finite")
    if values.ndim == 1:
        return values.copy()
    mean: NDArray[np.float32] = ordered_sum(values.T) / np.float32(values.shape[1])
    return mean


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
    data, nodes, network = experiment.data, experiment.experiment.nodes, experiment.network
    called = f"{dataset.name} has"

    def problem(key: str, what: str, mend: str | None = None) -> Problem:
        return Problem("", key, what, mend)

    yield from (problem("data.set", f"{dataset.name}: {what}", "mend the data set") for what in _damages(dataset))

    width = dataset.x.shape[1]
    shape = experiment.model.input
    if shape is not None and network.input.numbers != width:
        what = f"{network.input} is {network.input.numbers}, {called} {width} features"
        yield problem("model.input", what, f"give a height, width and channels that make {width}")
    if shape is None and network.input.numbers != width:
        what = f"the first width is {network.input.numbers}, {called} {width} features"
        yield problem("model.layers", what, f"begin with {width}")
    if network.classes != dataset.classes:
        last = "the last width is" if shape is None else "the last layer's outputs are"
        what = f"{last} {network.classes}, {called} {dataset.classes} classes"
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
