"""Do what docs/adding-a-policy.md says, in a copy of the project: its example must run, equal in all places."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer import native

ROOT = Path(__file__).parents[1]
PARTS = ("gossamer", "codegen", "models", "twin_sim", "firmware", "tests", "pyproject.toml")


def insert(path: Path, before: str, text: str) -> None:
    content = path.read_text("utf-8")
    assert content.count(before) >= 1, f"{path}: {before!r} is gone; mend docs/adding-a-policy.md and this test"
    path.write_text(content.replace(before, text + before, 1), "utf-8")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *arguments], cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(not native.available(), reason="no C compiler")
def test_the_example_of_the_page_works(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "adding-a-policy.md").read_text("utf-8")
    number, section, policy, core = re.findall(r"```(?:python|c)\n(.*?)```", page, re.DOTALL)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path)

    spec = tmp_path / "gossamer" / "spec"
    member = re.search(r"\n( +ONE_PEER = \d+\n)", number)
    assert member
    insert(spec / "constants.py", "    LOCAL = 7\n", member[1])
    insert(tmp_path / "gossamer" / "experiment" / "_sections.py", "PolicySection = ", section + "\n\n")
    insert(tmp_path / "gossamer" / "experiment" / "_sections.py", "    | LocalPolicy,\n", "    | OnePeerPolicy\n")
    insert(spec / "policies.py", "POLICIES: dict", policy + "\n\n")
    insert(spec / "policies.py", "    PolicyKind.LOCAL: Local,\n", "    PolicyKind.ONE_PEER: OnePeer,\n")
    function, row = core.rsplit("\n\n", 1)
    insert(tmp_path / "firmware" / "core" / "gs_policy.c", "static const gs_policy_t policies[]", function + "\n\n")
    insert(tmp_path / "firmware" / "core" / "gs_policy.c", "    [GS_POLICY_LOCAL] =", row)
    config = tmp_path / "firmware" / "core" / "gs_config.c"
    greatest = "{GS_CFG_POLICY, 0, GS_POLICY_LOCAL}"
    assert greatest in config.read_text("utf-8")
    config.write_text(config.read_text("utf-8").replace(greatest, greatest.replace("LOCAL", "ONE_PEER")), "utf-8")
    draws = tmp_path / "tests" / "conformance" / "random_experiments.py"
    insert(draws, '"local")', '"one_peer", ')
    insert(draws, '        "local": {},\n', '        "one_peer": {},\n')

    assert run(tmp_path, "codegen.spec_headers").returncode == 0
    conformance = run(tmp_path, "pytest", "-q", "tests/conformance", "-k", "test_every_policy_small and one_peer")
    assert "1 passed" in conformance.stdout, conformance.stdout + conformance.stderr
