"""Units, ranking and segments of a model small enough to write down (SPEC.md 6.2 to 6.4)."""

from __future__ import annotations

import numpy as np
import pytest

from gossamer.spec.constants import Reduce, Unit
from gossamer.spec.nn import Model
from gossamer.spec.units import Units, cut, rank, segment_means

MODEL = Model.dense((2, 3, 1))  # W0: 0..5 (rows of 2), b0: 6..8, W1: 9..11, b1: 12


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        (Unit.KERNEL, [[0, 1, 6], [2, 3, 7], [4, 5, 8], [9, 10, 11, 12]]),
        (Unit.CHANNEL, [[0, 2, 4], [1, 3, 5], [6, 7, 8], [9], [10], [11], [12]]),
        (Unit.LAYER, [[0, 1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12]]),
        (Unit.PARAMETER, [[number] for number in range(13)]),
    ],
)
def test_members(kind: Unit, members: list[list[int]]) -> None:
    units = Units(MODEL, kind)
    assert [row.tolist() for row in units.members] == members
    assert units.order.tolist() == sum(members, [])


def test_importance_by_hand() -> None:
    scores = np.zeros((13, 1), np.float32)
    scores[[9, 10, 11, 12], 0] = [2, 4, 4, 8]
    kernel = Units(MODEL, Unit.KERNEL)
    assert kernel.importance(scores, Reduce.L2)[3, 0] == 10
    assert kernel.importance(scores, Reduce.MEAN)[3, 0] == 4.5
    # A unit of one parameter has its score, whatever the rule: sqrt(s * s) would be 0 here.
    scores[12, 0] = 1e-30
    assert Units(MODEL, Unit.CHANNEL).importance(scores, Reduce.L2)[6, 0] == np.float32(1e-30)


def test_ties_go_to_the_lower_unit() -> None:
    ranked = rank(np.array([[1], [3], [1], [0], [3]], np.float32))
    assert ranked[:, 0].tolist() == [1, 4, 0, 2, 3]


def test_cut_into_segments_of_near_equal_size() -> None:
    units = Units(MODEL, Unit.KERNEL)  # sizes 3, 3, 3, 4
    ranked = np.array([[3], [0], [1], [2]])
    # Parameters before each, in rank order: 0, 4, 7, 10 of 13; times 2, div 13: 0, 0, 1, 1.
    assert cut(units, ranked, 2)[:, 0].tolist() == [0, 1, 1, 0]
    # A unit larger than a segment's share leaves a segment empty: 0*2/13, 9*2/13.
    assert cut(Units(MODEL, Unit.LAYER), np.array([[0], [1]]), 5)[:, 0].tolist() == [0, 3]


def test_segment_means_and_empty_segments() -> None:
    importance = np.array([[4], [1], [1], [8]], np.float32)
    ranked = rank(importance)
    means, counts = segment_means(importance, ranked, np.array([[0], [2], [2], [0]]), 3)
    assert means[:, 0].tolist() == [6, 0, 1]
    assert counts[:, 0].tolist() == [2, 0, 2]
