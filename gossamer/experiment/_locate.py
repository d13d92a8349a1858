"""Find the line of every key in a TOML text that `tomllib` has already accepted."""

from __future__ import annotations

import re
from bisect import bisect_right

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY_PART = re.compile(r"""[ \t]*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))[ \t]*""")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}' r"|'''(?:[^']|'{1,2}(?!'))*'{3,5}" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}\n#]*")


def locate(text: str) -> dict[Path, int]:
    """Map the path of every key, table and array element to its line (from 1)."""
    return _Locator(text).lines


def line_of(lines: dict[Path, int], path: Path) -> int:
    """Return the line of a path, or of the nearest thing around it."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Locator:
    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._text = text
        self._at = 0
        self._newlines = [place for place, letter in enumerate(text) if letter == "\n"]
        self._count: dict[Path, int] = {}  # elements seen of arrays of tables
        table: Path = ()
        while self._skip(_BLANK) < len(text):
            if text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at

    def _note(self, path: Path) -> None:
        self.lines.setdefault(path, bisect_right(self._newlines, self._at - 1) + 1)

    def _key(self) -> list[str]:
        parts = []
        while found := _KEY_PART.match(self._text, self._at):
            parts.append(next(part for part in found.groups() if part is not None))
            self._at = found.end()
            if self._text[self._at : self._at + 1] != ".":
                break
            self._at += 1
        return parts

    def _header(self) -> Path:
        many = self._text.startswith("[[", self._at)
        start = self._at
        self._at += 2 if many else 1
        path: Path = ()
        parts = self._key()
        self._at, end = start, self._at
        for part in parts:
            path += (part,)
            if path in self._count and not (many and len(path) == len(parts)):
                path += (self._count[path] - 1,)
            self._note(path)
        if many:
            self._count[path] = self._count.get(path, 0) + 1
            path += (self._count[path] - 1,)
            self._note(path)
        self._at = end + (2 if many else 1)
        return path

    def _pair(self, table: Path) -> None:
        start = self._at
        parts = self._key()
        self._at, end = start, self._at
        path = table
        for part in parts:
            path += (part,)
            self._note(path)
        self._at = end + 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _value(self, path: Path) -> None:
        self._note(path)
        match self._text[self._at : self._at + 1]:
            case "[":
                self._at += 1
                number = 0
                while not self._closes("]"):
                    self._value((*path, number))
                    number += 1
            case "{":
                self._at += 1
                while not self._closes("}"):
                    self._pair(path)
            case '"' | "'":
                self._skip(_STRING)
            case _:
                self._skip(_SCALAR)

    def _closes(self, bracket: str) -> bool:
        """Step over blanks and a comma; tell whether the array or table ends here."""
        self._skip(_BLANK)
        if self._text[self._at : self._at + 1] == ",":
            self._at += 1
            self._skip(_BLANK)
        if self._at >= len(self._text) or self._text[self._at] == bracket:
            self._at += 1
            return True
        return False
