"""Generate who is linked to whom (SPEC.md 7.2), in integers only, from the draws of stream TOPOLOGY.

A graph is its links: an int64 array [E, 2], a < b in every row, rows ascending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gossamer.spec import rng
from gossamer.spec.constants import Stream

Links = NDArray[np.int64]

RANDOM_KINDS: Final = frozenset({"regular", "erdos_renyi", "watts_strogatz", "geometric", "clustered"})

_SWAPS_PER_LINK = 4
_PAIRS_AT_ONCE = 1 << 20


@dataclass
class Draws:
    """Hand out the draws of one graph under one running index."""

    seed: int
    round_: int = 0
    index: int = field(default=0, init=False)

    def take(self, count: int) -> NDArray[np.uint32]:
        """Return the next `count` draws."""
        first, last = self.index // 4, -(-(self.index + count) // 4)
        block = np.arange(first, last, dtype=np.uint64)  # whole blocks of four draws, SPEC.md 2.1
        stream, round_ = (np.full_like(block, word) for word in (Stream.TOPOLOGY, self.round_))
        words = np.stack(rng.philox((block, stream, round_, np.zeros_like(block)), self.seed), axis=1)
        start = self.index - 4 * first
        self.index += count
        return words.ravel()[start : start + count].astype(np.uint32)


def generate(kind: str, nodes: int, draws: Draws, **parameters: Any) -> Links:
    """Return the links of a graph of `nodes` nodes; `parameters` are those of the experiment's [topology]."""
    return GENERATORS[kind](nodes, draws, **parameters)


def degrees(links: Links, nodes: int) -> NDArray[np.int64]:
    """Count every node's neighbours, [nodes]."""
    return np.bincount(links.ravel(), minlength=nodes).astype(np.int64)


def neighbours(links: Links, nodes: int) -> list[NDArray[np.uint16]]:
    """List every node's neighbours, ascending."""
    src, dst = np.concatenate([links, links[:, ::-1]]).T
    order = np.lexsort((dst, src))
    return np.split(dst[order].astype(np.uint16), np.cumsum(degrees(links, nodes))[:-1])


def components(links: Links, nodes: int) -> list[list[int]]:
    """Return the connected parts, each ascending, by their first node."""
    a, b = links.T
    label = np.arange(nodes)
    while True:
        lower = label.copy()
        least = np.minimum(label[a], label[b])
        np.minimum.at(lower, a, least)
        np.minimum.at(lower, b, least)
        lower = lower[lower]
        if np.array_equal(lower, label):
            return [np.nonzero(label == first)[0].tolist() for first in np.unique(label)]
        label = lower


def _links(a: Any, b: Any) -> Links:
    """Bring pairs into the normal form: a < b, ascending, no self-loops, each once."""
    a, b = np.broadcast_arrays(np.asarray(a, np.int64), np.asarray(b, np.int64))
    low, high = np.minimum(a, b).ravel(), np.maximum(a, b).ravel()
    key = np.unique((low << 16 | high)[low != high])
    return np.stack([key >> 16, key & 0xFFFF], axis=1)


def _ring(nodes: int, draws: Draws) -> Links:
    node = np.arange(nodes)
    return _links(node, (node + 1) % nodes)


def _line(nodes: int, draws: Draws) -> Links:
    return _links(np.arange(nodes - 1), np.arange(1, nodes))


def _star(nodes: int, draws: Draws) -> Links:
    return _links(0, np.arange(1, nodes))


def _full(nodes: int, draws: Draws) -> Links:
    return np.stack(np.triu_indices(nodes, 1), axis=1)


def _torus(nodes: int, draws: Draws, rows: int, columns: int) -> Links:
    node = np.arange(nodes)
    row, column = node // columns, node % columns
    right = row * columns + (column + 1) % columns
    below = (row + 1) % rows * columns + column
    return _links(np.concatenate([node, node]), np.concatenate([right, below]))


def _tree(nodes: int, draws: Draws, branching: int) -> Links:
    child = np.arange(1, nodes)
    return _links(child, (child - 1) // branching)


def _file(nodes: int, draws: Draws, links: Sequence[tuple[int, int]]) -> Links:
    a, b = np.asarray(links, np.int64).reshape(-1, 2).T
    return _links(a, b)


def _regular(nodes: int, draws: Draws, degree: int) -> Links:
    """Mix a circulant graph by double link swaps: every state on the way is simple and regular, so it always ends."""
    node = np.arange(nodes)
    step = np.arange(1, degree // 2 + 1)[:, None]
    lattice = _links(node, (node + step) % nodes)
    if degree % 2:
        half = np.arange(nodes // 2)
        lattice = _links(*np.concatenate([lattice, np.stack([half, half + nodes // 2], axis=1)]).T)

    links: list[tuple[int, int]] = [(a, b) for a, b in lattice.tolist()]
    present = set(links)
    attempts = _SWAPS_PER_LINK * len(links)
    first, second = rng.below(draws.take(2 * attempts).reshape(-1, 2).T, np.array([[len(links)], [2 * len(links)]]))
    for i, j in zip(first.tolist(), second.tolist(), strict=True):
        a, b = links[i]
        c, d = links[j >> 1] if j & 1 else links[j >> 1][::-1]
        if a == c or a == d or b == c or b == d:
            continue
        ad, bc = (a, d) if a < d else (d, a), (b, c) if b < c else (c, b)
        if ad in present or bc in present:
            continue
        present -= {links[i], links[j >> 1]}
        present |= {ad, bc}
        links[i], links[j >> 1] = ad, bc
    return _links(*np.array(links).T)


def _erdos_renyi(nodes: int, draws: Draws, probability: float) -> Links:
    p24 = rng.probability24(probability)
    rows, first = [], 0
    while first < nodes - 1:
        last, pairs = first, 0  # take whole rows of pairs (a, b > a), bounded in memory
        while last < nodes - 1 and (pairs == 0 or pairs + nodes - 1 - last <= _PAIRS_AT_ONCE):
            pairs += nodes - 1 - last
            last += 1
        chosen = np.nonzero(rng.chance(draws.take(pairs), p24))[0]
        starts = np.cumsum([0, *(nodes - 1 - a for a in range(first, last - 1))])
        row = np.searchsorted(starts, chosen, side="right") - 1
        rows.append(np.stack([first + row, first + row + 1 + chosen - starts[row]], axis=1))
        first = last
    return np.concatenate(rows)


def _watts_strogatz(nodes: int, draws: Draws, degree: int, rewire: float) -> Links:
    lattice = [(i, (i + j) % nodes) for j in range(1, degree // 2 + 1) for i in range(nodes)]
    linked: list[set[int]] = [set() for _ in range(nodes)]
    for i, far in lattice:
        linked[i].add(far)
        linked[far].add(i)
    draw = draws.take(2 * len(lattice)).reshape(-1, 2)
    moves = rng.chance(draw[:, 0], rng.probability24(rewire)).tolist()
    for (i, far), move, where in zip(lattice, moves, draw[:, 1].tolist(), strict=True):
        free = nodes - 1 - len(linked[i])
        if not move or not free:
            continue
        target = where * free >> 32  # below(), one at a time
        for taken in sorted({i, *linked[i]}):
            target += taken <= target  # the target-th node that is not taken
        linked[i].remove(far)
        linked[far].remove(i)
        linked[i].add(target)
        linked[target].add(i)
    pairs = [(i, other) for i in range(nodes) for other in linked[i] if i < other]
    return _links(*np.array(pairs).T)


def _geometric(nodes: int, draws: Draws, radius: float) -> Links:
    x, y = (draws.take(2 * nodes).reshape(-1, 2) >> 8).astype(np.int64).T
    reach = int(radius * 2**24)  # exact: a power of two
    near = []
    by_x = np.argsort(x, kind="stable")  # sweep: only points within reach along x are compared
    last = np.searchsorted(x[by_x], x[by_x] + reach, side="right")
    for place, a in enumerate(by_x.tolist()):
        other = by_x[place + 1 : last[place]]
        dx, dy = x[other] - x[a], y[other] - y[a]
        near.append(np.stack(np.broadcast_arrays(a, other[dx * dx + dy * dy <= reach * reach]), axis=1))
    return _links(*np.concatenate(near).T)


def _clustered(nodes: int, draws: Draws, clusters: int, inside: float, bridges: int) -> Links:
    start = [c * nodes // clusters for c in range(clusters + 1)]
    size = np.diff(start)
    groups = [first + _full(int(n), draws) for first, n in zip(start, size.tolist(), strict=False)]
    pairs = np.concatenate(groups)
    pairs = pairs[rng.chance(draws.take(len(pairs)), rng.probability24(inside))]
    joined = clusters if clusters > 2 else clusters - 1
    here = np.repeat(np.arange(joined), bridges)
    there = (here + 1) % clusters
    draw = draws.take(2 * len(here)).reshape(-1, 2)
    a = np.take(start, here) + rng.below(draw[:, 0], size[here])
    b = np.take(start, there) + rng.below(draw[:, 1], size[there])
    return _links(*np.concatenate([pairs, np.stack([a, b], axis=1)]).T)


GENERATORS: Final[dict[str, Callable[..., Links]]] = {
    "ring": _ring,
    "line": _line,
    "star": _star,
    "full": _full,
    "torus": _torus,
    "regular": _regular,
    "erdos_renyi": _erdos_renyi,
    "watts_strogatz": _watts_strogatz,
    "geometric": _geometric,
    "tree": _tree,
    "clustered": _clustered,
    "file": _file,
}
