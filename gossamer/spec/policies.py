"""Decide what each node shares and with whom: the policies of SPEC.md 6, many nodes at once.

A policy is one class: `offer` cuts the nodes' parameters into parts, `send` lists the copies, `own_weight` and
`message_weight` say how a receiver mixes. `POLICIES` is the one place to add another; see docs/adding-a-policy.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.spec import fmath, rng
from gossamer.spec.constants import SERVER, PolicyKind, Score, Spread, Stream, Success
from gossamer.spec.nn import F32, I64, Bool
from gossamer.spec.settings import Settings
from gossamer.spec.sharing import I16, Messages, Parts, encode, feed_back
from gossamer.spec.units import Units, cut, rank, segment_means

ONE = np.float32(1)


@dataclass
class Memory:
    """Keep what sharing carries from round to round: arrays [..., N], each there only where a policy needs it."""

    residual: F32 | None = None
    reference: F32 | None = None
    send_counts: I64 | None = None
    cursor: I64 | None = None


@dataclass
class Round:
    """Show a policy the nodes after their local training in one round."""

    settings: Settings
    units: Units
    number: int
    present: Bool  # [N]
    w: F32  # [P, N]
    start: F32  # [P, N]
    average: F32 | None  # [P, N], the score average of SPEC.md 6.3
    success: F32  # [N]
    n_train: I64  # [N]
    peers: I64  # [longest, N], ascending ids, -1 beyond a node's degree
    degree: I64  # [N]
    memory: Memory

    @property
    def sending(self) -> Bool:
        """Mark the nodes that are present and have somebody to send to, [N]."""
        return self.present & (self.degree > 0)

    def draw(self, index: int) -> NDArray[np.uint32]:
        """Draw from stream SHARE for every node, [N]."""
        words: NDArray[np.uint32] = rng.draws(
            self.settings.seed, Stream.SHARE, self.number, np.arange(len(self.degree)), index
        )
        return words

    def choose(self, k: int, index0: int) -> Bool:
        """Choose k distinct peers a node (SPEC.md 2.4); mark their places in the peer list, [longest, N]."""
        chosen = np.zeros(self.peers.shape, np.bool_)
        columns = np.arange(len(self.degree))
        wanted = np.minimum(k, self.degree)
        for i in range(int(wanted.max(initial=0))):
            take = i < wanted
            j = np.where(take, self.degree - wanted + i, 0)
            t = rng.below(self.draw(index0 + i), j + 1)
            place = np.where(chosen[t, columns], j, t)
            chosen[place[take], columns[take]] = True
        return chosen & self.sending


def _to_chosen(state: Round, chosen: Bool, part: int = 0) -> Messages:
    """Send one part to the chosen places of the peer list, ascending."""
    src, place = np.nonzero(chosen.T)
    return Messages(src, state.peers[place, src], np.full(len(src), part))


class Policy:
    """Share one part, all coordinates, with every peer, weight 1: what the other policies differ from."""

    pulls = False
    indexed = False

    def parts(self, settings: Settings) -> int:
        """Count the parts a node may offer."""
        return 1

    def part(self, state: Round) -> I16:
        """Assign each parameter to a part, [P, N]."""
        return np.zeros(state.w.shape, np.int16)

    def weight(self, state: Round) -> F32:
        """Return the weight field of a node's messages, [N]."""
        return np.ones(len(state.degree), np.float32)

    def send(self, state: Round, part: I16) -> Messages:
        """List the copies to send."""
        return _to_chosen(state, (state.peers >= 0) & state.sending)

    def request(self, state: Round) -> Messages:
        """List the pulls, `part` being the segment asked for (policies with `pulls`)."""
        return Messages.none()

    def own_weight(self, state: Round, others: F32) -> F32:
        """Return the weight of a node's own value in a merge, [N]; `others` sums its messages' weights."""
        return np.ones(len(state.degree), np.float32)

    def message_weight(self, state: Round, nodes: I64, weight: F32) -> F32:
        """Return the weights of one message for each of `nodes`, [n], which carried `weight` [n]."""
        return np.ones(len(nodes), np.float32)

    def offer(self, state: Round, part: I16) -> tuple[Parts, F32]:
        """Quantize the parts; return them and what was quantized."""
        residual = state.memory.residual
        plain = state.w if residual is None else state.w + residual
        settings = state.settings
        return encode(settings, state.units, part, self.parts(settings), plain, self.weight(state), self.indexed), plain

    def remember(self, state: Round, plain: F32, parts: Parts, sent: Bool) -> None:
        """Update what outlives the round, after sending; `sent` [K, N] marks the parts sent."""
        if state.memory.residual is not None:
            feed_back(state.memory.residual, plain, parts, sent)


class Gist(Policy):
    """Send important segments more often, to a drawn neighbour (SPEC.md 6.4)."""

    indexed = True

    def parts(self, settings: Settings) -> int:
        return settings.segments

    def part(self, state: Round) -> I16:
        settings, units = state.settings, state.units
        scores = {Score.WEIGHT: state.w, Score.UPDATE: state.w - state.start}.get(settings.score, state.average)
        assert scores is not None
        importance = units.importance(np.abs(scores), settings.reduce)
        ranked = rank(importance)
        segment = cut(units, ranked, settings.segments)
        self._means, self._counts = segment_means(importance, ranked, segment, settings.segments)
        return segment[units.of].astype(np.int16)

    def weight(self, state: Round) -> F32:
        return state.success

    def send(self, state: Round, part: I16) -> Messages:
        sends = state.settings.sends
        segment = self._draw_segments(state)
        place = _SPREADS[state.settings.spread](state)
        src, j = np.nonzero(np.broadcast_to(state.sending[:, None], (len(state.sending), sends)))
        chosen = segment[j, src]
        order = np.lexsort((j, chosen, src))
        src, j = src[order], j[order]
        return Messages(src, state.peers[place[j, src], src], segment[j, src])

    def _draw_segments(self, state: Round) -> I64:
        settings = state.settings
        used = self._counts > 0
        total = _running(self._means)[-1]
        usable = np.isfinite(total) & (total > 0)
        means = np.where(usable, self._means, used.astype(np.float32))
        p = means / _running(means)[-1]
        if settings.base > 1:
            p = np.where(used, fmath.exp(p * fmath.log(settings.base)), np.float32(0))
        running = _running(p)
        last = len(used) - 1 - np.argmax(used[::-1], axis=0)
        result = np.empty((settings.sends, p.shape[1]), np.int64)
        for j in range(settings.sends):
            x = rng.unit(state.draw(2 * j)) * running[-1]
            hit = used & (running > x)
            result[j] = np.where(hit.any(axis=0), np.argmax(hit, axis=0), last)
        return result

    def own_weight(self, state: Round, others: F32) -> F32:
        match state.settings.success:
            case Success.SENDER:
                return sharpen(state.settings, state.success)
            case Success.EQUAL:
                return super().own_weight(state, others)
            case Success.VERIFIED:
                return sharpen(state.settings, np.full(len(state.degree), np.float32(0.5)))

    def message_weight(self, state: Round, nodes: I64, weight: F32) -> F32:
        equal = state.settings.success is Success.EQUAL
        return super().message_weight(state, nodes, weight) if equal else sharpen(state.settings, weight)


def sharpen(settings: Settings, weight: F32) -> F32:
    """Return exp(weight * log(success_base)) where the base is above 1 (SPEC.md 6.9)."""
    return fmath.exp(weight * fmath.log(settings.success_base)) if settings.success_base > 1 else weight


def _running(terms: F32) -> F32:
    return np.add.accumulate(terms, axis=0, dtype=np.float32)


def _with_replacement(state: Round) -> I64:
    degree = np.maximum(state.degree, 1)
    return np.stack([rng.below(state.draw(2 * j + 1), degree) for j in range(state.settings.sends)]).astype(np.int64)


def _without_replacement(state: Round) -> I64:
    degree, columns = np.maximum(state.degree, 1), np.arange(len(state.degree))
    fresh = np.broadcast_to(np.arange(len(state.peers))[:, None], state.peers.shape)
    deck, result = fresh.copy(), np.empty((state.settings.sends, len(degree)), np.int64)
    for j in range(state.settings.sends):
        t = j % degree
        deck[:, t == 0] = fresh[:, t == 0]
        other = t + rng.below(state.draw(2 * j + 1), degree - t)
        result[j] = deck[other, columns]
        deck[other, columns] = deck[t, columns]
        deck[t, columns] = result[j]
    return result


def _balanced(state: Round) -> I64:
    counts, columns = state.memory.send_counts, np.arange(len(state.degree))
    assert counts is not None
    result = np.zeros((state.settings.sends, len(columns)), np.int64)
    beyond = np.arange(len(counts))[:, None] >= state.degree
    for j in range(state.settings.sends):
        least = np.where(beyond, np.iinfo(np.int64).max, counts).min(axis=0)
        candidates = (counts == least) & ~beyond
        number = rng.below(state.draw(2 * j + 1), np.maximum(candidates.sum(axis=0), 1))
        result[j] = np.argmax(np.cumsum(candidates, axis=0) > number, axis=0)
        counts[result[j], columns] += state.sending
    return result


def _round_robin(state: Round) -> I64:
    cursor = state.memory.cursor
    assert cursor is not None
    sends = state.settings.sends
    result = (cursor + np.arange(sends)[:, None]) % np.maximum(state.degree, 1)
    cursor += sends * state.sending
    return result


_SPREADS = {
    Spread.UNIFORM_WITH_REPLACEMENT: _with_replacement,
    Spread.UNIFORM_WITHOUT_REPLACEMENT: _without_replacement,
    Spread.BALANCED: _balanced,
    Spread.ROUND_ROBIN: _round_robin,
}


class SegmentedGossip(Policy):
    """Pull each of S fixed segments from a few random peers, mixed by data size (SPEC.md 6.5; Hu et al. 2019)."""

    pulls = True

    def parts(self, settings: Settings) -> int:
        return settings.segments

    def part(self, state: Round) -> I16:
        size, segments = len(state.w), state.settings.segments
        edges = np.arange(1, segments) * size // segments
        fixed = np.searchsorted(edges, np.arange(size), side="right").astype(np.int16)
        return np.broadcast_to(fixed[:, None], state.w.shape)

    def weight(self, state: Round) -> F32:
        return state.n_train.astype(np.float32)

    def request(self, state: Round) -> Messages:
        found = [
            _to_chosen(state, state.choose(state.settings.pulls, segment * state.settings.pulls), segment)
            for segment in range(state.settings.segments)
        ]
        src, dst, part = (np.concatenate([getattr(m, name) for m in found]) for name in ("src", "dst", "part"))
        order = np.lexsort((part, dst, src))
        return Messages(src[order], dst[order], part[order])

    def own_weight(self, state: Round, others: F32) -> F32:
        return self.weight(state)

    def message_weight(self, state: Round, nodes: I64, weight: F32) -> F32:
        return weight


class GossipFL(Policy):
    """Average a shared random mask of coordinates with one matched peer (SPEC.md 6.6; Tang et al. 2022)."""

    def part(self, state: Round) -> I16:
        settings = state.settings
        draws = rng.draws(settings.seed, Stream.MASK, state.number, 0, np.arange(len(state.w)))
        inside = np.where(rng.chance(draws, settings.ratio24), 0, -1).astype(np.int16)
        return np.broadcast_to(inside[:, None], state.w.shape)

    def send(self, state: Round, part: I16) -> Messages:
        return super().send(state, part) if (part >= 0).any() else Messages.none()


class DPSGD(Policy):
    """Send the whole model to every peer, mixed by Metropolis weights (SPEC.md 6.7)."""

    def weight(self, state: Round) -> F32:
        return state.degree.astype(np.float32)

    def own_weight(self, state: Round, others: F32) -> F32:
        return ONE - others

    def message_weight(self, state: Round, nodes: I64, weight: F32) -> F32:
        return ONE / (ONE + np.maximum(state.degree[nodes].astype(np.float32), weight))


class Epidemic(Policy):
    """Send the whole model to a few random nodes (SPEC.md 6.7)."""

    def send(self, state: Round, part: I16) -> Messages:
        return _to_chosen(state, state.choose(state.settings.fanout, 0))


class TopK(Policy):
    """Send the coordinates that moved most since they were last sent (SPEC.md 6.7)."""

    indexed = True

    def part(self, state: Round) -> I16:
        assert state.memory.reference is not None
        ranked = rank(np.abs(state.w - state.memory.reference))
        result = np.full(state.w.shape, -1, np.int16)
        np.put_along_axis(result, ranked[: state.settings.top], np.int16(0), axis=0)
        return result

    def remember(self, state: Round, plain: F32, parts: Parts, sent: Bool) -> None:
        reference = state.memory.reference
        assert reference is not None
        told = (parts.part == 0) & sent[0]
        reference[told] = parts.values[told]


class FedAvg(Policy):
    """Send the whole model to the virtual server and take its average (SPEC.md 6.7, 6.11): the upper bound."""

    def weight(self, state: Round) -> F32:
        return state.n_train.astype(np.float32)

    def send(self, state: Round, part: I16) -> Messages:
        src = np.nonzero(state.present)[0]
        return Messages(src, np.full(len(src), SERVER), np.zeros(len(src), np.int64))

    def own_weight(self, state: Round, others: F32) -> F32:
        return np.zeros(len(state.degree), np.float32)


class Local(Policy):
    """Share nothing: the lower bound."""

    def send(self, state: Round, part: I16) -> Messages:
        return Messages.none()


POLICIES: dict[PolicyKind, type[Policy]] = {
    PolicyKind.GIST: Gist,
    PolicyKind.SEGMENTED_GOSSIP: SegmentedGossip,
    PolicyKind.GOSSIPFL: GossipFL,
    PolicyKind.DPSGD: DPSGD,
    PolicyKind.EPIDEMIC: Epidemic,
    PolicyKind.TOPK: TopK,
    PolicyKind.FEDAVG: FedAvg,
    PolicyKind.LOCAL: Local,
}


def fresh_memory(settings: Settings, initial: F32, peers_max: int) -> Memory:
    """Allocate what the policy and its options keep; `initial` is w [P, N]."""
    memory = Memory()
    if settings.error_feedback:
        memory.residual = np.zeros_like(initial)
    if settings.policy is PolicyKind.TOPK:
        memory.reference = initial.copy()
    if settings.policy is PolicyKind.GIST and settings.spread is Spread.BALANCED:
        memory.send_counts = np.zeros((peers_max, settings.nodes), np.int64)
    if settings.policy is PolicyKind.GIST and settings.spread is Spread.ROUND_ROBIN:
        memory.cursor = np.zeros(settings.nodes, np.int64)
    return memory
