"""Do `gossamer toolchain`."""

from __future__ import annotations

import time


def install(force: bool) -> None:
    """Install the compiler and the emulator into the cache."""
    from gossamer import toolchain

    started_s = time.monotonic()
    folder = toolchain.install(force=force)
    print(f"{folder} is complete ({time.monotonic() - started_s:.0f} s)")


def print_status() -> None:
    """Print what there is."""
    from gossamer import toolchain

    for what, found in toolchain.status():
        print(f"{what:<22} {found}")


def print_path(prefer: str | None) -> None:
    """Print the compiler that would be used."""
    from gossamer import toolchain

    print(toolchain.find(toolchain.Source(prefer) if prefer else None).tool("gcc"))
