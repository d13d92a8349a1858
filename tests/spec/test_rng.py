"""Random numbers: Random123's published vectors, and the maps from draws worked out by hand (SPEC.md 2)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.spec import rng

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)

# Source: Random123, tests/kat_vectors, "philox4x32 10": counter words, key words (low first), output words.
KNOWN = [
    (
        (0x00000000, 0x00000000, 0x00000000, 0x00000000),
        (0x00000000, 0x00000000),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def slow_philox(counter: list[int], seed: int) -> list[int]:
    """Read the paper's figure, on Python's whole numbers."""
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * counter[0], 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * counter[2], 1 << 32)
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B9) % (1 << 32), (key[1] + 0xBB67AE85) % (1 << 32)]
    return counter


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], output: tuple[int, ...]) -> None:
    block, stream, round_, node = counter
    found = rng.draws(key[0] | key[1] << 32, stream, round_, node, 4 * block + np.arange(4))
    assert found.tolist() == list(output)
    assert slow_philox(list(counter), key[0] | key[1] << 32) == list(output)


@given(U64, U32, U32, U32, U32)
def test_every_word_has_its_place(seed: int, stream: int, round_: int, node: int, index: int) -> None:
    expected = slow_philox([index // 4, stream, round_, node], seed)[index % 4]
    assert rng.draws(seed, stream, round_, node, index) == expected


def test_arguments_broadcast() -> None:
    grid = rng.draws(7, 3, [[0], [1]], [[4], [5]], np.arange(6))
    assert grid.shape == (2, 6) and grid.dtype == np.uint32
    assert grid[1, 5] == rng.draws(7, 3, 1, 5, 5)
    assert rng.draws(7, 3, np.arange(2)[:, None], 4, np.arange(3)).shape == (2, 3)
    assert rng.draws(7, 3, 0, 0, []).shape == (0,)


@pytest.mark.parametrize(
    ("u", "n", "expected"),
    [
        (0, 10, 0),
        (0xFFFFFFFF, 10, 9),
        (0x80000000, 10, 5),
        (0x7FFFFFFF, 10, 4),
        (0x19999999, 10, 0),  # 2^32 / 10 = 0x19999999.99
        (0x1999999A, 10, 1),
        (0xFFFFFFFF, 1, 0),
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFE),
    ],
)
def test_below(u: int, n: int, expected: int) -> None:
    assert rng.below(u, n) == expected
    assert rng.below(np.array([u], np.uint32), n).tolist() == [expected]


def test_unit() -> None:
    u = np.array([0, 0xFF, 0x100, 0x80000000, 0xFFFFFFFF], np.uint32)
    assert rng.unit(u).dtype == np.float32
    assert rng.unit(u).tolist() == [0, 0, 2**-24, 0.5, 1 - 2**-24]


@pytest.mark.parametrize(
    ("u", "p24", "expected"),
    [
        (0, 0, False),
        (0, 1, True),
        (0x100, 1, False),
        (0xFFFFFFFF, 2**24, True),
        (0xFFFFFFFF, 2**24 - 1, False),
        (0xFFFFFEFF, 2**24 - 1, True),
    ],
)
def test_chance(u: int, p24: int, expected: bool) -> None:
    assert rng.chance(np.uint32(u), p24) == expected


@pytest.mark.parametrize(
    ("p", "p24"), [(0.0, 0), (1.0, 16777216), (0.5, 8388608), (0.1, 1677721), (0.3, 5033164), (2.0**-25, 0)]
)
def test_probability24(p: float, p24: int) -> None:
    assert rng.probability24(p) == p24


@given(U64, st.integers(1, 40), st.integers(0, 50), st.integers(0, 1000))
def test_choose_follows_floyd(seed: int, n: int, k: int, index0: int) -> None:
    taken: list[int] = []
    wanted = min(k, n)
    for i in range(wanted):
        j = n - wanted + i
        index = index0 + i
        t = slow_philox([index // 4, 4, 2, 9], seed)[index % 4] * (j + 1) >> 32
        taken.append(j if t in taken else t)
    assert rng.choose(seed, 4, 2, 9, n, k, index0) == sorted(taken)
    assert len(set(taken)) == wanted


def test_choose_is_fair() -> None:
    counts = np.zeros(6)
    for index in range(3000):
        counts[rng.choose(5, 4, 0, 0, 6, 2, 2 * index)] += 1
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000 * 2 / 3)  # five standard deviations of a binomial count
