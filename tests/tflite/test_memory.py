"""Packing buffers into arenas, held against counting by hand, exhaustive tries and slow greedy readings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, count, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen._names import short_names
from codegen.ir import DType, ModelError, Operator, Tensor
from codegen.limits import check_flash, check_ram
from codegen.memory import Buffer, Plan, Split, live_bytes, pack, split

UNIT = 16


def buffers_of(most: int, units: int, calls: int, *, pinned: bool = False) -> st.SearchStrategy[list[Buffer]]:
    """Draw buffers, some of sizes that are no whole units."""
    one = st.builds(
        lambda size, a, b, pin: Buffer("", size, min(a, b), max(a, b), pinned=pin),
        st.integers(0, units * UNIT),
        st.integers(0, calls - 1),
        st.integers(0, calls - 1),
        st.sampled_from([False, False, False, True]) if pinned else st.just(False),
    )
    return st.lists(one, max_size=most)


def meet(a: Buffer, b: Buffer) -> bool:
    return a.pinned or b.pinned or any(b.first <= call <= b.last for call in range(a.first, a.last + 1))


def overlaps(buffers: Sequence[Buffer], offsets: Sequence[int]) -> bool:
    """Tell whether two buffers alive at once share a byte."""
    spans = [{*range(offset, offset + buffer.size_bytes)} for buffer, offset in zip(buffers, offsets, strict=True)]
    return any(meet(buffers[i], buffers[j]) and spans[i] & spans[j] for i, j in combinations(range(len(buffers)), 2))


def units(buffer: Buffer) -> int:
    return (buffer.size_bytes + UNIT - 1) // UNIT


def lowest_peak(buffers: Sequence[Buffer]) -> int:
    """Try every packing in whole units, one buffer after the other, below rising heights."""
    by_time = sorted(buffers, key=lambda buffer: (not buffer.pinned, buffer.first))

    def fits(height: int, placed: tuple[int, ...]) -> bool:
        if len(placed) == len(by_time):
            return True
        buffer = by_time[len(placed)]
        taken = 0  # a bit a unit
        for other, offset in zip(by_time, placed, strict=False):
            if meet(buffer, other):
                taken |= (1 << units(other)) - 1 << offset
        spots = range(height - units(buffer) + 1)
        return any(taken >> spot & (1 << units(buffer)) - 1 == 0 and fits(height, (*placed, spot)) for spot in spots)

    return next(height for height in count() if fits(height, ())) * UNIT


def first_fit_peak(buffers: Sequence[Buffer], order: Sequence[int]) -> int:
    """Place one after the other at the lowest unit that is free."""
    placed: dict[int, int] = {}
    for number in order:
        taken: set[int] = set()
        for other, offset in placed.items():
            if meet(buffers[number], buffers[other]):
                taken |= {*range(offset, offset + units(buffers[other]))}
        offset = 0
        while taken & {*range(offset, offset + units(buffers[number]))}:
            offset += 1
        placed[number] = offset
    return max((offset + units(buffers[number]) for number, offset in placed.items()), default=0) * UNIT


def check_plan(buffers: Sequence[Buffer], plan: Plan) -> None:
    assert not overlaps(buffers, plan.offsets)
    assert all(offset % buffer.align == 0 for buffer, offset in zip(buffers, plan.offsets, strict=True))
    ends = [o + units(b) * UNIT for b, o in zip(buffers, plan.offsets, strict=True) if b.size_bytes]
    assert plan.peak_bytes == max(ends, default=0)
    calls = {buffer.first for buffer in buffers}
    alive = [sum(units(b) for b in buffers if b.pinned or b.first <= call <= b.last) * UNIT for call in calls]
    assert plan.lower_bound_bytes == max(alive, default=0)
    assert plan.peak_bytes >= plan.lower_bound_bytes
    assert plan.proved_optimal or plan.peak_bytes > plan.lower_bound_bytes
    end_of_state = sum(units(b) for b in buffers if b.pinned) * UNIT
    for buffer, offset in zip(buffers, plan.offsets, strict=True):
        assert not buffer.pinned or offset + buffer.size_bytes <= end_of_state


@given(buffers_of(40, 12, 10, pinned=True))
def test_no_two_buffers_alive_at_once_overlap(buffers: list[Buffer]) -> None:
    plan = pack(buffers)
    check_plan(buffers, plan)
    assert plan == pack(buffers)


@given(buffers_of(6, 3, 5, pinned=True))
def test_small_plans_are_the_lowest_of_all(buffers: list[Buffer]) -> None:
    plan = pack(buffers)
    assert plan.proved_optimal
    assert plan.peak_bytes == lowest_peak(buffers)


@given(buffers_of(5, 9, 8))
def test_no_order_of_first_fit_is_better(buffers: list[Buffer]) -> None:
    """The order by offset of a lowest packing gives a lowest packing, so the best of all orders is the lowest."""
    plan = pack(buffers)
    assert plan.proved_optimal
    assert plan.peak_bytes == min(first_fit_peak(buffers, order) for order in permutations(range(len(buffers))))


@given(buffers_of(40, 12, 12))
def test_never_worse_than_greedy(buffers: list[Buffer]) -> None:
    numbers = range(len(buffers))
    by_size = sorted(numbers, key=lambda number: (-units(buffers[number]), buffers[number].first))
    by_time = sorted(numbers, key=lambda number: buffers[number].first)
    peak = pack(buffers).peak_bytes
    assert peak <= min(first_fit_peak(buffers, order) for order in (by_size, by_time))


def random_buffers(count: int, calls: int, seed: int) -> list[Buffer]:
    draw = random.Random(seed)
    firsts = [draw.randrange(calls) for _ in range(count)]
    return [Buffer(str(n), draw.randrange(1, 3200), f, f + draw.randrange(calls // 3)) for n, f in enumerate(firsts)]


@pytest.mark.parametrize("seed", range(8))
def test_models_of_usual_size_are_packed_as_tightly_as_possible(seed: int) -> None:
    buffers = random_buffers(30, 20, seed)
    plan = pack(buffers)
    check_plan(buffers, plan)
    assert plan.proved_optimal


def test_a_large_model_is_packed_within_its_budget() -> None:
    buffers = random_buffers(300, 150, 1)
    plan = pack(buffers)
    check_plan(buffers, plan)
    assert 1 <= plan.ratio < 1.1
    assert plan.ratio == plan.peak_bytes / plan.lower_bound_bytes


@pytest.mark.parametrize(
    ("spans", "load", "lowest"),
    [  # (units, first, last): fragments that no order of placing avoids
        ("301 102 222 203 334 126 146 459 279", 6, 7),
        ("301 502 123 245 226 336 136 267 577 177", 8, 9),
        ("500 101 312 333 244 125 145 366 217 177 159 279 389", 6, 7),
        ("501 322 333 104 144 305 135 226 256 247 267 267 177 377", 10, 11),
    ],
)
def test_a_gap_that_no_packing_avoids_is_proved(spans: str, load: int, lowest: int) -> None:
    buffers = [Buffer(span, int(span[0]) * UNIT, int(span[1]), int(span[2])) for span in spans.split()]
    plan = pack(buffers)
    check_plan(buffers, plan)
    assert (plan.lower_bound_bytes, plan.peak_bytes) == (load * UNIT, lowest * UNIT)
    assert plan.proved_optimal
    assert lowest_peak(buffers) == lowest * UNIT


def test_no_buffers_take_nothing() -> None:
    assert pack([]) == Plan((), 0, 0, True)
    assert pack([Buffer("empty", 0, 0, 3)]) == Plan((0,), 0, 0, True)
    assert pack([]).ratio == 1.0


def test_alignments_mix() -> None:
    buffers = [Buffer("state", 4, 0, 9, align=4, pinned=True), Buffer("a", 8, 0, 1, align=8), Buffer("b", 32, 1, 2)]
    plan = pack(buffers)
    assert all(offset % buffer.align == 0 for buffer, offset in zip(buffers, plan.offsets, strict=True))
    assert not overlaps(buffers, plan.offsets)
    assert plan.offsets[0] == 0 and plan.peak_bytes == 56 and plan.lower_bound_bytes == 44


def test_live_bytes_count_whole_units_and_what_is_pinned() -> None:
    buffers = [Buffer("state", 3, 5, 5, pinned=True), Buffer("a", 17, 0, 1), Buffer("b", 16, 2, 2)]
    assert [live_bytes(buffers, call) for call in range(4)] == [48, 48, 32, 16]


@given(st.data())
def test_small_splits_have_the_least_traffic(data: st.DataObject) -> None:
    buffers = data.draw(buffers_of(5, 4, 5, pinned=True))
    accesses = data.draw(st.lists(st.integers(1, 4), min_size=len(buffers), max_size=len(buffers)))
    limit = data.draw(st.integers(0, 12 * UNIT))
    found = split(buffers, accesses, limit)
    costs = []
    for inner in product((True, False), repeat=len(buffers)):
        if lowest_peak([buffer for buffer, stays in zip(buffers, inner, strict=True) if stays]) <= limit:
            moved = zip(buffers, accesses, inner, strict=True)
            costs.append(sum(buffer.size_bytes * count for buffer, count, stays in moved if not stays))
    assert found.proved_optimal
    assert found.psram_traffic_bytes == min(costs)
    check_split(buffers, accesses, limit, found)


def check_split(buffers: Sequence[Buffer], accesses: Sequence[int], limit: int, found: Split) -> None:
    parts = list(zip(buffers, accesses, found.inner, strict=True))
    assert found.psram_traffic_bytes == sum(buffer.size_bytes * count for buffer, count, stays in parts if not stays)
    assert pack([buffer for buffer, _, stays in parts if stays]).peak_bytes <= limit


@pytest.mark.parametrize("percent", [0, 35, 70, 99, 100])
def test_a_large_split_fits(percent: int) -> None:
    buffers = random_buffers(60, 40, 3)
    accesses = [2 + number % 3 for number in range(len(buffers))]
    limit = pack(buffers).peak_bytes * percent // 100
    found = split(buffers, accesses, limit)
    check_split(buffers, accesses, limit, found)
    assert (found.psram_traffic_bytes == 0) == (percent == 100)


def convolution(name: str, index: int) -> Operator:
    return Operator("CONV_2D", [], [Tensor(name, (1, 8), DType.INT8)], index=index)


def test_a_limit_of_ram_names_what_is_alive_where_most_is() -> None:
    buffers = [Buffer("in_q", 4096, 0, 0), Buffer("conv1_out", 32768, 0, 1), Buffer("conv2_out", 16384, 1, 2)]
    operators = [convolution("conv1_out", 0), convolution("conv2_out", 1), convolution("head", 2)]
    plan = pack(buffers)
    check_ram(buffers, plan, operators, None, "m.tflite")
    check_ram(buffers, plan, operators, 49152, "m.tflite")
    with pytest.raises(ModelError) as refused:
        check_ram(buffers, plan, operators, 49151, "m.tflite")
    message = str(refused.value)
    assert message.startswith("m.tflite: the arena needs 49,152 bytes, the limit is 49,151; ")
    assert "call 1 (CONV_2D conv2_out): conv1_out 32,768, conv2_out 16,384; " in message
    assert "in_q" not in message and "--psram" in message and "\n" not in message


def test_a_limit_of_flash_names_the_largest_tables() -> None:
    rows = [("conv1", "weights", 600), ("conv1", "bias", 40), ("dense", "weights", 9000)]
    check_flash(rows, None, "m.tflite")
    check_flash(rows, 9640, "m.tflite")
    with pytest.raises(ModelError) as refused:
        check_flash(rows, 9639, "m.tflite")
    message = str(refused.value)
    assert message.startswith(
        "m.tflite: the constants take 9,640 bytes of flash, the limit is 9,639: dense weights 9,000"
    )
    assert message.index("dense weights") < message.index("conv1 weights 600") < message.index("conv1 bias 40")


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["net/a/Relu;net/b/add", "net/b/MatMul"], ["a/Relu", "b/MatMul"]),
        (["net/a", "other/a"], ["net/a", "other/a"]),
        (["net/a;one", "net/a;two"], ["net/a;one", "net/a;two"]),
        (["conv, relu", "x", "net/", ""], ["conv", "x", "net/", ""]),
    ],
)
def test_names_are_shortened_as_long_as_they_differ(names: list[str], short: list[str]) -> None:
    assert list(short_names(names).values()) == short
