"""The core's tests once more, with the address and undefined-behaviour sanitizers of gcc and of clang watching."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = ("config", "model_core", "units_core", "wire_core", "policy_core", "node", "node_cnn", "node_fuzz")
RUNTIME = {"gcc": "libasan.so", "clang": "libclang_rt.asan-x86_64.so"}


@pytest.mark.parametrize("compiler", RUNTIME)
def test_no_sanitizer_complains(compiler: str) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    asked = [compiler, f"-print-file-name={RUNTIME[compiler]}"]
    runtime = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(runtime).is_file():
        pytest.skip(f"{compiler} has no {RUNTIME[compiler]} for this machine")
    files = [str(HERE / f"test_{name}.py") for name in FILES]
    environment = os.environ | {
        "GOSSAMER_PROBE": compiler,
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    options = ["-q", "-x", "-p", "no:cacheprovider", "-k", "not 64_kib"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
