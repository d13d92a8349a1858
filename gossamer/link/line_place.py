"""Run every node behind a line of its own, driven by the coordinator: what processes and containers share."""

from __future__ import annotations

import json
import resource
import secrets
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import RunError
from gossamer.job import Job
from gossamer.link.coordinator import Coordinator
from gossamer.link.dialogue import Patience
from gossamer.link.lines import Line, Lines, NodeLog
from gossamer.place import Row
from gossamer.spec.constants import KEY_BYTES

STOP_TIMEOUT_S: Final = 5.0
_FILES_OF_OURS: Final = 64


class LinePlace(ABC):
    """Run every node behind a line of its own (`gossamer.place.Place`)."""

    def __init__(self, job: Job, run_dir: Path, patience: Patience | None = None) -> None:
        self._job = job
        self._folder = run_dir
        self._state = run_dir / "state"
        self._image = self._state / "experiment.image"
        self._crcs = self._state / "coordinator.json"
        self._nodes = job.experiment.experiment.nodes
        self._key = b""
        self._rounds = 0
        self._patience = patience
        self._lines = Lines()
        self._coordinator: Coordinator | None = None

    @abstractmethod
    def open_line(self, node: int, log: NodeLog) -> Line:
        """Start a node. Raises OSError, RunError."""

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Describe the nodes."""

    @property
    def arena_bytes(self) -> int:
        """Return what the nodes named, once they did."""
        return 0 if self._coordinator is None else self._coordinator.arena_bytes

    @property
    def lines(self) -> list[Line]:
        """List the lines of the nodes that run, by node."""
        return list(self._lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._coordinator is not None:
                self._coordinator.stop()
                self._lines.hear_out(STOP_TIMEOUT_S)
        finally:
            self._lines.stop(STOP_TIMEOUT_S)

    def start(self, committed: int) -> int:
        """Start the nodes; continue from the newest round that all of them kept."""
        self._state.mkdir(parents=True, exist_ok=True)
        (self._folder / "nodes").mkdir(exist_ok=True)
        self._image.write_bytes(self._job.image)
        if not committed:
            self.forget()
        self._key = secrets.token_bytes(KEY_BYTES)
        _allow_files(self._nodes)
        for node in range(self._nodes):
            self._start(node)
        self._coordinator = Coordinator(self._job, self._lines, self._key, self._patience)
        rounds = self._coordinator.start(committed)
        if rounds:
            self._coordinator.restore_crcs(self._kept(rounds))
        self._rounds = rounds
        return rounds

    def restart(self, node: int) -> None:
        """Cut a node off between two rounds and start it anew; it goes on from its checkpoint, to the same bits.

        Raises RunError: it does not come back, or has no checkpoint.
        """
        assert self._coordinator is not None
        self._lines.cut(node)
        self._start(node)
        self._coordinator.rejoin(node, self._rounds)

    def _start(self, node: int) -> None:
        log = NodeLog(self._folder / "nodes" / f"node-{node:05}.log")
        try:
            self._lines.add(self.open_line(node, log))
        except OSError as error:
            raise RunError(f"it cannot be started: {error}", f"node {node}", "use fewer nodes, or --on sim") from error

    def _kept(self, rounds: int) -> Any:
        try:
            return json.loads(self._crcs.read_text("utf-8"))[str(rounds)]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"nothing is kept of round {rounds}",
                str(self._crcs),
                f"delete {self._state}; --resume then starts anew",
            ) from error

    def round(self, r: int) -> list[Row]:
        """Run one round."""
        assert self._coordinator is not None
        rows = self._coordinator.round(r)
        self._rounds = r + 1
        return rows

    def keep(self) -> None:
        """Write down what the coordinator needs to continue from here, or from where it was called before."""
        assert self._coordinator is not None
        before = json.loads(self._crcs.read_text("utf-8")) if self._crcs.exists() else {}
        older = max((int(rounds) for rounds in before if int(rounds) < self._rounds), default=None)
        kept = {} if older is None else {str(older): before[str(older)]}
        partial = self._crcs.with_suffix(".tmp")
        partial.write_text(json.dumps(kept | {str(self._rounds): self._coordinator.crcs()}), "utf-8")
        partial.replace(self._crcs)

    @abstractmethod
    def forget(self) -> None:
        """Remove what the nodes of an older run kept."""

    @abstractmethod
    def save(self) -> None:
        """Make the rounds run so far survive the end of this process."""

    def weights(self) -> NDArray[np.float32] | None:
        """Return None: a node keeps its weights to itself."""
        return None


def _allow_files(nodes: int) -> None:
    """Raise the limit of open files, as far as this process may, to a few a node."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * nodes + _FILES_OF_OURS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
