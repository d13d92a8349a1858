"""Define where an experiment runs: the one interface that simulator, host, emulator and boards share."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self, TypedDict

import numpy as np
from numpy.typing import NDArray


class Row(TypedDict):
    """Record one node in one round: the words of METRICS (SPEC.md 10.3) and what only the harness sees.

    An absent node has `present` False, the CRCs of its frozen weights, losses and rate NaN, and counters and counts 0.
    """

    node: int
    present: bool
    weights_crc: int
    tensor_crcs: list[int]  # W, b by layer
    train_loss: float
    val_loss: float
    val_correct: int
    val_count: int
    test_loss: float
    test_correct: int
    test_count: int
    lr: float
    frames_sent: int
    bytes_sent: int
    frames_received: int
    bytes_received: int
    frames_lost: int  # of those sent, by SPEC.md 7.5 or because the other end was away
    messages_merged: int
    messages_evicted: int
    messages_rejected: int
    dropped_length: int
    dropped_version: int
    dropped_tag: int
    dropped_peer: int
    dropped_stale: int
    dropped_replay: int
    dropped_malformed: int
    dropped_reassembly: int
    dropped_garbage: int
    diverged: int


class Tell(Protocol):
    """Note that something happened (`gossamer.record.Recorder.event`)."""

    def __call__(self, kind: str, **details: Any) -> None:
        """Note an event; `details` are JSON values."""
        ...


def tell_nobody(kind: str, **details: Any) -> None:
    """Be a `Tell` for who does not want to know."""


class Place(Protocol):
    """Run rounds in order: `start`, then `round(r)` for each r, `save` whenever rounds shall survive a crash."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Tell what is worth recording once (JSON values): arena bytes, engine, compiler."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def start(self, committed: int) -> int:
        """Continue a run of which `committed` rounds are recorded; 0 starts anew.

        Returns: the number of rounds it continues from, at most `committed`; later rows are written again.
        """
        ...

    def round(self, r: int) -> list[Row]:
        """Run round `r` (0-based) on all nodes and return their rows in id order."""
        ...

    def save(self) -> None:
        """Make the rounds run so far survive the end of this process."""
        ...

    def weights(self) -> NDArray[np.float32] | None:
        """Return the weights [P, N], or None where they cannot be read."""
        ...
