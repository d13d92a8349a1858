"""Which parameters are ranked and sent together: every kind of unit, on every kind of layer."""

from __future__ import annotations

import struct

import pytest

from gossamer.spec.constants import CONFIG_WORDS, Padding, Unit
from tests.core.naive_nn import Layer, Shape, dense, model_words, perceptron, units
from tests.core.nn_cases import MAX, conv, dropout, norm, plus, pool
from tests.core.probe import library

MODELS: dict[str, tuple[Shape, list[Layer]]] = {
    "perceptron": ((1, 1, 6), perceptron(6, 5, 4, 3)),
    "convolutional": (
        (5, 6, 4),
        [
            conv(6, (2, 3), groups=2, padding=Padding.SAME),
            norm(3),
            conv(6, 3, groups=6, padding=Padding.SAME, relu=False),
            plus(1),
            pool(MAX, (2, 2), (2, 2)),
            dropout(0.5),
            dense(3, relu=False),
        ],
    ),
    "sparse": (
        (3, 3, 2),
        [
            conv(4, 2, frozen=True),
            norm(2, frozen=True),
            conv(3, 1),
            dense(5, frozen=True),
            norm(5),
            dense(2, relu=False),
        ],
    ),
}


@pytest.mark.parametrize("kind", list(Unit))
@pytest.mark.parametrize("name", MODELS)
def test_units_are_where_the_specification_puts_them(name: str, kind: Unit) -> None:
    shape, layers = MODELS[name]
    expected = units(shape, layers, kind)
    ffi, lib = library()
    probe = lib.probe_new()
    try:
        words = model_words(shape, layers)
        numbers = [words.get(name, 0) for name in CONFIG_WORDS]
        model = lib.probe_model(probe, struct.pack(f"<{len(numbers)}I", *numbers))
        assert model != ffi.NULL
        assert lib.gs_units_count(model, kind) == len(expected)
        assert lib.gs_units_largest(model, kind) == max(map(len, expected))
        for number, parameters in enumerate(expected):
            unit = lib.gs_units_get(model, kind, number)
            found = [unit.first + i * unit.stride for i in range(unit.count)]
            assert found + [unit.extra] * (unit.extra != 2**32 - 1) == parameters
            # What gs_policy.c relies on when it puts the importance of units over the scores of parameters.
            assert all(number <= p for p in parameters)
    finally:
        lib.probe_free(probe)
