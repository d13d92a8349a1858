"""Export a model to C: read, compile, write; the one way in for the command line and for other rooms."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from codegen.emit import emit
from codegen.ir import ModelError
from codegen.kernels import CORE, files_of, header_of
from codegen.program import Program, Settings, compile_graph
from codegen.read import read_model

_TAKEN = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    "main "
    # <name>.h would stand before these headers wherever its folder is searched first.
    "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic "
    "stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype".split()
)


def export(model: Path, folder: Path, settings: Settings, *, with_core: bool = False) -> Program:
    """Write `<name>.c` and `<name>.h` of a .tflite file into a folder, which is made if it is missing.

    `with_core` also writes the files of the firmware core that they need. Either all files are written or none.
    Raises ModelError.
    """
    program = compile_file(model, settings)
    files = {name: text.encode() for name, text in emit(program).items()}
    if with_core:
        headers = frozenset({CORE / "gs_q8.h", *(header_of(call.kernel) for call in program.calls)})
        files |= {path.name: path.read_bytes() for path in files_of(headers)}
    write_all(folder, files)
    return program


def compile_file(model: Path, settings: Settings) -> Program:
    """Compile a .tflite file, writing nothing. Raises ModelError."""
    check_name(settings.name)
    return compile_graph(read_model(model), settings, str(model))


def check_name(name: str) -> None:
    """Refuse a name that cannot begin C identifiers. Raises ModelError."""
    if name in _TAKEN or re.match("gs(_|$)", name):
        raise ModelError(f"{name!r} is taken by C or by the firmware core", "--name", "add a word, as in my_model")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name):
        raise ModelError(
            f"{name!r} cannot name functions in C",
            "--name",
            "take a lower-case letter, then at most 40 of a-z, 0-9 and _",
        )


def write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder so that each is whole or not there, and none is replaced before all are written."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".codegen-", dir=folder))
    try:
        for name, data in files.items():
            (partial / name).write_bytes(data)
        for name in files:
            os.replace(partial / name, folder / name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
