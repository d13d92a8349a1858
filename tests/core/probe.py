"""Build the core with tests' eyes and ears (probe.c), and drive one node of it by frames.

GOSSAMER_PROBE chooses the build: unset, or `gcc` or `clang` for address and undefined-behaviour sanitizers, whose run
time must be loaded already (tests/core/test_node_sanitized.py does that).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.native import CHECKED, core_sources, find_compiler, shared_library
from gossamer.spec.constants import CONFIG_WORDS, COORDINATOR, CORE_ERRORS, METRIC_WORDS, Init, MessageType
from gossamer.spec.image import build_image, shard_bytes
from gossamer.spec.messages import Metrics, Peers, Provision
from gossamer.spec.nn import Model
from gossamer.spec.wire import Frame, Reassembler, fragment_message, pack_frame, parse_frame

KEY = bytes(range(32))
OK, STATE, FRAME = (CORE_ERRORS[name][0] for name in ("OK", "STATE", "FRAME"))

_CDEF = """
typedef struct probe probe_t;
probe_t *probe_new(void);
void probe_free(probe_t *probe);
void probe_set_slot(probe_t *probe, uint32_t slot, const uint8_t *data, size_t len);
int probe_start(probe_t *probe, uint16_t id, const uint8_t *key, const uint8_t *image, size_t len, int store,
                size_t missing);
int probe_frame(probe_t *probe, const uint8_t *frame, size_t len);
int probe_step(probe_t *probe);
void probe_hello(probe_t *probe);
void probe_note_garbage(probe_t *probe, uint32_t runs);
int probe_stopped(const probe_t *probe);
void probe_break_store(probe_t *probe, int broken);
const uint8_t *probe_sent(const probe_t *probe, size_t *len);
void probe_clear(probe_t *probe);
const uint8_t *probe_slot(const probe_t *probe, uint32_t slot, size_t *len);
const uint8_t *probe_state(const probe_t *probe, size_t *len);
const float *probe_weights(const probe_t *probe, uint32_t *count);
uint32_t probe_counter(const probe_t *probe, uint32_t word);
int probe_config(const uint8_t *image, size_t len, uint32_t *bad_word);
void probe_memory(const uint8_t *image, size_t len, size_t *arena, size_t *node, size_t *sum);
void probe_rates(const uint8_t *image, size_t len, const float *losses, uint32_t count, float *used, float *after);

typedef struct {
    uint8_t type;
    uint16_t src;
    uint16_t dst;
    uint32_t round;
    uint32_t seq;
    uint16_t fragment;
    uint16_t fragments;
    uint16_t len;
    const uint8_t *payload;
} gs_frame_t;
typedef struct { ...; } gs_hmac_key_t;
typedef struct { uint64_t seen; uint32_t greatest; uint32_t unused; } gs_window_t;
bool gs_window_is_new(const gs_window_t *window, uint32_t seq);
void gs_window_note(gs_window_t *window, uint32_t seq);
typedef struct {
    uint32_t first_seq;
    uint32_t len;
    uint32_t age;
    uint16_t src;
    uint16_t next;
    uint16_t fragments;
    uint8_t type;
} gs_place_t;
typedef struct {
    gs_place_t *places;
    uint8_t *bytes;
    size_t place_bytes;
    uint32_t count;
    uint32_t age;
    uint32_t dropped;
} gs_reassembly_t;
void gs_reassembly_init(gs_reassembly_t *held, gs_place_t *places, uint8_t *bytes, size_t place_bytes, uint32_t count);
int gs_reassembly_take(gs_reassembly_t *held, const gs_frame_t *frame, const uint8_t **message, size_t *len);
void gs_reassembly_close(gs_reassembly_t *held);
uint32_t gs_wire_parse(gs_frame_t *frame, const uint8_t *data, size_t len, const void *key);
size_t gs_wire_pack(const gs_frame_t *frame, const void *key, uint8_t *out);
void gs_hmac_init(void *key, const uint8_t *secret, size_t len);

typedef struct gs_model gs_model_t;
const gs_model_t *probe_model(probe_t *probe, const uint8_t *words);
typedef struct { uint32_t first; uint32_t stride; uint32_t count; uint32_t extra; } gs_unit_t;
uint32_t gs_units_count(const gs_model_t *model, uint32_t kind);
uint32_t gs_units_largest(const gs_model_t *model, uint32_t kind);
gs_unit_t gs_units_get(const gs_model_t *model, uint32_t kind, uint32_t number);
void gs_units_sort(uint32_t *numbers, uint32_t count, const float *keys);
"""
HMAC_KEY_BYTES = 512  # room for a gs_hmac_key_t


@cache
def library(*flags: str) -> tuple[Any, Any]:
    """Build and load the probe; returns cffi's (ffi, lib)."""
    sanitizer = os.environ.get("GOSSAMER_PROBE")
    if sanitizer and not flags:
        flags = CHECKED if sanitizer == "gcc" else (*CHECKED, "-shared-libasan")
    sources = [*core_sources(), Path(__file__).with_name("probe.c")]
    cdef = _CDEF.replace("typedef struct { ...; } gs_hmac_key_t;\n", "")
    return shared_library("probe", sources, cdef, flags or ("-O2",), compiler=find_compiler(sanitizer))


def words(**changes: Any) -> dict[str, int | float]:
    """Return the words of a small experiment: 6-5-4-3 perceptron, gist, two nodes or more."""
    result: dict[str, int | float] = dict.fromkeys(CONFIG_WORDS, 0)
    result |= {"seed_lo": 5, "nodes": 4, "rounds": 9} | Model.dense((6, 5, 4, 3)).words()
    result |= {"batch": 4, "local_steps": 3, "lr": 0.25, "val_permille": 250, "eval_every": 1, "lr_floor": 1e-5}
    result |= {"stair_factor": 8.0, "loss_factor": 2.0, "bits": 32, "segments": 3, "sends": 4, "threshold": 1}
    result |= {"fifo": 8, "score": 1, "base": 1.0, "success_base": 1.0, "pulls": 1, "ratio24": 1 << 23, "fanout": 2}
    result |= {"top": 9, "max_norm": 1000.0, "mtu": 1024, "reassembly": 2, "auth": 1, "shard_max": 24, "peers_max": 4}
    result |= {"feature_scale": 0.125, "feature_offset": -0.5, "test_count": 7}
    return result | changes


def samples(count: int, seed: int, width: int = 6) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return features [count, width] and labels below 3."""
    draw = np.random.default_rng(seed)
    return draw.integers(0, 9, (count, width), np.uint8), draw.integers(0, 3, count).astype(np.uint8)


def given_of(config: Mapping[str, int | float]) -> NDArray[np.float32]:
    """Return what `image_of` puts into an image for given parameters."""
    count = Model.from_words(config).given(Init(int(config["init"])))
    return np.random.default_rng(3).normal(size=count).astype(np.float32) * np.float32(0.5)


def image_of(config: Mapping[str, int | float]) -> bytes:
    """Return an image with test samples."""
    tests = samples(int(config["test_count"]), 1, Model.from_words(config).input.numbers)
    return build_image(config, *tests, given_of(config))


def reseal(image: bytes) -> bytes:
    """Give a changed image its right CRC, so that only what was changed is wrong."""
    return image[:12] + struct.pack("<I", zlib.crc32(image[16:])) + image[16:]


@dataclass
class Node:
    """Drive a node as a coordinator does, frame by frame."""

    config: dict[str, int | float]
    id: int = 0
    shard: int = 20  # samples
    store: bool = True
    control_seq: int = 0
    data_seq: dict[int, int] = field(default_factory=dict)
    heard: Reassembler = field(default_factory=lambda: Reassembler(64))

    def __post_init__(self) -> None:
        self.ffi, self.lib = library()
        self._probe = self.lib.probe_new()
        self._image = image_of(self.config)
        self._held = self.ffi.from_buffer(self._image)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.lib.probe_free(self._probe)

    @property
    def key(self) -> bytes | None:
        return KEY if self.config["auth"] else None

    def start(self, slots: Sequence[bytes] = (b"", b""), missing: int = 0) -> int:
        """Call gs_node_init."""
        for number, data in enumerate(slots):
            self.lib.probe_set_slot(self._probe, number, data, len(data))
        return int(self.lib.probe_start(self._probe, self.id, KEY, self._held, len(self._image), self.store, missing))

    def frame(self, data: bytes) -> int:
        """Call gs_node_on_frame; the bytes stand alone in memory, so that a sanitizer sees every read beyond them."""
        alone = self.ffi.new("uint8_t[]", data) if data else self.ffi.NULL
        exact = self.ffi.new(f"uint8_t[{len(data)}]") if data else alone
        if data:
            self.ffi.memmove(exact, alone, len(data))
        return int(self.lib.probe_frame(self._probe, exact, len(data)))

    def work(self) -> int:
        """Step until nothing is left; return the steps."""
        steps = 1
        while self.lib.probe_step(self._probe):
            steps += 1
            assert steps < 100_000
        return steps

    def step(self) -> bool:
        return bool(self.lib.probe_step(self._probe))

    def hello(self) -> None:
        self.lib.probe_hello(self._probe)

    def note_garbage(self, runs: int) -> None:
        self.lib.probe_note_garbage(self._probe, runs)

    def break_store(self, broken: bool) -> None:
        self.lib.probe_break_store(self._probe, broken)

    @property
    def stopped(self) -> bool:
        return bool(self.lib.probe_stopped(self._probe))

    def take_raw(self) -> list[bytes]:
        """Return the frames sent since the last call."""
        length = self.ffi.new("size_t *")
        start = self.lib.probe_sent(self._probe, length)
        data = bytes(self.ffi.buffer(start, length[0])) if length[0] else b""
        self.lib.probe_clear(self._probe)
        found, at = [], 0
        while at < len(data):
            (size,) = struct.unpack_from("<I", data, at)
            found.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        return found

    def take(self) -> list[tuple[Frame, bytes]]:
        """Return (last frame, payload) of the messages sent since the last call."""
        found = []
        for data in self.take_raw():
            assert len(data) <= self.config["mtu"]
            frame = parse_frame(data, self.key)
            assert frame.src == self.id
            message = self.heard.take(frame)
            if message is not None:
                found.append((frame, message))
        return found

    def answers(self) -> list[tuple[MessageType, bytes]]:
        """Return (type, payload) of the messages sent since the last call."""
        return [(MessageType(frame.type), message) for frame, message in self.take()]

    def control_frames(self, type_: MessageType, payload: bytes = b"", round_: int = 0) -> list[bytes]:
        mtu, auth = int(self.config["mtu"]), bool(self.config["auth"])
        frames = fragment_message(type_, COORDINATOR, self.id, round_, self.control_seq + 1, payload, mtu, auth)
        self.control_seq += len(frames)
        return [pack_frame(frame, self.key) for frame in frames]

    def control(self, type_: MessageType, payload: bytes = b"", round_: int = 0) -> int:
        """Send a control message, all its fragments; return what gs_node_on_frame said of the last."""
        return [self.frame(data) for data in self.control_frames(type_, payload, round_)][-1]

    def data_frames(self, src: int, type_: MessageType, payload: bytes, round_: int) -> list[bytes]:
        mtu, auth = int(self.config["mtu"]), bool(self.config["auth"])
        first = self.data_seq.get(src, 0) + 1
        frames = fragment_message(type_, src, self.id, round_, first, payload, mtu, auth)
        self.data_seq[src] = first + len(frames) - 1
        return [pack_frame(frame, self.key) for frame in frames]

    def data(self, src: int, type_: MessageType, payload: bytes, round_: int) -> int:
        """Send a message as neighbour `src`."""
        return [self.frame(data) for data in self.data_frames(src, type_, payload, round_)][-1]

    def provision(self, piece_bytes: int = 50) -> None:
        shard = shard_bytes(self.id, *samples(self.shard, 100 + self.id), 0)
        for at in range(0, len(shard), piece_bytes):
            piece = Provision(len(shard), at, shard[at : at + piece_bytes]).pack()
            assert self.control(MessageType.PROVISION, piece) == OK
            assert self.answers() == [(MessageType.ACK, struct.pack("<I", min(len(shard), at + piece_bytes)))]

    def ready(self, peers: Sequence[int], rounds: int = 0) -> Node:
        """Bring a started node to where rounds may begin."""
        self.take_raw()
        assert self.control(MessageType.WELCOME, struct.pack("<I", rounds)) == OK
        piece = 18 if self.config["mtu"] < 128 else 50
        self.provision(piece)
        self.peers(peers)
        assert not self.take_raw()
        return self

    def peers(self, ids: Sequence[int]) -> None:
        assert self.control(MessageType.PEERS, Peers(tuple(ids)).pack()) == OK

    def train(self, round_: int) -> list[tuple[Frame, bytes]]:
        """Run ROUND to its DONE; return the data messages sent."""
        assert self.control(MessageType.ROUND, round_=round_) == OK
        self.work()
        *messages, (done, payload) = self.take()
        assert (done.type, done.round, payload) == (MessageType.DONE, round_, bytes(4))
        return messages

    def sync(self, round_: int) -> list[tuple[Frame, bytes]]:
        assert self.control(MessageType.SYNC, round_=round_) == OK
        self.work()
        *messages, (done, payload) = self.take()
        assert (done.type, payload) == (MessageType.DONE, b"\1\0\0\0")
        return messages

    def commit(self, round_: int) -> Metrics:
        assert self.control(MessageType.COMMIT, round_=round_) == OK
        self.work()
        [(frame, payload)] = self.take()
        assert (frame.type, frame.round) == (MessageType.METRICS, round_)
        return Metrics.parse(payload)

    @property
    def weights(self) -> NDArray[np.float32]:
        count = self.ffi.new("uint32_t *")
        start = self.lib.probe_weights(self._probe, count)
        return np.frombuffer(bytes(self.ffi.buffer(start, 4 * count[0])), np.float32)

    @property
    def state(self) -> bytes:
        """All that outlives a round, without the header that saving writes."""
        length = self.ffi.new("size_t *")
        start = self.lib.probe_state(self._probe, length)
        return bytes(self.ffi.buffer(start, length[0]))[24:]

    def slot(self, number: int) -> bytes:
        length = self.ffi.new("size_t *")
        start = self.lib.probe_slot(self._probe, number, length)
        return bytes(self.ffi.buffer(start, length[0])) if length[0] else b""

    @property
    def slots(self) -> tuple[bytes, bytes]:
        return self.slot(0), self.slot(1)

    def counters(self) -> dict[str, int]:
        """Return the counts of dropped frames, by reason, and of messages."""
        return {
            name.removeprefix("dropped_"): int(self.lib.probe_counter(self._probe, place))
            for place, name in enumerate(METRIC_WORDS)
            if name.startswith(("dropped_", "messages_", "frames_"))
        }
