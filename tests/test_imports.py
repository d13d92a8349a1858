"""Who may import whom; who may include what: read from the sources, nothing is run."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("gossamer", "models", "twin_sim", "twin_emu", "codegen")

# Part of the tree -> the parts of ours, and the packages of others, that it may import; the longest prefix decides.
RULES: dict[str, tuple[set[str], set[str]]] = {
    "gossamer.spec": ({"gossamer.spec"}, {"numpy"}),
    "gossamer": ({"gossamer"}, {"numpy", "pydantic", "cffi"}),
    "gossamer.cli": ({"gossamer", "models", "twin_sim", "twin_emu", "codegen"}, {"numpy", "typer", "rich"}),
    "models": ({"gossamer", "models"}, {"numpy"}),
    "models._tensorflow": ({"gossamer"}, {"tensorflow"}),
    "twin_sim": ({"gossamer", "models", "twin_sim"}, {"numpy"}),
    "twin_emu": ({"gossamer", "codegen", "twin_emu"}, {"numpy"}),
    "codegen": ({"gossamer", "models", "codegen"}, {"numpy", "mpmath", "tflite", "flatbuffers", "tflite_micro"}),
}
TOP = "gossamer.cli"  # nothing else builds on the command line
CORE_INCLUDES = {"<stdint.h>", "<stddef.h>", "<stdbool.h>", "<string.h>"}

SOURCES = sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))
CORE = sorted((ROOT / "firmware" / "core").glob("*.[ch]"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def inside(module: str, parts: Iterable[str]) -> list[str]:
    return [part for part in parts if module == part or module.startswith(f"{part}.")]


def imports(tree: ast.AST, path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of every import; `from a import b` may mean the module a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports in full"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def forbidden(path: Path, tree: ast.AST) -> list[str]:
    module = module_name(path)
    rule = max(inside(module, RULES), key=len)
    own, others = RULES[rule]
    found = []
    for line, name in imports(tree, path):
        top = name.split(".")[0]
        if top in OURS:
            allowed = bool(inside(name, own)) and (rule == TOP or not inside(name, {TOP}))
        else:
            allowed = top in others or top in sys.stdlib_module_names
        if not allowed and name != "gossamer.__version__":
            found.append(f"{path.relative_to(ROOT)}:{line}: {rule} must not import {name}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_imports(path: Path) -> None:
    assert forbidden(path, ast.parse(path.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("gossamer/spec/nn.py", "import gossamer.job"),
        ("gossamer/spec/nn.py", "from gossamer import errors"),
        ("gossamer/spec/nn.py", "def f():\n    import scipy"),
        ("gossamer/job.py", "import models"),
        ("gossamer/job.py", "from gossamer.cli import main"),
        ("gossamer/experiment/_load.py", "import twin_sim.host"),
        ("models/data.py", "import twin_sim"),
        ("twin_sim/host.py", "from gossamer.cli import _run"),
        ("twin_emu/process.py", "import twin_sim"),
        ("codegen/spec_headers.py", "import twin_sim"),
    ],
)
def test_a_wrong_import_is_found(file: str, source: str) -> None:
    assert len(forbidden(ROOT / file, ast.parse(source))) == 1


def test_the_command_line_imports_late() -> None:
    """`gossamer --help` must not wait for numpy: at the top of cli/__init__.py stand only typer and the version."""
    tree = ast.parse((ROOT / "gossamer" / "cli" / "__init__.py").read_text("utf-8"))
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {name for node in top for _, name in imports(node, ROOT)}
    assert {name for name in names if name.split(".")[0] not in sys.stdlib_module_names} == {
        "typer",
        "gossamer.__version__",
    }


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_core_includes(path: Path) -> None:
    """The core knows its own headers and four of the C library's."""
    included = re.findall(r"^[ \t]*#[ \t]*include[ \t]*(\S+)", path.read_text("utf-8"), re.MULTILINE)
    headers = {f'"{header.name}"' for header in CORE if header.suffix == ".h"}
    assert set(included) <= CORE_INCLUDES | headers


def test_there_is_something_to_check() -> None:
    assert len(SOURCES) > 20 and len(CORE) > 20
