"""Topologies: a slow reading of SPEC.md 7.2, draw by draw, and what each kind promises."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import combinations
from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.spec import rng, topology
from gossamer.spec.constants import Stream
from gossamer.spec.topology import Draws

Pairs = set[tuple[int, int]]


def draws_of(seed: int, round_: int = 0) -> Iterator[int]:
    index = 0
    while True:
        yield int(rng.draws(seed, Stream.TOPOLOGY, round_, 0, index))
        index += 1


def chance(u: int, p: float) -> bool:
    return (u >> 8) < floor(p * 2**24)


def below(u: int, n: int) -> int:
    return u * n >> 32


def pair(a: int, b: int) -> tuple[int, int]:
    return min(a, b), max(a, b)


def slow_torus(n: int, d: Iterator[int], rows: int, columns: int) -> Pairs:
    links = set()
    for i in range(n):
        row, column = divmod(i, columns)
        links |= {pair(i, row * columns + (column + 1) % columns), pair(i, (row + 1) % rows * columns + column)}
    return {(a, b) for a, b in links if a != b}


def slow_regular(n: int, d: Iterator[int], degree: int) -> Pairs:
    start = {pair(i, (i + j) % n) for i in range(n) for j in range(1, degree // 2 + 1)}
    if degree % 2:
        start |= {(i, i + n // 2) for i in range(n // 2)}
    links = sorted(start)
    for _ in range(4 * len(links)):
        x, y = below(next(d), len(links)), below(next(d), 2 * len(links))
        (a, b), (c, e) = links[x], links[y // 2]
        if y % 2 == 0:
            c, e = e, c
        if len({a, b, c, e}) == 4 and pair(a, e) not in links and pair(b, c) not in links:
            links[x], links[y // 2] = pair(a, e), pair(b, c)
    return set(links)


def slow_erdos_renyi(n: int, d: Iterator[int], probability: float) -> Pairs:
    return {p for p in combinations(range(n), 2) if chance(next(d), probability)}


def slow_watts_strogatz(n: int, d: Iterator[int], degree: int, rewire: float) -> Pairs:
    lattice = [(i, (i + j) % n) for j in range(1, degree // 2 + 1) for i in range(n)]
    links = {pair(*link) for link in lattice}
    for i, far in lattice:
        u, v = next(d), next(d)
        free = [k for k in range(n) if k != i and pair(i, k) not in links]
        if chance(u, rewire) and free:
            links.remove(pair(i, far))
            links.add(pair(i, free[below(v, len(free))]))
    return links


def slow_geometric(n: int, d: Iterator[int], radius: float) -> Pairs:
    place = [(next(d) >> 8, next(d) >> 8) for _ in range(n)]
    reach = floor(radius * 2**24)
    return {
        (a, b)
        for a, b in combinations(range(n), 2)
        if (place[a][0] - place[b][0]) ** 2 + (place[a][1] - place[b][1]) ** 2 <= reach**2
    }


def slow_clustered(n: int, d: Iterator[int], clusters: int, inside: float, bridges: int) -> Pairs:
    groups = [range(c * n // clusters, (c + 1) * n // clusters) for c in range(clusters)]
    links = {p for group in groups for p in combinations(group, 2) if chance(next(d), inside)}
    for c in range({1: 0, 2: 1}.get(clusters, clusters)):
        here, there = groups[c], groups[(c + 1) % clusters]
        for _ in range(bridges):
            links.add(pair(here[below(next(d), len(here))], there[below(next(d), len(there))]))
    return links


CASES: list[tuple[Any, int, dict[str, Any]]] = [
    (slow_torus, 12, {"rows": 3, "columns": 4}),
    (slow_torus, 6, {"rows": 2, "columns": 3}),
    (slow_torus, 5, {"rows": 1, "columns": 5}),
    (slow_regular, 12, {"degree": 3}),
    (slow_regular, 11, {"degree": 4}),
    (slow_regular, 2, {"degree": 1}),
    (slow_erdos_renyi, 17, {"probability": 0.3}),
    (slow_erdos_renyi, 2, {"probability": 1.0}),
    (slow_erdos_renyi, 6, {"probability": 0.0}),
    (slow_watts_strogatz, 14, {"degree": 4, "rewire": 0.4}),
    (slow_watts_strogatz, 5, {"degree": 4, "rewire": 1.0}),
    (slow_watts_strogatz, 7, {"degree": 4, "rewire": 1.0}),
    (slow_geometric, 20, {"radius": 0.35}),
    (slow_clustered, 13, {"clusters": 3, "inside": 0.7, "bridges": 2}),
    (slow_clustered, 5, {"clusters": 2, "inside": 1.0, "bridges": 1}),
    (slow_clustered, 4, {"clusters": 1, "inside": 0.5, "bridges": 3}),
    (slow_clustered, 4, {"clusters": 4, "inside": 0.5, "bridges": 1}),
]


@pytest.mark.parametrize(("slow", "nodes", "parameters"), CASES)
@pytest.mark.parametrize("seed", [1, 2**63 + 5])
def test_links_are_those_of_the_slow_reading(slow: Any, nodes: int, parameters: dict[str, Any], seed: int) -> None:
    kind = slow.__name__.removeprefix("slow_")
    for round_ in (0, 3):
        links = topology.generate(kind, nodes, Draws(seed, round_), **parameters)
        assert links.tolist() == sorted(map(list, slow(nodes, draws_of(seed, round_), **parameters)))


@pytest.mark.parametrize(
    ("kind", "parameters", "expected"),
    [
        ("ring", {}, [[0, 1], [0, 3], [1, 2], [2, 3]]),
        ("line", {}, [[0, 1], [1, 2], [2, 3]]),
        ("star", {}, [[0, 1], [0, 2], [0, 3]]),
        ("full", {}, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]),
        ("tree", {"branching": 2}, [[0, 1], [0, 2], [1, 3]]),
        ("tree", {"branching": 1}, [[0, 1], [1, 2], [2, 3]]),
        ("file", {"links": ((3, 1), (0, 2), (1, 3))}, [[0, 2], [1, 3]]),
        ("file", {"links": ()}, []),
    ],
)
def test_links_of_four_nodes(kind: str, parameters: dict[str, Any], expected: list[list[int]]) -> None:
    assert topology.generate(kind, 4, Draws(1), **parameters).tolist() == expected


@pytest.mark.parametrize("kind", ["ring", "line", "star", "full"])
def test_two_nodes_have_one_link(kind: str) -> None:
    assert topology.generate(kind, 2, Draws(1)).tolist() == [[0, 1]]


def test_pairs_beyond_one_batch_of_draws_use_the_same_index(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = topology.generate("erdos_renyi", 40, Draws(9), probability=0.2)
    monkeypatch.setattr(topology, "_PAIRS_AT_ONCE", 50)
    assert np.array_equal(topology.generate("erdos_renyi", 40, Draws(9), probability=0.2), whole)


def test_draws_come_in_order_whatever_the_pieces() -> None:
    draws, expected = Draws(5, 2), draws_of(5, 2)
    assert [int(u) for count in (1, 0, 6, 4, 3) for u in draws.take(count)] == [next(expected) for _ in range(14)]


@given(st.integers(2, 30), st.integers(1, 8), st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_regular_graph_is_simple_and_regular(nodes: int, degree: int, seed: int) -> None:
    if degree >= nodes or degree * nodes % 2:
        return
    links = topology.generate("regular", nodes, Draws(seed), degree=degree)
    assert (topology.degrees(links, nodes) == degree).all()
    assert len({*map(tuple, links.tolist())}) == len(links) == degree * nodes // 2
    assert (links[:, 0] < links[:, 1]).all()


def test_regular_graphs_are_mixed_well() -> None:
    """Of 60 lattice links among 780 pairs, chance would leave about 60 * 60 / 780 = 4.6."""
    kept = [
        len(
            {*map(tuple, topology.generate("regular", 40, Draws(seed), degree=3).tolist())}
            & {pair(i, (i + j) % 40) for i in range(40) for j in (1, 20)}
        )
        for seed in range(20)
    ]
    assert 2 < np.mean(kept) < 8


def test_neighbours_and_components() -> None:
    links = topology.generate("file", 6, Draws(1), links=((0, 4), (2, 1), (4, 3)))
    neighbours = topology.neighbours(links, 6)
    assert [peers.tolist() for peers in neighbours] == [[4], [2], [1], [4], [0, 3], []]
    assert all(peers.dtype == np.uint16 for peers in neighbours)
    assert topology.components(links, 6) == [[0, 3, 4], [1, 2], [5]]
    assert topology.degrees(links, 6).tolist() == [1, 1, 1, 1, 2, 0]
    assert len(topology.components(topology.generate("line", 3000, Draws(1)), 3000)) == 1


def test_thousands_of_nodes_take_less_than_a_second() -> None:
    started_s = time.process_time()
    topology.generate("regular", 2000, Draws(1), degree=6)
    topology.generate("watts_strogatz", 2000, Draws(1), degree=6, rewire=0.3)
    topology.generate("geometric", 2000, Draws(1), radius=0.05)
    topology.generate("erdos_renyi", 2000, Draws(1), probability=0.005)
    assert time.process_time() - started_s < 4
