"""Wait for and merge what neighbours sent (SPEC.md 6.8 to 6.11), many nodes at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from gossamer.spec.nn import F32, I64, Bool, ordered_sum


@dataclass(frozen=True)
class Arrivals:
    """List accepted messages in order of delivery, sorted by receiver: parallel arrays [M].

    `values` and `part` [P, sources] are the offers the messages point into; `weight` [M] is their weight field.
    """

    dst: I64
    src: I64
    number: I64
    weight: F32
    values: F32
    part: np.ndarray


@dataclass(frozen=True)
class Wave:
    """Hold the t-th waiting message of each of some nodes: `values` and `covers` [P, n], `weight` [n]."""

    nodes: I64
    values: F32
    covers: Bool
    weight: F32


@dataclass
class Fifo:
    """Keep messages that wait for the threshold; dense, so that a wave is one array operation."""

    places: int
    held: I64  # [N]
    values: list[F32] = field(default_factory=list)  # by place, [P, N]
    covers: list[Bool] = field(default_factory=list)
    weight: list[F32] = field(default_factory=list)  # by place, [N]

    def waves(self, arrivals: Arrivals, which: Bool) -> Iterator[Wave]:
        """Give, place by place, the queue of the nodes marked in `which` after the arrivals, oldest first."""
        count, evicted = self.lengths(arrivals)
        first = np.searchsorted(arrivals.dst, np.arange(len(count)))
        for place in range(int(count[which].max(initial=0))):
            nodes = np.nonzero(which & (count > place))[0]
            at = evicted[nodes] + place
            old = at < self.held[nodes]
            row = np.where(old, 0, first[nodes] + at - self.held[nodes])
            yield self._wave(arrivals, nodes, np.where(old, at, -1), row)

    def lengths(self, arrivals: Arrivals) -> tuple[I64, I64]:
        """Return the messages in each queue after the arrivals and how many the full queues pushed out, [N] each."""
        total = self.held + np.bincount(arrivals.dst, minlength=len(self.held))
        return np.minimum(total, self.places), np.maximum(total - self.places, 0)

    def keep(self, arrivals: Arrivals, which: Bool) -> None:
        """Store the queue of the nodes marked in `which`; empty that of the others."""
        count, _ = self.lengths(arrivals)
        # A wave is read from places at or behind the one it is stored in, so storing as we go is safe.
        for place, wave in enumerate(self.waves(arrivals, which)):
            if place == len(self.values):
                shape = (wave.values.shape[0], len(self.held))
                self.values.append(np.zeros(shape, np.float32))
                self.covers.append(np.zeros(shape, np.bool_))
                self.weight.append(np.zeros(len(self.held), np.float32))
            self.values[place][:, wave.nodes] = wave.values
            self.covers[place][:, wave.nodes] = wave.covers
            self.weight[place][wave.nodes] = wave.weight
        self.held = np.where(which, count, 0)

    def _wave(self, arrivals: Arrivals, nodes: I64, place: I64, row: I64) -> Wave:
        if (place < 0).all():
            source = arrivals.src[row]
            covers = arrivals.part[:, source] == arrivals.number[row]
            return Wave(nodes, arrivals.values[:, source], covers, arrivals.weight[row])
        parameters = self.values[0].shape[0]
        wave = Wave(
            nodes,
            np.empty((parameters, len(nodes)), np.float32),
            np.empty((parameters, len(nodes)), np.bool_),
            np.empty(len(nodes), np.float32),
        )
        for stored in np.unique(place):
            column = np.nonzero(place == stored)[0]
            if stored < 0:
                fresh = self._wave(arrivals, nodes[column], place[column], row[column])
                values, covers, weight = fresh.values, fresh.covers, fresh.weight
            else:
                values = self.values[stored][:, nodes[column]]
                covers = self.covers[stored][:, nodes[column]]
                weight = self.weight[stored][nodes[column]]
            wave.values[:, column], wave.covers[:, column], wave.weight[column] = values, covers, weight
        return wave


@np.errstate(all="ignore")  # what overflows keeps the local value
def merge(w: F32, own_weight: F32, waves: Iterator[Wave]) -> F32:
    """Return the merged weights [P, N] (SPEC.md 6.9); the waves' `weight` are the weights to merge with."""
    num, den = own_weight * w, np.broadcast_to(own_weight, w.shape).copy()
    touched = np.zeros(w.shape, np.bool_)
    for wave in waves:
        counts = wave.covers & (wave.weight > 0)
        before_num, before_den = num[:, wave.nodes], den[:, wave.nodes]
        num[:, wave.nodes] = np.where(counts, before_num + wave.weight * wave.values, before_num)
        den[:, wave.nodes] = np.where(counts, before_den + wave.weight, before_den)
        touched[:, wave.nodes] |= counts
    mixed = num / den
    return np.where(touched & np.isfinite(mixed), mixed, w)


@np.errstate(all="ignore")
def verified_weight(loss: F32, trial_loss: F32) -> F32:
    """Score a message by the validation loss [n] without and with it (SPEC.md 6.10)."""
    half = np.float32(0.5)
    x = np.where(loss > 0, half + ((loss - trial_loss) / loss) * half, half)
    return np.where(np.isfinite(x), np.clip(x, np.float32(0), np.float32(1)), np.float32(0))


def server_average(values: F32, weight: F32) -> F32:
    """Return the server's average [P] of the models [P, M] that arrived, ascending source (SPEC.md 6.11)."""
    den = ordered_sum(weight)
    return ordered_sum((values * weight).T) / den
