"""Take vectors and strings out of a flatbuffer nobody has verified, at a cost bounded by the file's length."""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# What the flatbuffers package raises on an offset that leads out of the file, or to something else than it should.
# It reads through checked offsets only, so the harm of a bad one ends with the exception.
DAMAGE: Final = (struct.error, ValueError, TypeError, IndexError, OverflowError)

_SHARING = 4  # how often, on average, a sound file may use the same bytes


class FileError(Exception):
    """Say what is wrong with the file; the mend, if it is not to convert the model again."""

    def __init__(self, what: str, mend: str | None = None) -> None:
        self.what = what
        self.mend = mend
        super().__init__(what)


class Vectors:
    """Hold what may still be read: many offsets may lead to the same long vector."""

    def __init__(self, file_bytes: int) -> None:
        self._left_bytes = _SHARING * file_bytes

    def spend(self, count_bytes: int) -> None:
        """Account for bytes that are copied or walked through. Raises FileError."""
        self._left_bytes -= count_bytes
        if self._left_bytes < 0:
            raise FileError("its parts overlap")

    def array(self, table: Any, member: str) -> NDArray[Any]:
        """Return a vector of numbers as a view into the file; empty if it is left out."""
        if getattr(table, f"{member}IsNone")():
            return np.zeros(0, np.int8)
        found: NDArray[Any] = getattr(table, f"{member}AsNumpy")()
        return found

    def numbers(self, table: Any, member: str, most: int) -> list[int]:
        """Return a short vector of integers. Raises FileError."""
        found = self.array(table, member)
        if len(found) > most:
            raise FileError(f"a list ({member}) of {len(found)} numbers; at most {most} make sense")
        self.spend(found.nbytes)
        numbers: list[int] = found.tolist()
        return numbers

    def count(self, table: Any, member: str, most: int) -> int:
        """Return the length of a vector of tables. Raises FileError."""
        length: int = getattr(table, f"{member}Length")()
        if length > most:
            raise FileError(f"{length} {member}; at most {most} can be read")
        return length

    def text(self, raw: bytes | None, what: str) -> str:
        """Return a string that can stand in a message and in a C comment. Raises FileError."""
        self.spend(len(raw or b""))
        try:
            text = (raw or b"").decode("utf-8")
        except UnicodeDecodeError:
            raise FileError(f"{what} is no UTF-8") from None
        if not text.isprintable():
            raise FileError(f"{what} holds control characters: {text[:40]!r}")
        return text
