"""Pack buffers that live at different times into one arena, and choose which of them a second, slower memory takes.

Both answers are the best possible, proved by search, for the models of microcontrollers; a budget of steps (never of
time, so that the same model always gives the same plan) bounds the search, and the answer says when it ran out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from codegen._buffers import Buffer, live_bytes, load, meetings, round_up
from codegen._memory_search import search
from codegen._memory_split import Splitter

__all__ = ["Buffer", "Plan", "Split", "live_bytes", "load", "pack", "split"]

_PACK_STEPS: Final = 400_000  # of the search, each a look at one buffer at one call: half a second in all
_SEARCHED: Final = 400  # buffers; more are left to first fit
_SPLIT_STEPS: Final = 200_000
_SPLIT_PACKINGS: Final = 8  # with a search, that a search for a split may try


@dataclass(frozen=True)
class Plan:
    """Say where each buffer is, and how good that is."""

    offsets: tuple[int, ...]  # bytes, one a buffer
    peak_bytes: int  # where the highest buffer ends: what the arena needs
    lower_bound_bytes: int  # the greatest sum of what is alive at one call: no arena can be smaller
    proved_optimal: bool  # no other plan has a lower peak

    @property
    def ratio(self) -> float:
        """Return the peak over its lower bound: 1.0 is perfect."""
        return self.peak_bytes / self.lower_bound_bytes if self.lower_bound_bytes else 1.0


@dataclass(frozen=True)
class Split:
    """Say which buffers stay in internal RAM; PSRAM takes the others."""

    inner: tuple[bool, ...]  # one a buffer
    psram_traffic_bytes: int  # sum of size times accesses of what PSRAM takes
    proved_optimal: bool  # no other split that fits has less traffic


def pack(buffers: Sequence[Buffer]) -> Plan:
    """Place every buffer so that those alive at once do not overlap, with the lowest peak that is found.

    Pinned buffers come first, in their order; as they are alive always, that costs nothing. Then several orders of
    first fit; if the best of them misses the lower bound, a search for something lower.
    """
    return _pack(buffers, _PACK_STEPS)


def split(buffers: Sequence[Buffer], accesses: Sequence[int], ram_limit_bytes: int) -> Split:
    """Choose what stays in internal RAM, whose packing must not exceed a limit, for the least traffic in PSRAM.

    `accesses` counts how often each buffer is read or written whole in one invocation.
    """

    def fits(chosen: Sequence[Buffer], *, thorough: bool) -> tuple[bool, bool]:
        plan = _pack(chosen, _PACK_STEPS if thorough else 0)
        within = plan.peak_bytes <= ram_limit_bytes
        return within, within or plan.proved_optimal

    traffic = [count * buffer.size_bytes for count, buffer in zip(accesses, buffers, strict=True)]
    splitter = Splitter(buffers, traffic, ram_limit_bytes, fits)
    proved = splitter.search(_SPLIT_STEPS, _SPLIT_PACKINGS)
    inner = tuple(number in splitter.best for number in range(len(buffers)))
    return Split(inner, splitter.cost, proved)


def _pack(buffers: Sequence[Buffer], steps: int) -> Plan:
    offsets = [0] * len(buffers)
    base = 0
    for number, buffer in enumerate(buffers):
        if buffer.pinned:
            offsets[number] = round_up(base, buffer.align)
            base = offsets[number] + buffer.room_bytes
    numbers = [number for number, buffer in enumerate(buffers) if not buffer.pinned and buffer.size_bytes]
    moving = [buffers[number] for number in numbers]
    pinned_bytes = sum(buffer.room_bytes for buffer in buffers if buffer.pinned)
    base = round_up(base, max((buffer.align for buffer in moving), default=1))
    found, peak, proved = _pack_moving(moving, steps)
    for number, offset in zip(numbers, found, strict=True):
        offsets[number] = base + offset
    bound = pinned_bytes + load(moving)
    return Plan(tuple(offsets), base + peak, bound, base + peak == bound or (proved and base == pinned_bytes))


def _pack_moving(buffers: Sequence[Buffer], steps: int) -> tuple[list[int], int, bool]:
    """Return offsets, their peak, and whether it is proved to be the lowest."""
    if not buffers:
        return [], 0, True
    bound, meets = load(buffers), meetings(buffers)
    offsets = min((_first_fit(buffers, meets, order) for order in _orders(buffers)), key=partial(_peak, buffers))
    peak = _peak(buffers, offsets)
    if peak == bound or not steps or len(buffers) > _SEARCHED:
        return offsets, peak, peak == bound
    better, complete = search(buffers, meets, bound, peak, steps)
    offsets = better or offsets
    peak = _peak(buffers, offsets)
    return offsets, peak, complete


def _first_fit(buffers: Sequence[Buffer], meets: Sequence[frozenset[int]], order: Iterable[int]) -> list[int]:
    """Place buffers one after the other, each as low as what is placed lets it; return their offsets."""
    offsets: dict[int, int] = {}
    for number in order:
        buffer, offset = buffers[number], 0
        for low, other in sorted((offsets[other], other) for other in meets[number] & offsets.keys()):
            if offset + buffer.room_bytes <= low:
                break
            offset = max(offset, round_up(low + buffers[other].room_bytes, buffer.align))
        offsets[number] = offset
    return [offsets[number] for number in range(len(buffers))]


def _orders(buffers: Sequence[Buffer]) -> list[list[int]]:
    """List orders in which first fit often does well; ties are broken by the order of time, then of the list."""
    crowds = {call: live_bytes(buffers, call) for call in {buffer.first for buffer in buffers}}
    busiest = {
        span: max(crowd for call, crowd in crowds.items() if span[0] <= call <= span[1])
        for span in {(buffer.first, buffer.last) for buffer in buffers}
    }
    keys: list[Callable[[Buffer], tuple[int, ...]]] = [
        lambda buffer: (-buffer.room_bytes,),
        lambda buffer: (-buffer.room_bytes * (buffer.last - buffer.first + 1),),
        lambda buffer: (buffer.first - buffer.last, -buffer.room_bytes),
        lambda buffer: (-busiest[buffer.first, buffer.last], -buffer.room_bytes),
        lambda buffer: (-busiest[buffer.first, buffer.last], buffer.first - buffer.last),
        lambda buffer: (buffer.first,),
        lambda buffer: (-buffer.last,),
    ]
    numbers = range(len(buffers))
    return [sorted(numbers, key=lambda number: (key(buffers[number]), buffers[number].first)) for key in keys]


def _peak(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    return max(offset + buffer.room_bytes for offset, buffer in zip(offsets, buffers, strict=True))
