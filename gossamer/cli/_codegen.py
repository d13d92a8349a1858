"""Do `gossamer codegen`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.errors import GossamerError

if TYPE_CHECKING:
    from codegen.program import Program, Settings

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}


@dataclass(frozen=True)
class ModelRequest:
    """Hold what the command line asks for."""

    model: Path
    out: Path
    name: str
    weight_bits: int = 8
    ram_limit: str | None = None
    flash_limit: str | None = None
    psram: bool = False
    with_core: bool = False
    plan: Path | None = None
    data: Path | None = None
    check: bool = False
    layers: bool = False
    samples: int = 100


def export_model(request: ModelRequest) -> bool:
    """Export a .tflite file and print what it takes; return False when a check found a difference."""
    from codegen.accuracy import read_samples
    from codegen.export import export
    from codegen.program import Settings

    settings = Settings(
        name=request.name,
        weight_bits=request.weight_bits,
        ram_limit_bytes=_bytes(request.ram_limit, "--ram-limit"),
        flash_limit_bytes=_bytes(request.flash_limit, "--flash-limit"),
        psram=request.psram,
    )
    if request.psram and settings.ram_limit_bytes is None:
        raise GossamerError(
            "says how to split, not how much stays inside", "--psram", "add --ram-limit, the internal RAM to use"
        )
    if request.data is not None:
        if request.weight_bits == 8:
            raise GossamerError("tells what fewer bits cost", "--data", "add --weights 4, 2 or 1")
        read_samples(request.data)  # say what is wrong with it before anything is written
    program = export(request.model, request.out, settings, with_core=request.with_core)
    print_account(request.out, program)
    if request.plan is not None:
        _write_plan(request.plan, program)
    if request.weight_bits != 8:
        _print_accuracy(request, settings)
    if not request.check and not request.layers:
        return True
    return check_model(request.model, settings, request.samples, request.layers)


def export_experiment(experiment: Path, overrides: Sequence[str], out: Path) -> None:
    """Write an experiment as C."""
    from codegen.experiment import export_experiment as write
    from gossamer.cli._check import prepare

    for path in write(prepare(experiment, overrides), out):
        print(f"wrote {path}")


def print_operators() -> None:
    """Print the operators that can be exported."""
    from codegen.lower import only_in_islands, supported

    for kind in supported():
        print(kind)
    for kind in only_in_islands():
        print(f"{kind} (between DEQUANTIZE and QUANTIZE)")


def _bytes(text: str | None, option: str) -> int | None:
    """Read a number of bytes, such as 65536, 64k or 2M (of 1024)."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,12})\s*([kKmM]?)(?:i?[bB])?", text)
    if not found:
        raise GossamerError(f"{text!r} is no number of bytes", option, "write it as 65536, 64k or 2M")
    return int(found[1]) * _UNITS[found[2].lower()]


def print_account(folder: Path, program: Program) -> None:
    """Print what was written and what memory it takes."""
    name = program.settings.name
    print(f"wrote {folder / name}.c, {folder / name}.h")
    for label, plan in (("arena", program.arena), ("psram", program.psram)):
        if label == "psram" and not program.settings.psram:
            continue
        if plan.peak_bytes == plan.lower_bound_bytes:
            quality = "the least possible"
        elif plan.proved_optimal:
            quality = "proved to be the least possible"
        else:
            quality = f"at least {plan.lower_bound_bytes:,} are needed"
        print(f"{label:<10}{plan.peak_bytes:>11,} bytes; {quality}")
    print(f"{'constants':<10}{program.flash_bytes:>11,} bytes of flash, without code")


def _write_plan(path: Path, program: Program) -> None:
    from codegen.plan_page import program_page

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(program_page(program), "utf-8")
    print(f"wrote {path}")


def _print_accuracy(request: ModelRequest, settings: Settings) -> None:
    from codegen.accuracy import compare_bits

    for line in compare_bits(request.model, settings, request.data):
        print(line)


def check_model(model: Path, settings: Settings, samples: int = 100, layers: bool = False) -> bool:
    """Compare the C with tflite-micro, print the outcome and return whether it is equal."""
    from codegen.check import check

    outcome = check(model, settings, samples=samples, layers=layers)
    for line in outcome.lines:
        print(line)
    return outcome.equal
