"""Models of tables, optimizers and sparse updates in an experiment file: what is read, and how a mistake is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import models
from gossamer.errors import ExperimentError
from gossamer.experiment import load_experiment
from gossamer.spec.constants import Init, LayerKind, Optimizer, Padding
from gossamer.spec.image import parse_image
from gossamer.spec.nn import Layer, Shape
from tests.conformance.random_experiments import random_cnn_experiment, to_toml

EXAMPLE = Path(__file__).parent.parent / "examples" / "digits_cnn.toml"

TEXT = """\
[experiment]
name = "small"
seed = 7
nodes = 4
rounds = 3
[data]
set = "digits"
[model]
input = [8, 8, 1]
layers = [
    { kind = "conv", name = "stem", filters = 4, kernel = 3, padding = "same", activation = "relu" },
    { kind = "depthwise", kernel = [3, 1], stride = 2, multiplier = 2 },
    { kind = "group_norm", groups = 2, activation = "relu", name = "norm" },
    { kind = "max_pool", size = 2, name = "pool" },
    { kind = "conv", filters = 8, kernel = 1, groups = 4 },
    { kind = "add", from = "pool", activation = "relu" },
    { kind = "dropout", rate = 0.25 },
    { kind = "global_average_pool" },
    { kind = "flatten" },
    { kind = "dense", width = 10, name = "head" },
]
[train]
batch = 8
local_steps = 2
lr = 0.5
[policy]
name = "dpsgd"
[topology]
kind = "ring"
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_text(text: str) -> Path:
        path = tmp_path / "e.toml"
        path.write_text(text, "utf-8")
        return path

    return write_text


def problems(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ExperimentError) as caught:
        load_experiment(path, overrides)
    return str(caught.value).replace(f"{path}:", "").splitlines()


def test_layers_become_those_of_the_specification(write: Write) -> None:
    model = load_experiment(write(TEXT)).network
    same, valid = Padding.SAME, Padding.VALID
    assert model.input == Shape(8, 8, 1)
    assert model.layers == (
        Layer(LayerKind.CONV, True, 4, (3, 3), (1, 1), same, groups=1),
        Layer(LayerKind.CONV, False, 8, (3, 1), (2, 2), valid, groups=4),
        Layer(LayerKind.NORM, True, groups=2),
        Layer(LayerKind.POOL_MAX, kernel=(2, 2), stride=(2, 2)),
        Layer(LayerKind.CONV, False, 8, (1, 1), (1, 1), valid, groups=4),
        Layer(LayerKind.ADD, True, source=3),
        Layer(LayerKind.DROPOUT, rate24=1 << 22),
        Layer(LayerKind.POOL_AVERAGE, kernel=(1, 2), stride=(1, 1)),
        Layer(LayerKind.FLATTEN),
        Layer(LayerKind.DENSE, False, 10),
    )
    assert [tuple(shape) for shape in model.shapes[1:]] == [
        (8, 8, 4), (3, 4, 8), (3, 4, 8), (1, 2, 8), (1, 2, 8), (1, 2, 8), (1, 2, 8), (1, 1, 8), (1, 1, 8), (1, 1, 10),
    ]  # fmt: skip
    assert model.parameters == (9 * 4 + 4) + (3 * 8 + 8) + 16 + (2 * 8 + 8) + (8 * 10 + 10)
    assert [name for name, _ in model.tensors][:6] == [
        "layer 1 weights", "layer 1 bias", "layer 2 weights", "layer 2 bias", "layer 3 weights", "layer 3 bias",
    ]  # fmt: skip


def test_words_of_a_layer(write: Write) -> None:
    experiment = load_experiment(write(TEXT), ["train.optimizer=adam", "train.trainable=1"])
    words = experiment.config_words(10, 20, 4, 0, 1.0, 0.0)
    expected = {
        "kind": 1, "relu": 0, "outputs": 8, "kernel_height": 3, "kernel_width": 1, "stride_height": 2,
        "stride_width": 2, "padding": 0, "groups": 4, "source": 0, "rate24": 0, "frozen": 1,
    }  # fmt: skip
    assert {name: words[f"layer1_{name}"] for name in expected} == expected
    assert [words[f"layer{number}_frozen"] for number in range(11)] == [1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0]
    assert (words["optimizer"], words["momentum"]) == (Optimizer.ADAM, 0)
    assert (words["beta1"], words["beta2"]) == (float(np.float32(0.9)), float(np.float32(0.999)))
    plain = load_experiment(write(TEXT)).config_words(10, 20, 4, 0, 1.0, 0.0)
    assert [plain[name] for name in ("optimizer", "beta1", "beta2", "epsilon")] == [0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(25))
def test_the_resolved_text_loads_as_an_equal_experiment(write: Write, seed: int) -> None:
    experiment = load_experiment(write(to_toml(random_cnn_experiment(seed)))).resolved()
    assert load_experiment(write(experiment.dumps())) == experiment


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("kernel = 3,", "kernel = 0,", "11: model.layers[0].kernel: is 0; allowed >= 1"),
        ("kernel = 3,", "kernel = 2.5,", "11: model.layers[0].kernel: is 2.5: give one number, or [height, width]"),
        ("kernel = [3, 1]", "kernel = [3]", "12: model.layers[1].kernel: is [3]: give one number, or [height, width]"),
        ('kind = "depthwise"', 'kind = "deepwise"', "12: model.layers[1].kind: is 'deepwise'; allowed dense, conv,"),
        ('kind = "flatten"', 'kinds = "flatten"', "19: model.layers[8].kind: is missing; add it"),
        ("filters = 4", "filter = 4", "11: model.layers[0].filters: is missing; add it"),
        ("groups = 2,", "groups = 3,", "13: model.layers[2].groups: is 3 with 8 channels; it must divide them"),
        ("groups = 4 }", "groups = 3 }", "15: model.layers[4].groups: is 3 with 8 channels in and 8 out; it must"),
        ('from = "pool"', 'from = "norm"', "16: model.layers[5].from: adds 3 x 4 x 8 to 1 x 2 x 8; choose a layer"),
        ('from = "pool"', 'from = "head"', "16: model.layers[5].from: no earlier layer is 'head'; earlier names: stem"),
        (
            "filters = 8, kernel = 1",
            "filters = 8, kernel = 2",
            "15: model.layers[4].kernel: a window of 2 does not fit",
        ),
        ("size = 2", "size = 9", "14: model.layers[3].size: a window of 9 does not fit an input of 3 x 4 x 8"),
        ('name = "norm"', 'name = "stem"', "13: model.layers[2].name: 'stem' is the name of model.layers[0] already"),
        ("rate = 0.25", "rate = 1.0", "17: model.layers[6].rate: is 1.0; allowed < 1"),
        ("width = 10", "width = 300", "10: model.layers: end in 300 classes; allowed up to 256: a label is a byte"),
        (
            "filters = 4",
            "filters = 65535",
            "11: model.layers[0].filters: makes an output of 8 x 8 x 65535, 4,194,240 numbers; allowed",
        ),
        ("input = [8, 8, 1]\n", "", "8: model.input: is missing; add it to [model]: [height, width, channels]"),
        ("input = [8, 8, 1]", "input = [2000, 2000, 1]", "9: model.input: the input has 4,000,000 numbers; allowed"),
        ("lr = 0.5", "lr = 0.5\nbeta1 = 0.5", "26: train.beta1: optimizer 'sgd' has no such option; remove it, or"),
        (
            "lr = 0.5",
            "lr = 0.5\ntrainable = 6",
            "26: train.trainable: is 6, but only 5 layers have parameters; allowed",
        ),
        ("lr = 0.5", 'lr = 0.5\ntrainable = ["pool"]', "26: train.trainable[0]: no layer with parameters is named"),
        ("lr = 0.5", 'lr = 0.5\ntrainable = "some"', "26: train.trainable: is 'some': give 'all', how many"),
        ("lr = 0.5", "lr = 0.5\ntrainable = 1.0", "26: train.trainable: is 1.0: give 'all', how many"),
        ("lr = 0.5", "lr = 0.5\ntrainable = 0", "26: train.trainable: is 0; allowed >= 1"),
        ("lr = 0.5", "lr = 0.5\ntrainable = []", "26: train.trainable: has 0 entries; allowed at least 1"),
    ],
)
def test_a_mistake_is_named_with_its_line(write: Write, old: str, new: str, expected: str) -> None:
    assert TEXT.count(old) == 1
    found, *more = problems(write(TEXT.replace(old, new)))
    assert found.startswith(expected)
    assert all("unknown key" in line for line in more)


def test_mends_of_layers_speak_of_their_own_place(write: Write) -> None:
    """A table in a list has no section of its own, and its keys stand nowhere else: `units` is not policy.unit."""
    (found,) = problems(write(TEXT.replace('kind = "flatten"', 'kinds = "flatten"')))
    assert found == "19: model.layers[8].kind: is missing; add it"
    (_, found) = problems(write(TEXT.replace("width = 10", "units = 10")))
    assert found.endswith("units: unknown key; allowed name, kind, width, activation")


def test_a_key_of_another_section_is_named_with_it(write: Write) -> None:
    (found,) = problems(write(TEXT.replace("lr = 0.5", "lr = 0.5\nalphas = 1.0")))
    assert found.endswith("did you mean 'data.alpha'?")


def test_an_optimizer_takes_its_own_options_only(write: Write) -> None:
    (found,) = problems(write(TEXT), "train.optimizer=adam", "train.momentum=0.5")
    assert "train.momentum: optimizer 'adam' has no such option; remove it, or choose 'sgd'" in found
    (found,) = problems(write(TEXT), "train.optimizer=adam", "train.beta2=0.99999999999")
    assert "train.beta2" in found and "is 1 as a 32-bit float" in found


def test_widths_and_tables_do_not_mix(write: Write) -> None:
    widths = TEXT[: TEXT.index("layers")] + "layers = [64, 10]\n" + TEXT[TEXT.index("[train]") :]
    (found,) = problems(write(widths))
    assert found.startswith("9: model.input: goes with tables only; remove it")
    assert load_experiment(write(widths.replace("input = [8, 8, 1]\n", ""))).network.parameters == 650


def test_dropout_has_no_more_draws_than_there_are(write: Write) -> None:
    (found,) = problems(write(TEXT), "train.batch=65535", "train.local_steps=65535")
    assert "train.local_steps: 65535 steps of 65535 samples need 68,717,379,600 draws of dropout a round" in found


def test_data_that_do_not_fit(write: Write) -> None:
    text = TEXT.replace("input = [8, 8, 1]", "input = [8, 7, 1]").replace("width = 10", "width = 9")
    with pytest.raises(ExperimentError) as caught:
        models.prepare(load_experiment(write(text)))
    found = [(problem.key, problem.what) for problem in caught.value.problems]
    assert found == [
        ("model.input", "8 x 7 x 1 is 56, digits has 64 features"),
        ("model.layers", "the last layer's outputs are 9, digits has 10 classes"),
    ]


# --- frozen layers and given parameters ------------------------------------------------------------------------------


def test_trainable_layers(write: Write) -> None:
    def frozen(value: str) -> list[bool]:
        return [block.frozen for block in load_experiment(write(TEXT), [f"train.trainable={value}"]).network.blocks]

    assert frozen("all") == [False] * 5
    assert frozen("2") == [True, True, True, False, False]
    assert frozen("5") == [False] * 5
    assert frozen('["stem", "head"]') == [False, True, True, True, False]


def test_the_image_holds_what_is_frozen(write: Write) -> None:
    experiment = load_experiment(write(TEXT), ["train.trainable=1"])
    job = models.prepare(experiment)
    network = experiment.network
    everything = network.initial(7, Init.GLOROT)
    assert network.parameters == 90 and len(job.given) == len(everything) - 90
    assert job.given.tobytes() == everything[:-90].tobytes() == parse_image(job.image).given.tobytes()
    own, still = network.start(7, Init.GLOROT, job.given)
    assert own.tobytes() == everything[-90:].tobytes() and still is job.given


@pytest.mark.parametrize("nodes", [None, 3])
def test_weights_of_a_run_are_where_another_starts(write: Write, tmp_path: Path, nodes: int | None) -> None:
    values = np.arange(202, dtype=np.float32)
    spread = values if nodes is None else values[:, None] + np.arange(nodes, dtype=np.float32) - 1
    np.save(tmp_path / "weights.npy", spread)
    experiment = load_experiment(write(TEXT), ["model.weights=weights.npy", "train.trainable=1"])
    assert experiment.model.weights == str(tmp_path / "weights.npy")
    job = models.prepare(experiment)
    assert job.config["init"] == Init.GIVEN and job.given.tolist() == values.tolist()
    own, still = experiment.network.start(7, Init.GIVEN, job.given)
    assert own.tolist() == values[-90:].tolist() and still.tolist() == values[:-90].tolist()
    assert load_experiment(write(experiment.dumps())) == experiment  # wherever the record lies


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (np.zeros(201, np.float32), "holds 201 parameters, the model has 202"),
        (np.zeros(202), "holds no float32 array"),
        (np.full(202, np.nan, np.float32), "holds a number that is not finite"),
        (b"PK no", "cannot be read: no .npy file"),
        (None, "cannot be read: No such file"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    write: Write, tmp_path: Path, content: np.ndarray | bytes | None, reason: str
) -> None:
    path = tmp_path / "weights.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    with pytest.raises(ExperimentError, match=reason) as caught:
        models.prepare(load_experiment(write(TEXT), ["model.weights=weights.npy"]))
    assert [problem.key for problem in caught.value.problems] == ["model.weights"]


def test_weights_make_init_pointless(write: Write) -> None:
    (found,) = problems(write(TEXT), "model.weights=weights.npy", "model.init=he")
    assert "model.init: has no use beside model.weights; remove one of the two" in found


def test_the_example_is_complete() -> None:
    experiment = load_experiment(EXAMPLE)
    assert experiment.network.parameters == 1898
    assert load_experiment(EXAMPLE, ["model.layers=[64, 10]", "train.optimizer=sgd"]).network.parameters == 650
