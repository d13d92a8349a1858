"""Search for the lowest packing, completely unless the budget ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from codegen._buffers import Buffer, round_up


def search(
    buffers: Sequence[Buffer], meets: Sequence[frozenset[int]], bound_bytes: int, peak_bytes: int, steps: int
) -> tuple[list[int] | None, bool]:
    """Look for offsets with a peak below `peak_bytes`; stop at `bound_bytes`, below which there is none.

    Returns the best offsets, or None, and whether nothing lower can exist: the search was complete.

    Only packings in a normal form are looked at: every buffer rests on the floor or on one alive with it, and they are
    placed by rising offset. Any packing becomes one of these by letting buffers fall, which never raises the peak.
    So the offset of the next buffer is known: the highest top of what is placed and alive with it.
    """
    found = _Search(buffers, meets, bound_bytes, peak_bytes, steps)
    found.descend(_Node.root(buffers, found.moments))
    return found.best, found.steps > 0


@dataclass(frozen=True)
class _Node:
    """A packing of some of the buffers."""

    offsets: tuple[int, ...]  # of what is placed; of the others, the least they can have
    waiting: tuple[int, ...]  # buffers to place
    floor: int  # offset of the last placed: the others come no lower
    tops: tuple[int, ...]  # at each moment, where the highest placed buffer ends
    ahead: tuple[int, ...]  # at each moment, the bytes of what is alive and waiting

    @classmethod
    def root(cls, buffers: Sequence[Buffer], moments: Sequence[frozenset[int]]) -> _Node:
        ahead = tuple(sum(buffers[number].room_bytes for number in alive) for alive in moments)
        return cls((0,) * len(buffers), tuple(range(len(buffers))), 0, (0,) * len(moments), ahead)


class _Search:
    def __init__(
        self,
        buffers: Sequence[Buffer],
        meets: Sequence[frozenset[int]],
        bound_bytes: int,
        peak_bytes: int,
        steps: int,
    ) -> None:
        self.buffers = buffers
        self.rooms = [buffer.room_bytes for buffer in buffers]
        self.bound = bound_bytes
        self.peak = peak_bytes
        self.steps = steps
        self.best: list[int] | None = None
        self.moments = _moments(buffers)
        self.meets = meets
        numbers = range(len(buffers))
        self.present = [[moment for moment, alive in enumerate(self.moments) if i in alive] for i in numbers]
        self.areas = [self.rooms[i] * (buffers[i].last - buffers[i].first + 1) for i in numbers]

    def descend(self, node: _Node) -> None:
        """Try every buffer that can come next."""
        if not node.waiting:
            self.best, self.peak = list(node.offsets), max(node.tops)
            return
        for number in self._candidates(node):
            self.steps -= len(node.waiting)
            if self.steps <= 0 or self.peak == self.bound:
                return
            after = self._placed(node, number)
            if self._promises(after):
                self.descend(after)

    def _candidates(self, node: _Node) -> list[int]:
        """List the buffers to try next.

        What would start at or above the end of a waiting one is left out: that one would fit below, so a packing no
        higher has it there, and was placed before. Of buffers alike in all respects one is enough.
        """
        ceiling = min(node.offsets[number] + self.rooms[number] for number in node.waiting)
        alike: dict[tuple[int, ...], int] = {}
        for number in node.waiting:
            if node.floor <= node.offsets[number] < ceiling:
                buffer = self.buffers[number]
                alike.setdefault((buffer.first, buffer.last, buffer.size_bytes, buffer.align), number)
        return sorted(alike.values(), key=lambda number: (node.offsets[number], -self.areas[number], number))

    def _placed(self, node: _Node, number: int) -> _Node:
        offset = node.offsets[number]
        top = offset + self.rooms[number]
        offsets = list(node.offsets)
        for other in self.meets[number].intersection(node.waiting):
            offsets[other] = max(offsets[other], round_up(top, self.buffers[other].align))
        tops, ahead = list(node.tops), list(node.ahead)
        for moment in self.present[number]:
            tops[moment] = top
            ahead[moment] -= self.rooms[number]
        waiting = tuple(other for other in node.waiting if other != number)
        return _Node(tuple(offsets), waiting, offset, tuple(tops), tuple(ahead))

    def _promises(self, node: _Node) -> bool:
        """Tell whether the waiting ones may still fit below the best peak; they stack upon what is placed."""
        for top, ahead in zip(node.tops, node.ahead, strict=True):
            if ahead and (top if top > node.floor else node.floor) + ahead >= self.peak:
                return False
        return max(node.tops) < self.peak


def _moments(buffers: Sequence[Buffer]) -> list[frozenset[int]]:
    """List the greatest sets of buffers alive at once: those before which one begins and after which one ends."""
    firsts = sorted({buffer.first for buffer in buffers})
    found = []
    for call, following in pairwise([*firsts, max(buffer.last for buffer in buffers) + 1]):
        alive = [number for number, buffer in enumerate(buffers) if buffer.first <= call <= buffer.last]
        if any(buffers[number].last < following for number in alive):
            found.append(frozenset(alive))
    return found
