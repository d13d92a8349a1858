"""Stand in for a place: rows that follow from round and node, and state that survives like a real one's."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gossamer.experiment import Experiment
from gossamer.place import Row
from gossamer.record import Recorder, Run, read_run


class FakePlace:
    """Learn along a made-up curve; part from itself at `differ`, raise at round `fail`."""

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        differ: tuple[int, int, int] | None = None,
        fail: int | None = None,
        lag: int = 0,
    ) -> None:
        self._experiment = experiment
        self._path = folder / "state" / "fake.json"
        self._differ, self._fail, self._lag = differ, fail, lag
        self._done = 0
        self.saves: list[int] = []
        self.started_with: int | None = None

    @property
    def facts(self) -> dict[str, Any]:
        return {"arena_bytes": 12345}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def start(self, committed: int) -> int:
        self.started_with = committed
        saved = json.loads(self._path.read_text())["done"] if self._path.exists() else 0
        self._done = max(0, min(committed, saved) - self._lag)
        return self._done

    def round(self, r: int) -> list[Row]:
        if r == self._fail:
            raise OSError(28, "No space left on device", "metrics.jsonl")
        assert r == self._done
        self._done += 1
        return [self._row(r, node) for node in range(self._experiment.experiment.nodes)]

    def save(self) -> None:
        self._path.write_text(json.dumps({"done": self._done}))
        self.saves.append(self._done)

    def weights(self) -> None:
        return None

    def _row(self, r: int, node: int) -> Row:
        experiment = self._experiment
        tensors = [(r * 1000 + node * 10 + t) * 2654435761 % 2**32 for t, _ in enumerate(experiment.network.tensors)]
        if self._differ is not None and r >= self._differ[0] and node == self._differ[1]:
            tensors[self._differ[2]] ^= 1
        away = (r, node) == (1, 0)
        progress = 1 - math.exp(-(r + 1) / 6)
        return Row(
            node=node,
            present=not away,
            weights_crc=sum(tensors) % 2**32,
            tensor_crcs=tensors,
            train_loss=math.nan if away else 2.3 * math.exp(-(r + 1) / (5 + node % 5)),
            val_loss=math.nan,
            val_correct=0 if away else 30,
            val_count=0 if away else 40,
            test_loss=0.0,
            test_correct=0 if away else round(360 * progress * (0.85 + 0.012 * (node % 9))),
            test_count=0 if away else 360,
            lr=0.5 / 8 ** sum(r >= at for at in (12, 20, 23)),
            frames_sent=0 if away else 7,
            bytes_sent=0 if away else 3000 + 13 * node,
            frames_received=6,
            bytes_received=3000,
            frames_lost=1,
            messages_merged=5,
            messages_evicted=0,
            messages_rejected=0,
            dropped_length=0,
            dropped_version=0,
            dropped_tag=0,
            dropped_peer=0,
            dropped_stale=0,
            dropped_replay=0,
            dropped_malformed=0,
            dropped_reassembly=0,
            dropped_garbage=0,
            diverged=0,
        )


def record_run(
    folder: Path, experiment: Experiment, place: str = "sim", differ: tuple[int, int, int] | None = None
) -> Run:
    """Record a whole fake run and read it back."""
    with Recorder.create(folder, experiment, place, "numpy") as recorder:
        fake = FakePlace(experiment, folder, differ)
        recorder.facts(fake.facts)
        for r in range(experiment.experiment.rounds):
            recorder.append(fake.round(r))
        recorder.finish()
    return read_run(folder)
