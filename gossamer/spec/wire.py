"""Build and take apart frames: header, tag, COBS, fragments, replay windows (SPEC.md 9)."""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field

from gossamer.spec.constants import (
    DATA_TYPE_MIN,
    HEADER_BYTES,
    KEY_BYTES,
    MTU_MIN,
    REPLAY_WINDOW,
    TAG_BYTES,
    WIRE_VERSION,
)
from gossamer.spec.errors import FrameError

_HEADER = struct.Struct("<BBBBHHIIHHH")
_TAGGED = 1


@dataclass(frozen=True)
class Frame:
    """Hold one frame; `type` is a MessageType (or a number that no version knows yet)."""

    type: int
    src: int
    dst: int
    round: int
    seq: int
    payload: bytes = b""
    fragment: int = 0
    fragments: int = 1

    @property
    def is_data(self) -> bool:
        """Whether the frame travels over the experiment's links."""
        return self.type >= DATA_TYPE_MIN


def _tag(key: bytes, covered: bytes) -> bytes:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a run key has {KEY_BYTES} bytes, not {len(key)}")
    return hmac.digest(key, covered, "sha256")[:TAG_BYTES]


def pack_frame(frame: Frame, key: bytes | None) -> bytes:
    """Return the bytes of a frame; tagged where a run key is given."""
    flags = 0 if key is None else _TAGGED
    header = _HEADER.pack(
        WIRE_VERSION, frame.type, flags, 0, frame.src, frame.dst, frame.round, frame.seq,
        frame.fragment, frame.fragments, len(frame.payload),
    )  # fmt: skip
    covered = header + frame.payload
    return covered if key is None else covered + _tag(key, covered)


def parse_frame(data: bytes, key: bytes | None) -> Frame:
    """Return the frame in `data`; raises FrameError (`length`, `version`, `tag`, `malformed`), checks in this order."""
    if len(data) < HEADER_BYTES:
        raise FrameError("length", f"{len(data)} bytes, a header has {HEADER_BYTES}")
    version, type_, flags, zero, src, dst, round_, seq, fragment, fragments, length = _HEADER.unpack_from(data)
    expected = HEADER_BYTES + length + (TAG_BYTES if flags & _TAGGED else 0)
    if len(data) != expected:
        raise FrameError("length", f"{len(data)} bytes where the header says {expected}")
    if version != WIRE_VERSION:
        raise FrameError("version", f"wire version {version}; this side speaks {WIRE_VERSION}")
    covered = data[: HEADER_BYTES + length]
    if key is not None and not (flags & _TAGGED and hmac.compare_digest(_tag(key, covered), data[len(covered) :])):
        raise FrameError("tag", f"no valid tag for this run (source {src})")
    if flags & ~_TAGGED or zero or fragment >= fragments:
        raise FrameError("malformed", "a reserved bit is set, or the fragment number is beyond the last")
    return Frame(type_, src, dst, round_, seq, covered[HEADER_BYTES:], fragment, fragments)


def fragment_message(
    type_: int, src: int, dst: int, round_: int, first_seq: int, payload: bytes, mtu: int, auth: bool
) -> list[Frame]:
    """Cut a message into frames of at most `mtu` bytes, with consecutive sequence numbers."""
    if mtu < MTU_MIN:
        raise ValueError(f"an MTU of {mtu} bytes; the least is {MTU_MIN}")
    room = mtu - HEADER_BYTES - (TAG_BYTES if auth else 0)
    pieces = [payload[at : at + room] for at in range(0, len(payload), room)] or [b""]
    return [
        Frame(type_, src, dst, round_, first_seq + number, piece, number, len(pieces))
        for number, piece in enumerate(pieces)
    ]


def cobs_encode(data: bytes) -> bytes:
    """Encode so that no byte is 0, without the delimiter.

    Source: Cheshire and Baker, "Consistent overhead byte stuffing", SIGCOMM 1997.
    """
    out = bytearray()
    *runs, last = data.split(b"\0")
    for run in runs:  # each ends with a zero byte, which its last block implies
        full, rest = divmod(len(run), 254)
        out += _full_blocks(run, full) + bytes([rest + 1]) + run[254 * full :]
    full, rest = divmod(len(last), 254)
    out += _full_blocks(last, full)
    if rest or not full:
        out += bytes([rest + 1]) + last[254 * full :]
    return bytes(out)


def _full_blocks(run: bytes, count: int) -> bytes:
    return b"".join(b"\xff" + run[254 * k : 254 * (k + 1)] for k in range(count))


def cobs_decode(data: bytes) -> bytes:
    """Decode the bytes between two delimiters; raises FrameError("garbage") for what no encoder writes."""
    out, at = bytearray(), 0
    while at < len(data):
        code = data[at]
        run = data[at + 1 : at + code]
        if code == 0 or len(run) != code - 1 or 0 in run:
            raise FrameError("garbage", "bytes that are not COBS")
        out += run
        at += code
        if code != 255 and at < len(data):
            out.append(0)
    return bytes(out)


def cobs_bytes_max(data_bytes: int) -> int:
    """Return the most bytes that the encoding of so many bytes takes, without the delimiter."""
    return data_bytes + 1 + data_bytes // 254


@dataclass
class CobsStream:
    """Find frames in a byte stream; skip and count what is none, whatever it is."""

    max_frame_bytes: int
    garbage: int = 0
    _pending: bytearray = field(default_factory=bytearray)
    _skipping: bool = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes; return the frames that they complete."""
        frames = []
        *ended, rest = data.split(b"\0")
        for piece in ended:
            self._take(piece)
            frame = self._finish()
            if frame is not None:
                frames.append(frame)
        self._take(rest)
        return frames

    def _take(self, piece: bytes) -> None:
        if len(self._pending) + len(piece) > cobs_bytes_max(self.max_frame_bytes):
            self._skipping = True
            self._pending.clear()
        if not self._skipping:
            self._pending += piece

    def _finish(self) -> bytes | None:
        piece, skipping = bytes(self._pending), self._skipping
        self._pending.clear()
        self._skipping = False
        if not piece and not skipping:
            return None
        try:
            if not skipping:
                return cobs_decode(piece)
        except FrameError:
            pass
        self.garbage += 1
        return None


@dataclass
class ReplayWindow:
    """Refuse sequence numbers seen before, or too old to tell (SPEC.md 9.4)."""

    _greatest: int = 0
    _seen: int = 0  # bit d: greatest - d was seen

    def accept(self, seq: int) -> bool:
        """Tell whether `seq` is new, and remember it."""
        ahead = seq - self._greatest
        if ahead > 0:
            self._seen = (self._seen << min(ahead, REPLAY_WINDOW) | 1) & ((1 << REPLAY_WINDOW) - 1)
            self._greatest = seq
            return True
        bit = 1 << -ahead
        if -ahead >= REPLAY_WINDOW or self._seen & bit:
            return False
        self._seen |= bit
        return True


@dataclass
class Reassembler:
    """Put fragments together, in bounded memory (SPEC.md 9.3)."""

    places: int
    dropped: int = 0
    _open: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)

    def take(self, frame: Frame) -> bytes | None:
        """Return the message that a frame completes, if it does."""
        if frame.fragments == 1:
            return frame.payload
        name = frame.src, frame.seq - frame.fragment
        if frame.fragment == 0:
            if len(self._open) == self.places:
                del self._open[next(iter(self._open))]
                self.dropped += 1
            self._open[name] = [frame.payload]
            return None
        pieces = self._open.get(name)
        if pieces is None or len(pieces) != frame.fragment:
            self.dropped += 1 + (pieces is not None)
            self._open.pop(name, None)
            return None
        pieces.append(frame.payload)
        if len(pieces) < frame.fragments:
            return None
        del self._open[name]
        return b"".join(pieces)

    def close(self) -> None:
        """Drop what is incomplete."""
        self.dropped += len(self._open)
        self._open.clear()
