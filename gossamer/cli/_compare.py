"""Do `gossamer compare` and `gossamer report`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gossamer.compare import Comparison, compare, mean
from gossamer.errors import RunError
from gossamer.record import Run, read_run
from gossamer.report import write_report

_KEYS_SHOWN = 12
_DIFFERENCES_SHOWN = 4


def compare_runs(folders: Sequence[Path], report: Path | None) -> bool:
    """Print a table and where each run parts from the first; return whether all agree."""
    if len(folders) < 2:
        raise RunError("one run cannot be compared", str(folders[0]), "name two or more")
    runs = [read_run(folder) for folder in folders]
    comparisons = compare(runs)
    print(figures_table(runs, comparisons))
    for comparison in comparisons:
        print()
        print("\n".join(describe(comparison)))
    if report is not None:
        write_report(runs, report)
    again = f"gossamer report {' '.join(map(str, folders))}"
    print(f"\nreport: {report if report is not None else f'write it with `{again}`'}")
    return all(comparison.agrees for comparison in comparisons)


def report_runs(folders: Sequence[Path], out: Path | None) -> None:
    """Write the HTML report and print its path."""
    runs = [read_run(folder) for folder in folders]
    path = out or folders[0] / "report.html"
    write_report(runs, path)
    print(f"report: {path}")


def figures_table(runs: Sequence[Run], comparisons: Sequence[Comparison]) -> str:
    """Return the table of final figures, aligned for a terminal."""
    rows = [["run", "place", "rounds", "equal", "accuracy (min .. max)", "bytes sent", "seconds"]]
    for number, run in enumerate(runs):
        equal = f"{comparisons[number - 1].equal_rounds} of {comparisons[number - 1].rounds}" if number else "-"
        rounds = f"{run.rounds}/{run.experiment.experiment.rounds}"
        seconds = f"{run.info['seconds']:.1f}"
        rows.append([str(run.folder), run.place, rounds, equal, accuracy_text(run), f"{run.bytes_sent:,}", seconds])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = {2, 3, 5, 6}
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def accuracy_text(run: Run) -> str:
    """Return mean and range of the final accuracy over the nodes."""
    final = run.final_accuracy
    average = mean(final)
    if math.isnan(average):
        return "not measured"
    return f"{average:.4f} ({np.nanmin(final):.4f} .. {np.nanmax(final):.4f})"


def describe(comparison: Comparison) -> list[str]:
    """Say in lines how a run relates to the first."""
    first, second = comparison.first.folder, comparison.second.folder
    lines = []
    if comparison.agrees:
        lines.append(
            f"{first} = {second}: the same bits in every weight of all {comparison.second.nodes} nodes "
            f"after each of {comparison.rounds} rounds"
        )
        if comparison.first.rounds != comparison.second.rounds:
            lines.append(f"  one is longer: {comparison.first.rounds} and {comparison.second.rounds} rounds")
    elif comparison.parting is None:
        lines.append(f"{first} and {second} have no round, or not the same nodes and layers, to compare")
    else:
        after = f"after {comparison.equal_rounds} equal rounds"
        lines.append(f"{first} and {second} part {after}: {comparison.parting}")
        lines.append(f"  final accuracy {comparison.accuracy_difference:+.4f}, bytes {comparison.bytes_difference:+,}")
    if comparison.keys:
        lines.append("  the experiments differ:")
        shown = list(comparison.keys.items())[:_KEYS_SHOWN]
        lines += [f"    {key}: {_shown(a)} and {_shown(b)}" for key, (a, b) in shown]
    elif comparison.differences:
        more = len(comparison.differences) - _DIFFERENCES_SHOWN
        lines.append("  other figures part too:" if comparison.parting else "  other figures differ:")
        lines += [f"    {difference}" for difference in comparison.differences[:_DIFFERENCES_SHOWN]]
        lines += [f"    and {more} more"] if more > 0 else []
    return lines


def _shown(value: object) -> str:
    text = "absent" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
