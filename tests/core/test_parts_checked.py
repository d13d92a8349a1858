"""Run the tests of the small modules again under the address and undefined-behaviour sanitizers of both compilers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif("GOSSAMER_PARTS" in os.environ, reason="this is the run under the sanitizers")

HERE = Path(__file__).parent
AGAIN = ("hashes", "rng_core", "math_core", "cobs_core", "index_core", "quant_core", "nn_core")
RUN_TIMES = {"gcc": "libasan.so", "clang": "libclang_rt.asan-x86_64.so"}
TOO_SMALL = """
from tests.core.parts import load
parts = load("{}-checked")
parts.lib.gs_cobs_encode(b"abc", 3, parts.room(4))
"""


def run_checked(compiler: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the sanitizer's run time, or skip where there is none."""
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler} here")
    found = subprocess.run([compiler, f"-print-file-name={RUN_TIMES[compiler]}"], capture_output=True, text=True)
    run_time = found.stdout.strip()
    if not os.path.isabs(run_time):
        pytest.skip(f"{compiler} has no {RUN_TIMES[compiler]} here")
    environment = os.environ | {
        "GOSSAMER_PARTS": f"{compiler}-checked",
        "LD_PRELOAD": run_time,
        "PYTHONMALLOC": "malloc",  # or the sanitizer cannot see where an array ends
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's own
    }
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parents[1], timeout=600)


@pytest.mark.parametrize("compiler", RUN_TIMES)
def test_no_sanitizer_objects(compiler: str) -> None:
    files = [str(HERE / f"test_{name}.py") for name in AGAIN]
    done = run_checked(compiler, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.mark.parametrize("compiler", RUN_TIMES)
def test_the_sanitizer_sees_a_step_outside(compiler: str) -> None:
    done = run_checked(compiler, "-c", TOO_SMALL.format(compiler))
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
