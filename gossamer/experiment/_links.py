"""Read a file of links: two node ids a line, `#` starts a comment."""

from __future__ import annotations

from pathlib import Path

from gossamer.errors import Problem


def read_links(path: Path, nodes: int, shown: str) -> tuple[tuple[tuple[int, int], ...], list[Problem]]:
    """Return the links and what is wrong with the file, by line."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a UTF-8 text"
        return (), [Problem(shown, "", f"cannot be read: {reason}", "topology.path is relative to the experiment")]
    links: dict[tuple[int, int], int] = {}
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        if problem := _wrong(words, nodes) or _seen(words, links):
            problems.append(Problem(f"{shown}:{number}", "", problem, f"write two node ids, 0 .. {nodes - 1}"))
            continue
        links[_ends(words)] = number
    return tuple(links), problems


def _ends(words: list[str]) -> tuple[int, int]:
    a, b = map(int, words)
    return min(a, b), max(a, b)


def _wrong(words: list[str], nodes: int) -> str | None:
    if len(words) != 2 or not all(word.isdecimal() and word.isascii() for word in words):
        return f"{' '.join(words)!r} is not a link"
    a, b = map(int, words)
    if a == b:
        return f"node {a} is linked to itself"
    return f"there is no node {max(a, b)}" if max(a, b) >= nodes else None


def _seen(words: list[str], links: dict[tuple[int, int], int]) -> str | None:
    ends = _ends(words)
    return f"the link {ends[0]} {ends[1]} stands on line {links[ends]} already" if ends in links else None
