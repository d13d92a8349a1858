"""Turn what nodes share into parts, as a receiver sees them, and messages of known size (SPEC.md 5, 6.1, 9.3, 10.1).

A round's parts are dense arrays over (parameter, node): `part[p, n]` says in which part of node n's offer parameter p
lies (-1: in none), `values[p, n]` what a receiver reads there. Messages are rows of parallel arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.spec import fmath, indexing, quant
from gossamer.spec.constants import HEADER_BYTES, SEGMENT_HEADER_BYTES, TAG_BYTES
from gossamer.spec.nn import F32, I64, Bool, ordered_sum
from gossamer.spec.settings import Settings
from gossamer.spec.units import Units

I16 = NDArray[np.int16]


@dataclass(frozen=True)
class Parts:
    """Offer parts: `part` [P, N], `values` [P, N], `weight` [N] and, by part, `payload_bytes` and `rejected` [K, N]."""

    part: I16
    values: F32
    weight: F32
    payload_bytes: I64
    rejected: Bool


@dataclass(frozen=True)
class Messages:
    """List messages in the order in which their sources send them: parallel arrays [M]."""

    src: I64
    dst: I64
    part: I64

    @classmethod
    def none(cls) -> Messages:
        """List no message."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty)

    def sent_parts(self, parts: int, nodes: int) -> Bool:
        """Mark the parts sent at least once, [K, N]."""
        result = np.zeros((parts, nodes), np.bool_)
        result[self.part, self.src] = True
        return result


def encode(settings: Settings, units: Units, part: I16, parts: int, plain: F32, weight: F32, indexed: bool) -> Parts:
    """Quantize `plain` [P, N] part by part.

    `indexed` says whether messages name their units (bitmap or delta) or the part number alone suffices.
    """
    order = units.order
    ordered_part, ordered_plain = part[order], plain[order]
    values = np.zeros_like(plain)
    payload = np.zeros((parts, plain.shape[1]), np.int64)
    rejected = np.zeros((parts, plain.shape[1]), np.bool_)
    first_of_unit = np.cumsum(units.sizes) - units.sizes
    for k in range(parts):
        inside = ordered_part == k
        scale = quant.scale_of(ordered_plain, settings.bits, where=inside)
        seen = quant.dequantize(quant.quantize(ordered_plain, scale, settings.bits), scale, settings.bits)
        seen = np.where(inside, seen, np.float32(0))
        values[order] += seen  # parts do not overlap
        norm = fmath.sqrt(ordered_sum(seen * seen))
        rejected[k] = ~(norm <= settings.max_norm) | ~np.isfinite(weight) | (weight < 0)
        payload[k] = SEGMENT_HEADER_BYTES + (inside.sum(axis=0) * settings.bits + 7) // 8
        if indexed:
            payload[k] += indexing.index_bytes(inside[first_of_unit])
    return Parts(part, values, weight, payload, rejected)


def feed_back(residual: F32, plain: F32, parts: Parts, sent: Bool) -> None:
    """Keep in place, where a part was sent, what quantization took from `plain` (SPEC.md 5)."""
    told = (parts.part >= 0) & np.take_along_axis(sent, np.maximum(parts.part, 0).astype(np.int64), axis=0)
    rest = plain - parts.values
    residual[told] = np.where(np.isfinite(rest), rest, np.float32(0))[told]


def frame_overhead(settings: Settings) -> int:
    """Return the bytes that a frame adds to its payload."""
    return HEADER_BYTES + (TAG_BYTES if settings.auth else 0)


def fragments(settings: Settings, payload_bytes: I64) -> I64:
    """Return the frames that messages of these sizes take (SPEC.md 9.3)."""
    room = settings.mtu - frame_overhead(settings)
    return np.maximum(1, (payload_bytes + room - 1) // room)
