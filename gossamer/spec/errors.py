"""Name what can be wrong with bytes from outside."""

from __future__ import annotations


class MalformedError(ValueError):
    """Say why bytes are not what any encoder of this version writes (SPEC.md 9.5, 10)."""


class FrameError(ValueError):
    """Carry why a frame is dropped: one of the reasons of SPEC.md 9.5, which METRICS count as `dropped_...`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
