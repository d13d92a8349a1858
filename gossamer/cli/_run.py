"""Do `gossamer run`."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

from gossamer.cli._check import prepare
from gossamer.cli._progress import progress_for
from gossamer.errors import GossamerError, RunError
from gossamer.job import Job
from gossamer.place import Place, Tell
from gossamer.record import Recorder, is_run, read_events, read_run, recorded_engine

SAVE_EVERY_S: Final = 5.0


@dataclass(frozen=True)
class RunRequest:
    """Hold what the command line asks for."""

    experiment: Path
    overrides: tuple[str, ...]
    on: str
    engine: str  # auto, numpy, native
    out: Path | None
    resume: bool
    threads: int | None


class Stop:
    """Turn the first interrupt or termination into a request; the second aborts. A context manager."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            print("aborted", file=sys.stderr, flush=True)
            raise KeyboardInterrupt
        self.requested = True
        print("\nstopping after this round; once more to abort", file=sys.stderr, flush=True)


def run_experiment(request: RunRequest) -> bool:
    """Run and record; return whether it finished (False: interrupted, saved)."""
    job = prepare(request.experiment, request.overrides)
    experiment = job.experiment
    suffix = f"-{request.engine}" if request.on == "sim" and request.engine != "auto" else ""
    folder = request.out or default_folder(f"{experiment.experiment.name}-{request.on}{suffix}", request.resume)
    engine = choose_engine(request, folder)
    start = Recorder.resume if request.resume else Recorder.create
    weights = None
    with Stop() as stop, start(folder, experiment, request.on, engine) as recorder:
        if recorder.committed < experiment.experiment.rounds:
            tell = _teller(recorder)
            with open_place(job, request.on, engine, folder, request.threads, tell) as place:
                drive(place, recorder, stop)
                weights = place.weights()
        if recorder.committed < experiment.experiment.rounds:
            print(f"interrupted after {_rounds(recorder)}; continue with: {resume_command(request, folder)}")
            return False
        recorder.finish(weights)
    _conclude(folder)
    return True


def drive(place: Place, recorder: Recorder, stop: Stop, save_every_s: float = SAVE_EVERY_S) -> None:
    """Run the rounds that are missing.

    Rows reach the disk before the place saves: so what a place can continue from is never ahead of the record.
    """
    rounds = recorder.experiment.experiment.rounds
    first = place.start(recorder.committed)
    if not 0 <= first <= recorder.committed:
        raise RunError(f"the place continues from round {first}", str(recorder.folder), "this is a defect of the place")
    recorder.truncate(first)
    recorder.facts(place.facts)
    recorder.event("started" if first == 0 else "resumed")
    saved_s = time.monotonic()
    with progress_for(rounds, first) as progress:
        for number in range(first, rounds):
            rows = place.round(number)
            recorder.append(rows)
            progress.advance(recorder.committed, rows)
            now_s = time.monotonic()
            if stop.requested or recorder.committed == rounds or now_s - saved_s >= save_every_s:
                recorder.sync()
                place.save()
                saved_s = now_s
            if stop.requested and recorder.committed < rounds:
                recorder.event("interrupted")
                break
    recorder.facts(place.facts)


def _teller(recorder: Recorder) -> Tell:
    """Return what records an event and shows it."""

    def tell(kind: str, **details: Any) -> None:
        recorder.event(kind, **details)
        print(_in_words(recorder.committed, kind, details), file=sys.stderr, flush=True)

    return tell


def _in_words(number: int, kind: str, details: Mapping[str, Any]) -> str:
    """Say an event of a round in a line: `round 7: lost node 3: it was ended by SIGKILL`."""
    nodes = details.get("nodes", [])
    whom = f"node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}" if nodes else "all"
    what = f"{details['do']} {whom}" if kind == "fault" else f"{kind} {whom}"
    return f"round {number}: {what}" + (f": {details['why']}" if "why" in details else "")


def open_place(job: Job, where: str, engine: str, folder: Path, threads: int | None, tell: Tell) -> Place:
    """Open the place; imported late, so that a broken one does not stop the others."""
    if where == "emu":
        from twin_emu import EmuPlace

        return EmuPlace(job, folder, tell=tell)
    import twin_sim

    place: Place = twin_sim.open_place(job, where, engine, folder, threads, tell)
    return place


def choose_engine(request: RunRequest, folder: Path) -> str:
    """Resolve `auto`: what the record was made with, else native where it can be built, else numpy."""
    if request.on != "sim":
        if request.engine == "numpy":
            raise GossamerError(
                "runs the firmware core only", f"--on {request.on}", "choose --engine native, or --on sim"
            )
        if request.on == "emu":
            from gossamer import toolchain

            toolchain.find()  # what is missing is told before a record is begun
            toolchain.find_emulator()
        return "native"
    if request.engine != "auto":
        return request.engine
    if request.resume and is_run(folder):
        return recorded_engine(folder)
    from gossamer import native

    if native.available():
        return "native"
    print("note: no C compiler found: simulating with the slower numpy engine, to the same bits", file=sys.stderr)
    return "numpy"


def default_folder(name: str, resume: bool) -> Path:
    """Return runs/<name>, with a number if taken; to resume, the newest."""
    taken = Path("runs") / name
    number = 1
    while True:
        following = Path("runs") / f"{name}-{number + 1}"
        if resume and not following.exists():
            return taken
        if not resume and not taken.exists():
            return taken
        taken, number = following, number + 1


def resume_command(request: RunRequest, folder: Path) -> str:
    """Return the command that continues the run."""
    sets = "".join(f" --set {shlex.quote(text)}" for text in request.overrides)
    engine = f" --engine {request.engine}" if request.engine != "auto" else ""
    file, out = shlex.quote(str(request.experiment)), shlex.quote(str(folder))
    return f"gossamer run {file} --on {request.on}{engine}{sets} --out {out} --resume"


def _rounds(recorder: Recorder) -> str:
    return f"{recorder.committed} of {recorder.experiment.experiment.rounds} rounds"


def _conclude(folder: Path) -> None:
    from gossamer.cli._compare import accuracy_text
    from gossamer.report import write_report

    run = read_run(folder)
    write_report([run], folder / "report.html")
    print(f"{run.rounds} rounds of {run.nodes} nodes in {run.info['seconds']:.1f} s on {run.place}")
    for event in read_events(folder):
        if event.get("event") in ("lost", "returned"):
            print(_in_words(event["round"], event["event"], event))
    print(f"accuracy {accuracy_text(run)}, {run.bytes_sent:,} bytes sent")
    print(f"record: {folder}\nreport: {folder / 'report.html'}")
