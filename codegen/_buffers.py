"""Describe what needs room in an arena, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Buffer:
    """Ask for room from call `first` to call `last`, both included.

    A pinned buffer keeps its value between invocations: it is alive always, and placed from offset 0 on.
    """

    name: str
    size_bytes: int
    first: int
    last: int
    align: int = 16  # of the offset, a power of two
    pinned: bool = False

    @cached_property
    def room_bytes(self) -> int:
        """Return the bytes that it takes: whole units of its alignment."""
        return round_up(self.size_bytes, self.align)

    def meets(self, other: Buffer) -> bool:
        """Tell whether both are alive at one call, so that they must not overlap."""
        return self.pinned or other.pinned or (self.first <= other.last and other.first <= self.last)


def round_up(value: int, unit: int) -> int:
    """Return the least multiple of a unit that is not less than a value."""
    return -(-value // unit) * unit


def live_bytes(buffers: Sequence[Buffer], call: int) -> int:
    """Sum up what is alive at one call."""
    return sum(buffer.room_bytes for buffer in buffers if buffer.pinned or buffer.first <= call <= buffer.last)


def load(buffers: Sequence[Buffer]) -> int:
    """Return the greatest sum of bytes alive at one call."""
    return max((live_bytes(buffers, call) for call in {buffer.first for buffer in buffers}), default=0)


def meetings(buffers: Sequence[Buffer]) -> list[frozenset[int]]:
    """List, for each buffer, which others must not overlap it."""
    numbers = range(len(buffers))
    return [frozenset(j for j in numbers if j != i and buffers[i].meets(buffers[j])) for i in numbers]
