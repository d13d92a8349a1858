"""Run models with tflite-micro, in a process that may die of it; `codegen.oracle` starts it as a script.

usage: _oracle_child.py FOLDER [layers] -- JOB...

Job n is `n.tflite` and `n.npz` (input k as `in_k`, one row a set); the answer is `n.answer.npz` or `n.refused`.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tflite
from tflite_micro.python.tflite_micro import runtime

# Only what a model touches costs memory; the second is for models that do not fit the first.
_ARENAS_BYTES = (1 << 26, 1 << 30)
_TOO_SMALL = re.compile("missing: |[Ff]ailed to (allocate|resize)|Too many buffers")
_ARENA_USED = re.compile(r"Arena allocation total (\d+) bytes")


def main(folder: Path, layers: bool, jobs: list[str]) -> None:
    """Answer the jobs in order."""
    for job in jobs:
        with np.load(folder / f"{job}.npz") as stored:
            inputs = [stored[f"in_{position}"] for position in range(len(stored.files))]
        try:
            answer = _answer((folder / f"{job}.tflite").read_bytes(), inputs, layers)
        except Exception as error:  # a damaged model ends in any of them
            (folder / f"{job}.refused").write_text(str(error) or type(error).__name__, "utf-8")
        else:
            written = folder / f"{job}.part.npz"
            np.savez(written, **answer)
            written.rename(folder / f"{job}.answer.npz")  # so that what is there is whole


def _answer(model: bytes, inputs: list[np.ndarray[Any, Any]], layers: bool) -> dict[str, Any]:
    interpreter = _interpreter(model, runtime.InterpreterConfig.kAllocationRecording)
    graph = tflite.Model.GetRootAs(model).Subgraphs(0)
    expected = graph.InputsLength()
    if len(inputs) != expected:
        raise ValueError(f"the model has {expected} inputs, {len(inputs)} are given")
    sets = len(inputs[0]) if inputs else 0
    outputs: list[list[Any]] = [[] for _ in range(graph.OutputsLength())]
    for row in range(sets):
        _invoke(interpreter, inputs, row)
        for position, values in enumerate(outputs):
            values.append(interpreter.get_output(position))
    with _stderr() as lines:
        interpreter.print_allocations()
    answer: dict[str, Any] = {f"out_{position}": np.array(values) for position, values in enumerate(outputs)}
    answer["arena_bytes"] = int(_ARENA_USED.findall("\n".join(lines))[-1])
    if layers:
        answer |= _layers(model, graph, inputs, sets)
    return answer


def _layers(model: bytes, graph: Any, inputs: list[np.ndarray[Any, Any]], sets: int) -> dict[str, Any]:
    interpreter = _interpreter(model, runtime.InterpreterConfig.kPreserveAllTensors)
    made = [graph.Operators(i).Outputs(k) for i in range(graph.OperatorsLength()) for k in range(_outputs(graph, i))]
    rows: dict[int, list[Any]] = {tensor: [] for tensor in made}
    for row in range(sets):
        _invoke(interpreter, inputs, row)
        for tensor, values in rows.items():
            values.append(np.array(interpreter.GetTensor(tensor, 0)["tensor_data"]))
    return {f"tensor_{tensor}": np.array(values) for tensor, values in rows.items()}


def _outputs(graph: Any, operator: int) -> int:
    count: int = graph.Operators(operator).OutputsLength()
    return count


def _invoke(interpreter: Any, inputs: list[np.ndarray[Any, Any]], row: int) -> None:
    for position, values in enumerate(inputs):
        interpreter.set_input(values[row], position)
    interpreter.invoke()


def _interpreter(model: bytes, config: Any) -> Any:
    for arena_bytes in _ARENAS_BYTES:
        lines: list[str] = []
        try:
            with _stderr() as lines:
                return runtime.Interpreter.from_bytes(model, arena_size=arena_bytes, intrepreter_config=config)
        except RuntimeError as error:
            reason = " / ".join([*lines, str(error)])  # only what it printed tells why
        if not _TOO_SMALL.search(reason):
            break
    raise RuntimeError(reason)


@contextmanager
def _stderr() -> Iterator[list[str]]:
    """Catch what native code writes to standard error; it is in the list afterwards."""
    lines: list[str] = []
    with tempfile.TemporaryFile() as caught:
        kept = os.dup(2)
        os.dup2(caught.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            caught.seek(0)
            lines += filter(None, caught.read().decode("utf-8", "replace").splitlines())


if __name__ == "__main__":
    split = sys.argv.index("--")
    main(Path(sys.argv[1]), "layers" in sys.argv[2:split], sys.argv[split + 1 :])
