"""Speak with an emulator about itself (QEMU's machine protocol, QMP)."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, Final

from gossamer.errors import RunError

TIMEOUT_S: Final = 60.0


class Monitor:
    """Give commands to one emulator; `where` names it in errors.

    Source: QEMU QMP Reference Manual, "qmp_capabilities" and "pmemsave".
    """

    def __init__(self, line: socket.socket, where: str) -> None:
        line.settimeout(TIMEOUT_S)
        self._line = line
        self._where = where
        self._answers = line.makefile("r", encoding="utf-8")
        self._greeted = False

    def save_memory(self, address: int, len_bytes: int, path: Path, timeout_s: float = TIMEOUT_S) -> None:
        """Write a piece of the emulated memory to a file. Raises RunError."""
        self._line.settimeout(timeout_s)
        if not self._greeted:
            self._ask("qmp_capabilities", {})
            self._greeted = True
        self._ask("pmemsave", {"val": address, "size": len_bytes, "filename": str(path.resolve())})

    def close(self) -> None:
        """Hang up."""
        self._answers.close()
        self._line.close()

    def _ask(self, command: str, arguments: dict[str, Any]) -> None:
        try:
            self._line.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
            for text in self._answers:
                answer = json.loads(text)
                if "error" in answer:
                    raise RunError(f"{command}: {answer['error'].get('desc')}", self._where)
                if "return" in answer:
                    return  # all else is the greeting, and events
        except (OSError, ValueError) as error:
            raise RunError(f"{command}: {error}", self._where) from error
        raise RunError(f"{command}: the emulator ended", self._where)
