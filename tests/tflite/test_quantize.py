"""Trained networks in int8: near the floats they came from, and exactly what tflite-micro computes of the same file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from codegen import host, oracle
from codegen.accuracy import quantize
from codegen.check import random_inputs
from codegen.ir import ModelError
from codegen.program import compile_graph
from codegen.quantize import of_bytes, quantize_network
from codegen.write import write
from gossamer.cli import main
from gossamer.spec.constants import Init, LayerKind, Padding
from gossamer.spec.nn import Layer, Model, Network, Shape, forward

ROOT = Path(__file__).parents[2]
CONV = Layer(LayerKind.CONV, relu=True, outputs=8, kernel=(3, 3), stride=(1, 1), padding=Padding.SAME, groups=1)
LAYERS = (
    CONV,
    Layer(LayerKind.CONV, relu=True, outputs=16, kernel=(3, 3), stride=(2, 2), padding=Padding.SAME, groups=8),
    Layer(LayerKind.CONV, outputs=16, kernel=(1, 1), stride=(1, 1), padding=Padding.VALID, groups=1),
    Layer(LayerKind.ADD, relu=True, source=1),
    Layer(LayerKind.POOL_MAX, kernel=(2, 2), stride=(2, 2), padding=Padding.VALID),
    Layer(LayerKind.DROPOUT, rate24=1 << 22),
    Layer(LayerKind.CONV, outputs=16, kernel=(2, 2), stride=(1, 1), padding=Padding.VALID, groups=4),
    Layer(LayerKind.POOL_AVERAGE, kernel=(2, 2), stride=(1, 1), padding=Padding.SAME),
    Layer(LayerKind.FLATTEN),
    Layer(LayerKind.DENSE, outputs=5),
)


def network(layers: tuple[Layer, ...]) -> tuple[Network, np.ndarray]:
    model = Model(Shape(12, 12, 3), layers)
    initial, frozen = model.start(7, Init.GLOROT, np.zeros(0, np.float32))
    return Network(model, frozen), initial


def test_a_network_in_int8_is_near_its_floats() -> None:
    net, flat = network(LAYERS)
    samples = np.random.default_rng(0).random((64, net.model.input.numbers)).astype(np.float32)
    graph = quantize_network(net, flat, samples, "net")
    (model,) = host.build([compile_graph(graph)])
    exact = forward(net, flat[:, None], samples.T[:, :, None])[..., 0].T
    tensor, output = graph.inputs[0], graph.outputs[0]
    found = np.stack([model.invoke([quantize(row, tensor).reshape(tensor.shape)])[0][0] for row in samples])
    real = (found.astype(np.float32) - output.zero_point) * output.scale
    # Each of six layers with weights rounds weights and activations to about a part in 255 of their range.
    assert np.abs(real - exact).max() < 0.06 * np.ptp(exact)
    assert [operator.kind for operator in graph.operators] == [
        *("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D", "ADD", "MAX_POOL_2D", "CONV_2D", "AVERAGE_POOL_2D", "RESHAPE"),
        "FULLY_CONNECTED",
    ]


def test_the_judge_agrees_with_the_c() -> None:
    net, flat = network(LAYERS)
    graph = quantize_network(net, flat, np.eye(8, net.model.input.numbers, dtype=np.float32), "net")
    inputs = random_inputs(graph, 50)
    answer = oracle.run(write(graph), inputs)
    (model,) = host.build([compile_graph(graph)])
    for given, theirs in zip(inputs, answer.outputs, strict=True):
        assert model.invoke(given)[0].tobytes() == theirs[0].tobytes()


def test_bytes_are_taken_as_they_are() -> None:
    quantization = of_bytes(1 / 16, 0.0)
    assert quantization is not None and quantization.zero_point == -128
    assert of_bytes(0.5, -64.0).zero_point == 0  # type: ignore[union-attr]
    assert of_bytes(1.0, 0.25) is None and of_bytes(1.0, 300.0) is None and of_bytes(0.0, 0.0) is None


def test_a_layer_that_int8_has_not_is_named() -> None:
    net, flat = network((CONV, Layer(LayerKind.NORM, groups=2), *LAYERS[8:]))
    with pytest.raises(ModelError, match=r"layer 2 \(norm\) depends on each input's own mean, .*; train without it"):
        quantize_network(net, flat, np.zeros((1, 432), np.float32), "net")


@pytest.mark.parametrize("on", ["sim", "host"])
def test_a_run_becomes_a_model(tmp_path: Path, on: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether the place tells its weights or they are computed again, the same file comes out."""
    run, out = tmp_path / "run", tmp_path / "out"
    words = ["--set", "experiment.rounds=3", "--set", "experiment.nodes=6"]
    assert main(["run", str(ROOT / "examples/digits_gist.toml"), *words, "--on", on, "--out", str(run)]) == 0
    assert main(["quantize-run", str(run), "-o", str(out), "--name", "digits", "--node", "2", "--check"]) == 0
    said = capsys.readouterr().out
    assert "equal to tflite-micro: 100 inputs" in said and "int8 " in said
    assert ("computing 3 rounds again" in said) == (on == "host")
    assert {path.name for path in out.iterdir()} == {"digits.tflite", "digits.c", "digits.h"}
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-4])
    assert f"float {last['test_correct'] / last['test_count']:.2%}" in said  # node 2 of 6

    assert main(["quantize-run", str(run), "--node", "6"]) == 2
    assert "there is no node 6; choose one of 0 to 5" in capsys.readouterr().err
