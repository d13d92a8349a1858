"""Waiting and merging, by hand (SPEC.md 6.8 to 6.11)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gossamer.spec.merge import Arrivals, Fifo, Wave, merge, server_average, verified_weight

F32 = np.float32


def wave(values: list[float], covers: list[bool], weight: float) -> Wave:
    return Wave(np.array([0]), np.array(values, F32)[:, None], np.array(covers)[:, None], np.array([weight], F32))


def merged(w: list[float], own: float, *waves: Wave) -> list[float]:
    return merge(np.array(w, F32)[:, None], np.array([own], F32), iter(waves))[:, 0].tolist()


def test_weighted_mean_where_covered_and_own_value_elsewhere() -> None:
    first = wave([4, 8, 0], [True, True, False], 1)
    second = wave([0, 2, 0], [False, True, False], 2)
    assert merged([2, 4, 6], 1, first, second) == [3, (4 + 8 + 2 * 2) / 4, 6]


def test_all_weights_zero_keeps_the_local_value_to_the_bit() -> None:
    third = float(F32(1) / F32(3))
    assert merged([third], 0.1, wave([9], [True], 0)) == [third]
    assert merged([third], 0, wave([9], [True], 0)) == [third]


def test_own_weight_zero_takes_the_others() -> None:
    assert merged([5], 0, wave([7], [True], 0.5)) == [7]


def test_what_would_overflow_keeps_the_local_value() -> None:
    assert merged([3e38], 1, wave([3e38], [True], 1)) == [float(F32(3e38))]


def queue(fifo: Fifo, rows: list[tuple[int, float]], nodes: int = 2) -> Arrivals:
    """Let messages (receiver, value) arrive; each has a source of its own."""
    rows = sorted(rows, key=lambda row: row[0])
    count = len(rows)
    return Arrivals(
        np.array([dst for dst, _ in rows], np.int64),
        np.arange(count),
        np.zeros(count, np.int64),
        np.ones(count, F32),
        np.array([[value for _, value in rows]], F32),
        np.zeros((1, count), np.int16),
    )


def content(waves: Iterator[Wave], nodes: int = 2) -> list[list[float]]:
    found: list[list[float]] = [[] for _ in range(nodes)]
    for item in waves:
        for column, node in enumerate(item.nodes):
            found[node].append(float(item.values[0, column]))
    return found


def test_a_full_fifo_pushes_out_the_oldest_across_rounds() -> None:
    fifo = Fifo(3, np.zeros(2, np.int64))
    everyone = np.array([True, True])
    none = np.array([False, False])
    first = queue(fifo, [(0, 1), (0, 2), (1, 10)])
    fifo.keep(first, everyone)
    assert fifo.held.tolist() == [2, 1]
    second = queue(fifo, [(0, 3), (0, 4), (0, 5), (1, 11)])
    assert [item.tolist() for item in fifo.lengths(second)] == [[3, 2], [2, 0]]
    assert content(fifo.waves(second, everyone)) == [[3, 4, 5], [10, 11]]
    fifo.keep(second, everyone)
    third = queue(fifo, [(0, 6)])
    assert content(fifo.waves(third, everyone)) == [[4, 5, 6], [10, 11]]
    fifo.keep(third, np.array([False, True]))
    assert fifo.held.tolist() == [0, 2]
    assert content(fifo.waves(queue(fifo, []), everyone)) == [[], [10, 11]]
    assert content(fifo.waves(queue(fifo, []), none)) == [[], []]


def test_verified_weight() -> None:
    loss, trial = np.array([2, 2, 2, 0, 2], F32), np.array([2, 1, 9, 1, np.inf], F32)
    # neutral; half the loss gone: 0.5 + 0.25; much worse: clamped; nothing to improve; not finite.
    assert verified_weight(loss, trial).tolist() == [0.5, 0.75, 0, 0.5, 0]


def test_server_average_weighs_by_data() -> None:
    assert server_average(np.array([[1, 5]], F32), np.array([3, 1], F32)).tolist() == [2]
