"""Load data sets; nothing is downloaded."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ExperimentError, GossamerError, Problem


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


@lru_cache(maxsize=1)
def _digits() -> Dataset:
    table = np.loadtxt(_digits_text().splitlines(), np.uint8, delimiter=",")
    table.setflags(write=False)  # one copy serves every caller
    return Dataset(
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


_DIGITS_SHA256: Final = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"


def _digits_text() -> str:
    # scikit-learn is located, not imported: that would take a second for one text file.
    package = importlib.util.find_spec("sklearn")
    folders = (package.submodule_search_locations if package else None) or []
    path = next((Path(folder, "datasets", "data", "digits.csv.gz") for folder in folders), None)
    if path is None or not path.exists():
        raise GossamerError(
            "the data set's file is not there", str(path or "digits.csv.gz"), "pip install scikit-learn"
        )
    content = gzip.decompress(path.read_bytes())
    if hashlib.sha256(content).hexdigest() != _DIGITS_SHA256:
        # Other samples would give other weights under the same experiment.
        raise GossamerError(
            "not the known digits (SHA-256 differs)", str(path), "pip install --force-reinstall scikit-learn"
        )
    return content.decode("ascii")


DATA_SETS: Final[dict[str, Callable[[], Dataset]]] = {"digits": _digits}
