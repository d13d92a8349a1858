"""Tell how much of the board's memory an experiment takes, from nodes that were started."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gossamer.job import Job
from gossamer.spec.wire import cobs_bytes_max
from gossamer.toolchain import Image
from twin_emu.firmware import node_image
from twin_emu.process import EmuPlace

_STACK: Final = re.compile(r"stack: (\d+) of \d+ bytes used")


@dataclass(frozen=True)
class Sizes:
    """Hold what the firmware and one node take, in bytes.

    `line` are the buffers of the serial line; `stack_used` is None where it was not measured.
    """

    image: Image
    experiment: int
    line: int
    arena: int
    stack_used: int | None

    @property
    def ram(self) -> int:
        """Add up what is in data memory."""
        return self.image.data_bytes + self.image.bss_bytes + self.image.stack_bytes + self.line + self.arena

    def limit(self, memory: str) -> int:
        """Return the bytes that there are of `code`, `data`, `constants` or `experiment`."""
        return self.image.symbols[f"gs_{memory}_bytes"][0]


def sizes(job: Job, *, measure: bool) -> Sizes:
    """Start the nodes; with `measure` let them run a round, to see how much stack they use.

    Raises CoreError for an experiment that does not fit the board, RunError, ToolchainError.
    """
    with tempfile.TemporaryDirectory(prefix="gossamer-") as folder:
        with EmuPlace(job, Path(folder)) as place:
            place.start(0)
            arena, lines = place.arena_bytes, place.lines
            if measure:
                place.round(0)
        words = [text for line in lines for text in line.log.words()]
    mtu = int(job.config["mtu"])
    line = (mtu + 7) // 8 * 8 + (cobs_bytes_max(mtu) + 1 + 7) // 8 * 8
    stack_used = max(_stacks(words), default=None) if measure else None
    return Sizes(node_image(), len(job.image), line, arena, stack_used)


def _stacks(words: Iterable[str]) -> list[int]:
    return [int(found[1]) for line in words if (found := _STACK.search(line))]
