"""Which models are taken from an image, and which word of the others is named."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import numpy as np
import pytest

from gossamer.spec.constants import CONFIG_WORDS, LAYERS_MAX, Init, LayerKind, Optimizer, Padding
from gossamer.spec.image import build_image
from tests.core.naive_nn import Layer, Net, Shape, dense, model_words, perceptron
from tests.core.nn_cases import AVERAGE, CASES, FLATTEN, MAX, SAME, conv, dropout, norm, plus, pool
from tests.core.probe import reseal, words
from tests.core.test_config import NAMES, load

SHAPE: Shape = (6, 5, 4)
GOOD = [conv(8, 3, padding=SAME), norm(2), pool(MAX, (2, 2), (2, 2)), conv(8, 1), plus(2), dense(3, relu=False)]


def image(shape: Shape, layers: list[Layer], raw: dict[str, int] | None = None, **changes: Any) -> bytes:
    """Return an image without test samples; `raw` words are put in whatever they are."""
    config = words(test_count=0, **changes) | model_words(shape, layers)
    given = sum(
        part.weights + part.biases
        for part in Net.parts_of(shape, layers)
        if part.layer.frozen or config["init"] == Init.GIVEN
    )
    numbers = shape[0] * shape[1] * shape[2]
    data = bytearray(build_image(config, np.zeros((0, numbers), np.uint8), np.zeros(0), np.zeros(given, np.float32)))
    for name, value in (raw or {}).items():
        kind = {"u": "<I", "f": "<f"}[CONFIG_WORDS[name]]
        struct.pack_into(kind, data, 16 + 4 * NAMES.index(name), value)
    return reseal(bytes(data))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("init", list(Init))
def test_good_models_are_taken(name: str, init: Init) -> None:
    shape, layers, *_ = CASES[name]
    assert load(image(shape, layers, init=init)) == ("OK", None)


def test_the_longest_model_is_taken() -> None:
    assert load(image((1, 1, 5), [*[dense(5)] * (LAYERS_MAX - 1), dense(3)])) == ("OK", None)


def change(number: int, **options: Any) -> list[Layer]:
    layers = list(GOOD)
    layers[number] = dataclasses.replace(layers[number], **options)
    return layers


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ({"layer0_kind": 8}, "layer0_kind"),
        ({"layer0_relu": 2}, "layer0_relu"),
        ({"layer0_outputs": 0}, "layer0_outputs"),
        ({"layer0_outputs": 65536}, "layer0_outputs"),
        ({"layer0_kernel_height": 0}, "layer0_kernel_height"),
        ({"layer0_kernel_width": 65536}, "layer0_kernel_width"),
        ({"layer0_stride_height": 0}, "layer0_stride_height"),
        ({"layer2_stride_width": 0}, "layer2_stride_width"),
        ({"layer2_padding": 2}, "layer2_padding"),
        ({"layer0_groups": 0}, "layer0_groups"),
        ({"layer0_groups": 3}, "layer0_groups"),
        ({"layer0_outputs": 6, "layer0_groups": 4}, "layer0_groups"),  # 4 divides the channels only
        ({"layer1_groups": 5}, "layer1_groups"),
        ({"layer2_kernel_height": 7}, "layer2_kernel_height"),
        ({"layer2_kernel_width": 6}, "layer2_kernel_width"),
        ({"layer4_source": 3}, "layer4_source"),
        ({"layer4_source": 1}, "layer4_source"),  # of another shape
        ({"layer4_source": 0xFFFFFFFF}, "layer4_source"),
        ({"layer0_frozen": 2}, "layer0_frozen"),
        # What a kind has no option for is 0.
        ({"layer0_source": 1}, "layer0_source"),
        ({"layer0_rate24": 1}, "layer0_rate24"),
        ({"layer1_outputs": 8}, "layer1_outputs"),
        ({"layer2_relu": 1}, "layer2_relu"),
        ({"layer2_groups": 1}, "layer2_groups"),
        ({"layer4_frozen": 1}, "layer4_frozen"),
        ({"layer5_kernel_height": 1}, "layer5_kernel_height"),
        # So are the words of layers beyond the last.
        ({"layer6_relu": 1}, "layer6_relu"),
        ({"layer31_frozen": 1}, "layer31_frozen"),
        # Of several, the first is named.
        ({"layer1_groups": 5, "layer0_relu": 9}, "layer0_relu"),
        ({"layer1_groups": 5, "input_width": 0}, "input_width"),
        ({"layers": 33, "input_width": 65536}, "input_width"),
        ({"layers": 0xFFFFFFFF, "batch": 0}, "layers"),
    ],
)
def test_a_word_that_is_wrong_is_named(raw: dict[str, int], word: str) -> None:
    assert load(image(SHAPE, GOOD, raw)) == ("CONFIG", word)


@pytest.mark.parametrize(
    ("shape", "layers", "word"),
    [
        ((1024, 1025, 1), [pool(AVERAGE, (1024, 1025), (1, 1)), dense(3)], "input_height"),
        ((512, 512, 4), [conv(5, 1), pool(MAX, (512, 512), (1, 1)), dense(3)], "layer0_outputs"),
        ((1, 1, 300), [norm(1), norm(1)], "layers"),  # classes
        ((1, 1, 6), [dense(3, frozen=True)], "layers"),
        ((1, 1, 6), [FLATTEN], "layers"),
        ((1, 1, 65535), [dense(257)], "layers"),  # 2^24 parameters and more; classes, too
        ((1, 1, 65535), [dense(254), dense(1000, frozen=True), dense(3)], "layers"),
        ((1, 1, 65535), perceptron(65535, 65535, 65535, 3), "layers"),
        ((1, 1, 6), [conv(65535, (65535, 65535), padding=SAME), pool(MAX, (1, 1), (1, 1)), dense(3)], "layers"),
        ((1, 1, 6), [dense(6), plus(0)], "layer1_source"),
        ((1, 1, 6), [plus(0), dense(3)], "layer0_source"),
    ],
)
def test_what_no_single_word_breaks_has_its_name(shape: Shape, layers: list[Layer], word: str) -> None:
    raw = model_words(shape, layers)
    assert load(image((1, 1, 2), [dense(3)], raw)) == ("CONFIG", word)


def test_most_parameters_and_numbers_are_taken() -> None:
    """The bounds themselves; nothing is allocated."""
    for shape, layers in (
        ((1, 1, 65535), [dense(256)]),  # 65535 * 256 + 256 = 2^24
        ((1024, 1024, 1), [pool(AVERAGE, (1024, 1024), (1, 1)), dense(3)]),
    ):
        assert load(image((1, 1, 2), [dense(3)], model_words(shape, layers))) == ("OK", None)


def test_draws_of_dropout_have_32_bits() -> None:
    layers = [dropout(0.5), dense(3)]
    for batch, steps, expected in ((65535, 65535, "local_steps"), (65535, 32768, None), (65535, 32769, "local_steps")):
        found = load(image((1, 1, 2), layers, batch=batch, local_steps=steps))
        assert found == (("CONFIG", expected) if expected else ("OK", None))


def test_given_parameters_are_finite() -> None:
    for init, place in ((Init.HE, 0), (Init.GIVEN, 0), (Init.GIVEN, 20)):
        layers = [dense(3, frozen=True), dense(3)]
        data = bytearray(image((1, 1, 2), layers, init=init))
        struct.pack_into("<f", data, 16 + 4 * len(NAMES) + 4 * place, float("nan"))
        assert load(reseal(bytes(data))) == ("CONFIG", "init")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, None),
        ({"momentum": float("nan")}, None),  # not a word of ADAM's
        ({"beta1": 0.0, "beta2": 0.0}, None),
        ({"beta1": 1.0}, "beta1"),
        ({"beta2": -0.5}, "beta2"),
        ({"beta2": float("nan")}, "beta2"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
    ],
)
def test_words_of_adam(changes: dict[str, float], word: str | None) -> None:
    raw = {"optimizer": Optimizer.ADAM, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7} | changes
    assert load(image(SHAPE, GOOD, raw)) == (("CONFIG", word) if word else ("OK", None))


def test_kinds_and_paddings_are_all_tried() -> None:
    tried = {layer.kind for _, layers, *_ in CASES.values() for layer in layers}
    assert tried == set(LayerKind)
    assert {layer.padding for _, layers, *_ in CASES.values() for layer in layers} == set(Padding)
