"""The command line: what it prints, returns and leaves behind, with a stand-in for the simulator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gossamer import native
from gossamer.cli import main
from gossamer.cli._progress import LineProgress
from gossamer.cli._run import default_folder
from gossamer.experiment import Experiment
from gossamer.place import Row
from gossamer.record import read_run
from tests.fakes import FakePlace, record_run

EXAMPLE = Path(__file__).parent.parent / "examples" / "digits_gist.toml"
SMALL = ["--set", "experiment.rounds=20", "--set", "experiment.nodes=6"]


class Places:
    """Open fake places; `change` may return another one to use instead."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, str, Path, int | None]] = []
        self.last: FakePlace | None = None
        self.change: Callable[[Experiment, Path], FakePlace] = FakePlace

    def open_place(self, job: Any, where: str, engine: str, run_dir: Path, threads: int | None, tell: Any) -> FakePlace:
        self.opened.append((where, engine, run_dir, threads))
        self.last = self.change(job.experiment, run_dir)
        return self.last


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Places:
    """Replace the rooms that the command line imports late, and work in an empty folder."""
    result = Places()
    models, twin_sim = ModuleType("models"), ModuleType("twin_sim")
    models.prepare = lambda experiment: SimpleNamespace(experiment=experiment)  # type: ignore[attr-defined]
    twin_sim.open_place = result.open_place  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "models", models)
    monkeypatch.setitem(sys.modules, "twin_sim", twin_sim)
    monkeypatch.chdir(tmp_path)
    return result


def run(*arguments: str) -> int:
    return main(["run", str(EXAMPLE), *SMALL, "--engine", "numpy", *arguments])


def interrupting(times: int) -> Callable[[Experiment, Path], FakePlace]:
    """Make places in whose round 7 the user presses Ctrl-C."""

    class Interrupting(FakePlace):
        def round(self, r: int) -> list[Row]:
            for _ in range(times if r == 7 else 0):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)
            return super().round(r)

    return Interrupting


# --- the program itself ----------------------------------------------------------------------------------------


def test_help_loads_nothing_heavy_and_is_quick() -> None:
    code = (
        "import sys; from gossamer.cli import main; main(['--help']); main([]);"
        "print(sorted({'numpy', 'pydantic', 'rich', 'sklearn', 'models', 'twin_sim'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]" and "compare" in done.stdout

    def seconds() -> float:
        started_s = time.perf_counter()
        subprocess.run([sys.executable, "-m", "gossamer.cli", "--help"], capture_output=True, check=True)
        return time.perf_counter() - started_s

    assert min(seconds() for _ in range(3)) < 0.3


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "gossamer 0.1.0 (spec 2, wire 1)\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["run"], "Missing argument"),
        (["run", "x.toml", "--on", "moon"], "Invalid value for '--on'"),
        (["compare", "a", "--nope"], "No such option"),
        (["run", "none.toml"], "none.toml: cannot be read: No such file or directory"),
        (["compare", "none", "other"], "none: holds no run; give the folder that `gossamer run` wrote"),
        (["run", str(EXAMPLE), "--on", "host", "--engine", "numpy"], "--on host: runs the firmware core only; choose"),
    ],
)
def test_an_error_is_one_line(
    places: Places, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("error: ") and expected in err, err


def test_every_problem_of_an_experiment_is_a_line(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--set", "train.lr=x", "--set", "link.los=1") == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "error: --set train.lr=x: train.lr: is 'x'; allowed a number",
        "error: --set link.los=1: link.los: unknown key; allowed loss, corruption, duplication, overtaking, delay_ms, "
        "jitter_ms, mtu_bytes, auth, reassembly, bandwidth_kbps; did you mean 'loss'?",
    ]
    assert not Path("runs").exists()


def test_check_prints_the_whole_experiment(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "check", str(EXAMPLE), "--set", "topology.kind=erdos_renyi", "--set",
                 "topology.probability=0.0"]) == 0  # fmt: skip
    out, err = capsys.readouterr()
    assert err.startswith("warning: topology: the graph falls into 16 parts that never meet: {0}, {1}, {2}, {3} and 12")
    Path("again.toml").write_text(out)
    assert main(["experiment", "check", "again.toml"]) == 0
    assert capsys.readouterr().out == out


# --- runs ------------------------------------------------------------------------------------------------------


def test_a_run_leaves_its_record_and_a_report(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--on", "sim", "--threads", "2", "--out", "a") == 0
    out, err = capsys.readouterr()
    assert places.opened == [("sim", "numpy", Path("a"), 2)]
    assert {p.name for p in Path("a").iterdir()} == {
        "experiment.toml", "run.json", "metrics.jsonl", "events.jsonl", "state", "report.html", "lock",
    }  # fmt: skip
    assert "20 rounds of 6 nodes" in out and "record: a\nreport: a/report.html" in out
    assert len(err.splitlines()) == 10 and err.splitlines()[-1].startswith("round 20/20  loss ")
    record = read_run(Path("a"))
    assert record.rounds == 20 and record.info["finished"] and record.info["facts"] == {"arena_bytes": 12345}
    assert places.last is not None and places.last.saves[-1] == 20


def test_folders_are_numbered_and_never_reused(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0 and run() == 0
    assert main(["run", str(EXAMPLE), *SMALL, "--on", "host"]) == 0
    names = ["digits_gist-host", "digits_gist-sim-numpy", "digits_gist-sim-numpy-2"]
    assert sorted(p.name for p in Path("runs").iterdir()) == names
    assert default_folder("digits_gist-sim-numpy", resume=True) == Path("runs/digits_gist-sim-numpy-2")
    assert default_folder("digits_gist-sim-numpy", resume=False) == Path("runs/digits_gist-sim-numpy-3")
    assert run("--out", "runs/digits_gist-sim-numpy") == 2
    assert "holds a run already; continue it with --resume, or choose another --out" in capsys.readouterr().err


def test_auto_takes_native_where_there_is_a_compiler(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    for available, engine in ((True, "native"), (False, "numpy")):
        monkeypatch.setattr("gossamer.native.available", lambda found=available: found)
        assert main(["run", str(EXAMPLE), *SMALL, "--out", engine]) == 0
        assert places.opened[-1][:2] == ("sim", engine)
    assert main(["run", str(EXAMPLE), *SMALL, "--out", "native", "--resume"]) == 0  # what it was begun with
    assert json.loads(Path("native/run.json").read_text())["engine"] == "native"


def test_an_interrupted_run_continues_to_the_same_record(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", "straight") == 0
    places.change = interrupting(1)
    capsys.readouterr()
    assert run("--out", "a") == 130
    out, err = capsys.readouterr()
    assert "stopping after this round; once more to abort" in err
    assert read_run(Path("a")).rounds == 8 and places.last is not None and places.last.saves == [8]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    places.change = FakePlace
    command = out.strip().splitlines()[-1].split("continue with: gossamer ")[1]
    assert main(command.split()) == 0
    assert places.last.started_with == 8
    assert Path("a/metrics.jsonl").read_bytes() == Path("straight/metrics.jsonl").read_bytes()
    events = [json.loads(line)["event"] for line in Path("a/events.jsonl").read_text().splitlines()]
    assert events == ["started", "interrupted", "resumed", "finished"]
    assert main(command.split()) == 0  # nothing is left to do


def test_the_second_interrupt_aborts_without_losing_rounds(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    places.change = interrupting(2)
    assert run("--out", "a") == 130
    assert capsys.readouterr().err.splitlines()[-1] == "aborted"
    assert read_run(Path("a")).rounds == 7


def test_a_full_disk_is_one_line_and_the_run_goes_on_later(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", "straight") == 0
    places.change = lambda experiment, folder: FakePlace(experiment, folder, fail=5)
    capsys.readouterr()
    assert run("--out", "a") == 2
    assert capsys.readouterr().err.splitlines()[-1] == "error: metrics.jsonl: No space left on device"
    assert read_run(Path("a")).rounds == 5
    places.change = FakePlace  # which has saved nothing: it starts anew
    assert run("--out", "a", "--resume") == 0
    assert Path("a/metrics.jsonl").read_bytes() == Path("straight/metrics.jsonl").read_bytes()


def test_a_place_behind_the_record_repeats_rounds(places: Places) -> None:
    places.change = interrupting(1)
    assert run("--out", "a") == 130
    places.change = lambda experiment, folder: FakePlace(experiment, folder, lag=3)
    assert run("--out", "a", "--resume") == 0
    assert read_run(Path("a")).rounds == 20


def test_a_place_ahead_of_the_record_is_refused(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    places.change = lambda experiment, folder: FakePlace(experiment, folder, lag=-1)
    assert run("--out", "a") == 2
    assert "a: the place continues from round 1; this is a defect of the place" in capsys.readouterr().err


@pytest.mark.parametrize("rounds", [1, 7, 10, 33, 1000])
def test_progress_prints_about_ten_lines(rounds: int, capsys: pytest.CaptureFixture[str]) -> None:
    progress = LineProgress(rounds, 0)
    for done in range(1, rounds + 1):
        progress.advance(done, [])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == min(rounds, 10) and lines[-1].startswith(f"round {rounds}/{rounds}  loss -")


# --- comparison and report -------------------------------------------------------------------------------------


def test_compare_returns_one_when_runs_part(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    from gossamer.experiment import load_experiment

    experiment = load_experiment(EXAMPLE, SMALL[1::2])
    record_run(Path("a"), experiment)
    record_run(Path("b"), experiment, "host")
    record_run(Path("c"), experiment, differ=(4, 2, 3))
    assert main(["compare", "a", "b"]) == 0
    assert "the same bits in every weight of all 6 nodes after each of 20 rounds" in capsys.readouterr().out
    assert main(["compare", "a", "b", "c", "--report", "out/abc.html"]) == 1
    out = capsys.readouterr().out
    assert "a and c part after 4 equal rounds: round 4, node 2, layer 2 bias" in out and "report: out/abc.html" in out
    assert Path("out/abc.html").stat().st_size > 10_000
    assert main(["report", "c"]) == 0 and Path("c/report.html").exists()
    assert main(["report", "a", "b", "--out", "two.html"]) == 0 and Path("two.html").exists()


def test_size_adds_up(capfd: pytest.CaptureFixture[str]) -> None:
    if not native.available():
        pytest.skip("no C compiler")
    assert main(["experiment", "size", str(EXAMPLE)]) == 0
    *parts, total = capfd.readouterr().out.splitlines()
    sizes = {name.strip(): int(size.replace(",", "")) for size, name in (line.strip().split("  ") for line in parts)}
    assert sizes["weights"] == 4 * (64 * 32 + 32 + 32 * 10 + 10)
    assert int(total.split()[0].replace(",", "")) == sum(sizes.values())


@pytest.mark.parametrize(
    ("override", "where"), [((), "digits_gist.toml:17: model.layers: "), (("--set", "model.layers=[9, 10]"), "--set ")]
)
def test_what_the_data_refuse_is_named_with_its_place(
    override: tuple[str, ...], where: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = EXAMPLE.read_text("utf-8").replace("[64, 32, 10]", "[63, 32, 10]")
    path = tmp_path / EXAMPLE.name
    path.write_text(text, "utf-8")
    assert main(["experiment", "check", str(path), *override]) == 2
    (line,) = [row for row in capfd.readouterr().err.splitlines() if "model.layers" in row]
    assert where in line
