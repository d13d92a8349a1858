"""Write one self-contained HTML page about runs: no network, no scripts but its own, light and dark."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gossamer.compare import compare
from gossamer.errors import RunError
from gossamer.record import Run
from gossamer.report._assets import COLORS
from gossamer.report._chart import ticks
from gossamer.report._page import document, page

__all__ = ["COLORS", "document", "render", "ticks", "write_report"]


def render(runs: Sequence[Run]) -> str:
    """Return the page; runs after the first are compared with it."""
    return page(runs, compare(runs))


def write_report(runs: Sequence[Run], path: Path) -> None:
    """Write the page, replacing an older one at once."""
    text = render(runs)
    new = path.with_name(path.name + ".new")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, "utf-8")
        os.replace(new, path)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        what = f"the report cannot be written: {error.strerror or error}"
        raise RunError(what, str(path), "name another file") from error
