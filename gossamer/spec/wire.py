"""Build and take apart frames: header, tag, COBS, fragments, replay windows (SPEC.md 9)."""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from gossamer.spec.constants import (
    DATA_TYPE_MIN,
    HEADER_BYTES,
    KEY_BYTES,
    MTU_MAX,
    MTU_MIN,
    REPLAY_WINDOW,
    SEGMENT_HEADER_BYTES,
    TAG_BYTES,
    WIRE_VERSION,
)
from gossamer.spec.errors import FrameError

_HEADER = struct.Struct("<BBBBHHIIHHH")
_TAGGED = 1
MESSAGE_BYTES_MAX = SEGMENT_HEADER_BYTES + 2**21 + 2**26  # all of 2^24 parameters: a bitmap, 32 bits each
_FULL = 254  # bytes of a COBS block that implies no zero


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
    if not MTU_MIN <= mtu <= MTU_MAX:
        raise ValueError(f"an MTU of {mtu} bytes; it must be {MTU_MIN} to {MTU_MAX}")
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
    for run in data.split(b"\0"):  # between two runs stands a zero, which the last block of the first implies
        for at in range(0, len(run) + 1, _FULL):
            block = run[at : at + _FULL]
            out += bytes([len(block) + 1]) + block
    whole = len(run) and len(run) % _FULL == 0
    return bytes(out[:-1] if whole else out)  # nothing need follow a last block that is full


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
        if code != _FULL + 1 and at < len(data):
            out.append(0)
    return bytes(out)


def cobs_bytes_max(data_bytes: int) -> int:
    """Return the most bytes that the encoding of so many bytes takes, without the delimiter."""
    return data_bytes + 1 + data_bytes // _FULL


@dataclass
class CobsStream:
    """Find frames in a byte stream; skip and count what is none, whatever it is.

    `on_garbage` is given what was skipped, long runs in pieces.
    """

    max_frame_bytes: int
    garbage: int = 0
    on_garbage: Callable[[bytes], None] | None = None
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
        self._pending += piece
        if self._skipping or len(self._pending) > cobs_bytes_max(self.max_frame_bytes):
            self._skipping = True
            self._show(bytes(self._pending))
            self._pending.clear()

    def _show(self, garbage: bytes) -> None:
        if garbage and self.on_garbage is not None:
            self.on_garbage(garbage)

    def _finish(self) -> bytes | None:
        piece, skipping = bytes(self._pending), self._skipping
        self._pending.clear()
        self._skipping = False
        if not piece and not skipping:
            return None
        try:
            frame = cobs_decode(piece)
        except FrameError:
            skipping = True
        if skipping or len(frame) > self.max_frame_bytes:
            self.garbage += 1
            self._show(piece)
            return None
        return frame


@dataclass
class ReplayWindow:
    """Tell sequence numbers of one source that were seen before, or are too old to tell (SPEC.md 9.4).

    Noting a number is its own step: a frame that another check refuses leaves no trace.
    """

    _greatest: int = 0
    _seen: int = 0  # bit d: greatest - d was seen

    def is_new(self, seq: int) -> bool:
        """Whether `seq` may be taken."""
        behind = self._greatest - seq
        return behind < 0 or (behind < REPLAY_WINDOW and not self._seen >> behind & 1)

    def note(self, seq: int) -> None:
        """Remember a number that is new."""
        ahead = seq - self._greatest
        if ahead > 0:
            self._seen = (self._seen << min(ahead, REPLAY_WINDOW)) & ((1 << REPLAY_WINDOW) - 1)
            self._greatest = seq
        self._seen |= 1 << (self._greatest - seq)


@dataclass
class _Open:
    fragments: int
    received: int
    payload: bytearray


@dataclass
class Reassembler:
    """Put fragments together, in memory for at most `places` messages of `message_bytes_max` (SPEC.md 9.3).

    `dropped` counts as METRICS' `dropped_reassembly` does: the fragments refused and the messages closed incomplete.
    """

    places: int
    message_bytes_max: int = MESSAGE_BYTES_MAX
    dropped: int = 0
    _open: dict[tuple[int, int, int], _Open] = field(default_factory=dict)  # oldest first

    def take(self, frame: Frame) -> bytes | None:
        """Return the message that a frame completes, if it does."""
        if frame.fragments == 1:
            return frame.payload
        name = frame.type, frame.src, frame.seq - frame.fragment
        if frame.fragment == 0:
            self._begin(name, frame)
            return None
        message = self._open.get(name)
        if message is None or not self._fits(message, frame):
            self.dropped += 1
            self._close(name)
            return None
        message.received += 1
        message.payload += frame.payload
        if message.received < message.fragments:
            return None
        del self._open[name]
        return bytes(message.payload)

    def close(self) -> None:
        """Drop what is incomplete."""
        for name in list(self._open):
            self._close(name)

    def _begin(self, name: tuple[int, int, int], frame: Frame) -> None:
        # All fragments but the last are as long as the first, so the first tells a message too large.
        if not self.places or len(frame.payload) * (frame.fragments - 1) >= self.message_bytes_max:
            self.dropped += 1
            return
        self._close(name)
        if len(self._open) == self.places:
            self._close(next(iter(self._open)))
        self._open[name] = _Open(frame.fragments, 1, bytearray(frame.payload))

    def _fits(self, message: _Open, frame: Frame) -> bool:
        return (
            frame.fragment == message.received
            and frame.fragments == message.fragments
            and len(message.payload) + len(frame.payload) <= self.message_bytes_max
        )

    def _close(self, name: tuple[int, int, int]) -> None:
        if self._open.pop(name, None) is not None:
            self.dropped += 1
