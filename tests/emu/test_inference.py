"""Generated C of int8 models on the processor that knows no unaligned word, against tflite-micro."""

from __future__ import annotations

import numpy as np
import pytest

from codegen import oracle
from codegen.export import compile_file
from codegen.program import Settings
from models import zoo
from twin_emu.inference import run_model

pytestmark = pytest.mark.usefixtures("chain")

QUICK = [("digits_cnn", 0), ("patterns_mobilenet", 1)]
ALL = [(name, offset) for name in zoo.names() for offset in (0, 1)]


@pytest.mark.parametrize(
    ("name", "offset"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in ALL if case not in QUICK)]
)
def test_the_same_bits_as_tflite_micro(name: str, offset: int) -> None:
    entry = zoo.get(name)
    inputs = np.load(entry.inputs)["x"][:3]
    judged = oracle.run(entry.tflite.read_bytes(), [[row[np.newaxis]] for row in inputs])
    found = run_model(compile_file(entry.tflite, Settings()), inputs, offset=offset)
    for mine, theirs in zip(found.outputs, judged.outputs, strict=True):
        np.testing.assert_array_equal(mine, theirs[0][0])
    assert found.instructions > inputs[0].size
