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
    table = np.loadtxt(_bundled("digits.csv.gz", digest).splitlines(), np.uint8, delimiter=",")
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
    lines = _bundled("breast_cancer.csv", digest).splitlines()[1:]  # the first counts them
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


def _bundled(name: str, sha256: str) -> str:
    """Return the text of a file of scikit-learn."""
    # The package is located, not imported: that would take a second for one text file.
    package = importlib.util.find_spec("sklearn")
    folders = (package.submodule_search_locations if package else None) or []
    path = next((Path(folder, "datasets", "data", name) for folder in folders), None)
    if path is None or not path.exists():
        raise GossamerError("the data set's file is not there", str(path or name), "pip install scikit-learn")
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if hashlib.sha256(content).hexdigest() != sha256:
        # Other samples would give other weights under the same experiment.
        mend = "pip install --force-reinstall scikit-learn"
        raise GossamerError("not the known samples (SHA-256 differs)", str(path), mend)
    return content.decode("ascii")


DATA_SETS: Final[dict[str, Callable[[], Dataset]]] = {
    "digits": _digits,
    "breast_cancer": _breast_cancer,
    "blobs": _blobs,
}
