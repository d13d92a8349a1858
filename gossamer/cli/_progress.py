"""Show how far a run is: a bar on a terminal, a line every tenth elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from gossamer.place import Row


class Progress(Protocol):
    """Follow a run; a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def advance(self, done: int, rows: Sequence[Row]) -> None:
        """Show that `done` rounds are committed, the last with `rows`."""
        ...


def progress_for(rounds: int, done: int) -> Progress:
    """Choose by what standard error is."""
    return BarProgress(rounds, done) if sys.stderr.isatty() else LineProgress(rounds, done)


class LineProgress:
    """Print about ten plain lines."""

    def __init__(self, rounds: int, done: int) -> None:
        self._rounds, self._first = rounds, done
        self._started_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def advance(self, done: int, rows: Sequence[Row]) -> None:
        """Print when another tenth is done, or all."""
        if done * 10 // self._rounds == (done - 1) * 10 // self._rounds:
            return
        rate = (done - self._first) / max(time.monotonic() - self._started_s, 1e-9)
        text = f"round {done}/{self._rounds}  {figures(rows)}  {rate:.3g} rounds/s"
        print(text, file=sys.stderr, flush=True)


class BarProgress:
    """Draw a bar with speed and time left."""

    def __init__(self, rounds: int, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=Console(stderr=True),
        )
        self._first, self._started_s = done, time.monotonic()
        self._task = self._bar.add_task("rounds", total=rounds, completed=done, rate="", figures="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, done: int, rows: Sequence[Row]) -> None:
        """Move the bar."""
        rate = (done - self._first) / max(time.monotonic() - self._started_s, 1e-9)
        self._bar.update(self._task, completed=done, rate=f"{rate:.3g} rounds/s", figures=figures(rows))


def figures(rows: Sequence[Row]) -> str:
    """Return mean loss and, if evaluated, accuracy of the nodes present."""
    losses = [row["train_loss"] for row in rows if row["present"] and math.isfinite(row["train_loss"])]
    scores = [row["test_correct"] / row["test_count"] for row in rows if row["test_count"]]
    loss = f"loss {sum(losses) / len(losses):.4f}" if losses else "loss -"
    return f"{loss}  accuracy {sum(scores) / len(scores):.4f}" if scores else loss
