"""The digits: checked against what their publisher says of them."""

from __future__ import annotations

import gzip
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

import models
from gossamer.errors import ExperimentError, GossamerError
from models import data


def test_digits_are_the_published_ones() -> None:
    """UCI's description of the test part: 1797 samples, 64 attributes 0..16, and the samples of each class."""
    digits = models.load("digits")
    assert digits.x.shape == (1797, 64) and digits.x.dtype == np.uint8
    assert digits.y.dtype == np.uint8
    assert (digits.x.min(), digits.x.max()) == (0, 16)
    assert np.bincount(digits.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert digits.x[0, :8].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert (digits.classes, digits.feature_scale, digits.feature_offset) == (10, 1 / 16, 0)


def test_digits_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        models.load("digits").x[0, 0] = 1


def test_an_unknown_name_is_named_with_its_mend() -> None:
    with pytest.raises(ExperimentError, match="data.set: there is no data set 'digit'; did you mean 'digits'?"):
        models.load("digit")
    with pytest.raises(ExperimentError, match="choose one of: digits"):
        models.load("imagenet")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pretend that scikit-learn is in a folder of ours; returns where its digits belong."""
    spec = ModuleSpec("sklearn", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    (tmp_path / "datasets" / "data").mkdir(parents=True)
    return tmp_path / "datasets" / "data" / "digits.csv.gz"


def test_a_missing_file_is_named(elsewhere: Path) -> None:
    with pytest.raises(GossamerError, match="the data set's file is not there; pip install scikit-learn") as caught:
        data._digits_text()
    assert caught.value.where == str(elsewhere)


def test_a_changed_file_is_refused(elsewhere: Path) -> None:
    elsewhere.write_bytes(gzip.compress(b"0,1,2\n"))
    with pytest.raises(GossamerError, match="not the known digits"):
        data._digits_text()


def test_no_package_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(GossamerError, match="pip install scikit-learn"):
        data._digits_text()
