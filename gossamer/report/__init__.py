"""Write one self-contained HTML page about runs: no network, no scripts but its own, light and dark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gossamer.compare import compare
from gossamer.record import Run
from gossamer.report._page import page

__all__ = ["render", "write_report"]


def render(runs: Sequence[Run]) -> str:
    """Return the page; runs after the first are compared with it."""
    return page(runs, compare(runs))


def write_report(runs: Sequence[Run], path: Path) -> None:
    """Write the page, replacing an older one at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(render(runs), "utf-8")
    os.replace(new, path)
