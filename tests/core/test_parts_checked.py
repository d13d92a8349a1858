"""Run the tests of the small modules again under the address and undefined-behaviour sanitizers of both compilers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
AGAIN = (
    "test_hashes.py",
    "test_rng_core.py",
    "test_math_core.py",
    "test_cobs_core.py",
    "test_index_core.py",
    "test_quant_core.py",
    "test_nn_core.py",
)
RUN_TIMES = {"gcc": "libasan.so", "clang": "libclang_rt.asan-x86_64.so"}


@pytest.mark.skipif("GOSSAMER_PARTS" in os.environ, reason="this is the run under the sanitizers")
@pytest.mark.parametrize("compiler", RUN_TIMES)
def test_no_sanitizer_objects(compiler: str) -> None:
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
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        *(str(HERE / name) for name in AGAIN),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parents[1], timeout=600)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
