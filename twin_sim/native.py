"""Run the firmware core inside this process: exact, fast, threads over nodes."""

from __future__ import annotations

import itertools
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import RunError
from gossamer.job import Job
from gossamer.link import Coordinator
from gossamer.native import FAST, FIRMWARE, core_sources, shared_library
from gossamer.place import Row
from gossamer.spec.constants import KEY_BYTES
from twin_sim.state import StateFile

_PORT = FIRMWARE / "port" / "native"
_ARENA_TEXT_BYTES = 1024


@cache
def library(*defines: str) -> tuple[Any, Any]:
    """Build (once a machine) and load the core; returns cffi's (ffi, lib)."""
    header = (_PORT / "gs_native.h").read_text("utf-8")
    declared = header.split("/* cffi: begin */")[1].split("/* cffi: end */")[0]
    cdef = re.sub(r"/\*.*?\*/", "", declared, flags=re.DOTALL)
    flags = (*FAST, *(f"-D{define}" for define in defines))
    return shared_library("gossamer-core", [*core_sources(), _PORT / "gs_native.c"], cdef, flags)


def node_parts(image: bytes, *defines: str) -> dict[str, int]:
    """Return the bytes that a node needs, by part; GS_LANES=1 is how a processor without vectors has them."""
    ffi, lib = library(*defines)
    text = ffi.new("char[]", _ARENA_TEXT_BYTES)
    if not lib.gs_native_arena(image, len(image), text, _ARENA_TEXT_BYTES):
        raise RunError("the core refuses the experiment image", "native engine")
    rows = (line.split(" ", 1) for line in ffi.string(text).decode().splitlines())
    return {name: int(size) for size, name in rows}


class _Nodes:
    """Carry frames to nodes by function call (`gossamer.link.Transport`)."""

    def __init__(self, job: Job, key: bytes, threads: int | None) -> None:
        self._ffi, self._lib = library()
        self._job = job
        self._key = key
        self._image = self._ffi.from_buffer(job.image)
        self._handles: list[Any] = []
        self._inbox: list[list[bytes]] = []
        self._threads = threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads)
        self._fresh = False

    def open(self, slots: Sequence[tuple[bytes, bytes]]) -> None:
        """Start all nodes anew, each with what its checkpoint slots hold."""
        self.close()
        error = self._ffi.new("int *")
        for node, (slot0, slot1) in enumerate(slots):
            handle = self._lib.gs_native_open(
                node, self._key, self._image, len(self._job.image), slot0, len(slot0), slot1, len(slot1), error
            )
            if handle == self._ffi.NULL:
                text = self._ffi.string(self._lib.gs_native_error(error[0])).decode()
                raise RunError(text, f"node {node}, native engine")
            self._handles.append(handle)
        self._inbox = [[] for _ in self._handles]
        self._fresh = True

    def close(self) -> None:
        """Free all nodes."""
        for handle in self._handles:
            self._lib.gs_native_close(handle)
        self._handles = []

    def shutdown(self) -> None:
        """Free all, for good."""
        self._pool.shutdown(cancel_futures=True)  # first: after an interrupt, threads may still be inside nodes
        self.close()

    def send(self, node: int, frames: Sequence[bytes]) -> None:
        """Keep frames for a node until the next `receive`."""
        self._inbox[node].extend(frames)

    def receive(self, timeout_s: float) -> Sequence[tuple[int, bytes]]:
        """Let every node with frames work them off, however long it takes; return what they sent."""
        busy = range(len(self._handles)) if self._fresh else [n for n, frames in enumerate(self._inbox) if frames]
        self._fresh = False
        pieces = np.array_split(np.array(busy, np.int64), min(len(busy), 4 * self._threads) or 1)
        return [item for piece in self._pool.map(self._run, pieces) for item in piece]

    def _run(self, nodes: NDArray[np.int64]) -> list[tuple[int, bytes]]:
        came: list[tuple[int, bytes]] = []
        size = self._ffi.new("size_t *")
        for node in nodes.tolist():
            frames, self._inbox[node] = self._inbox[node], []
            batch = b"".join(piece for frame in frames for piece in (len(frame).to_bytes(4, "little"), frame))
            handle = self._handles[node]
            self._lib.gs_native_run(handle, batch, len(batch))
            sent = self._lib.gs_native_sent(handle, size)
            data = bytes(self._ffi.buffer(sent, size[0])) if size[0] else b""
            self._lib.gs_native_clear(handle)
            at = 0
            while at < len(data):
                end = at + 4 + int.from_bytes(data[at : at + 4], "little")
                came.append((node, data[at + 4 : end]))
                at = end
        return came

    def slots(self) -> list[tuple[bytes, bytes]]:
        """Return the checkpoints of every node."""
        size = self._ffi.new("size_t *")

        def slot(handle: Any, number: int) -> bytes:
            data = self._lib.gs_native_slot(handle, number, size)
            return bytes(self._ffi.buffer(data, size[0])) if size[0] else b""

        return [(slot(handle, 0), slot(handle, 1)) for handle in self._handles]

    def weights(self) -> NDArray[np.float32]:
        """Return the weights, [P, N]."""
        size = self._ffi.new("size_t *")
        columns = []
        for handle in self._handles:
            data = self._lib.gs_native_weights(handle, size)
            columns.append(np.frombuffer(self._ffi.buffer(data, 4 * size[0]), np.float32))
        return np.stack(columns, axis=1)


class NativePlace:
    """Simulate all nodes with the firmware core (`gossamer.place.Place`)."""

    def __init__(self, job: Job, run_dir: Path, threads: int | None = None) -> None:
        self._job = job
        self._state = StateFile(run_dir / "state" / "native.npz")
        self._key = secrets.token_bytes(KEY_BYTES)
        self._nodes = _Nodes(job, self._key, threads)
        self._coordinator: Coordinator | None = None
        self._rounds_done = 0

    @property
    def facts(self) -> dict[str, Any]:
        """Describe the engine and a node's memory."""
        parts = node_parts(self._job.image)
        return {"engine": "native", "node_bytes": sum(parts.values()), "node_parts": parts}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._nodes.shutdown()

    def start(self, committed: int) -> int:
        """Begin, or continue from the state saved last."""
        stored = self._state.load() if committed else None
        if stored is not None and int(stored["rounds_done"]) > committed:
            stored = None
        nodes = self._job.experiment.experiment.nodes
        self._nodes.open([(b"", b"")] * nodes if stored is None else _unpack_slots(stored))
        self._coordinator = Coordinator(self._job, self._nodes, self._key)
        rounds = 0 if stored is None else int(stored["rounds_done"])
        self._rounds_done = self._coordinator.start(rounds)
        if self._rounds_done and stored is not None:
            crcs = zip(stored["weights_crcs"].tolist(), stored["tensor_crcs"].tolist(), strict=True)
            self._coordinator.restore_crcs(crcs)
        return self._rounds_done

    def round(self, r: int) -> list[Row]:
        """Run one round; return a row a node."""
        assert self._coordinator is not None
        rows = self._coordinator.round(r)
        self._rounds_done = r + 1
        return rows

    def save(self) -> None:
        """Write all checkpoints to the run folder, whole or not at all."""
        assert self._coordinator is not None
        weights, tensors = zip(*self._coordinator.crcs(), strict=True)
        self._state.save(
            {
                "rounds_done": np.array(self._rounds_done),
                "weights_crcs": np.array(weights, np.uint32),
                "tensor_crcs": np.array(tensors, np.uint32),
                **_pack_slots(self._nodes.slots()),
            }
        )

    def weights(self) -> NDArray[np.float32]:
        """Return a copy of all weights, [P, N]."""
        return self._nodes.weights()


def _pack_slots(slots: Sequence[tuple[bytes, bytes]]) -> dict[str, NDArray[Any]]:
    """Return all slots as one array of bytes, and their lengths, [N, 2]."""
    lengths = np.array([[len(data) for data in pair] for pair in slots], np.int64)
    return {"slots": np.frombuffer(b"".join(itertools.chain(*slots)), np.uint8), "slot_lengths": lengths}


def _unpack_slots(stored: Mapping[str, NDArray[Any]]) -> list[tuple[bytes, bytes]]:
    ends = np.cumsum(stored["slot_lengths"])
    pieces = [piece.tobytes() for piece in np.split(stored["slots"], ends[:-1])]
    return list(zip(pieces[::2], pieces[1::2], strict=True))
