"""Do `gossamer quantize-run`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer.cli._check import prepare
from gossamer.cli._codegen import check_model, print_account
from gossamer.errors import RunError
from gossamer.job import Job
from gossamer.record import Run, read_run


def quantize_run(folder: Path, out: Path, name: str, node: int, check: bool) -> bool:
    """Write a node's trained model as int8 .tflite and C; return False when a check found a difference."""
    from codegen.emit import emit
    from codegen.export import check_name, write_all
    from codegen.from_job import accuracies, graph_of
    from codegen.program import Settings, compile_graph
    from codegen.write import write

    check_name(name)
    run = read_run(folder)
    if not 0 <= node < run.nodes:
        raise RunError(f"there is no node {node}", str(folder), f"choose one of 0 to {run.nodes - 1}")
    if not run.rounds:
        raise RunError("no round was recorded", str(folder), "continue it with gossamer run --resume")
    job = prepare(folder / "experiment.toml", [])
    flat = last_weights(run, job)[:, node]
    graph = graph_of(job, flat, node, name)
    model = out / f"{name}.tflite"
    content = write(graph)
    settings = Settings(name=name)
    program = compile_graph(graph, settings, str(model))
    before, after = accuracies(job, flat, program)
    write_all(out, {model.name: content} | {file: text.encode() for file, text in emit(program).items()})
    print(f"wrote {model}")
    print_account(out, program)
    print(f"accuracy on {len(job.test_y):,} test samples: float {before:.2%}, int8 {after:.2%}")
    return not check or check_model(model, settings)


def last_weights(run: Run, job: Job) -> NDArray[np.float32]:
    """Return the weights [P, N] after the last recorded round.

    Where the place could not tell them (a process, a board) the simulator computes them again: the same bits, which
    the recorded CRCs prove. Raises RunError if they do not.
    """
    import twin_sim

    kept = run.weights()
    if kept is not None:
        return kept
    print(f"{run.folder}: computing {run.rounds} rounds again to learn the weights")
    with tempfile.TemporaryDirectory() as state:
        with twin_sim.open_place(job, "sim", "numpy", Path(state), None) as place:
            place.start(0)
            for number in range(run.rounds):
                place.round(number)
            weights = place.weights()
    if weights is None or not run.is_last(weights):
        raise RunError(
            "the simulator ends with other weights than were recorded", str(run.folder), "compare it with a run on sim"
        )
    return weights
