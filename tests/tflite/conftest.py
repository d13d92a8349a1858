"""Count what is compared with tflite-micro, and say so at the end of the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest


@dataclass
class Compared:
    """Count models and elements, by what they are part of."""

    models: Counter[str] = field(default_factory=Counter)
    elements: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, models: int, elements: int) -> None:
        self.models[what] += models
        self.elements[what] += elements


_KEY = pytest.StashKey[Compared]()


@pytest.fixture(scope="session")
def compared(pytestconfig: pytest.Config) -> Compared:
    return pytestconfig.stash.setdefault(_KEY, Compared())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    found = config.stash.get(_KEY, Compared())
    for what, models in found.models.items():
        terminalreporter.write_line(
            f"compared with tflite-micro, {what}: {models:,} models, {found.elements[what]:,} elements"
        )
