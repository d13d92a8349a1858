"""Offer Gossamer on the command line; `main` is the entry point.

Commands import what they need when they run: `gossamer --help` loads neither numpy nor pydantic.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Set
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gossamer import __version__

app = typer.Typer(
    name="gossamer",
    help="Decentralized learning on microcontrollers, the same bits in every place.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
experiment_app = typer.Typer(help="Look at experiment files.", rich_markup_mode=None)
app.add_typer(experiment_app, name="experiment")
models_app = typer.Typer(help="Use the zoo of small int8 models.", rich_markup_mode=None)
app.add_typer(models_app, name="models")
toolchain_app = typer.Typer(help="Install and find the ESP32-S3 compiler and the emulator.", rich_markup_mode=None)
app.add_typer(toolchain_app, name="toolchain")

ERROR_EXIT = 2
PARTED_EXIT = 1
INTERRUPTED_EXIT = 130


class Where(StrEnum):
    """Places to run an experiment."""

    SIM = "sim"
    HOST = "host"
    EMU = "emu"


class BuildTarget(StrEnum):
    """What firmware can be built for."""

    QEMU = "qemu"


class Compilers(StrEnum):
    """Where an Xtensa compiler may come from."""

    ESPRESSIF = "espressif"
    SYSTEM = "system"
    CACHE = "cache"


class Engine(StrEnum):
    """Engines of the simulator."""

    AUTO = "auto"
    NUMPY = "numpy"
    NATIVE = "native"


ExperimentFile = Annotated[Path, typer.Argument(metavar="EXPERIMENT.toml", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change an option, such as train.lr=0.1; may be repeated."),
]
Folders = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of recorded runs.", show_default=False)]


def _print_version(wanted: bool) -> None:
    if wanted:
        from gossamer.spec.constants import SPEC_VERSION, WIRE_VERSION

        print(f"gossamer {__version__} (spec {SPEC_VERSION}, wire {WIRE_VERSION})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the versions.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    experiment: ExperimentFile,
    on: Annotated[
        Where, typer.Option(help="Where the nodes run: simulated, as native firmware processes, or on emulated boards.")
    ] = Where.SIM,
    engine: Annotated[Engine, typer.Option(help="The simulator's engine; auto takes the fastest there is.")] = (
        Engine.AUTO
    ),
    set_: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the record [default: runs/<name>-<place>].", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads to use [default: all cores].", show_default=False)
    ] = None,
) -> None:
    """Run an experiment and record it."""
    from gossamer.cli._run import RunRequest, run_experiment

    request = RunRequest(experiment, tuple(set_ or ()), on.value, engine.value, out, resume, threads)
    if not run_experiment(request):
        raise typer.Exit(INTERRUPTED_EXIT)


@app.command()
def build(
    experiment: ExperimentFile,
    target: Annotated[BuildTarget, typer.Option(help="What to build for.")] = BuildTarget.QEMU,
    set_: Overrides = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Copy the program here.", show_default=False)
    ] = None,
    measure: Annotated[bool, typer.Option("--measure", help="Run a round, to see how much stack it takes.")] = False,
) -> None:
    """Build the firmware and tell what it and a node take of the board's memory."""
    from gossamer.cli._build import build_firmware

    build_firmware(experiment, set_ or [], out, measure)


@app.command()
def compare(
    runs: Folders,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the HTML report here.")] = None,
) -> None:
    """Tell where runs agree to the bit; exit with 1 when they part."""
    from gossamer.cli._compare import compare_runs

    if not compare_runs(runs, report):
        raise typer.Exit(PARTED_EXIT)


@app.command()
def report(
    runs: Folders,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write it [default: <first run>/report.html].", show_default=False),
    ] = None,
) -> None:
    """Write one self-contained HTML page about runs."""
    from gossamer.cli._compare import report_runs

    report_runs(runs, out)


@app.command()
def codegen(
    context: typer.Context,
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL.tflite|EXPERIMENT.toml", help="What to turn into C; by its ending.", show_default=False
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the C files.")] = Path("generated"),
    name: Annotated[str, typer.Option(help="Begins the names of files and functions.")] = "model",
    weights: Annotated[int, typer.Option(metavar="8|4|2|1", help="Bits of a weight; below 8 it is requantized.")] = 8,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz", help="Inputs x and labels y, to tell what fewer bits cost.", show_default=False
        ),
    ] = None,
    ram_limit: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Refuse a larger arena; 64k, 2M.", show_default=False)
    ] = None,
    flash_limit: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Refuse more bytes of constants.", show_default=False)
    ] = None,
    psram: Annotated[
        bool, typer.Option("--psram", help="Move tensors to a second arena until --ram-limit holds.")
    ] = False,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Draw the memory plan.", show_default=False)
    ] = None,
    with_core: Annotated[
        bool, typer.Option("--with-core", help="Also write the files of the firmware core that are needed.")
    ] = False,
    check_: Annotated[
        bool, typer.Option("--check", help="Run the C here and compare it with TensorFlow Lite Micro.")
    ] = False,
    layers: Annotated[
        bool, typer.Option("--layers", help="As --check, tensor by tensor: name the first that differs.")
    ] = False,
    samples: Annotated[int, typer.Option(min=1, max=100_000, help="Random inputs of --check.")] = 100,
    operators: Annotated[bool, typer.Option("--operators", help="List the operators there are, and exit.")] = False,
    set_: Overrides = None,
) -> None:
    """Turn an int8 TensorFlow Lite model, or an experiment, into C; exit with 1 when a check finds a difference."""
    from gossamer.cli import _codegen

    if operators:
        _codegen.print_operators()
        return
    if source is None:
        raise typer.BadParameter("name a .tflite model or an experiment's .toml")
    if weights not in (8, 4, 2, 1):
        raise typer.BadParameter("--weights is 8, 4, 2 or 1")
    is_experiment = source.suffix == ".toml"
    _refuse_given(
        context,
        context.params.keys() - {"source", "out", "set_"} if is_experiment else {"set_"},
        "a .tflite model" if is_experiment else "an experiment's .toml",
    )
    if is_experiment:
        _codegen.export_experiment(source, set_ or [], out)
        return
    request = _codegen.ModelRequest(
        source, out, name, weights, ram_limit, flash_limit, psram, with_core, plan, data, check_, layers, samples
    )
    if not _codegen.export_model(request):
        raise typer.Exit(PARTED_EXIT)


def _refuse_given(context: typer.Context, names: Set[str], what: str) -> None:
    """Refuse options that would be ignored. Raises BadParameter."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"{parameter.opts[0]} is for {what}")


@app.command("quantize-run")
def quantize_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a recorded run.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the files.")] = Path("generated"),
    name: Annotated[str, typer.Option(help="Begins the names of files and functions.")] = "model",
    node: Annotated[int, typer.Option(help="Whose weights, and whose data to calibrate with.")] = 0,
    check_: Annotated[
        bool, typer.Option("--check", help="Compare the C with TensorFlow Lite Micro on random inputs.")
    ] = False,
) -> None:
    """Turn what a node learned into an int8 model, as .tflite and as C."""
    from gossamer.cli._quantize import quantize_run as quantize

    if not quantize(run, out, name, node, check_):
        raise typer.Exit(PARTED_EXIT)


@experiment_app.command()
def check(experiment: ExperimentFile, set_: Overrides = None) -> None:
    """Check an experiment file and print it with every default written out."""
    from gossamer.cli._check import check_experiment

    check_experiment(experiment, set_ or [])


@experiment_app.command()
def size(experiment: ExperimentFile, set_: Overrides = None) -> None:
    """Print the memory that a node takes, part by part."""
    from gossamer.cli._check import print_size

    print_size(experiment, set_ or [])


ModelName = Annotated[str, typer.Argument(metavar="NAME", help="See `gossamer models list`.", show_default=False)]
ModelFolder = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where to write.")]


@models_app.command("list")
def list_() -> None:
    """List the models."""
    from gossamer.cli._models import list_models

    list_models()


@models_app.command()
def train(name: ModelName, out: ModelFolder = Path("build")) -> None:
    """Train a model again; needs TensorFlow."""
    from gossamer.cli._models import train_model

    train_model(name, out)


@models_app.command()
def quantize(name: ModelName, out: ModelFolder = Path("build")) -> None:
    """Turn what `train` wrote into an int8 .tflite file; needs TensorFlow."""
    from gossamer.cli._models import quantize_model

    quantize_model(name, out)


@models_app.command()
def export(
    name: ModelName,
    out: ModelFolder = Path("generated"),
    check_: Annotated[bool, typer.Option("--check", help="Compare the C with TensorFlow Lite Micro.")] = False,
) -> None:
    """Write a model as C."""
    from gossamer.cli._models import export_zoo_model

    if not export_zoo_model(name, out, check_):
        raise typer.Exit(PARTED_EXIT)


@toolchain_app.command()
def install(force: Annotated[bool, typer.Option("--force", help="Install again.")] = False) -> None:
    """Unpack the compiler and QEMU into the cache, from Debian's packages; needs no root."""
    from gossamer.cli._toolchain import install as install_tools

    install_tools(force)


@toolchain_app.command()
def status() -> None:
    """Tell which compilers and emulators there are."""
    from gossamer.cli._toolchain import print_status

    print_status()


@toolchain_app.command()
def path(prefer: Annotated[Compilers | None, typer.Option(help="Use this one.", show_default=False)] = None) -> None:
    """Print the compiler's path."""
    from gossamer.cli._toolchain import print_path

    print_path(prefer.value if prefer else None)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code; errors are one line each, without a traceback."""
    from gossamer.errors import GossamerError

    given = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the locale lacks must not end a run
    try:
        return app(given or ["--help"], standalone_mode=False) or 0
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context else ""
        return _fail(f"{error.format_message().rstrip('.')}{hint}")
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED_EXIT
    except GossamerError as error:
        return _fail(str(error))
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads on: say nothing
        return ERROR_EXIT
    except OSError as error:
        return _fail(": ".join(filter(None, (error.filename and str(error.filename), error.strerror or str(error)))))


def _fail(text: str) -> int:
    for line in text.splitlines():
        print(f"error: {line}", file=sys.stderr)
    return ERROR_EXIT
