"""Partitions: what each kind promises, and the samplers against their distributions' known moments."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from models import partition
from models.partition import Indices

LABELS = np.repeat(np.arange(10), 60).astype(np.uint8)

Deal = Callable[[int, NDArray[np.uint8], int], list[Indices]]
KINDS: dict[str, Deal] = {
    "iid": partition.iid,
    "dirichlet": lambda seed, y, nodes: partition.dirichlet(seed, y, nodes, 0.1),
    "labels": lambda seed, y, nodes: partition.labels(seed, y, nodes, 2),
    "quantity": lambda seed, y, nodes: partition.quantity(seed, y, nodes, 0.1),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**64 - 1), nodes=st.integers(5, 40))
def test_every_sample_goes_to_one_node(kind: str, seed: int, nodes: int) -> None:
    shards = KINDS[kind](seed, LABELS, nodes)
    assert len(shards) == nodes
    assert min(map(len, shards)) >= 2
    assert sorted(np.concatenate(shards).tolist()) == list(range(len(LABELS)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind: str) -> None:
    first, again, other = (KINDS[kind](seed, LABELS, 12) for seed in (3, 3, 4))
    assert [own.tolist() for own in first] == [own.tolist() for own in again]
    assert [own.tolist() for own in first] != [own.tolist() for own in other]


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_two_samples_a_node_can_be_dealt(kind: str) -> None:
    shards = KINDS[kind](9, LABELS, len(LABELS) // 2)
    assert {len(own) for own in shards} == {2}


@given(seed=st.integers(0, 2**32), samples=st.integers(2, 500), fraction=st.sampled_from([0.01, 0.1, 0.2, 0.5]))
def test_split_holds_back_the_fraction(seed: int, samples: int, fraction: float) -> None:
    test, rest = partition.split(seed, samples, fraction)
    assert len(test) == max(1, samples * round(fraction * 100) // 100)
    assert sorted([*test.tolist(), *rest.tolist()]) == list(range(samples))


def test_the_fraction_is_the_decimal_that_was_written() -> None:
    """As doubles, 0.29 * 100 is 28.999999999999996."""
    assert len(partition.split(1, 100, 0.29)[0]) == 29


def test_every_place_in_the_test_set_is_equally_likely() -> None:
    hits = np.zeros(20)
    for seed in range(1000):
        hits[partition.split(seed, 20, 0.25)[0]] += 1
    # 1000 trials at 1/4 each: standard deviation 13.7
    assert np.abs(hits - 250).max() < 4.5 * math.sqrt(1000 * 0.25 * 0.75)


@given(seed=st.integers(0, 2**32), nodes=st.integers(1, 300))
def test_iid_shards_are_even(seed: int, nodes: int) -> None:
    sizes = [len(own) for own in partition.iid(seed, LABELS, nodes)]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("nodes", "per_node"), [(5, 2), (10, 3), (7, 10), (40, 1)])
def test_labels_a_node(nodes: int, per_node: int) -> None:
    shards = partition.labels(5, LABELS, nodes, per_node)
    held = [set(LABELS[own].tolist()) for own in shards]
    assert {len(labels) for labels in held} == {per_node}
    owners = [sum(label in labels for labels in held) for label in range(10)]
    assert max(owners) - min(owners) <= 1


def test_labels_leave_unchosen_classes_unused() -> None:
    shards = partition.labels(5, LABELS, 3, 2)
    assert len(np.unique(LABELS[np.concatenate(shards)])) == 6
    assert [len(own) for own in shards] == [120, 120, 120]


def test_the_repair_takes_from_the_largest() -> None:
    shards = [np.array([0, 1, 2, 3]), np.array([], np.int64), np.array([4]), np.array([5, 6, 7, 8])]
    # node 1 takes 3 from node 0, then 8 from node 3 (now the largest); node 2 takes 2 from node 0
    assert [own.tolist() for own in partition._repaired(shards)] == [[0, 1], [3, 8], [4, 2], [5, 6, 7]]


def test_the_repair_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="3 samples are too few for 2 nodes"):
        partition._repaired([np.array([0, 1, 2]), np.array([], np.int64)])


def test_small_alpha_is_skewed_and_large_alpha_is_even() -> None:
    def largest_share(alpha: float) -> float:
        counts = [np.bincount(LABELS[own], minlength=10) for own in partition.dirichlet(1, LABELS, 10, alpha)]
        return float(np.mean(np.max(counts, axis=0) / 60))

    # Expected greatest of 10 shares: towards 1 as alpha goes to 0, towards 1/10 as it grows.
    assert largest_share(0.01) > 0.9
    assert largest_share(1000.0) < 0.13


def test_tiny_alpha_does_not_underflow() -> None:
    shares = partition._dirichlet(1, 0, 50, 1e-4)
    assert np.isfinite(shares).all() and shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_dirichlet_moments(alpha: float) -> None:
    """Mean 1/k, variance (1/k)(1 - 1/k) / (k alpha + 1) of one share (Johnson and Kotz, 1972)."""
    k, draws = 5, 2000
    first = np.array([partition._dirichlet(seed, 0, k, alpha)[0] for seed in range(draws)])
    variance = (1 / k) * (1 - 1 / k) / (k * alpha + 1)
    assert first.mean() == pytest.approx(1 / k, abs=4.5 * math.sqrt(variance / draws))
    assert first.var() == pytest.approx(variance, rel=0.15)


@pytest.mark.parametrize("alpha", [0.2, 0.9, 1.0, 3.5])
def test_gamma_moments(alpha: float) -> None:
    """Mean and variance of gamma(alpha, 1) are both alpha."""
    uniforms = partition._uniforms(2, partition._Purpose.SHARES, 0)
    values = [math.exp(partition._log_gamma(uniforms, alpha)) for _ in range(20_000)]
    assert statistics.fmean(values) == pytest.approx(alpha, abs=4.5 * math.sqrt(alpha / len(values)))
    assert statistics.variance(values) == pytest.approx(alpha, rel=0.12)


def test_normal_quantiles() -> None:
    uniforms = partition._uniforms(3, partition._Purpose.SHARES, 1)
    values = sorted(partition._normal(uniforms) for _ in range(20_000))
    for probability in (0.05, 0.25, 0.5, 0.75, 0.95):
        expected = statistics.NormalDist().inv_cdf(probability)
        assert values[int(probability * len(values))] == pytest.approx(expected, abs=0.06)


def test_uniforms_are_inside_the_interval_and_do_not_repeat_at_the_chunk() -> None:
    values = list(islice(partition._uniforms(1, partition._Purpose.SHARES, 0), 3000))
    assert 0 < min(values) and max(values) < 1
    assert len(set(values)) == 3000
