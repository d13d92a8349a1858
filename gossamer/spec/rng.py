"""Draw random numbers as pure functions of seed, stream, round, node and index (SPEC.md 2).

Source: Philox4x32-10, Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from math import floor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

U32 = NDArray[np.uint32]

_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


def philox(counter: tuple[NDArray[np.uint64], ...], seed: int) -> tuple[NDArray[np.uint64], ...]:
    """Encrypt blocks of four counter words under a 64-bit key; words are held in uint64."""
    x0, x1, x2, x3 = counter
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(_ROUNDS):
        a, b = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1, x2, x3 = (b >> _32) ^ x1 ^ np.uint64(keys[0]), b & _LOW, (a >> _32) ^ x3 ^ np.uint64(keys[1]), a & _LOW
        keys = [(key + step) & 0xFFFFFFFF for key, step in zip(keys, _KEY_STEPS, strict=True)]
    return x0, x1, x2, x3


def draws(seed: int, stream: int, round_: ArrayLike, node: ArrayLike, index: ArrayLike) -> Any:
    """Return draw `index` of a stream; the arguments broadcast against each other.

    Returns: uint32 array (a numpy scalar where all arguments are scalars).
    """
    words = [np.asarray(part).astype(np.uint64) for part in (round_, node, index)]
    rounds, nodes, indices = np.broadcast_arrays(*words)
    block = philox((indices >> np.uint64(2), np.full(indices.shape, stream, np.uint64), rounds, nodes), seed)
    return np.choose((indices & np.uint64(3)).astype(np.intp), block).astype(np.uint32)[()]


def below(u: ArrayLike, n: ArrayLike) -> Any:
    """Map draws to whole numbers 0 <= x < n, as int64."""
    return ((np.asarray(u).astype(np.uint64) * np.asarray(n).astype(np.uint64)) >> _32).astype(np.int64)[()]


def unit(u: ArrayLike) -> Any:
    """Map draws to float32 in [0, 1), multiples of 2^-24."""
    return ((np.asarray(u) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24))[()]


def probability24(p: float) -> int:
    """Return a probability as `chance` takes it."""
    return floor(p * 2**24)


def chance(u: ArrayLike, p24: ArrayLike) -> Any:
    """Tell which draws fall under a probability given in 2^-24."""
    return ((np.asarray(u) >> np.uint32(8)) < np.asarray(p24).astype(np.uint32))[()]


def choose(seed: int, stream: int, round_: int, node: int, n: int, k: int, index0: int) -> list[int]:
    """Choose min(k, n) distinct numbers below n, ascending.

    Source: R. Floyd's sampling, in Bentley: "Programming pearls", CACM 30 (1987).
    """
    taken: set[int] = set()
    wanted = min(k, n)
    for i in range(wanted):
        j = n - wanted + i
        t = int(below(draws(seed, stream, round_, node, index0 + i), j + 1))
        taken.add(j if t in taken else t)
    return sorted(taken)
