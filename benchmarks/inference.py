"""Compare the C code of every model of the zoo with tflite-micro's interpreter: time, instructions, RAM and flash.

Both run in one process on one thread, called from Python, and give the same bits. They take turns; the ratio is the
median over turns, so that it holds on a busy machine. The C code is compiled twice: for any processor of this kind,
as tflite-micro is, and for this one. Instructions are counted by callgrind, if valgrind is there, of the former.

Run: python benchmarks/inference.py [MODEL...]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tflite_micro.python.tflite_micro import runtime

from codegen import host, oracle
from codegen.export import compile_file
from codegen.program import Program, Settings
from gossamer.native import FAST, NATIVE, BuildError, shared_library
from models import zoo

TURNS, TURN_S = 25, 0.02
ANY = tuple(flag for flag in FAST if flag != NATIVE)
ARENA_BYTES = 1 << 20
CHILD = "GOSSAMER_BENCHMARK_CHILD"
COUNTER_C = """
#include <valgrind/callgrind.h>
void counter_start(void);
void counter_stop(const char *name);
void counter_start(void) { CALLGRIND_ZERO_STATS; CALLGRIND_START_INSTRUMENTATION; }
void counter_stop(const char *name) { CALLGRIND_STOP_INSTRUMENTATION; CALLGRIND_DUMP_STATS_AT(name); }
"""

_HEAD = [
    *("model", "C", "tflite-micro", "times faster", "for this processor"),
    *("instructions, C", "tflite-micro", "times fewer"),
    *("RAM, C (bytes)", "tflite-micro", "flash: constants, C (bytes)", ".tflite"),
]
Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """Hold what was measured of one model; instructions are 0 where they were not counted."""

    name: str
    ours_us: float
    theirs_us: float
    ratio: float
    ratio_native: float
    ours_instructions: int
    theirs_instructions: int
    ours_ram_bytes: int
    theirs_ram_bytes: int
    constants_bytes: int
    file_bytes: int

    def cells(self) -> list[str]:
        """Write the row as `_HEAD` says."""
        counts = self.ours_instructions, self.theirs_instructions
        counted = [f"{counts[0]:,}", f"{counts[1]:,}", f"{counts[1] / counts[0]:.1f}"] if all(counts) else ["–"] * 3
        return [
            self.name,
            *(f"{self.ours_us:.1f} µs", f"{self.theirs_us:.1f} µs", f"{self.ratio:.1f}", f"{self.ratio_native:.1f}"),
            *counted,
            *(f"{self.ours_ram_bytes:,}", f"{self.theirs_ram_bytes:,}"),
            *(f"{self.constants_bytes:,}", f"{self.file_bytes:,}"),
        ]


def compiled(names: Sequence[str], flags: Sequence[str]) -> dict[str, host.HostModel]:
    """Compile models of the zoo."""
    programs = [compile_file(zoo.get(name).tflite, Settings(name=name)) for name in names]
    return dict(zip(names, host.build(programs, flags), strict=True))


def first_input(name: str) -> Any:
    """Return the first test input, with a batch of 1."""
    with np.load(zoo.get(name).inputs) as stored:
        return stored["x"][:1]


def interpreter(name: str) -> Any:
    """Return tflite-micro's interpreter of a model, its input set."""
    found = runtime.Interpreter.from_bytes(zoo.get(name).tflite.read_bytes(), arena_size=ARENA_BYTES)
    found.set_input(first_input(name), 0)
    return found


def times(calls: Sequence[Call]) -> list[list[float]]:
    """Time calls that take turns; return the microseconds of each in every turn."""
    repeats = []
    for call in calls:
        call()
        start = time.perf_counter()
        call()
        repeats.append(max(1, int(TURN_S / (time.perf_counter() - start))))
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(TURNS):
        for call, count, durations in zip(calls, repeats, found, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                call()
            durations.append(1e6 * (time.perf_counter() - start) / count)
    return found


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """Return the median over turns of how many times longer theirs takes."""
    return statistics.median(a / b for a, b in zip(theirs, ours, strict=True))


def measure(names: Sequence[str]) -> list[Row]:
    """Measure models; refuse to time what gives other bits."""
    counts = counted(names)
    portable, native = compiled(names, ANY), compiled(names, FAST)
    rows = []
    for name in names:
        x, judge = first_input(name), interpreter(name)
        judge.invoke()
        if portable[name].invoke([x])[0].tobytes() != judge.get_output(0).tobytes():
            raise SystemExit(f"{name}: the C code and tflite-micro part")
        theirs, ours, ours_native = times([judge.invoke, portable[name].prepared([x]), native[name].prepared([x])])
        program = portable[name].program
        rows.append(
            Row(
                name,
                min(ours),
                min(theirs),
                ratio(theirs, ours),
                ratio(theirs, ours_native),
                *counts.get(name, (0, 0)),
                program.arena.peak_bytes + ends_bytes(program),
                oracle.run(zoo.get(name).tflite.read_bytes(), [[x]]).arena_bytes,
                program.flash_bytes,
                zoo.get(name).tflite.stat().st_size,
            )
        )
    return rows


def ends_bytes(program: Program) -> int:
    """Count inputs and outputs, which tflite-micro keeps in its arena and the C code leaves to the caller."""
    return sum(tensor.bytes for tensor in (*program.graph.inputs, *program.graph.outputs))


def counted(names: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    """Return (ours, theirs) instructions of one call by name; nothing, with the reason said, without callgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("valgrind is missing: instructions are not counted", file=sys.stderr)
        return {}
    with tempfile.TemporaryDirectory() as folder:
        tool = ["--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out"]
        child = [sys.executable, __file__, *names]
        done = subprocess.run(
            [valgrind, *tool, *child], env=os.environ | {CHILD: folder}, capture_output=True, text=True
        )
        if done.returncode:
            print(f"callgrind failed: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            return {}
        dumps = [path.read_text() for path in Path(folder).glob("out.*")]
    totals = {}
    for dump in dumps:
        trigger = re.search(r"^desc: Trigger: Client Request: (\S+)$", dump, re.MULTILINE)
        if trigger:
            totals[trigger[1]] = sum(map(int, re.findall(r"^totals: (\d+)", dump, re.MULTILINE)))
    return {name: (totals[f"{name}/ours"], totals[f"{name}/theirs"]) for name in names}


def count(names: Sequence[str]) -> None:
    """Run every model once on both sides, each between two marks for callgrind."""
    source = Path(os.environ[CHILD]) / "counter.c"
    source.write_text(COUNTER_C, "utf-8")
    ffi, marks = shared_library("counter", [source], "void counter_start(void); void counter_stop(const char *);", ANY)
    start, stop = marks.counter_start, marks.counter_stop  # looked up here, not while counting
    models = compiled(names, ANY)
    for name in names:
        calls: dict[str, Call] = {
            "ours": models[name].prepared([first_input(name)]),
            "theirs": interpreter(name).invoke,
        }
        for side, call in calls.items():
            call()
            mark = ffi.new("char[]", f"{name}/{side}".encode())
            start()
            call()
            stop(mark)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    names = [zoo.get(name).name for name in parser.parse_args().models or zoo.names()]
    if CHILD in os.environ:
        try:
            count(names)
        except BuildError as error:
            sys.exit(str(error))
        return
    rows = measure(names)
    for cells in (_HEAD, ["---"] * len(_HEAD), *(row.cells() for row in rows)):
        print(f"| {' | '.join(cells)} |")
    ratios = [row.ratio for row in rows]
    print(f"\nMedian {statistics.median(ratios):.1f} times faster, least {min(ratios):.1f}.")


if __name__ == "__main__":
    main()
