"""Keep named arrays in a file that is always whole."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import RunError


class StateFile:
    """Hold the state of a run; a cut at any moment leaves the old file or the new one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(".tmp")
        with partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)

    def load(self) -> dict[str, NDArray[Any]] | None:
        """Return the arrays, None where nothing was saved. Raises RunError for a damaged file."""
        try:
            with self._path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except FileNotFoundError:
            return None
        except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
            raise RunError(
                f"the saved state cannot be read: {error}", str(self._path), "delete it; --resume then starts anew"
            ) from error
