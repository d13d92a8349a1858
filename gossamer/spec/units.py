"""Group parameters into units, rank them and cut them into gist's segments (SPEC.md 6.2 to 6.4), many nodes at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gossamer.spec import fmath
from gossamer.spec.constants import Reduce, Unit
from gossamer.spec.nn import Model, ordered_sum

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Units:
    """Number the units of a model."""

    model: Model
    kind: Unit

    @cached_property
    def of(self) -> I64:
        """Give each parameter's unit, [P]."""
        if self.kind is Unit.PARAMETER:
            return np.arange(self.model.parameters)
        result = np.empty(self.model.parameters, np.int64)
        first = 0
        for number, block in enumerate(self.model.trainable):
            edge, end = block.at + block.weights, block.at + block.size
            shape = (block.outputs, block.taps, block.inputs)
            outputs, _, inputs = np.unravel_index(np.arange(block.weights), shape)
            match self.kind:
                case Unit.KERNEL:
                    result[block.at : edge], result[edge:end] = first + outputs, first + np.arange(block.outputs)
                    first += block.outputs
                case Unit.CHANNEL:
                    group = outputs // (block.outputs // block.groups)
                    channels = block.inputs * block.groups
                    result[block.at : edge] = first + group * block.inputs + inputs
                    result[edge:end] = first + channels
                    first += channels + 1
                case Unit.LAYER:
                    result[block.at : end] = number
        return result

    @cached_property
    def sizes(self) -> I64:
        """Count each unit's parameters, [U]."""
        return np.bincount(self.of)

    @cached_property
    def order(self) -> I64:
        """List the parameters by unit, inside a unit by flat index, [P]: the order of values in a message."""
        return np.argsort(self.of, kind="stable")

    @cached_property
    def members(self) -> list[I64]:
        """List each unit's parameters."""
        return np.split(self.order, np.cumsum(self.sizes)[:-1])

    def importance(self, scores: F32, reduce: Reduce) -> F32:
        """Return [U, N] from scores [P, N] (SPEC.md 6.3)."""
        if self.kind is Unit.PARAMETER:
            return scores
        result = np.empty((len(self.sizes), scores.shape[1]), np.float32)
        for unit, members in enumerate(self.members):
            own = scores[members]
            if len(members) == 1:
                result[unit] = own[0]
            elif reduce is Reduce.L2:
                result[unit] = fmath.sqrt(ordered_sum(own * own))
            else:
                result[unit] = ordered_sum(own) / np.float32(len(members))
        return result


def rank(keys: F32) -> I64:
    """Return [U, N]: the rows of `keys` (not negative), greatest first, ties lower row first, a column a node."""
    # The bits of floats that are not negative are ordered as the floats are; their complement turns the order round.
    return np.argsort(~(keys + np.float32(0)).view(np.uint32), axis=0, kind="stable")


def cut(units: Units, ranked: I64, segments: int) -> I64:
    """Return each unit's segment, [U, N], from the ranking [U, N] (SPEC.md 6.4 a)."""
    sizes = units.sizes[ranked]
    before = np.cumsum(sizes, axis=0) - sizes
    result = np.empty_like(ranked)
    np.put_along_axis(result, ranked, np.minimum(segments - 1, before * segments // units.model.parameters), axis=0)
    return result


def segment_means(importance: F32, ranked: I64, segment: I64, segments: int) -> tuple[F32, I64]:
    """Return m_k [K, N] and the units in each segment [K, N] (SPEC.md 6.4 b)."""
    sorted_importance = np.take_along_axis(importance, ranked, axis=0)
    sorted_segment = np.take_along_axis(segment, ranked, axis=0)
    counts = np.stack([(segment == k).sum(axis=0) for k in range(segments)])
    # Zeros in the places of other segments do not change a sum of terms that are not negative.
    sums = [ordered_sum(np.where(sorted_segment == k, sorted_importance, np.float32(0))) for k in range(segments)]
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.stack(sums) / counts.astype(np.float32)
    return np.where(counts > 0, means, np.float32(0)), counts
