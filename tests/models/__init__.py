"""Check data sets, partitions and the zoo."""

import pytest

import models
from gossamer.errors import GossamerError


def load_or_skip(name: str) -> models.Dataset:
    """Return a data set, or skip the test, saying what to install."""
    try:
        return models.load(name)
    except GossamerError as error:
        if "is not there" not in error.what:
            raise
        pytest.skip(f"data set {name}: {error}")
