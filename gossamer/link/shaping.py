"""Shape links in user space, from the seeded link model alone (SPEC.md 7.5, 7.7): no kernel has a part in it."""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict
from typing import Final

from gossamer.spec.constants import DATA_TYPE_MIN, HEADER_BYTES, SERVER
from gossamer.spec.plan import Plan

ROUTE: Final = struct.Struct("<4xHHII")  # src, dst, round, seq of a header


def is_data(frame: bytes) -> bool:
    """Whether a frame is one of those that links carry; all others go their way unshaped."""
    return len(frame) >= HEADER_BYTES and frame[1] >= DATA_TYPE_MIN


def corrupt(frame: bytes) -> bytes:
    """Return a data frame with a wrong byte behind its header; the same for the same frame."""
    number = zlib.crc32(frame)
    at = HEADER_BYTES + number % (len(frame) - HEADER_BYTES)
    return frame[:at] + bytes([frame[at] ^ (1 + (number >> 16) % 255)]) + frame[at + 1 :]


class Shaper:
    """Say when frames arrive that are handed to a cluster's links. Owns no clock.

    `ordered` is for lockstep, whose coordinator has drawn losses, corruption and order already: only time is added,
    and a node gets its frames in the order they were offered, control frames among them.
    """

    def __init__(self, plan: Plan, ordered: bool) -> None:
        self._plan = plan
        self._ordered = ordered
        self._free_s: defaultdict[tuple[int, int], float] = defaultdict(float)  # by link and way: when it is idle
        self._last_s: defaultdict[int, float] = defaultdict(float)  # by destination: its newest arrival

    def offer(self, frame: bytes, now_s: float) -> list[tuple[float, bytes]]:
        """Return when each copy of a frame arrives, and its bytes then; nothing: it is lost."""
        arrivals = self._shape(frame, now_s) if is_data(frame) else [(now_s, frame)]
        if not self._ordered:
            return arrivals
        _, dst, _, _ = ROUTE.unpack_from(frame)
        self._last_s[dst] = arrival_s = max([self._last_s[dst], *(time_s for time_s, _ in arrivals)])
        return [(arrival_s, data) for _, data in arrivals]

    def _shape(self, frame: bytes, now_s: float) -> list[tuple[float, bytes]]:
        src, dst, round_, seq = ROUTE.unpack_from(frame)
        way = src, dst, round_, seq
        sent_s = max(now_s, self._free_s[src, dst]) + 8 * len(frame) / self._bits_per_s(src, dst)
        self._free_s[src, dst] = sent_s
        arrival_s = sent_s + float(self._plan.delays_us(*way)) / 1e6
        if self._ordered:
            return [(arrival_s, frame)]
        if self._plan.lost(*way):
            return []
        if self._plan.corrupted(*way):
            return [(arrival_s, corrupt(frame))]
        return [(arrival_s, frame)] * (2 if self._plan.duplicated(*way) else 1)

    def _bits_per_s(self, src: int, dst: int) -> float:
        if SERVER in (src, dst):
            return float("inf")
        return 1000.0 * float(self._plan.bandwidth(min(src, dst), max(src, dst)))
