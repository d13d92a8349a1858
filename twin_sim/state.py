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
        partial = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self._path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            mend = "whole rounds are safe: make room and continue with --resume"
            raise RunError(f"cannot be written: {error.strerror or error}", str(self._path), mend) from error

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
