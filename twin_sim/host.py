"""Run one process a node: the firmware core as on a board, its UART a socket."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from gossamer.link.line_place import LinePlace
from gossamer.link.lines import Line, NodeLog
from gossamer.link.processes import Program, start_process
from gossamer.native import FIRMWARE, core_sources, executable
from gossamer.place import Row


@cache
def node_program() -> Path:
    """Build (once a machine) the node as a program."""
    return executable("gossamer-node", [*core_sources(), FIRMWARE / "port" / "host" / "main.c"])


class HostPlace(LinePlace):
    """Run every node as a process of its own; checkpoints are files (`gossamer.place.Place`)."""

    @property
    def facts(self) -> dict[str, Any]:
        """Describe the nodes."""
        return {"engine": "host", "arena_bytes": self.arena_bytes, "program": node_program().name}

    def open_line(self, node: int, log: NodeLog) -> Line:
        """Start a node; the run key comes over the line, so that no other process can see it."""

        def program(line: int) -> Program:
            return Program([node_program(), str(node), self._image, str(line), self._state], greeting=self._key)

        return start_process(node, program, log, int(self._job.config["mtu"]))

    def round(self, r: int) -> list[Row]:
        """Run one round; the nodes keep it themselves."""
        rows = super().round(r)
        self.keep()
        return rows

    def forget(self) -> None:
        """Remove the checkpoints of an older run."""
        for old in self._state.glob("node-*"):
            old.unlink()

    def save(self) -> None:
        """Do nothing: every committed round is already on disk."""
