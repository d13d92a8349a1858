"""Say who is present, linked, matched and heard in every round (SPEC.md 7): a pure function of the experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer.spec import rng, topology
from gossamer.spec.constants import SERVER, PolicyKind, Stream
from gossamer.spec.topology import Draws, Links

Peers = Sequence[NDArray[np.uint16]]
Ids = NDArray[np.int64]

_GRAPHS_KEPT = 4


@dataclass(frozen=True)
class Topology:
    """Name a generator of `gossamer.spec.topology` and its parameters."""

    kind: str
    parameters: tuple[tuple[str, Any], ...] = ()
    redraw: bool = False

    @classmethod
    def of(cls, kind: str, redraw: bool = False, **parameters: Any) -> Topology:
        """Build from the options of the experiment's [topology]."""
        return cls(kind, tuple(parameters.items()), redraw)

    @property
    def changes(self) -> bool:
        """Whether rounds differ."""
        return self.redraw and self.kind in topology.RANDOM_KINDS


@dataclass(frozen=True)
class Absence:
    """Keep a node away in rounds first <= r < end."""

    node: int
    first: int
    end: int


@dataclass(frozen=True)
class Partition:
    """Cut nodes off from all others, and from the server, in rounds first <= r < end."""

    nodes: tuple[int, ...]
    first: int
    end: int


@dataclass(frozen=True)
class Noise:
    """Corrupt frames from and to nodes with a probability in rounds first <= r < end."""

    nodes: tuple[int, ...]
    first: int
    end: int
    corruption24: int


class AllOthers(Sequence[NDArray[np.uint16]]):
    """Be the peer lists of nodes that all know each other, without storing N * N ids."""

    def __init__(self, nodes: int) -> None:
        self._ids = np.arange(nodes, dtype=np.uint16)

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, node: int) -> NDArray[np.uint16]: ...

    @overload
    def __getitem__(self, node: slice) -> Peers: ...

    def __getitem__(self, node: int | slice) -> NDArray[np.uint16] | Peers:
        if isinstance(node, slice):
            return [self[i] for i in range(*node.indices(len(self)))]
        return np.delete(self._ids, node)


@dataclass(frozen=True, eq=False)
class Plan:
    """Answer, for any round, who is there, who is whose peer, and which frames are lost.

    Probabilities come as `probability24` gives them; `bandwidth_kbps` is (least, greatest); `jitter_us` is at most
    `delay_us`.
    """

    seed: int
    nodes: int
    rounds: int
    policy: PolicyKind
    topology: Topology
    loss24: int = 0
    away24: int = 0
    span: int = 1
    absences: tuple[Absence, ...] = ()
    reuse_after: int = 1
    bandwidth_kbps: tuple[int, int] = (1000, 1000)
    corruption24: int = 0
    duplication24: int = 0
    overtaking24: int = 0
    delay_us: int = 0
    jitter_us: int = 0
    partitions: tuple[Partition, ...] = ()
    noises: tuple[Noise, ...] = ()
    _matchings: list[Links] = field(default_factory=list, init=False, repr=False)

    def present(self, round_: int) -> NDArray[np.bool_]:
        """Tell which nodes take part in a round, [N] (SPEC.md 7.3)."""
        here = np.ones(self.nodes, np.bool_)
        if self.away24:
            begun = np.arange(max(0, round_ - self.span + 1), round_ + 1)[:, None]
            leaves = rng.chance(rng.draws(self.seed, Stream.CHURN, begun, np.arange(self.nodes), 0), self.away24)
            here = ~leaves.any(axis=0)
        for absence in self.absences:
            if absence.first <= round_ < absence.end:
                here[absence.node] = False
        return here

    def peers(self, round_: int) -> Peers:
        """List the peers of every node in a round, ascending (SPEC.md 6, 7)."""
        match self.policy:
            case PolicyKind.LOCAL:
                return [np.zeros(0, np.uint16)] * self.nodes
            case PolicyKind.FEDAVG:
                return [np.array([SERVER], np.uint16)] * self.nodes
            case PolicyKind.EPIDEMIC:
                return AllOthers(self.nodes)
            case PolicyKind.GOSSIPFL:
                return topology.neighbours(self.matching(round_), self.nodes)
            case _ if self.topology.kind == "full":
                return AllOthers(self.nodes)
            case _:
                return _neighbours(self.topology, self.nodes, self.seed, round_ if self.topology.changes else 0)

    @property
    def constant(self) -> bool:
        """Whether every round has the same peers."""
        fixed = self.policy in (PolicyKind.LOCAL, PolicyKind.FEDAVG, PolicyKind.EPIDEMIC)
        return fixed or (self.policy is not PolicyKind.GOSSIPFL and not self.topology.changes)

    @cached_property
    def peers_max(self) -> int:
        """The length of the longest peer list of the run."""
        match self.policy:
            case PolicyKind.LOCAL:
                return 0
            case PolicyKind.FEDAVG | PolicyKind.GOSSIPFL:
                return 1
            case PolicyKind.EPIDEMIC:
                return self.nodes - 1
            case _ if self.topology.kind == "full":
                return self.nodes - 1
            case _:
                drawn = range(self.rounds) if self.topology.changes else range(1)
                return max(int(topology.degrees(self.links(r), self.nodes).max()) for r in drawn)

    def matching(self, round_: int) -> Links:
        """Pair nodes for a round, [pairs, 2], greedily by bandwidth (SPEC.md 7.4).

        A round depends on the pairs of the rounds before, so they are computed in order and kept.
        """
        while len(self._matchings) <= round_:
            self._matchings.append(self._match(len(self._matchings)))
        return self._matchings[round_]

    def _match(self, round_: int) -> Links:
        links = self.links(round_)
        a, b = links.T
        here = self.present(round_)
        usable = here[a] & here[b]
        recent = self._matchings[max(0, round_ - self.reuse_after + 1) :]
        if recent:
            used = np.concatenate(recent)
            usable &= ~np.isin(a << 16 | b, used[:, 0] << 16 | used[:, 1])
        number = np.nonzero(usable)[0]
        draw = rng.draws(self.seed, Stream.MATCH, round_, 0, number)
        order = np.lexsort((number, draw, -self.bandwidth(a[number], b[number])))
        free, pairs, left = here.tolist(), [], int(here.sum())
        for x, y in links[number[order]].tolist():
            if free[x] and free[y]:
                free[x] = free[y] = False
                pairs.append((x, y))
                left -= 2
                if left < 2:
                    break
        return np.array(sorted(pairs), np.int64).reshape(-1, 2)

    def bandwidth(self, a: ArrayLike, b: ArrayLike) -> NDArray[np.int64]:
        """Return the bandwidth of links a < b in kbit/s (SPEC.md 7.4)."""
        low, high = self.bandwidth_kbps
        node = np.asarray(a, np.int64) | np.asarray(b, np.int64) << 16
        draw = rng.draws(self.seed, Stream.BANDWIDTH, 0, node, 0)
        return low + np.asarray(rng.below(draw, high - low + 1), np.int64)

    def lost(self, src: ArrayLike, dst: ArrayLike, round_: int, seq: ArrayLike) -> NDArray[np.bool_]:
        """Tell which data frames the links lose (SPEC.md 7.5); arguments broadcast."""
        src, dst, seq = _frames(src, dst, seq)
        lost = self._chance(Stream.LINK, src, dst, round_, seq, self.loss24)
        for cut in self.partitions:
            if cut.first <= round_ < cut.end:
                lost |= np.isin(src, cut.nodes) != np.isin(dst, cut.nodes)
        return lost

    def corrupted(self, src: ArrayLike, dst: ArrayLike, round_: int, seq: ArrayLike) -> NDArray[np.bool_]:
        """Tell which frames, of those not lost, arrive with a wrong byte (SPEC.md 7.5)."""
        src, dst, seq = _frames(src, dst, seq)
        p24 = np.full(src.shape, self.corruption24, np.int64)
        for noise in self.noises:
            if noise.first <= round_ < noise.end:
                touched = np.isin(src, noise.nodes) | np.isin(dst, noise.nodes)
                p24 = np.where(touched, np.maximum(p24, noise.corruption24), p24)
        return self._chance(Stream.CORRUPT, src, dst, round_, seq, p24)

    def duplicated(self, src: ArrayLike, dst: ArrayLike, round_: int, seq: ArrayLike) -> NDArray[np.bool_]:
        """Tell which frames, of those that arrive sound, arrive twice (SPEC.md 7.5)."""
        src, dst, seq = _frames(src, dst, seq)
        return self._chance(Stream.DUPLICATE, src, dst, round_, seq, self.duplication24)

    def delays_us(self, src: ArrayLike, dst: ArrayLike, round_: int, seq: ArrayLike) -> NDArray[np.int64]:
        """Return how long frames are under way, beside what the bandwidth takes (SPEC.md 7.7)."""
        src, dst, seq = _frames(src, dst, seq)
        if not self.delay_us:
            return np.zeros(src.shape, np.int64)
        overtakes = self._chance(Stream.OVERTAKE, src, dst, round_, seq, self.overtaking24)
        draw = rng.draws(self.seed, Stream.DELAY, round_, src | dst << 16, seq)
        jitter_us = np.asarray(rng.below(draw, 2 * self.jitter_us + 1), np.int64)
        return np.where(overtakes, 0, self.delay_us - self.jitter_us + jitter_us)

    def _chance(self, stream: Stream, src: Ids, dst: Ids, round_: int, seq: Ids, p24: ArrayLike) -> NDArray[np.bool_]:
        if not np.any(p24):
            return np.zeros(src.shape, np.bool_)
        return np.asarray(rng.chance(rng.draws(self.seed, stream, round_, src | dst << 16, seq), p24))

    def delivery_key(self, src: ArrayLike, round_: int) -> NDArray[np.int64]:
        """Return what arrivals of a round are sorted by, before their sequence number (SPEC.md 7.6)."""
        src = np.asarray(src, np.int64)
        return np.where(src == SERVER, self.nodes, (src - round_) % self.nodes)

    def links(self, round_: int) -> Links:
        """Return the links of a round, [E, 2] (SPEC.md 7.2)."""
        return _links(self.topology, self.nodes, self.seed, round_ if self.topology.changes else 0)


def _frames(src: ArrayLike, dst: ArrayLike, seq: ArrayLike) -> tuple[Ids, Ids, Ids]:
    frames = np.broadcast_arrays(*(np.asarray(word, np.int64) for word in (src, dst, seq)))
    return frames[0], frames[1], frames[2]


@lru_cache(_GRAPHS_KEPT)
def _links(graph: Topology, nodes: int, seed: int, round_: int) -> Links:
    return topology.generate(graph.kind, nodes, Draws(seed, round_), **dict(graph.parameters))


@lru_cache(_GRAPHS_KEPT)
def _neighbours(graph: Topology, nodes: int, seed: int, round_: int) -> Peers:
    return topology.neighbours(_links(graph, nodes, seed, round_), nodes)
