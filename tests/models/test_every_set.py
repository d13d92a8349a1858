"""Every data set runs to the same bits: features of bytes, of floats, and of bytes with an offset."""

from __future__ import annotations

from pathlib import Path

import pytest

import models
from tests.conformance.test_equal import assert_equal_everywhere, combination
from tests.models import load_or_skip


@pytest.mark.parametrize("name", models.DATA_SETS)
def test_equal_on(name: str, tmp_path: Path) -> None:
    dataset = load_or_skip(name)
    tables = combination("gist", 8, "adastair")
    tables["data"]["set"] = name
    tables["model"]["layers"] = [dataset.x.shape[1], 12, dataset.classes]
    assert_equal_everywhere(tables, tmp_path)
