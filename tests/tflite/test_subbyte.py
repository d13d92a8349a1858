"""Weights of 4, 2 and 1 bits: their layout, what requantizing does, and that kernels see the same integers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from codegen import oracle
from codegen.check import with_byte_weights
from codegen.ir import DenseOptions, Graph, Operator
from codegen.packing import pack_rows, readable, row_bytes, unpack_rows
from codegen.program import Settings, compile_graph
from codegen.subbyte import requantize
from codegen.write import write
from tests.tflite.agree import ours
from tests.tflite.conftest import Compared
from tests.tflite.layers import Drawn
from tests.tflite.single import int8, int32, of_operators, one_operator, random_inputs

Array = NDArray[Any]
BITS = (4, 2, 1)


def drawn_rows(terms: int, bits: int) -> Array:
    limit = 1 << (bits - 1)
    random = np.random.default_rng([terms, bits])
    values = random.choice([-1, 1], (3, terms)) if bits == 1 else random.integers(-limit, limit, (3, terms))
    return values.astype(np.int8)


def read_one(packed: bytes, terms: int, bits: int, index: int) -> int:
    """Read weight `index` of a row as firmware/core/gs_q8_matrix.h words it."""
    places, group = 8 // bits, 128 // bits
    first = index // group * group
    left = terms - first
    height = 16 if left >= group else -(-left // places)
    place, j = divmod(index - first, height)
    code = packed[first // group * 16 + j] >> (bits * place) & (2**bits - 1)
    if bits == 1:
        return -1 if code else 1
    return code - 2**bits if code >= 2 ** (bits - 1) else code


@pytest.mark.parametrize("bits", (8, *BITS))
def test_rows_are_laid_out_as_the_header_says(bits: int) -> None:
    for terms in [*range(1, 101), 127, 128, 129, 255, 256, 257, 300]:
        rows = drawn_rows(terms, bits)
        packed = pack_rows(rows, bits)
        assert packed.shape == (3, row_bytes(terms, bits)) == (3, -(-terms * bits // 8))  # no byte more than the bits
        for row, data in zip(rows, packed, strict=True):
            assert [read_one(data.tobytes(), terms, bits, index) for index in range(terms)] == row.tolist()
        np.testing.assert_array_equal(unpack_rows(packed, terms, bits), rows)


@given(st.data(), st.sampled_from(BITS), st.integers(1, 100), st.integers(1, 5))
def test_round_trip(data: st.DataObject, bits: int, terms: int, count: int) -> None:
    limit = 1 << (bits - 1)
    weight = st.sampled_from([-1, 1]) if bits == 1 else st.integers(-limit, limit - 1)
    flat = data.draw(st.lists(weight, min_size=terms * count, max_size=terms * count))
    rows = np.array(flat, np.int8).reshape(count, terms)
    np.testing.assert_array_equal(unpack_rows(pack_rows(rows, bits), terms, bits), rows)


def test_whole_groups_may_be_read_of_every_row() -> None:
    """The last matrix may be shorter than what the one before it reaches over."""
    packed = [pack_rows(drawn_rows(terms, 4), 4) for terms in (40, 1)]
    assert readable(packed).size == max(2 * 20 + 32, 3 * 20 + 2 * 1 + 16)
    assert readable(packed[:1]).size == 2 * 20 + 32
    assert readable([pack_rows(drawn_rows(32, 4), 4)]).size == 3 * 16


def layers(seed: int) -> list[Graph]:
    draw = Drawn(20, seed)
    graphs = [draw.dense(), draw.dense(terms=150), draw.conv(), draw.conv(groups=3), draw.transpose()]
    return [*graphs, draw.conv(taps=(3, 3), channels=16), draw.dense(per_channel=False)]


@pytest.mark.parametrize("bits", BITS)
def test_requantized_layers_are_those_of_bytes(bits: int, compared: Compared) -> None:
    """The same integers in bytes: tflite-micro and our own kernel agree with the one that unpacks."""
    graphs = [requantize(graph, bits) for seed in range(4) for graph in layers(seed)]
    in_bytes = [with_byte_weights(graph) for graph in graphs]
    inputs = [random_inputs(graph, 5) for graph in graphs]
    packed, whole = ours(graphs, inputs), ours(in_bytes, inputs)
    answers = oracle.run_many([(write(graph), sets) for graph, sets in zip(in_bytes, inputs, strict=True)])
    for one, other, answer in zip(packed, whole, answers, strict=True):
        assert isinstance(answer, oracle.Answer), answer
        for mine, bytewise, theirs in zip(one, other, answer.outputs, strict=True):
            np.testing.assert_array_equal(mine[0], bytewise[0])
            np.testing.assert_array_equal(mine[0].ravel(), theirs[0].ravel())
            compared.add(f"weights of {bits} bit{'s' * (bits > 1)}", 0, mine[0].size)
        compared.add(f"weights of {bits} bit{'s' * (bits > 1)}", 1, 0)


def normal(outputs: int, terms: int, seed: int = 0) -> Array:
    """Draw weights as training leaves them, one far beyond the others."""
    values = np.random.default_rng(seed).normal(0, 20, (outputs, terms))
    values[:, 0] = 127
    return np.clip(np.rint(values), -127, 127).astype(np.int8)


def dense(values: Array, scale: float | list[float] = 0.02, bias: Array | None = None) -> Graph:
    outputs, terms = values.shape
    w = int8("w", values.shape, scale, 0, values)
    b = None if bias is None else int32("b", bias, [0.1 * s for s in scale] if isinstance(scale, list) else 0.1 * scale)
    return one_operator(
        "FULLY_CONNECTED", [int8("x", (1, terms), 0.1, 3), w, b], int8("y", (1, outputs), 0.5), DenseOptions()
    )


def error(graph: Graph, wanted: Array) -> Array:
    """Return the error of each row of weights, relative to its own size."""
    w = graph.operators[0].input(1)
    assert w.data is not None and w.quantization is not None
    off = w.data * w.quantization.scales[:, None].astype(np.float64) - wanted
    return np.asarray(np.sqrt((off**2).sum(axis=1) / (wanted**2).sum(axis=1)))


@pytest.mark.parametrize(("bits", "most"), [(4, 0.21), (2, 0.55), (1, 0.75)])
def test_scales_are_near_the_best(bits: int, most: float) -> None:
    values = normal(6, 400)
    graph = requantize(dense(values), bits)
    found = error(graph, values * 0.02)
    assert found.max() < most
    w = graph.operators[0].input(1)
    assert w.data is not None and w.bits == bits
    assert set(np.unique(w.data)) <= ({-1, 1} if bits == 1 else set(range(1 - 2 ** (bits - 1), 2 ** (bits - 1))))
    # By brute force: no scale, by itself, is better by more than a hair.
    limit = max(1, 2 ** (bits - 1) - 1)
    for row, reached in zip(values.astype(float), found, strict=True):
        for step in np.linspace(1, 140, 600):
            near = np.where(row < 0, -1, 1) if bits == 1 else np.clip(np.rint(row / step), -limit, limit)
            assert np.linalg.norm(near * step - row) / np.linalg.norm(row) > reached - 0.002


@pytest.mark.parametrize("bits", BITS)
def test_biases_keep_their_value(bits: int) -> None:
    scales = [0.02, 0.0004, 0.3]
    bias = np.array([12_345, -99_999, 7])
    w, b = requantize(dense(normal(3, 50), scales, bias), bits).operators[0].inputs[1:]
    assert w is not None and b is not None and w.quantization is not None and b.data is not None
    assert b.quantization is not None
    unit = 0.1 * w.quantization.scales.astype(np.float64)
    np.testing.assert_allclose(b.quantization.scales, unit, rtol=1e-6)
    assert (np.abs(b.data * unit - bias * 0.1 * np.array(scales)) <= unit * 0.51).all()


@pytest.mark.parametrize("bits", BITS)
def test_a_channel_of_zeros_stays_one_or_nearly(bits: int) -> None:
    values = normal(3, 60)
    values[1] = 0
    w = requantize(dense(values, bias=np.array([1, 1000, 1])), bits).operators[0].input(1)
    assert w.data is not None and w.quantization is not None and (w.quantization.scales > 0).all()
    assert np.abs(w.data[1] * w.quantization.scales[1]).max() <= (0.02 / 256 if bits == 1 else 0)


@pytest.mark.parametrize("bits", BITS)
def test_flash_shrinks(bits: int) -> None:
    graph = dense(normal(64, 512))
    whole, packed = (compile_graph(graph, Settings(weight_bits=n)) for n in (8, bits))
    size = {n: sum(size for _, role, size in program.flash_rows() if role == "weights") for n, program in
            ((8, whole), (bits, packed))}  # fmt: skip
    assert size == {8: 64 * 512, bits: 64 * 512 * bits // 8}


def test_what_keeps_its_bits() -> None:
    draw = Drawn(1)
    depthwise, four = draw.depthwise(), draw.dense(4)
    for graph in (depthwise, requantize(four, 4)):
        again = requantize(graph, 4)
        assert again.operators[0].inputs == graph.operators[0].inputs
    assert requantize(four, 2).operators[0].input(1).bits == 2
    before = four.operators[0].input(1)
    assert before.bits == 4 and before is not requantize(four, 2).operators[0].input(1)  # the graph given is unchanged


def test_what_cannot_be_lowered_is_left_for_lowering_to_refuse() -> None:
    for change in (dict(data=None), dict(quantization=None)):
        graph = dense(normal(2, 8))
        graph.operators[0].inputs[1] = replace(graph.operators[0].input(1), **change)  # type: ignore[arg-type]
        assert requantize(graph, 2).operators[0].inputs == graph.operators[0].inputs


def test_shared_weights_stay_shared() -> None:
    w = int8("w", (8, 8), 0.1, 0, normal(8, 8))
    x, m, y = (int8(name, (1, 8), 0.2) for name in "xmy")
    operators = [Operator("FULLY_CONNECTED", [a, w, None], [b], DenseOptions()) for a, b in ((x, m), (m, y))]
    first, second = requantize(of_operators(operators, [y]), 1).operators
    assert first.input(1) is second.input(1) and first.input(1).bits == 1


def test_a_network_still_knows_its_classes() -> None:
    """Prototypes as rows of weights: the nearest one wins with 4, 2 and 1 bits as well."""
    random = np.random.default_rng(3)
    prototypes = random.normal(0, 30, (10, 196)).clip(-127, 127).astype(np.int8)
    graph = dense(prototypes, 0.05)
    graph.outputs[0].quantization = int8("y", (1,), 40.0).quantization
    inputs = [[(prototypes[n % 10] // 2 + random.integers(-20, 21, 196)).astype(np.int8)[None]] for n in range(50)]
    for bits in BITS:
        ((*found,),) = ours([requantize(graph, bits)], [inputs])
        assert [int(out[0].argmax()) for out in found] == [n % 10 for n in range(50)]
