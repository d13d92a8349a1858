"""Choose a node's validation samples and its mini-batches (SPEC.md 4.1, 4.2), many nodes at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gossamer.spec import rng
from gossamer.spec.constants import Stream

I64 = NDArray[np.int64]


def validation_count(samples: int, val_permille: int) -> int:
    """Return how many of a shard's samples are held out."""
    wanted = samples * val_permille // 1000
    return min(max(wanted, 1), samples - 1) if val_permille else 0


def split(seed: int, node: int, samples: int, val_permille: int) -> tuple[I64, I64]:
    """Return the indices of (validation, training) samples within a shard."""
    held_out = validation_count(samples, val_permille)
    order = np.arange(samples)
    draws = rng.draws(seed, Stream.SPLIT, 0, node, np.arange(held_out))
    for t, j in enumerate(np.arange(held_out) + rng.below(draws, samples - np.arange(held_out))):
        order[t], order[j] = order[j], order[t]
    return order[:held_out], order[held_out:]


def batch_positions(seed: int, round_: int, nodes: I64, lengths: I64, draws: int) -> I64:
    """Return [draws, N]: which training sample each stream element is, as a position in the node's training list.

    `nodes` [N] are ids, `lengths` [N] the training samples of each.
    """
    columns = np.arange(len(nodes))
    words = rng.draws(seed, Stream.BATCH, round_, nodes, np.arange(draws)[:, None])
    deck = np.broadcast_to(np.arange(int(lengths.max()))[:, None], (int(lengths.max()), len(nodes))).copy()
    fresh = np.arange(len(deck))[:, None]
    result = np.empty((draws, len(nodes)), np.int64)
    for number in range(draws):
        t = number % lengths
        restart = t == 0
        if number and restart.any():
            deck[:, restart] = fresh
        j = t + rng.below(words[number], lengths - t)
        chosen = deck[j, columns]
        deck[j, columns] = deck[t, columns]
        deck[t, columns] = chosen
        result[number] = chosen
    return result
