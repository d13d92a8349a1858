"""Lay out the payloads of messages (SPEC.md 10). Every `parse` raises MalformedError for what `pack` never writes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

from gossamer.spec.constants import METRIC_WORDS, SEGMENT_HEADER_BYTES
from gossamer.spec.errors import MalformedError


class _Fixed:
    """Pack a dataclass of numbers as one struct."""

    LAYOUT: ClassVar[struct.Struct]

    def pack(self) -> bytes:
        """Return the payload."""
        return self.LAYOUT.pack(*vars(self).values())

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Read a payload."""
        return cls(*_unpack(cls.LAYOUT, payload, cls.__name__))


def _unpack(layout: struct.Struct, payload: bytes, name: str) -> tuple[int, ...]:
    if len(payload) != layout.size:
        raise MalformedError(f"{name}: {len(payload)} bytes instead of {layout.size}")
    return layout.unpack(payload)


@dataclass(frozen=True)
class Hello(_Fixed):
    """Announce a node that started."""

    LAYOUT = struct.Struct("<HHIIII")
    spec_version: int
    wire_version: int
    image_crc: int
    newest_rounds: int
    older_rounds: int
    arena_bytes: int


@dataclass(frozen=True)
class Welcome(_Fixed):
    """Tell a node the rounds to continue from."""

    LAYOUT = struct.Struct("<I")
    rounds: int


@dataclass(frozen=True)
class Ack(_Fixed):
    """Say how much of the shard is held."""

    LAYOUT = struct.Struct("<I")
    held_bytes: int


@dataclass(frozen=True)
class Done(_Fixed):
    """End a phase of a round."""

    LAYOUT = struct.Struct("<I")
    phase: int


@dataclass(frozen=True)
class Provision:
    """Carry a piece of the shard."""

    total_bytes: int
    offset: int
    piece: bytes

    _LAYOUT: ClassVar[struct.Struct] = struct.Struct("<II")

    def pack(self) -> bytes:
        """Return the payload."""
        return self._LAYOUT.pack(self.total_bytes, self.offset) + self.piece

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Read a payload."""
        piece = payload[cls._LAYOUT.size :]
        total_bytes, offset = _unpack(cls._LAYOUT, payload[: cls._LAYOUT.size], cls.__name__)
        if offset + len(piece) > total_bytes:
            raise MalformedError(f"Provision: {len(piece)} bytes at {offset} of {total_bytes}")
        return cls(total_bytes, offset, piece)


@dataclass(frozen=True)
class _Ascending:
    """Pack a list of ascending 16-bit numbers."""

    numbers: tuple[int, ...]

    def pack(self) -> bytes:
        """Return the payload."""
        return struct.pack(f"<H{len(self.numbers)}H", len(self.numbers), *self.numbers)

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Read a payload."""
        count = int.from_bytes(payload[:2], "little")
        count, *numbers = _unpack(struct.Struct(f"<H{count}H"), payload, cls.__name__)
        if any(a >= b for a, b in pairwise(numbers)):
            raise MalformedError(f"{cls.__name__}: {numbers} are not ascending")
        return cls(tuple(numbers))


@dataclass(frozen=True)
class Peers(_Ascending):
    """List the ids of a node's neighbours."""


@dataclass(frozen=True)
class Pull(_Ascending):
    """Ask a peer for segments, one at least."""

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Read a payload."""
        pull = super().parse(payload)
        if not pull.numbers:
            raise MalformedError("Pull: no segment")
        return pull


@dataclass(frozen=True)
class Segment:
    """Carry one part of a model; `index` and `values` are packed."""

    coding: int
    bits: int
    part: int
    weight: float
    scale: float
    index: bytes
    values: bytes

    _LAYOUT: ClassVar[struct.Struct] = struct.Struct("<BBHffI")

    def pack(self) -> bytes:
        """Return the payload."""
        header = self._LAYOUT.pack(self.coding, self.bits, self.part, self.weight, self.scale, len(self.index))
        return header + self.index + self.values

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Read a payload."""
        if len(payload) < SEGMENT_HEADER_BYTES:
            raise MalformedError(f"Segment: {len(payload)} bytes; its header has {SEGMENT_HEADER_BYTES}")
        coding, bits, part, weight, scale, index_bytes = cls._LAYOUT.unpack_from(payload)
        values_at = SEGMENT_HEADER_BYTES + index_bytes
        if values_at > len(payload):
            raise MalformedError(f"Segment: an index of {index_bytes} bytes in a message of {len(payload)}")
        return cls(coding, bits, part, weight, scale, payload[SEGMENT_HEADER_BYTES:values_at], payload[values_at:])


@dataclass(frozen=True)
class Metrics:
    """Report a node's round: the words of METRIC_WORDS and the CRC of each tensor."""

    words: dict[str, int | float]
    tensor_crcs: tuple[int, ...]

    _LAYOUT: ClassVar[struct.Struct] = struct.Struct(
        "<" + "".join({"u": "I", "f": "f"}[kind] for kind in METRIC_WORDS.values())
    )

    def pack(self) -> bytes:
        """Return the payload."""
        words = self._LAYOUT.pack(*(self.words[name] for name in METRIC_WORDS))
        return words + struct.pack(f"<{len(self.tensor_crcs)}I", *self.tensor_crcs)

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Read a payload."""
        rest = len(payload) - cls._LAYOUT.size
        if rest < 0 or rest % 8:
            raise MalformedError(f"Metrics: {len(payload)} bytes; {cls._LAYOUT.size} and 8 a layer are due")
        words = dict(zip(METRIC_WORDS, cls._LAYOUT.unpack_from(payload), strict=True))
        return cls(words, struct.unpack_from(f"<{rest // 4}I", payload, cls._LAYOUT.size))


@dataclass(frozen=True)
class Failure:
    """Carry a node's error (ERROR)."""

    code: int
    text: str

    def pack(self) -> bytes:
        """Return the payload."""
        return struct.pack("<i", self.code) + self.text.encode()

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Read a payload."""
        if len(payload) < 4:
            raise MalformedError(f"Failure: {len(payload)} bytes; its code has 4")
        return cls(struct.unpack_from("<i", payload)[0], payload[4:].decode("utf-8", "replace"))
