"""Records: what is committed stays, what is torn goes, and nothing of another run is touched."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from gossamer.cli import main
from gossamer.errors import RunError
from gossamer.experiment import Experiment, load_experiment
from gossamer.record import Recorder, different_keys, is_run, read_run
from tests.fakes import FakePlace, record_run

EXAMPLE = Path(__file__).parent.parent / "examples" / "digits_gist.toml"


@pytest.fixture
def experiment() -> Experiment:
    return load_experiment(EXAMPLE, ["experiment.rounds=4", "experiment.nodes=6"])


def record_rounds(folder: Path, experiment: Experiment, rounds: int) -> None:
    with Recorder.create(folder, experiment, "sim", "numpy") as recorder:
        place = FakePlace(experiment, folder)
        for r in range(rounds):
            recorder.append(place.round(r))


def test_a_run_reads_back_as_it_was_written(tmp_path: Path, experiment: Experiment) -> None:
    run = record_run(tmp_path / "a", experiment)
    assert (run.rounds, run.nodes, run.place) == (4, 6, "sim (numpy)")
    rows = FakePlace(experiment, tmp_path).round(0)
    assert run.columns["weights_crc"][0].tolist() == [row["weights_crc"] for row in rows]
    assert run.tensor_crcs[0].tolist() == [row["tensor_crcs"] for row in rows]
    assert run.columns["train_loss"][0].tolist() == [row["train_loss"] for row in rows]
    assert run.columns["present"][1].tolist() == [False] + [True] * 5
    assert math.isnan(run.columns["train_loss"][1, 0]) and math.isnan(run.accuracy[1, 0])
    assert run.accuracy[0, 2] == rows[2]["test_correct"] / 360
    assert run.info["finished"] and run.info["rounds"] == 4 and run.info["facts"] == {"arena_bytes": 12345}
    assert run.experiment == experiment.resolved()
    assert run.bytes_sent == sum(3000 + 13 * node for node in range(6)) * 4 - 3000


def test_every_line_is_plain_json(tmp_path: Path, experiment: Experiment) -> None:
    record_run(tmp_path / "a", experiment)

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is not JSON")

    lines = (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [(row["round"], row["node"]) for row in rows] == [(r, n) for r in range(4) for n in range(6)]
    assert rows[0]["val_loss"] is None
    events = [json.loads(line)["event"] for line in (tmp_path / "a" / "events.jsonl").read_text().splitlines()]
    assert events == ["finished"]


def test_the_last_accuracy_measured_counts(tmp_path: Path, experiment: Experiment) -> None:
    run = record_run(tmp_path / "a", experiment)
    run.columns["test_count"][3, :] = 0
    run.columns["test_count"][:, 5] = 0
    run.__dict__.pop("accuracy", None)
    assert run.final_accuracy[1] == run.accuracy[2, 1]
    assert np.isnan(run.final_accuracy[5])


def test_a_folder_with_a_run_is_refused(tmp_path: Path, experiment: Experiment) -> None:
    record_rounds(tmp_path / "a", experiment, 1)
    before = (tmp_path / "a" / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match="holds a run already; continue it with --resume"):
        Recorder.create(tmp_path / "a", experiment, "sim", "numpy")
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == before
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="is not empty, and no run; choose another --out"):
        Recorder.create(tmp_path / "b", experiment, "sim", "numpy")


@pytest.mark.parametrize("torn", [b"", b'{"round":2,"node"', b'{"round":2,"node":0}\n', b'{"round":2,"node":0}\n{"r'])
def test_resuming_cuts_off_what_is_not_a_whole_round(tmp_path: Path, experiment: Experiment, torn: bytes) -> None:
    folder = tmp_path / "a"
    record_rounds(folder, experiment, 2)
    whole = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl").write_bytes(whole + torn)
    assert read_run(folder).rounds == 2  # a torn record can be read, too
    with Recorder.resume(folder, experiment, "sim", "numpy") as recorder:
        assert recorder.committed == 2
        assert (folder / "metrics.jsonl").read_bytes() == whole
        place = FakePlace(experiment, folder)
        rows = [place.round(r) for r in range(4)]
        recorder.append(rows[2])
        recorder.append(rows[3])
    record_rounds(tmp_path / "b", experiment, 4)
    assert (folder / "metrics.jsonl").read_bytes() == (tmp_path / "b" / "metrics.jsonl").read_bytes()


def test_rounds_a_place_lost_are_written_again(tmp_path: Path, experiment: Experiment) -> None:
    record_rounds(tmp_path / "a", experiment, 3)
    with Recorder.resume(tmp_path / "a", experiment, "sim", "numpy") as recorder:
        recorder.truncate(1)
        assert recorder.committed == 1
    assert read_run(tmp_path / "a").rounds == 1


def test_only_the_same_experiment_and_place_resume(tmp_path: Path, experiment: Experiment) -> None:
    record_rounds(tmp_path / "a", experiment, 1)
    other = load_experiment(EXAMPLE, ["experiment.rounds=4", "experiment.nodes=6", "train.lr=0.25"])
    with pytest.raises(RunError, match=r"another experiment \(train.lr differ\)"):
        Recorder.resume(tmp_path / "a", other, "sim", "numpy")
    with pytest.raises(RunError, match=r"was recorded on sim \(numpy\); resume it there"):
        Recorder.resume(tmp_path / "a", experiment, "host", "native")
    with pytest.raises(RunError, match="holds no run"):
        Recorder.resume(tmp_path / "none", experiment, "sim", "numpy")


def test_seconds_add_up_over_sessions(tmp_path: Path, experiment: Experiment) -> None:
    record_rounds(tmp_path / "a", experiment, 1)
    path = tmp_path / "a" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "seconds": 100.0}))
    with Recorder.resume(tmp_path / "a", experiment, "sim", "numpy") as recorder:
        assert 100.0 <= recorder.seconds < 105.0
    assert read_run(tmp_path / "a").info["seconds"] >= 100.0


def test_a_failure_is_noted_and_leaves_the_rounds(tmp_path: Path, experiment: Experiment) -> None:
    with (
        pytest.raises(OSError, match="No space"),
        Recorder.create(tmp_path / "a", experiment, "sim", "numpy") as recorder,
    ):
        place = FakePlace(experiment, tmp_path / "a", fail=2)
        for r in range(4):
            recorder.append(place.round(r))
    assert read_run(tmp_path / "a").rounds == 2
    assert "No space left" in (tmp_path / "a" / "events.jsonl").read_text()


def test_damage_is_named(tmp_path: Path, experiment: Experiment) -> None:
    record_rounds(tmp_path / "a", experiment, 2)
    path = tmp_path / "a" / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], b"{]}\n", *lines[5:]]))
    with pytest.raises(RunError, match=r"metrics.jsonl:5: damaged row"):
        read_run(tmp_path / "a")
    path.write_bytes(b"".join([*lines[:4], lines[5], lines[4], *lines[6:]]))
    with pytest.raises(RunError, match=r"metrics.jsonl:5: no row of this version"):
        read_run(tmp_path / "a")
    (tmp_path / "a" / "run.json").write_text('{"format": 99}')
    with pytest.raises(RunError, match="is not of record format 1"):
        read_run(tmp_path / "a")
    assert is_run(tmp_path / "a") and not is_run(tmp_path)


def test_different_keys_are_named_with_both_values(experiment: Experiment) -> None:
    other = load_experiment(EXAMPLE, ["experiment.rounds=4", "experiment.nodes=6", "topology.kind=ring"])
    assert different_keys(experiment, other) == {
        "topology.kind": ("watts_strogatz", "ring"),
        "topology.degree": (4, None),
        "topology.rewire": (0.3, None),
    }
    assert different_keys(experiment, experiment) == {}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full: needs Linux")
def test_a_full_disk_is_reported_with_the_mend(tmp_path: Path, experiment: Experiment) -> None:
    folder = tmp_path / "a"
    place = FakePlace(experiment, folder)
    with (
        pytest.raises(RunError, match=r"metrics.jsonl: cannot be written: No space left .*; whole rounds are safe"),
        Recorder.create(folder, experiment, "sim", "numpy") as recorder,
    ):
        recorder.append(place.round(0))
        recorder._metrics.close()
        recorder._metrics = open("/dev/full", "ab")
        recorder.append(place.round(1))
    assert recorder.committed == 1 and read_run(folder).rounds == 1


def test_a_second_process_is_kept_out(tmp_path: Path, experiment: Experiment) -> None:
    folder = tmp_path / "run"
    with Recorder.create(folder, experiment, "sim", "numpy"):
        with pytest.raises(RunError, match="another process is writing"):
            Recorder.resume(folder, experiment, "sim", "numpy")
    with Recorder.resume(folder, experiment, "sim", "numpy") as recorder:
        assert recorder.committed == 0


def test_a_run_that_never_began_leaves_its_folder_free(tmp_path: Path, experiment: Experiment) -> None:
    for _ in range(2):
        with pytest.raises(RunError, match="no luck"), Recorder.create(tmp_path / "run", experiment, "sim", "numpy"):
            raise RunError("no luck")


def test_resume_cuts_off_a_damaged_row_and_what_follows(tmp_path: Path, experiment: Experiment) -> None:
    folder = tmp_path / "run"
    nodes = experiment.experiment.nodes
    row = {"weights_crc": 1, "lr": 0.5}
    with Recorder.create(folder, experiment, "sim", "numpy") as recorder:
        for _ in range(3):
            recorder.append([{"node": node, **row} for node in range(nodes)])  # type: ignore[typeddict-item]
    lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    lines[nodes + 1] = b"xx}\n"
    (folder / "metrics.jsonl").write_bytes(b"".join(lines))
    with Recorder.resume(folder, experiment, "sim", "numpy") as recorder:
        assert recorder.committed == 1


def test_the_weights_of_a_run_are_kept_and_checked(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    assert main(["run", str(EXAMPLE), "--set", "experiment.rounds=2", "--engine", "numpy", "--out", str(folder)]) == 0
    weights = read_run(folder).weights()
    assert weights is not None and weights.shape == (64 * 32 + 32 + 32 * 10 + 10, 16)

    weights[7, 3] = np.nextafter(weights[7, 3], np.float32(1))
    np.save(folder / "weights.npy", weights)
    with pytest.raises(RunError, match=r"weights\.npy: these are not the weights of the last round; delete the file"):
        read_run(folder).weights()
    (folder / "weights.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(RunError, match="cannot be read"):
        read_run(folder).weights()
    (folder / "weights.npy").unlink()
    assert read_run(folder).weights() is None


@pytest.mark.parametrize("kind", ["spec", "wire"])
def test_a_run_of_another_version_is_not_continued(tmp_path: Path, experiment: Experiment, kind: str) -> None:
    record_rounds(tmp_path / "a", experiment, 2)
    path = tmp_path / "a" / "run.json"
    info = json.loads(path.read_text())
    info["versions"][kind] = 0
    path.write_text(json.dumps(info))
    before = {file.name: file.read_bytes() for file in (tmp_path / "a").iterdir() if file.is_file()}
    with pytest.raises(RunError, match=rf"was recorded with {kind} version 0, this is \d; start anew"):
        Recorder.resume(tmp_path / "a", experiment, "sim", "numpy")
    assert {file.name: file.read_bytes() for file in (tmp_path / "a").iterdir() if file.is_file()} == before
