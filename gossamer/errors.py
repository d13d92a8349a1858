"""Name what can go wrong; every error says what, where and the mend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gossamer.spec.constants import CORE_ERRORS


class GossamerError(Exception):
    """Report one problem as `where: what; mend`."""

    def __init__(self, what: str, where: str | None = None, mend: str | None = None) -> None:
        self.what = what
        self.where = where
        self.mend = mend
        super().__init__(what, where, mend)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.mend}" if self.mend else text


@dataclass(frozen=True, order=True)
class Problem:
    """Hold one thing wrong in an experiment: where (`file:line` or `--set`), the dotted key, what, and the mend."""

    where: str
    key: str
    what: str
    mend: str | None = None

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.where, self.key, self.what) if part)
        return f"{text}; {self.mend}" if self.mend else text


class ExperimentError(GossamerError):
    """Report everything that is wrong with an experiment, one problem a line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class RunError(GossamerError):
    """Report a run that cannot start, continue or be read."""


class NodeLostError(RunError):
    """Report nodes that take no further part in a run; the others could go on."""

    def __init__(self, nodes: Sequence[int], what: str, where: str | None = None, mend: str | None = None) -> None:
        self.nodes = tuple(nodes)
        super().__init__(what, where or f"node {', '.join(map(str, self.nodes))}", mend)


class CoreError(GossamerError):
    """Report an error of the firmware core, by its stable code (`CORE_ERRORS`).

    `said` are the words that came with it, which may tell more than the code's own text.
    """

    def __init__(self, code: int, where: str | None = None, mend: str | None = None, said: str = "") -> None:
        self.code = code
        self.name, self.text = _CORE_BY_CODE.get(code, (f"CODE_{code}", "an error code this version does not know"))
        more = said.removeprefix(self.text).lstrip(":; ")
        super().__init__(f"{self.name} ({code}): {self.text}" + (f": {more}" if more else ""), where, mend)


_CORE_BY_CODE = {code: (name, text) for name, (code, text) in CORE_ERRORS.items()}
