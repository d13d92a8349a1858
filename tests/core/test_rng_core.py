"""Random numbers against the known answers that Random123 publishes, and against SPEC.md 2 by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.core.parts import Parts

# Random123, kat_vectors, philox4x32 10: counter, key, output.
KNOWN = [
    ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_published_blocks(parts: Parts, counter: str, key: str, expected: str) -> None:
    out = parts.room(4, "uint32_t")
    parts.lib.gs_rng_philox(words(key), words(counter), out)
    assert list(out) == words(expected)


def test_a_draw_is_a_word_of_the_block_that_its_index_names(parts: Parts) -> None:
    seed, stream, round_, node = [11, 22], 3, 44, 55
    indices = np.array([0, 1, 2, 3, 4, 7, 5, 1, 0xFFFFFFFF, 0], np.uint32)  # back and forth: the cache must not show
    out = parts.room(len(indices), "uint32_t")
    parts.lib.parts_draws(seed, stream, round_, node, parts.give(indices, "uint32_t"), out, len(indices))
    block = parts.room(4, "uint32_t")
    for index, draw in zip(indices.tolist(), list(out), strict=True):
        parts.lib.gs_rng_philox(seed, [index // 4, stream, round_, node], block)
        assert draw == block[index % 4]


@pytest.mark.parametrize("u", [0, 1, 255, 256, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_below_unit_and_chance(parts: Parts, u: int) -> None:
    for n in (1, 2, 3, 1000, 0xFFFFFFFF):
        assert parts.lib.parts_below(u, n) == int(Fraction(u, 2**32) * n)
    assert parts.lib.parts_unit(u) == (u >> 8) / 2**24 < 1
    for p24 in (0, 1, u >> 8, (u >> 8) + 1, 1 << 24):
        assert parts.lib.parts_chance(u, p24) == (u >> 8 < p24)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 0), (5, 5), (5, 9), (40, 7), (65535, 30)])
def test_choose_is_floyds_sample(parts: Parts, n: int, k: int) -> None:
    rng = parts.ffi.new("gs_rng_t *")
    parts.lib.gs_rng_init(rng, [9, 8], 4, 3, 2)
    out = parts.room(k, "uint16_t")
    count = parts.lib.gs_rng_choose(rng, n, k, 6, out)
    indices = np.arange(6, 6 + min(n, k), dtype=np.uint32)
    draws = parts.room(max(1, len(indices)), "uint32_t")
    parts.lib.parts_draws([9, 8], 4, 3, 2, parts.give(indices, "uint32_t"), draws, len(indices))
    taken: list[int] = []
    for i in range(min(n, k)):
        j = n - min(n, k) + i
        t = draws[i] * (j + 1) >> 32
        taken.append(j if t in taken else t)
    assert count == min(n, k)
    assert list(out)[:count] == sorted(taken)
