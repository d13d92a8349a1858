"""Keep a run in a folder, so that no committed round is lost and an interrupted run continues.

experiment.toml   the experiment, every default written out
run.json          place, engine, versions, times, facts
metrics.jsonl     one row a node a round (`gossamer.place.Row` and the round); NaN is null
events.jsonl      what happened when
weights.npy       the last round's weights, [P, N] float32; of a finished run whose place can tell them
state/            belongs to the place
lock              held by the process that writes here
report.html       written by `gossamer report`
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
import subprocess
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from gossamer import __version__
from gossamer.errors import RunError
from gossamer.experiment import Experiment, load_experiment
from gossamer.place import Row
from gossamer.spec.constants import SPEC_VERSION, WIRE_VERSION

FORMAT: Final = 1

_EXPERIMENT, _RUN, _METRICS, _EVENTS = "experiment.toml", "run.json", "metrics.jsonl", "events.jsonl"
_LOCK, _STATE, _WEIGHTS = "lock", "state", "weights.npy"
_AGAIN: Final = "delete the file: what needs it then computes it again"
_FLOATS: Final = frozenset({"train_loss", "val_loss", "test_loss", "lr"})


class Recorder:
    """Write one run; use as a context manager. A round's rows are on disk when `append` returns."""

    def __init__(
        self, folder: Path, experiment: Experiment, info: dict[str, Any], committed: int, lock: IO[bytes]
    ) -> None:
        self.folder = folder
        self.experiment = experiment
        self.committed = committed  # whole rounds recorded
        self._info = info
        self._started_s = time.monotonic()
        self._seconds_before = float(info["seconds"])
        self._lock = lock
        with _writing(folder / _METRICS):
            self._metrics = (folder / _METRICS).open("ab")

    @classmethod
    def create(cls, folder: Path, experiment: Experiment, place: str, engine: str) -> Self:
        """Start a record in a folder that is new, empty, or of a run that never finished a round.

        Raises: RunError if the folder holds anything else.
        """
        if not _is_free(folder):
            if is_run(folder):
                raise RunError("holds a run already", str(folder), "continue it with --resume, or choose another --out")
            what = "is not empty, and no run" if folder.is_dir() else "is not a folder"
            raise RunError(what, str(folder), "choose another --out")
        with _writing(folder):
            (folder / _STATE).mkdir(parents=True, exist_ok=True)
        info: dict[str, Any] = {
            "format": FORMAT,
            "name": experiment.experiment.name,
            "place": place,
            "engine": engine,
            "started": _now(),
            "seconds": 0.0,
            "rounds": 0,
            "finished": False,
            "versions": _versions(),
            "git": _git_describe(),
            "machine": f"{platform.system()} {platform.machine()}",
            "facts": {},
        }
        resolved = experiment.resolved()
        with _locking(folder) as lock:
            _write_whole(folder / _EXPERIMENT, resolved.dumps())
            recorder = cls(folder, resolved, info, 0, lock)
            recorder._save_info()
        return recorder

    @classmethod
    def resume(cls, folder: Path, experiment: Experiment, place: str, engine: str) -> Self:
        """Continue a record; a round that is not whole is cut off.

        Raises: RunError if the folder holds no run, or one of another experiment, place, spec or wire version.
        """
        info, recorded = _read_info(folder), load_experiment(folder / _EXPERIMENT)
        for kind, current in (("spec", SPEC_VERSION), ("wire", WIRE_VERSION)):
            if (old := info["versions"].get(kind)) != current:
                what = f"was recorded with {kind} version {old}, this is {current}"
                raise RunError(
                    what, str(folder), "start anew with another --out, or resume with the gossamer it began with"
                )
        resolved = experiment.resolved()
        if keys := different_keys(recorded, resolved):
            what = f"was recorded with another experiment ({', '.join(sorted(keys))} differ)"
            raise RunError(what, str(folder), f"resume with {folder / _EXPERIMENT}, or start anew with another --out")
        if (info["place"], info["engine"]) != (place, engine):
            raise RunError(f"was recorded on {info['place']} ({info['engine']})", str(folder), "resume it there")
        with _locking(folder) as lock:
            ends = _round_ends(folder / _METRICS, recorded.experiment.nodes, check=True)
            recorder = cls(folder, resolved, info, len(ends) - 1, lock)
            recorder.truncate(recorder.committed)
        return recorder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self.event("failed", error=f"{type(error).__name__}: {error}")
            self._save_info()
        except RunError:
            if error is None:
                raise  # a full disk is reported once, by what failed first
        finally:
            with suppress(OSError):  # every row was flushed when it was committed
                self._metrics.close()
            self._lock.close()

    def truncate(self, rounds: int) -> None:
        """Forget the rounds from `rounds` on: they will be written again."""
        ends = _round_ends(self.folder / _METRICS, self.experiment.experiment.nodes)
        os.truncate(self.folder / _METRICS, ends[rounds])
        self.committed = rounds

    def append(self, rows: Iterable[Row]) -> None:
        """Commit the rows of the next round, one a node in id order."""
        lines = [json.dumps({"round": self.committed, **_finite(row)}, separators=(",", ":")) for row in rows]
        with _writing(self.folder / _METRICS):
            self._metrics.write(("\n".join(lines) + "\n").encode())
            self._metrics.flush()
        self.committed += 1

    def sync(self) -> None:
        """Wait until all rows are on the disk itself."""
        with _writing(self.folder / _METRICS):
            os.fsync(self._metrics.fileno())

    def event(self, kind: str, **details: Any) -> None:
        """Note that something happened."""
        line = json.dumps({"time": _now(), "round": self.committed, "event": kind, **details})
        with _writing(self.folder / _EVENTS), (self.folder / _EVENTS).open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Keep what the place tells about itself."""
        self._info["facts"] = dict(facts)
        self._save_info()

    def finish(self, weights: NDArray[np.float32] | None = None) -> None:
        """Note that all rounds are done, and keep the weights [P, N] if the place could tell them."""
        if weights is not None:
            with _writing(self.folder / _WEIGHTS):
                np.save(self.folder / _WEIGHTS, weights, allow_pickle=False)
        self._info["finished"] = True
        self.event("finished")
        self._save_info()

    @property
    def seconds(self) -> float:
        """Time spent on this run, in all its sessions."""
        return self._seconds_before + time.monotonic() - self._started_s

    def _save_info(self) -> None:
        self._info["seconds"] = round(self.seconds, 3)
        self._info["rounds"] = self.committed
        _write_whole(self.folder / _RUN, json.dumps(self._info, indent=2) + "\n")


@dataclass(frozen=True)
class Run:
    """Hold a recorded run: R whole rounds of N nodes."""

    folder: Path
    experiment: Experiment
    info: Mapping[str, Any]
    columns: Mapping[str, NDArray[Any]]  # every number of a row: [R, N] int64, float64 or bool
    tensor_crcs: NDArray[np.int64]  # [R, N, tensors]

    @property
    def rounds(self) -> int:
        """Count the whole rounds recorded."""
        return len(self.tensor_crcs)

    @property
    def nodes(self) -> int:
        """Count the nodes."""
        return self.experiment.experiment.nodes

    @property
    def place(self) -> str:
        """Name place and engine."""
        return f"{self.info['place']} ({self.info['engine']})"

    @cached_property
    def accuracy(self) -> NDArray[np.float64]:
        """Return the share of test samples predicted right, [R, N]; NaN where there was no evaluation."""
        count = self.columns["test_count"]
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(count > 0, self.columns["test_correct"] / count, np.nan)

    @property
    def final_accuracy(self) -> NDArray[np.float64]:
        """Return the last accuracy measured of every node, [N]; NaN where there was none."""
        measured = ~np.isnan(self.accuracy)
        if not len(measured):
            return np.full(self.nodes, np.nan)
        last = len(measured) - 1 - np.argmax(measured[::-1], axis=0)
        final: NDArray[np.float64] = self.accuracy[last, np.arange(self.nodes)]
        return final

    def weights(self) -> NDArray[np.float32] | None:
        """Return the last round's weights [P, N], or None where the place could not tell them.

        Raises: RunError if they are not those of the recorded CRCs.
        """
        path = self.folder / _WEIGHTS
        try:
            weights: NDArray[Any] = np.load(path, allow_pickle=False)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, EOFError) as error:
            raise RunError(f"cannot be read: {error}", str(path), _AGAIN) from error
        if weights.dtype != np.float32 or weights.ndim != 2 or not self.is_last(weights):
            raise RunError("these are not the weights of the last round", str(path), _AGAIN)
        return weights

    def is_last(self, weights: NDArray[np.float32]) -> bool:
        """Tell whether weights [P, N] have the CRCs of the last round."""
        columns = weights.astype("<f4", copy=False).T
        found = [zlib.crc32(np.ascontiguousarray(column).tobytes()) for column in columns]
        return self.rounds > 0 and found == self.columns["weights_crc"][-1].tolist()

    @property
    def bytes_sent(self) -> int:
        """Sum the data bytes that all nodes sent."""
        return int(self.columns["bytes_sent"].sum())


def is_run(folder: Path) -> bool:
    """Tell whether a folder holds a run."""
    return (folder / _RUN).is_file()


def recorded_engine(folder: Path) -> str:
    """Return the engine a run was recorded with."""
    return str(_read_info(folder)["engine"])


def read_events(folder: Path) -> list[dict[str, Any]]:
    """Return what happened in a run, in order; a torn line is passed over."""
    events = []
    with suppress(OSError), (folder / _EVENTS).open(encoding="utf-8", errors="replace") as file:
        for line in file:
            with suppress(ValueError):
                events.append(json.loads(line))
    return events


def read_run(folder: Path) -> Run:
    """Read a recorded run, finished or not.

    Raises: RunError if the folder holds none, or not one of this version.
    """
    info, experiment = _read_info(folder), load_experiment(folder / _EXPERIMENT)
    nodes = experiment.experiment.nodes
    names = [name for name in Row.__annotations__ if name not in {"node", "tensor_crcs"}]
    values: dict[str, list[Any]] = {name: [] for name in names}
    crcs: list[list[int]] = []
    rounds = len(_round_ends(folder / _METRICS, nodes)) - 1
    for number, row in enumerate(_read_rows(folder / _METRICS, rounds * nodes)):
        try:
            if (row["round"], row["node"]) != divmod(number, nodes):
                raise KeyError("round")
            for name in names:
                values[name].append(row[name])
            crcs.append(row["tensor_crcs"])
        except (KeyError, TypeError) as error:
            raise RunError(f"no row of this version: {error}", f"{folder / _METRICS}:{number + 1}") from error
    tensors = len(experiment.network.tensors)
    try:
        columns = {name: _column(name, column).reshape(rounds, nodes) for name, column in values.items()}
        table = np.array(crcs, np.int64).reshape(rounds, nodes, tensors)
    except (TypeError, ValueError, OverflowError) as error:
        raise RunError(f"damaged rows: {error}", str(folder / _METRICS), "run it again") from error
    return Run(folder, experiment, info, columns, table)


def different_keys(a: Experiment, b: Experiment) -> dict[str, tuple[Any, Any]]:
    """Return the options in which two experiments differ: key -> both values, None where absent.

    Those of [emu] are left out: how nodes are run and reached makes no other experiment.
    """
    flat = [
        {
            f"{section}.{key}": value
            for section, options in e.values().items()
            for key, value in options.items()
            if section != "emu"
        }
        for e in (a, b)
    ]
    keys = sorted(flat[0].keys() | flat[1].keys())
    return {key: (flat[0].get(key), flat[1].get(key)) for key in keys if flat[0].get(key) != flat[1].get(key)}


def _column(name: str, values: list[Any]) -> NDArray[Any]:
    if name in _FLOATS:
        return np.array([math.nan if value is None else value for value in values], np.float64)
    return np.array(values, np.bool_ if name == "present" else np.int64)


def _read_rows(path: Path, count: int) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in zip(range(count), file, strict=False):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise RunError(f"damaged row: {error}", f"{path}:{number + 1}", "run it again") from error


def _round_ends(path: Path, nodes: int, check: bool = False) -> list[int]:
    """Return the offset in bytes after 0, 1, ... whole rounds; a torn last line ends no round.

    `check` also ends at the first row that is none.
    """
    ends, at = [0], 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file):
                if check and not _is_row(line, *divmod(number, nodes)):
                    break
                at += len(line)
                if (number + 1) % nodes == 0 and line.endswith(b"}\n"):
                    ends.append(at)
    except FileNotFoundError:
        pass
    return ends


def _is_row(line: bytes, round_: int, node: int) -> bool:
    try:
        row = json.loads(line)
        return bool((row["round"], row["node"]) == (round_, node) and row["weights_crc"] >= 0)
    except (ValueError, TypeError, KeyError):
        return False


def _is_free(folder: Path) -> bool:
    if not folder.exists():
        return True
    own = {_EXPERIMENT, _RUN, _METRICS, _EVENTS, _LOCK, _STATE, _WEIGHTS, "nodes"}
    metrics = folder / _METRICS
    return (
        folder.is_dir()
        and {path.name for path in folder.iterdir()} <= own
        and not (metrics.exists() and metrics.stat().st_size)
    )


@contextmanager
def _locking(folder: Path) -> Iterator[IO[bytes]]:
    """Keep other processes from writing to the folder for as long as the file is open; closes it on errors only."""
    path = folder / _LOCK
    with _writing(path):
        file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise RunError("another process is writing this run", str(folder), "wait for it, or choose another") from error
    try:
        yield file
    except BaseException:
        file.close()
        raise


def _read_info(folder: Path) -> dict[str, Any]:
    path = folder / _RUN
    try:
        info = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise RunError("holds no run", str(folder), "give the folder that `gossamer run` wrote") from error
    except (OSError, ValueError) as error:
        raise RunError(f"cannot be read: {error}", str(path), "run it again") from error
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise RunError(f"is not of record format {FORMAT}", str(path), "read it with the version that wrote it")
    needed: dict[str, type | tuple[type, ...]] = {"place": str, "engine": str, "seconds": (int, float)}
    if not all(isinstance(info.get(name), kind) for name, kind in needed.items()):
        raise RunError(f"lacks one of {', '.join(needed)}", str(path), "run it again")
    return info


def _finite(row: Row) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}


def _write_whole(path: Path, text: str) -> None:
    """Replace a file at once: a reader, or a crash, sees the old or the new text."""
    new = path.with_name(path.name + ".new")
    with _writing(path):
        try:
            with new.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        mend = "whole rounds are safe: make room and continue with --resume"
        raise RunError(f"cannot be written: {error.strerror or error}", str(path), mend) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, Any]:
    found: dict[str, Any] = {"gossamer": __version__, "spec": SPEC_VERSION, "wire": WIRE_VERSION}
    for package in ("numpy", "scikit-learn"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return {**found, "python": platform.python_version()}


def _git_describe() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--tags"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
