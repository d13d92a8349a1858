"""Write what is measured of the zoo's models into their cards, and the table of all into `models/README.md`.

Run: python -m codegen.cards [--check] [MODEL...]
It needs tflite-micro, which measures accuracy and the arena beside which ours stands, and the data sets' packages;
`--check` does without the latter and then leaves the accuracy out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen import oracle
from codegen.export import compile_file
from codegen.ir import shape_text
from codegen.program import Program, Settings
from gossamer.errors import GossamerError
from models import zoo

_BEGIN: Final = "<!-- measured: python -m codegen.cards -->"
_END: Final = "<!-- /measured -->"
_FLOAT_ACCURACY: Final = "accuracy, float"
_ACCURACY: Final = "accuracy, int8"
_ARENA: Final = "RAM: arena of the C code"
_CONSTANTS: Final = "flash: constants of the C code"
_INDEX: Final = Path(zoo.__file__).parents[1] / "README.md"


@dataclass(frozen=True)
class Card:
    """Hold the measured rows of one model, by what they say."""

    entry: zoo.Entry
    rows: Mapping[str, str]

    @property
    def text(self) -> str:
        """Write the section of the model's own card."""
        return _table(("", ""), self.rows.items())


def measure(entry: zoo.Entry, *, accuracy: bool = True) -> Card:
    """Measure one model; without `accuracy` that row is left out.

    Raises: GossamerError where the data's package or tflite-micro is missing; ModelError.
    """
    content = entry.tflite.read_bytes()
    program = compile_file(entry.tflite, Settings(name=entry.name))
    facts = json.loads(entry.facts.read_text("utf-8"))
    with np.load(entry.inputs) as stored:
        used = oracle.run(content, [[stored["x"][:1]]]).arena_bytes
    rows = {
        "input": f"{shape_text(entry.shape)}, {_affine(program)}",
        "classes": str(entry.classes),
        "operators": _operators(program),
        "parameters": f"{facts['parameters']:,}",
        _FLOAT_ACCURACY: _percent(facts["float_accuracy"], facts["test_samples"]),
        _ACCURACY: _percent(_accuracy(entry, program, content), facts["test_samples"]) if accuracy else "",
        _ARENA: f"{program.arena.peak_bytes:,} bytes",
        "RAM: input and output, the caller's": f"{_ends_bytes(program):,} bytes",
        "RAM: arena of tflite-micro, these included": f"{used:,} bytes",
        _CONSTANTS: f"{program.flash_bytes:,} bytes",
        "flash: the .tflite file": f"{len(content):,} bytes",
        "SHA-256": f"`{hashlib.sha256(content).hexdigest()}`",
        "made with": f"TensorFlow {facts['tensorflow']}, Keras {facts['keras']}",
    }
    return Card(entry, {name: row for name, row in rows.items() if row})


def _affine(program: Program) -> str:
    tensor = program.graph.inputs[0]
    return f"real = {tensor.scale:.9g} × (int8 {-tensor.zero_point:+d})"


def _ends_bytes(program: Program) -> int:
    return sum(tensor.bytes for tensor in (*program.graph.inputs, *program.graph.outputs))


def _operators(program: Program) -> str:
    counts = Counter(operator.kind for operator in program.graph.operators)
    return ", ".join(kind if count == 1 else f"{count} {kind}" for kind, count in counts.items())


def _percent(share: float | None, samples: int) -> str:
    return "none, the weights are random" if share is None else f"{100 * share:.1f} % of {samples:,} held back"


def _accuracy(entry: zoo.Entry, program: Program, content: bytes) -> float | None:
    """Return the share of test samples that tflite-micro gets right; None for random weights."""
    if not entry.epochs:
        return None
    samples = entry.samples()
    x = quantized(samples.test_x, program)
    answer = oracle.run(content, [[row[None]] for row in x])
    classes = np.array([np.argmax(outputs[0]) for outputs in answer.outputs])
    return float(np.mean(classes == samples.test_y))


def quantized(x: NDArray[np.float32], program: Program) -> NDArray[np.int8]:
    """Turn samples into what the model's first input takes."""
    tensor = program.graph.inputs[0]
    integers: NDArray[Any] = np.clip(np.rint(x / tensor.scale) + tensor.zero_point, -128, 127)
    return integers.astype(np.int8)


def index(cards: Sequence[Card]) -> str:
    """Write the table of all models."""
    names = (_FLOAT_ACCURACY, _ACCURACY, _ARENA, _CONSTANTS)
    rows = (
        (
            f"[{card.entry.name}](zoo/{card.entry.name}/README.md)",
            card.entry.title,
            *(re.split(" of |, ", card.rows[name])[0] for name in names),  # no reasons, no sample counts
        )
        for card in cards
    )
    return _table(("name", "model", _FLOAT_ACCURACY, "int8", "arena", "constants"), rows)


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def with_section(text: str, section: str, where: Path) -> str:
    """Return a card with its measured section replaced. Raises GossamerError if it has none."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise GossamerError("there is no place for what is measured", str(where), f"add {_BEGIN} and {_END}")
    return f"{before}{_BEGIN}\n{section}\n{_END}{after}"


def section(text: str) -> str:
    """Return the measured section of a card, without its markers."""
    return text.partition(_BEGIN)[2].partition(_END)[0].strip("\n")


def is_current(card: Card, section_: str) -> bool:
    """Tell whether a card's section says what was measured; a row that was not measured is not compared."""
    ours = card.text.splitlines()
    theirs = section_.splitlines()
    if _ACCURACY not in card.rows:
        theirs = [line for line in theirs if not line.startswith(f"| {_ACCURACY} |")]
    return ours == theirs


def main() -> None:
    """Write the cards, or with --check tell which are out of date and exit with 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    options = parser.parse_args()
    try:
        entries = [zoo.get(name) for name in options.models or zoo.names()]
        stale = _check(entries) if options.check else _write(entries)
    except GossamerError as error:
        sys.exit(f"error: {error}")
    if stale:
        sys.exit(f"out of date: {', '.join(stale)}; run python -m codegen.cards")


def _check(entries: Sequence[zoo.Entry]) -> list[str]:
    cards = [measure(entry, accuracy=False) for entry in entries]
    return [card.entry.name for card in cards if not is_current(card, section(card.entry.card.read_text("utf-8")))]


def _write(entries: Sequence[zoo.Entry]) -> list[str]:
    cards = [measure(entry) for entry in entries]
    for card in cards:
        path = card.entry.card
        path.write_text(with_section(path.read_text("utf-8"), card.text, path), "utf-8")
    if len(cards) == len(zoo.names()):
        _INDEX.write_text(with_section(_INDEX.read_text("utf-8"), index(cards), _INDEX), "utf-8")
    return []


if __name__ == "__main__":
    main()
