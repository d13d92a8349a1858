"""Run every node behind a line of its own, driven by the coordinator: what processes and containers share."""

from __future__ import annotations

import contextlib
import json
import resource
import secrets
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import NodeLostError, RunError
from gossamer.job import Job
from gossamer.link.coordinator import Coordinator
from gossamer.link.dialogue import Patience
from gossamer.link.lines import Line, Lines, NodeLog
from gossamer.place import Row, Tell, tell_nobody
from gossamer.spec.constants import KEY_BYTES
from gossamer.spec.plan import Absence

STOP_TIMEOUT_S: Final = 5.0
_FILES_OF_OURS: Final = 64


class LinePlace(ABC):
    """Run every node behind a line of its own (`gossamer.place.Place`).

    The faults of the experiment happen to the nodes themselves: a killed one is ended and started anew, and goes on
    from its checkpoint; the plan has what that means for the others. With `tolerant` the others go on, too, without a
    node that is lost otherwise; `tell` hears of all of it.
    """

    tolerant = False

    def __init__(self, job: Job, run_dir: Path, patience: Patience | None = None, tell: Tell = tell_nobody) -> None:
        self._job = job
        self._folder = run_dir
        self._state = run_dir / "state"
        self._image = self._state / "experiment.image"
        self._kept_file = self._state / "coordinator.json"
        self._nodes = job.experiment.experiment.nodes
        self._faults = job.experiment.fault_schedule()
        self._key = b""
        self._rounds = 0
        self._patience = patience
        self._tell = tell
        self._lines = Lines()
        self._paused: set[int] = set()
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
            for node in sorted(self._paused):
                self.resume(node)
            if error is None and self._coordinator is not None:
                self._coordinator.stop()
                self._lines.hear_out(STOP_TIMEOUT_S)
        finally:
            self._lines.stop(STOP_TIMEOUT_S)

    # --- starting ----------------------------------------------------------------------------------------------------

    def start(self, committed: int) -> int:
        """Start the nodes; continue from the newest round that all of them kept."""
        self._state.mkdir(parents=True, exist_ok=True)
        (self._folder / "nodes").mkdir(exist_ok=True)
        self._image.write_bytes(self._job.image)
        if not committed:
            self.forget()
            self._kept_file.unlink(missing_ok=True)
        kept = self._kept() if committed else {}
        self._key = secrets.token_bytes(KEY_BYTES)
        _allow_files(self._nodes)
        for node in range(self._nodes):
            self._start(node)
        self._coordinator = Coordinator(
            self._job,
            self._lines,
            self._key,
            self._patience,
            on_lost=self._on_lost if self.tolerant else None,
            absences=[Absence(*words) for words in kept.get("absences", [])],
        )
        rounds = self._coordinator.start(committed)
        if rounds:
            self._restore(kept, rounds)
        self._rounds = rounds
        for node, do in self._still_away(rounds).items():
            self._suffer(node, do)
        return rounds

    def _start(self, node: int) -> None:
        log = NodeLog(self._folder / "nodes" / f"node-{node:05}.log")
        try:
            self._lines.add(self.open_line(node, log))
        except OSError as error:
            what = f"it cannot be started: {error}"
            raise NodeLostError([node], what, mend="use fewer nodes, or --on sim") from error

    def _kept(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            kept = json.loads(self._kept_file.read_text("utf-8"))
            if isinstance(kept, dict):
                return kept
        return {}

    def _restore(self, kept: dict[str, Any], rounds: int) -> None:
        assert self._coordinator is not None
        try:
            self._coordinator.restore_crcs(kept["crcs"][str(rounds)])
        except (KeyError, TypeError, ValueError) as error:
            mend = f"delete {self._state}; --resume then starts anew"
            raise RunError(f"nothing is kept of round {rounds}", str(self._kept_file), mend) from error

    # --- rounds ------------------------------------------------------------------------------------------------------

    def round(self, r: int) -> list[Row]:
        """Let the faults of a round happen, then run it."""
        assert self._coordinator is not None
        for fault in self._faults:
            if fault.round == r:
                self._tell("fault", do=fault.do, nodes=list(fault.nodes))
                for node in fault.nodes:
                    self._suffer(node, fault.do)
        before = self._coordinator.gone
        rows = self._coordinator.round(r)
        if back := before - self._coordinator.gone:
            self._tell("returned", nodes=sorted(back))
        self._rounds = r + 1
        return rows

    def keep(self) -> None:
        """Write down what the coordinator needs to continue from here, or from where it was called before."""
        assert self._coordinator is not None
        before = self._kept().get("crcs", {})
        older = max((int(rounds) for rounds in before if int(rounds) < self._rounds), default=None)
        crcs = {} if older is None else {str(older): before[str(older)]}
        crcs[str(self._rounds)] = self._coordinator.crcs()
        absences = [(absence.node, absence.first, absence.end) for absence in self._coordinator.absences]
        partial = self._kept_file.with_suffix(".tmp")
        partial.write_text(json.dumps({"crcs": crcs, "absences": absences}), "utf-8")
        partial.replace(self._kept_file)

    # --- faults ------------------------------------------------------------------------------------------------------

    def restart(self, node: int) -> None:
        """Cut a node off between two rounds and start it anew; it goes on from its checkpoint, to the same bits.

        Raises NodeLostError: it does not come back, or has no checkpoint; where that is not tolerated.
        """
        self.cut(node)
        self._return(node)

    def cut(self, node: int) -> None:
        """Take a node's power: it has what it kept when it is started anew."""
        self._paused.discard(node)
        self._lines.cut(node)

    def pause(self, node: int) -> None:
        """Stop a node where it stands."""
        if node in self._lines:
            self._paused.add(node)
            self._lines[node].body.pause()

    def resume(self, node: int) -> None:
        """Let a paused node go on."""
        if node in self._paused:
            self._paused.discard(node)
            self._lines[node].body.resume()

    def _return(self, node: int) -> None:
        assert self._coordinator is not None
        try:
            self._start(node)
        except NodeLostError as error:
            self._coordinator.lose(error)
        else:
            self._coordinator.rejoin(node, self._rounds)

    def _still_away(self, rounds: int) -> dict[int, str]:
        """Return the nodes that faults of earlier rounds took and none gave back, and how."""
        away: dict[int, str] = {}
        for fault in self._faults:
            for node in fault.nodes if fault.round < rounds else ():
                if fault.do in ("kill", "pause"):
                    away[node] = fault.do
                elif fault.do in ("restart", "resume"):
                    away.pop(node, None)
        return away

    def _suffer(self, node: int, do: str) -> None:
        """Do to a node what a fault says. Partitions and noise are the plan's alone."""
        match do:
            case "kill":
                self.cut(node)
            case "pause":
                self.pause(node)
            case "resume":
                self.resume(node)
            case "restart":
                self.restart(node)

    def _on_lost(self, error: NodeLostError) -> None:
        self._tell("lost", nodes=list(error.nodes), why=error.what)
        returned = set() if self._coordinator is None else self._coordinator.returned
        for node in set(error.nodes) - returned:
            self.cut(node)

    @property
    def lost(self) -> list[int]:
        """List the nodes that the run goes on without, though no fault of the experiment took them."""
        return [] if self._coordinator is None else sorted(self._coordinator.gone)

    # --- keeping -----------------------------------------------------------------------------------------------------

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
