"""Hold back a test set and deal the rest to the nodes.

Stream PARTITION is the only randomness. Its draws are addressed by purpose (in the place of the round) and class (in
the place of the node): so how one class is dealt does not depend on how many draws another one took.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import IntEnum
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gossamer.spec import rng
from gossamer.spec.constants import Stream

Indices = NDArray[np.int64]

SHARD_MIN: Final = 2  # a node needs one sample to train on and one to validate (SPEC.md 4.1)
_CHUNK = 1024


class _Purpose(IntEnum):
    TEST = 0
    SHUFFLE = 1
    SHARES = 2
    LABELS = 3


def test_count(samples: int, fraction: float) -> int:
    """Return how many samples are held back: the decimal `fraction` rounded down, at least one."""
    return max(1, math.floor(Fraction(str(fraction)) * samples))


def split(seed: int, samples: int, fraction: float) -> tuple[Indices, Indices]:
    """Return the indices of the test samples, and of the rest, both in shuffled order."""
    order = _shuffled(seed, _Purpose.TEST, 0, np.arange(samples))
    held_back = test_count(samples, fraction)
    return order[:held_back], order[held_back:]


def iid(seed: int, y: NDArray[Any], nodes: int) -> list[Indices]:
    """Deal evenly: shards differ in size by one at most."""
    return _repaired(_cut(_shuffled(seed, _Purpose.SHUFFLE, 0, np.arange(len(y))), _evenly(nodes)))


def quantity(seed: int, y: NDArray[Any], nodes: int, alpha: float) -> list[Indices]:
    """Deal shards of Dirichlet(alpha) sizes, each with the classes as in the whole."""
    order = _shuffled(seed, _Purpose.SHUFFLE, 0, np.arange(len(y)))
    return _repaired(_cut(order, _dirichlet(seed, 0, nodes, alpha)))


def dirichlet(seed: int, y: NDArray[Any], nodes: int, alpha: float) -> list[Indices]:
    """Deal every class in Dirichlet(alpha) shares: the smaller alpha, the fewer nodes hold most of a class.

    Source: Hsu, Qi, Brown: "Measuring the effects of non-identical data distribution", 2019, by class over nodes.
    """
    return _dealt(seed, y, {c: _dirichlet(seed, c, nodes, alpha) for c in _classes(y)}, nodes)


def labels(seed: int, y: NDArray[Any], nodes: int, labels_per_node: int) -> list[Indices]:
    """Give every node samples of exactly `labels_per_node` classes; a class is dealt evenly among its nodes.

    Nodes choose in id order from the classes chosen least often so far, ties by draw. A class that no node chose
    (possible with nodes * labels_per_node < classes) stays unused.
    """
    classes = _classes(y)
    owners: dict[int, list[int]] = {c: [] for c in classes}
    ties = rng.draws(seed, Stream.PARTITION, _Purpose.LABELS, np.arange(nodes)[:, None], np.array(classes)[None, :])
    for node in range(nodes):
        tie = dict(zip(classes, ties[node].tolist(), strict=True))
        for c in sorted(classes, key=lambda c: (len(owners[c]), tie[c]))[:labels_per_node]:
            owners[c].append(node)
    shares = {}
    for c, holders in owners.items():
        if holders:
            shares[c] = np.zeros(nodes)
            shares[c][holders] = _evenly(len(holders))
    return _dealt(seed, y, shares, nodes)


def _classes(y: NDArray[Any]) -> list[int]:
    return [int(c) for c in np.unique(y)]


def _dealt(seed: int, y: NDArray[Any], shares: dict[int, NDArray[np.float64]], nodes: int) -> list[Indices]:
    """Cut every class into its shares [nodes]; a shard holds its parts by ascending class."""
    parts: list[list[Indices]] = [[] for _ in range(nodes)]
    for c, share in shares.items():
        order = _shuffled(seed, _Purpose.SHUFFLE, c, np.flatnonzero(y == c))
        for node, part in enumerate(_cut(order, share)):
            parts[node].append(part)
    return _repaired([np.concatenate(own) for own in parts])


def _evenly(parts: int) -> NDArray[np.float64]:
    return np.full(parts, 1 / parts)


def _cut(order: Indices, shares: NDArray[np.float64]) -> list[Indices]:
    """Cut at the running sums of the shares, rounded to whole samples."""
    ends = np.rint(np.add.accumulate(shares) * len(order)).astype(np.int64)
    return [order[a:b] for a, b in pairwise([0, *ends.tolist()])]


def _repaired(shards: list[Indices]) -> list[Indices]:
    """Raise every shard to SHARD_MIN samples.

    As long as one is short, the smallest takes the last sample of the largest, lowest ids first. With SHARD_MIN
    samples a node in total, the largest always has one to spare.
    """
    rest = [shard.tolist() for shard in shards]
    nodes = range(len(rest))
    while len(rest[smallest := min(nodes, key=lambda i: len(rest[i]))]) < SHARD_MIN:
        largest = max(nodes, key=lambda i: len(rest[i]))
        if len(rest[largest]) <= SHARD_MIN:
            raise ValueError(f"{sum(map(len, rest))} samples are too few for {len(rest)} nodes")
        rest[smallest].append(rest[largest].pop())
    return [np.array(shard, np.int64) for shard in rest]


# --- random numbers ---------------------------------------------------------------------------------------------------


def _shuffled(seed: int, purpose: _Purpose, label: int, order: NDArray[Any]) -> Indices:
    """Return a shuffled copy (SPEC.md 2.5)."""
    count = len(order)
    drawn = rng.draws(seed, Stream.PARTITION, purpose, label, np.arange(count))
    steps = np.arange(count) + rng.below(drawn, count - np.arange(count))
    result = order.tolist()
    for t, j in enumerate(steps.tolist()):
        result[t], result[j] = result[j], result[t]
    return np.array(result, np.int64)


def _dirichlet(seed: int, label: int, count: int, alpha: float) -> NDArray[np.float64]:
    """Draw shares [count] that sum to 1: gamma variables over their sum.

    In logarithms, since with a small alpha most of the variables are below the least double.
    """
    uniforms = _uniforms(seed, _Purpose.SHARES, label)
    logs = np.array([_log_gamma(uniforms, alpha) for _ in range(count)])
    sizes: NDArray[np.float64] = np.exp(logs - logs.max())
    return sizes / np.float64(math.fsum(sizes))


def _uniforms(seed: int, purpose: _Purpose, label: int) -> Iterator[float]:
    """Yield the stream's draws as floats in (0, 1)."""
    start = 0
    while True:
        drawn = rng.draws(seed, Stream.PARTITION, purpose, label, np.arange(start, start + _CHUNK))
        yield from ((drawn.astype(np.float64) + 0.5) * 2.0**-32).tolist()
        start += _CHUNK


def _normal(uniforms: Iterator[float]) -> float:
    """Draw from the standard normal distribution (Box and Muller, 1958)."""
    return math.sqrt(-2 * math.log(next(uniforms))) * math.cos(2 * math.pi * next(uniforms))


def _log_gamma(uniforms: Iterator[float], alpha: float) -> float:
    """Draw the logarithm of a gamma(alpha, 1) variable.

    Source: Marsaglia, Tsang: "A simple method for generating gamma variables", ACM TOMS 26 (2000); for alpha < 1
    their section 6: gamma(alpha + 1) * U^(1 / alpha).
    """
    boost = math.log(next(uniforms)) / alpha if alpha < 1 else 0.0
    d = alpha + (1 if alpha < 1 else 0) - 1 / 3
    while True:
        x = _normal(uniforms)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(next(uniforms)) < 0.5 * x * x + d * (1 - v + math.log(v)):
            return boost + math.log(d * v)
