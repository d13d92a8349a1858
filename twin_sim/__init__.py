"""Run experiments on this machine: the simulator's engines, and one process a node."""

from __future__ import annotations

from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.job import Job
from gossamer.place import Place, Tell, tell_nobody

__all__ = ["open_place"]


def open_place(
    job: Job, where: str, engine: str, run_dir: Path, threads: int | None = None, tell: Tell = tell_nobody
) -> Place:
    """Return the place to run a job in; what it keeps goes to `run_dir`/state.

    `where` is `sim` (engine `numpy` or `native`) or `host`; `threads` defaults to the cores; `tell` hears of
    faults.
    """
    # Imported here: the native engine and the host need a C compiler, the numpy engine must not.
    if where == "host":
        from twin_sim.host import HostPlace

        return HostPlace(job, run_dir, tell=tell)
    if where == "sim" and engine == "native":
        from twin_sim.native import NativePlace

        return NativePlace(job, run_dir, threads)
    if where == "sim" and engine == "numpy":
        from twin_sim.lockstep import LockstepPlace

        return LockstepPlace(job, run_dir, threads)
    mend = "sim has the engines numpy and native; host has one"
    raise GossamerError(f"no place {where!r} with engine {engine!r}", None, mend)
