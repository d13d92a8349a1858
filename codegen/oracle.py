"""Ask TensorFlow Lite Micro what a model computes: the judge of every bit.

It runs in a child process, for a model it does not like may end the process that asks.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import GossamerError

Array = NDArray[Any]
Inputs = Sequence[Sequence[Array]]
"""One sequence of arrays for each invocation, one array for each input of the model."""

_CHILD: Final = Path(__file__).with_name("_oracle_child.py")


class OracleError(GossamerError):
    """Report a model that tflite-micro did not run."""


@dataclass(frozen=True, eq=False)
class Answer:
    """Hold what tflite-micro computed, invocation by invocation."""

    outputs: list[list[Array]]
    arena_bytes: int  # used of its arena, all of its own structures included; exact for this build of it
    tensors: list[dict[int, Array]]  # by the index in the file, every operator's output; empty unless asked for


def run(model: bytes, inputs: Inputs, *, layers: bool = False) -> Answer:
    """Run a .tflite model on each set of inputs in turn; what is variable lives on from one to the next.

    `layers` asks for every tensor. Raises OracleError if tflite-micro refuses the model or dies of it.
    """
    (answer,) = run_many([(model, inputs)], layers=layers)
    if isinstance(answer, OracleError):
        raise answer
    return answer


def run_many(
    jobs: Sequence[tuple[bytes, Inputs]], *, layers: bool = False, timeout_s: float = 600
) -> list[Answer | OracleError]:
    """Run many models as `run` does, as few processes as can be; errors stand where answers would.

    `timeout_s` is for each process. Raises GossamerError if tflite-micro is not installed.
    """
    if importlib.util.find_spec("tflite_micro") is None:
        raise GossamerError(
            "tflite-micro, which tells what is right, is not installed", mend="pip install 'gossamer-twin[check]'"
        )
    with tempfile.TemporaryDirectory(prefix="gossamer-oracle-") as name:
        folder = Path(name)
        for number, (model, sets) in enumerate(jobs):
            _store(folder, number, model, sets)
        return _answers(folder, jobs, layers, timeout_s)


def _store(folder: Path, number: int, model: bytes, sets: Inputs) -> None:
    (folder / f"{number}.tflite").write_bytes(model)
    rows = {f"in_{position}": np.stack(values) for position, values in enumerate(zip(*sets, strict=True))}
    np.savez(folder / f"{number}.npz", **rows)  # type: ignore[arg-type]


def _answers(
    folder: Path, jobs: Sequence[tuple[bytes, Inputs]], layers: bool, timeout_s: float
) -> list[Answer | OracleError]:
    answers: list[Answer | OracleError] = []
    while len(answers) < len(jobs):
        end = _run_child(folder, range(len(answers), len(jobs)), layers, timeout_s)
        for number in range(len(answers), len(jobs)):
            found = _found(folder, number, len(jobs[number][1]))
            if found is None:  # the first without an answer is what the process died of
                answers.append(OracleError(f"tflite-micro {end}"))
                break
            answers.append(found)
    return answers


def _run_child(folder: Path, numbers: range, layers: bool, timeout_s: float) -> str:
    """Let a process answer these jobs; return how it ended."""
    # -P: the modules beside the script are no modules of the standard library.
    options = [sys.executable, "-P", str(_CHILD), str(folder), *(["layers"] if layers else []), "--"]
    try:
        ended = subprocess.run(
            [*options, *map(str, numbers)], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return f"did not end within {timeout_s:g} s"
    if ended.returncode > 0:
        raise GossamerError(f"the process of tflite-micro failed: {_last_line(ended.stderr)}")
    return f"died of signal {-ended.returncode}: {_last_line(ended.stderr)}"


def _last_line(text: bytes) -> str:
    return (text.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]


def _found(folder: Path, number: int, sets: int) -> Answer | OracleError | None:
    refused = folder / f"{number}.refused"
    if refused.exists():
        return OracleError(f"tflite-micro refuses the model: {refused.read_text('utf-8')}")
    answer = folder / f"{number}.answer.npz"
    if not answer.exists():
        return None
    with np.load(answer) as stored:
        found = dict(stored)
    outputs = [found[f"out_{position}"] for position in range(sum(name.startswith("out_") for name in found))]
    tensors = {int(name.removeprefix("tensor_")): rows for name, rows in found.items() if name.startswith("tensor_")}
    return Answer(
        [[rows[row] for rows in outputs] for row in range(sets)],
        int(found["arena_bytes"]),
        [{index: rows[row] for index, rows in tensors.items()} for row in range(sets)] if tensors else [],
    )
