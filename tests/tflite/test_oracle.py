"""The judge answers, and survives what its own process does not."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from tflite_micro.python.tflite_micro import runtime

from codegen import ir, oracle
from codegen.write import write
from gossamer.errors import GossamerError
from tests.tflite.single import int8, int32, of_operators, one_operator, random_inputs


def doubling() -> ir.Graph:
    """Make y = 2 x, saturating: the scale of y is half that of x."""
    return one_operator("QUANTIZE", [int8("x", (1, 4), 1.0)], int8("y", (1, 4), 0.5), ir.Options())


def deadly() -> ir.Graph:
    """Make a depthwise convolution whose bias is left out by number: tflite-micro follows a null pointer."""
    filters = int8("w", (1, 1, 1, 2), data=[1, 2], axis=3)
    return one_operator(
        "DEPTHWISE_CONV_2D", [int8("x", (1, 1, 1, 2)), filters, None], int8("y", (1, 1, 1, 2)), ir.ConvOptions()
    )


def integrator() -> ir.Graph:
    """Make a filter of one tap that is the input one step before: it has a state."""
    x, y = int8("x", (1, 1), 1.0), int8("y", (1, 1), 1.0)
    feature = int8("feature", (1, 1), 1.0, data=[1])
    time = ir.Tensor("time", (1, 2), ir.DType.INT16, x.quantization, np.array([[1, 0]], np.int16))
    state = ir.Tensor("state", (1, 2), ir.DType.INT16, x.quantization, variable=True)
    inputs: list[ir.Tensor | None] = [x, feature, time, int32("bias", [0], 1.0), state]
    return of_operators([ir.Operator("SVDF", inputs, [y], ir.SvdfOptions(activation=ir.Activation.RELU))], [y])


INPUT = [[np.array([[1, -2, 60, 100]], np.int8)]]
DOUBLED = [2, -4, 120, 127]


def test_outputs() -> None:
    answer = oracle.run(write(doubling()), INPUT * 2)
    assert [[output.tolist() for output in outputs] for outputs in answer.outputs] == [[[DOUBLED]], [[DOUBLED]]]
    assert answer.outputs[0][0].dtype == np.int8 and answer.tensors == []


def test_the_arena_is_what_tflite_micro_says(capfd: pytest.CaptureFixture[str]) -> None:
    model = write(doubling())
    answer = oracle.run(model, INPUT)
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=10_000)
    interpreter.set_input(INPUT[0][0], 0)
    interpreter.invoke()
    interpreter.print_allocations()
    assert f"Arena allocation total {answer.arena_bytes} bytes" in capfd.readouterr().err


def test_layers() -> None:
    x, hidden, y = int8("x", (1, 4), 1.0), int8("hidden", (1, 4), 0.5), int8("y", (1, 4), 0.5)
    graph = of_operators(
        [
            ir.Operator("QUANTIZE", [x], [hidden], ir.Options()),
            ir.Operator("RELU", [hidden], [y], ir.Options()),
        ],
        [y],
    )
    answer = oracle.run(write(graph), INPUT * 3, layers=True)
    assert [sorted(tensors) for tensors in answer.tensors] == [[1, 2]] * 3
    assert answer.tensors[2][1].tolist() == [DOUBLED]
    assert answer.tensors[2][2].tolist() == answer.outputs[2][0].tolist() == [[2, 0, 120, 127]]


def test_state_lives_from_one_set_to_the_next_and_no_longer() -> None:
    sets = [[np.array([[value]], np.int8)] for value in (5, 7, 9)]
    first, second = oracle.run_many([(write(integrator()), sets)] * 2)
    assert isinstance(first, oracle.Answer) and isinstance(second, oracle.Answer)
    found = [outputs[0].item() for outputs in first.outputs]
    assert found == [outputs[0].item() for outputs in second.outputs] == [0, 5, 7]


def test_a_model_that_kills_the_process_costs_only_its_own_answer() -> None:
    good, bad = (write(doubling()), INPUT), (write(deadly()), random_inputs(deadly(), 1))
    answers = oracle.run_many([good, bad, good, bad, bad, good])
    assert [type(answer) for answer in answers] == [
        oracle.Answer if letter == "g" else oracle.OracleError for letter in "gbgbbg"
    ]
    assert str(answers[1]).startswith("tflite-micro died of signal ")


@pytest.mark.parametrize(
    ("model", "sets", "message"),
    [
        (b"", INPUT, "tflite-micro refuses the model: "),
        (b"\0" * 1000, INPUT, "tflite-micro refuses the model: "),
        (write(doubling()), [[INPUT[0][0], INPUT[0][0]]], "the model has 1 inputs, 2 are given"),
        (write(doubling()), [[INPUT[0][0].reshape(4, 1)]], "tflite-micro refuses the model: Cannot set tensor"),
        (
            write(one_operator("RELU_N1_TO_1", [int8("x", (1, 4))], int8("y", (1, 4)), ir.Options())),
            INPUT,
            "Didn't find op for builtin opcode 'RELU_N1_TO_1'",
        ),
    ],
    ids=["empty", "zeros", "inputs", "shape", "operator"],
)
def test_refusals(model: bytes, sets: oracle.Inputs, message: str) -> None:
    with pytest.raises(oracle.OracleError) as caught:
        oracle.run(model, sets)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_large_model_gets_a_larger_arena() -> None:
    length = 70_000_000  # beyond the first arena
    x, large, y = int8("x", (1, 4)), int8("large", (1, length)), int8("y", (1, 4))
    pad = ir.Operator("PAD", [x, int32("amounts", [[0, 0], [length - 4, 0]])], [large])
    cut = ir.Operator("SLICE", [large, int32("begin", [0, length - 5]), int32("size", [1, 4])], [y])
    answer = oracle.run(write(of_operators([pad, cut], [y])), INPUT)
    assert answer.outputs[0][0].tolist() == [[0, 1, -2, 60]]
    assert length < answer.arena_bytes < length + 10_000


def test_it_says_how_to_get_tflite_micro(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(GossamerError, match=r"not installed; pip install 'gossamer-twin\[check\]'"):
        oracle.run(write(doubling()), INPUT)


def test_a_model_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    (answer,) = oracle.run_many([(write(doubling()), INPUT)], timeout_s=0.01)
    assert str(answer) == "tflite-micro did not end within 0.01 s"
