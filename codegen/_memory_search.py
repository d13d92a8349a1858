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

    Only packings in a normal form are looked at: every buffer rests on the floor or on one alive with it. Any packing
    becomes one of these by letting buffers fall, which never raises the peak. They are built by rising offset, those
    of one offset by rank, so that each is met once; and the offset of the next buffer is known: the highest top of
    what is placed and alive with it.
    """
    areas = [buffer.room_bytes * (buffer.last - buffer.first + 1) for buffer in buffers]
    ranks = sorted(range(len(buffers)), key=lambda number: (-areas[number], number))
    renumbered = {number: rank for rank, number in enumerate(ranks)}
    found = _Search(
        [buffers[number] for number in ranks],
        [frozenset(renumbered[other] for other in meets[number]) for number in ranks],
        bound_bytes,
        peak_bytes,
        steps,
    )
    found.descend(_Node((0,) * len(buffers), tuple(range(len(buffers))), (0, -1)))
    best = None if found.best is None else [found.best[renumbered[number]] for number in range(len(buffers))]
    return best, found.steps > 0


@dataclass(frozen=True)
class _Node:
    """A packing of some of the buffers, which are numbered by rank."""

    lows: tuple[int, ...]  # offsets of what is placed; of the others, the least they can have
    waiting: tuple[int, ...]  # buffers to place
    last: tuple[int, int]  # offset and rank of the last placed: what follows is greater


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
        self.meets = meets
        self.bound = bound_bytes
        self.peak = peak_bytes
        self.steps = steps
        self.best: tuple[int, ...] | None = None
        moments = _moments(buffers)
        self.present = [[moment for moment, alive in enumerate(moments) if i in alive] for i in range(len(buffers))]

    def descend(self, node: _Node) -> None:
        """Try every buffer that can come next."""
        if not node.waiting:
            self.best, self.peak = node.lows, max(map(sum, zip(node.lows, self.rooms, strict=True)))
            return
        for number in self._candidates(node):
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
        ceiling = min(node.lows[number] + self.rooms[number] for number in node.waiting)
        alike: dict[tuple[int, ...], int] = {}
        for number in node.waiting:
            if node.last < (node.lows[number], number) and node.lows[number] < ceiling:
                buffer = self.buffers[number]
                alike.setdefault((buffer.first, buffer.last, buffer.size_bytes, buffer.align), number)
        return sorted(alike.values(), key=lambda number: (node.lows[number], number))

    def _placed(self, node: _Node, number: int) -> _Node:
        offset = node.lows[number]
        top = offset + self.rooms[number]
        lows = list(node.lows)
        waiting = tuple(other for other in node.waiting if other != number)
        for other in self.meets[number].intersection(waiting):
            lows[other] = max(lows[other], round_up(top, self.buffers[other].align))
        return _Node(tuple(lows), waiting, (offset, number))

    def _promises(self, node: _Node) -> bool:
        """Tell whether the waiting ones may still end below the best peak.

        At every moment they are stacked, and begin no lower than the lowest of them can.
        """
        floors: dict[int, int] = {}
        ahead: dict[int, int] = {}
        for number in node.waiting:
            low = self._least(node, number)
            if low is None:
                return False
            self.steps -= len(self.present[number])
            for moment in self.present[number]:
                floors[moment] = min(floors.get(moment, low), low)
                ahead[moment] = ahead.get(moment, 0) + self.rooms[number]
        return all(floors[moment] + ahead[moment] < self.peak for moment in floors)

    def _least(self, node: _Node, number: int) -> int | None:
        """Return the least offset of a waiting buffer; None if its turn is over and nothing will raise it."""
        low = node.lows[number]
        if (low, number) > node.last:
            return low
        neighbours = self.meets[number].intersection(node.waiting)
        return min((max(node.lows[other], node.last[0]) + self.rooms[other] for other in neighbours), default=None)


def _moments(buffers: Sequence[Buffer]) -> list[frozenset[int]]:
    """List the greatest sets of buffers alive at once: those before which one begins and after which one ends."""
    firsts = sorted({buffer.first for buffer in buffers})
    found = []
    for call, following in pairwise([*firsts, max(buffer.last for buffer in buffers) + 1]):
        alive = [number for number, buffer in enumerate(buffers) if buffer.first <= call <= buffer.last]
        if any(buffers[number].last < following for number in alive):
            found.append(frozenset(alive))
    return found
