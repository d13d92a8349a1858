"""Add up in the order that the text fixes, in pieces that stay in a processor's cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

_SCRATCH_FLOATS = 1 << 16  # one temporary of this size stays in a core's second-level cache


def blocks(length: int, floats_each: int) -> Iterator[slice]:
    """Cut an axis so that a block of it stays in cache."""
    step = max(1, _SCRATCH_FLOATS // max(1, floats_each))
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def add_products(total: F32, terms: Iterator[tuple[F32, F32]]) -> None:
    """Add a * b to `total`, term by term, each product and each sum rounded."""
    scratch = np.empty_like(total)
    for a, b in terms:
        np.multiply(a, b, out=scratch)
        np.add(total, scratch, out=total)


def ordered_sum(terms: F32) -> F32:
    """Sum along the first axis, in order, from +0."""
    total: F32 = np.add.accumulate(terms, axis=0, dtype=np.float32)[-1]
    return np.float32(0) + total
