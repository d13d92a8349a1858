"""Do `gossamer build`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from gossamer.cli._check import prepare


def build_firmware(experiment: Path, overrides: Sequence[str], out: Path | None, measure: bool) -> None:
    """Build the firmware for the emulator and print what it and a node of the experiment take of the board."""
    from twin_emu.sizes import sizes

    found = sizes(prepare(experiment, overrides), measure=measure)
    image = found.image
    rows = [
        ("text", image.text_bytes, "code"),
        ("constants", image.constant_bytes, "constants"),
        ("experiment image", found.experiment, "experiment"),
        ("data", image.data_bytes, ""),
        ("bss", image.bss_bytes, ""),
        ("stack", image.stack_bytes, ""),
        ("line", found.line, ""),
        ("arena", found.arena, ""),
        ("data memory in all", found.ram, "data"),
    ]
    for name, size_bytes, memory in rows:
        of = f"of {found.limit(memory):>9,}" if memory else ""
        if name == "stack" and found.stack_used is not None:
            of = f"   {found.stack_used:>9,} used at most in a round"
        print(f"{name:<20} {size_bytes:>9,} {of}".rstrip())
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        print(shutil.copy2(image.elf, out / "gossamer-node.elf"))
