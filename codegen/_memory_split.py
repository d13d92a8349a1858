"""Search for the cheapest set of buffers to move out of internal RAM, completely unless the budget ends."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Protocol

from codegen._buffers import Buffer


class Fits(Protocol):
    """Tell whether buffers can be packed within the limit, and whether that answer is certain."""

    def __call__(self, chosen: Sequence[Buffer], *, thorough: bool) -> tuple[bool, bool]:
        """Pack by first fit, or with a search too."""


class Splitter:
    """Decide on one buffer after the other, those with the most traffic first, staying inside tried first."""

    def __init__(self, buffers: Sequence[Buffer], traffic: Sequence[int], limit_bytes: int, fits: Fits) -> None:
        self.buffers = buffers
        self.traffic = traffic  # what it costs to move each buffer out
        self.limit = limit_bytes
        self.fits = fits
        self.order = sorted(range(len(buffers)), key=lambda number: (-traffic[number], number))
        self.moments = [self._alive(call) for call in sorted({buffer.first for buffer in buffers})]
        self.best = self._greedy()
        self.cost = self._cost_without(self.best)
        self.certain = True

    def search(self, steps: int, packings: int) -> bool:
        """Make `best`, the numbers of the buffers to keep inside, better; tell whether nothing better exists."""
        self.steps, self.packings = steps, packings
        if self.cost:
            self._descend(0, frozenset(), frozenset(), 0)
        return self.certain and self.steps > 0 and self.packings > 0

    def _alive(self, call: int) -> list[int]:
        """List the buffers alive at a call, the cheapest of a byte first."""
        pairs = enumerate(self.buffers)
        alive = [number for number, buffer in pairs if buffer.pinned or buffer.first <= call <= buffer.last]
        return sorted(alive, key=lambda number: self.traffic[number] / max(1, self.buffers[number].room_bytes))

    def _greedy(self) -> frozenset[int]:
        """Admit buffers while their sum fits at every call; then, if they cannot be packed, keep the dearest."""
        room = {moment: self.limit for moment in range(len(self.moments))}
        inner: list[int] = []
        for number in self.order:
            mine = [moment for moment in room if number in self.moments[moment]]
            if all(room[moment] >= self.buffers[number].room_bytes for moment in mine):
                inner.append(number)
                for moment in mine:
                    room[moment] -= self.buffers[number].room_bytes
        if not self._fits(inner, thorough=True)[0]:
            counts = range(len(inner) + 1)
            inner = inner[: bisect_left(counts, 1, key=lambda n: not self._fits(inner[:n], thorough=False)[0]) - 1]
        return frozenset(inner)

    def _fits(self, numbers: Iterable[int], *, thorough: bool) -> tuple[bool, bool]:
        return self.fits([self.buffers[number] for number in sorted(numbers)], thorough=thorough)

    def _cost_without(self, inner: frozenset[int]) -> int:
        return sum(cost for number, cost in enumerate(self.traffic) if number not in inner)

    def _descend(self, position: int, inner: frozenset[int], outer: frozenset[int], cost: int) -> None:
        self.steps -= sum(map(len, self.moments))
        least = self._least_more(inner, outer)
        if self.steps <= 0 or self.packings <= 0 or least is None or cost + least >= self.cost:
            return
        if least == 0 and self._try(inner.union(self.order[position:])):
            return
        if position == len(self.order):
            return
        number = self.order[position]
        self._descend(position + 1, inner | {number}, outer, cost)
        self._descend(position + 1, inner, outer | {number}, cost + self.traffic[number])

    def _least_more(self, inner: frozenset[int], outer: frozenset[int]) -> int | None:
        """Bound from below what the undecided will cost, None if what is inside is too much already.

        At the call that asks for most, the cheapest bytes move out until the rest fits; part of a buffer may move.
        """
        greatest = 0
        for members in self.moments:
            excess = sum(self.buffers[number].room_bytes for number in members if number not in outer) - self.limit
            cost = 0
            for number in members:
                if excess <= 0:
                    break
                room = self.buffers[number].room_bytes
                if room and number not in inner and number not in outer:
                    cost += self.traffic[number] * min(room, excess) // room
                    excess -= room
            if excess > 0:
                return None
            greatest = max(greatest, cost)
        return greatest

    def _try(self, inner: frozenset[int]) -> bool:
        """Take a choice whose sums fit, if it can be packed."""
        fits, certain = self._fits(inner, thorough=False)
        if not certain:
            self.packings -= 1
            fits, certain = self._fits(inner, thorough=True)
        if fits:
            self.best, self.cost = inner, self._cost_without(inner)
        self.certain &= certain
        return fits
