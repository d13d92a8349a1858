"""Comparison: the first round, node and tensor where runs part, and what else differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gossamer.cli._compare import compare_runs, describe
from gossamer.compare import compare
from gossamer.errors import RunError
from gossamer.experiment import Experiment, load_experiment
from gossamer.record import Recorder, read_run
from gossamer.report import render
from tests.fakes import FakePlace, record_run

EXAMPLE = Path(__file__).parent.parent / "examples" / "digits_gist.toml"


@pytest.fixture
def experiment() -> Experiment:
    return load_experiment(EXAMPLE, ["experiment.rounds=5", "experiment.nodes=6"])


def test_equal_runs_agree(tmp_path: Path, experiment: Experiment) -> None:
    runs = [record_run(tmp_path / "a", experiment), record_run(tmp_path / "b", experiment, "host")]
    (comparison,) = compare(runs)
    assert comparison.agrees and comparison.equal.tolist() == [True] * 5 and comparison.equal_rounds == 5
    assert comparison.keys == {} and comparison.differences == ()
    assert comparison.accuracy_difference == 0 and comparison.bytes_difference == 0
    assert "the same bits in every weight of all 6 nodes after each of 5 rounds" in describe(comparison)[0]


@pytest.mark.parametrize(
    ("differ", "tensor"), [((3, 4, 0), "layer 1 weights"), ((0, 0, 1), "layer 1 bias"), ((2, 5, 3), "layer 2 bias")]
)
def test_the_first_parting_is_named(
    tmp_path: Path, experiment: Experiment, differ: tuple[int, int, int], tensor: str
) -> None:
    runs = [record_run(tmp_path / "a", experiment), record_run(tmp_path / "b", experiment, differ=differ)]
    (comparison,) = compare(runs)
    assert not comparison.agrees and comparison.parting is not None
    assert (comparison.parting.round, comparison.parting.node, comparison.parting.tensor) == (*differ[:2], tensor)
    assert comparison.equal.tolist() == [r < differ[0] for r in range(5)]
    assert (
        f"part after {differ[0]} equal rounds: round {differ[0]}, node {differ[1]}, {tensor}" in describe(comparison)[0]
    )


def test_later_runs_are_compared_with_the_first(tmp_path: Path, experiment: Experiment) -> None:
    folders = [tmp_path / name for name in "abc"]
    record_run(folders[0], experiment)
    record_run(folders[1], experiment)
    record_run(folders[2], experiment, differ=(1, 1, 1))
    assert [c.agrees for c in compare([read_run(folder) for folder in folders])] == [True, False]


def test_a_shorter_run_agrees_as_far_as_it_goes(tmp_path: Path, experiment: Experiment) -> None:
    with Recorder.create(tmp_path / "b", experiment, "sim", "numpy") as recorder:
        place = FakePlace(experiment, tmp_path / "b")
        for r in range(2):
            recorder.append(place.round(r))
    (comparison,) = compare([record_run(tmp_path / "a", experiment), read_run(tmp_path / "b")])
    assert comparison.agrees and comparison.rounds == 2
    assert "one is longer: 5 and 2 rounds" in describe(comparison)[1]


def test_other_figures_that_differ_are_named(tmp_path: Path, experiment: Experiment) -> None:
    runs = [record_run(tmp_path / "a", experiment), record_run(tmp_path / "b", experiment)]
    runs[1].columns["bytes_sent"][2, 3] += 7
    runs[1].columns["train_loss"][4, 1] = np.nan
    (comparison,) = compare(runs)
    assert comparison.agrees and comparison.bytes_difference == 7
    assert [(d.figure, d.round, d.node) for d in comparison.differences] == [("bytes_sent", 2, 3), ("train_loss", 4, 1)]
    assert any("bytes_sent: round 2, node 3: 3039 and 3046" in line for line in describe(comparison))


def test_experiments_that_differ_say_in_what(tmp_path: Path, experiment: Experiment) -> None:
    other = load_experiment(EXAMPLE, ["experiment.rounds=5", "experiment.nodes=6", "train.lr=0.25"])
    (comparison,) = compare([record_run(tmp_path / "a", experiment), record_run(tmp_path / "b", other)])
    assert comparison.keys == {"train.lr": (0.5, 0.25)}
    assert "    train.lr: 0.5 and 0.25" in describe(comparison)


@pytest.mark.parametrize("overrides", [["experiment.nodes=7"], ["model.layers=[64, 10]"]])
def test_runs_of_another_shape_do_not_agree(tmp_path: Path, experiment: Experiment, overrides: list[str]) -> None:
    other = load_experiment(EXAMPLE, ["experiment.rounds=5", "experiment.nodes=6", *overrides])
    runs = [record_run(tmp_path / "a", experiment), record_run(tmp_path / "b", other)]
    (comparison,) = compare(runs)
    assert not comparison.agrees and comparison.rounds == 0
    assert "not the same nodes and layers" in describe(comparison)[0]
    assert "not the same nodes and layers" in render(runs)


def test_the_table_has_a_row_a_run(tmp_path: Path, experiment: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    run = record_run(tmp_path / "a", experiment)
    record_run(tmp_path / "b", experiment, "host")
    assert compare_runs([tmp_path / "a", tmp_path / "b"], tmp_path / "r.html")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "run" and f"{tmp_path / 'b'}  host (numpy)" in lines[2]
    assert "5 of 5" in lines[2] and f"{run.bytes_sent:,}" in lines[1] and lines[-1] == f"report: {tmp_path / 'r.html'}"
    with pytest.raises(RunError, match="one run cannot be compared"):
        compare_runs([tmp_path / "a"], None)


# --- the report ------------------------------------------------------------------------------------------------


def test_the_page_is_small_and_needs_nothing_else(tmp_path: Path) -> None:
    experiment = load_experiment(EXAMPLE, ["experiment.rounds=600", "experiment.nodes=6"])
    runs = [record_run(tmp_path / name, experiment, differ=(300, 1, 0) if name == "c" else None) for name in "abc"]
    html = render(runs)
    assert len(html) < 200_000
    for forbidden in ("http://", "https://", "//cdn", '<link rel="stylesheet', "@import", "url("):
        assert forbidden not in html
    assert "holds the same bits" in html and "after 300 equal rounds: round 300, node 1, layer 1 weights" in html
    assert html.count('class="apart"') == 1 and 'x="300" width="300"' in html


def test_names_cannot_break_the_page(tmp_path: Path, experiment: Experiment) -> None:
    html = render([record_run(tmp_path / "<script>alert(1)<", experiment)])
    assert "<script>alert" not in html and "&lt;script&gt;alert" in html


def test_a_run_without_rounds_has_a_page(tmp_path: Path, experiment: Experiment) -> None:
    with Recorder.create(tmp_path / "a", experiment, "sim", "numpy"):
        pass
    assert render([read_run(tmp_path / "a")]).count("not measured in this run") == 4
