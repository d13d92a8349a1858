"""The zoo: files that fit together, C that equals tflite-micro, cards that tell the truth."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen import cards, host, oracle
from codegen.check import random_inputs
from codegen.export import compile_file
from codegen.program import Program, Settings
from gossamer.errors import GossamerError
from models import quantize, train, zoo

RANDOM_INPUTS = 4
COMMITTED_BYTES = 1_200_000
needs_oracle = pytest.mark.skipif(importlib.util.find_spec("tflite_micro") is None, reason="tflite-micro is missing")
needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is missing (scripts/setup tf makes .venv-tf)"
)


@cache
def program(name: str) -> Program:
    return compile_file(zoo.get(name).tflite, Settings(name=name))


@cache
def compiled() -> dict[str, host.HostModel]:
    return dict(zip(zoo.names(), host.build([program(name) for name in zoo.names()]), strict=True))


def inputs(entry: zoo.Entry) -> tuple[NDArray[np.int8], NDArray[np.uint8]]:
    with np.load(entry.inputs) as stored:
        return stored["x"], stored["y"]


@pytest.mark.parametrize("name", zoo.names())
def test_files_fit_together(name: str) -> None:
    entry = zoo.get(name)
    x, y = inputs(entry)
    graph = program(name).graph
    assert entry.name == name and entry.folder.name == name
    assert x.dtype == np.int8 and x.shape == (entry.committed_inputs, *entry.shape)
    assert y.dtype == np.uint8 and y.shape == x.shape[:1] and y.max() < entry.classes
    assert [tensor.shape for tensor in graph.inputs] == [(1, *entry.shape)]
    assert [tensor.shape for tensor in graph.outputs] == [(1, entry.classes)]


@needs_oracle
@pytest.mark.parametrize("name", zoo.names())
def test_equal_to_tflite_micro(name: str) -> None:
    """On held-back samples, which look like data, and on noise, which reaches where data do not."""
    entry = zoo.get(name)
    sets = [[row[None]] for row in inputs(entry)[0]] + random_inputs(program(name).graph, RANDOM_INPUTS)
    answer = oracle.run(entry.tflite.read_bytes(), sets)
    for given, (theirs,) in zip(sets, answer.outputs, strict=True):
        (ours,) = compiled()[name].invoke(given)
        assert ours.tobytes() == theirs.tobytes()


@needs_oracle
@pytest.mark.parametrize("name", zoo.names())
def test_arena_is_no_larger_than_tflite_micros(name: str) -> None:
    entry = zoo.get(name)
    used = oracle.run(entry.tflite.read_bytes(), random_inputs(program(name).graph, 1)).arena_bytes
    ends = sum(tensor.bytes for tensor in (*program(name).graph.inputs, *program(name).graph.outputs))
    assert program(name).arena.peak_bytes + ends <= used


@pytest.mark.parametrize("name", [name for name in zoo.names() if zoo.get(name).epochs])
def test_quantization_costs_little(name: str) -> None:
    """On the committed samples the C code is right about as often as the float model is on all that were held back."""
    entry = zoo.get(name)
    x, y = inputs(entry)
    right = np.mean(
        [compiled()[name].invoke([row[None]])[0].argmax() == label for row, label in zip(x, y, strict=True)]
    )
    expected = json.loads(entry.facts.read_text("utf-8"))["float_accuracy"]
    deviation = np.sqrt(expected * (1 - expected) / len(y))
    assert right >= expected - 3 * deviation - 0.02


def test_random_weights_answer_in_many_ways() -> None:
    """An output that never changed would compare equal to anything."""
    entry = zoo.get("keywords_dscnn")
    outputs = [compiled()[entry.name].invoke([row[None]])[0] for row in inputs(entry)[0]]
    assert len({int(output.argmax()) for output in outputs}) > 2
    assert len(np.unique(outputs)) > 50


@needs_oracle
@pytest.mark.parametrize("name", zoo.names())
def test_cards_are_current(name: str) -> None:
    entry = zoo.get(name)
    card = entry.card.read_text("utf-8")
    assert card.startswith(f"# {entry.title}\n")
    assert cards.is_current(cards.measure(entry, accuracy=False), cards.section(card)), "run python -m codegen.cards"


def test_the_list_repeats_the_cards() -> None:
    listed = (Path(zoo.__file__).parents[1] / "README.md").read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in cards.section(listed).splitlines()[2:]]
    assert [row[0].partition("]")[0] for row in rows] == [f"[{name}" for name in zoo.names()]
    for name, row in zip(zoo.names(), rows, strict=True):
        card = zoo.get(name).card.read_text("utf-8")
        assert all(cell in card for cell in row[1:])


def test_a_stale_card_is_found() -> None:
    entry = zoo.get("digits_mlp")
    card = cards.Card(entry, {"input": "64", "classes": "10"})
    assert cards.is_current(card, card.text)
    assert cards.is_current(card, f"{card.text}\n| accuracy, int8 | 97.0 % of 9 held back |")  # not measured here
    assert not cards.is_current(card, card.text.replace("64", "65"))
    with pytest.raises(GossamerError, match="no place for what is measured; add <!-- measured"):
        cards.with_section("# A card", card.text, Path("README.md"))


def test_the_zoo_is_small() -> None:
    files = [
        path for path in Path(zoo.__file__).parent.rglob("*") if path.suffix in {".tflite", ".npz", ".json", ".md"}
    ]
    assert sum(path.stat().st_size for path in files) < COMMITTED_BYTES


def test_an_unknown_name_is_named_with_its_mend() -> None:
    with pytest.raises(GossamerError, match="there is no model 'mnist_lenet'; did you mean 'mnist_lenet5'"):
        zoo.get("mnist_lenet")
    with pytest.raises(GossamerError, match="choose one of: digits_mlp, "):
        train.train("resnet", Path("nowhere"))


def test_without_tensorflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    (tmp_path / "digits_mlp.keras").touch()
    for make in (train.train, quantize.quantize):
        with pytest.raises(GossamerError, match=r"TensorFlow is not installed; pip install 'gossamer-twin\[tf\]'"):
            make("digits_mlp", tmp_path)


def test_what_is_not_trained_is_not_quantized(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match="the trained model is not there; gossamer models train digits_mlp --out"):
        quantize.quantize("digits_mlp", tmp_path)


@pytest.mark.parametrize(
    "name", [name for name in zoo.names() if zoo.get(name).data in ("digits", "patterns", "noise")]
)
def test_samples(name: str) -> None:
    """What is held back is not trained with, and the committed inputs are its first."""
    entry = zoo.get(name)
    samples = entry.samples()
    assert samples.train_x.shape[1:] == samples.test_x.shape[1:] == entry.shape
    assert samples.train_x.dtype == np.float32
    x, y = inputs(entry)
    assert cards.quantized(samples.test_x[: len(x)], program(name)).tobytes() == x.tobytes()
    assert samples.test_y[: len(y)].tolist() == y.tolist()
    if entry.data != "digits":  # where two people may have drawn the same
        train_rows = {row[0].tobytes() for row in samples.train_x}
        assert not any(row[0].tobytes() in train_rows for row in samples.test_x)


@needs_tensorflow
@needs_oracle
def test_train_quantize_export(tmp_path: Path) -> None:
    """With TensorFlow: a model made here, as C, equals tflite-micro, and has learned."""
    make = "import sys; from pathlib import Path; from models import quantize, train; out = Path(sys.argv[1])\n"
    make += "train.train('digits_mlp', out); quantize.quantize('digits_mlp', out)"
    subprocess.run([sys.executable, "-c", make, tmp_path], check=True, capture_output=True)
    made = tmp_path / "digits_mlp_int8.tflite"
    ours = compile_file(made, Settings(name="made"))
    (model,) = host.build([ours])
    samples = zoo.get("digits_mlp").samples()
    sets: list[list[Any]] = [[row[None]] for row in cards.quantized(samples.test_x, ours)]
    outputs = [model.invoke(given)[0] for given in sets]
    answer = oracle.run(made.read_bytes(), sets)
    assert all(mine.tobytes() == theirs.tobytes() for mine, (theirs,) in zip(outputs, answer.outputs, strict=True))
    right = np.mean([output.argmax() == label for output, label in zip(outputs, samples.test_y, strict=True)])
    assert right > 0.93
    assert json.loads((tmp_path / "facts.json").read_text("utf-8"))["float_accuracy"] > 0.93
