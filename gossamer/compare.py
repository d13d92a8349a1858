"""Find where runs agree to the bit, where they first part, and how far their figures differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.record import Run, different_keys


@dataclass(frozen=True)
class Parting:
    """Name the first weights that differ."""

    round: int
    node: int
    tensor: str
    nodes: int  # how many nodes differ in this round

    def __str__(self) -> str:
        also = f" ({self.nodes} nodes differ)" if self.nodes > 1 else ""
        return f"round {self.round}, node {self.node}, {self.tensor}{also}"


@dataclass(frozen=True)
class Difference:
    """Name the first place where a figure other than the weights differs."""

    figure: str
    round: int
    node: int
    first: float
    second: float

    def __str__(self) -> str:
        return f"{self.figure}: round {self.round}, node {self.node}: {self.first:g} and {self.second:g}"


@dataclass(frozen=True)
class Comparison:
    """Hold what a run (`second`) has in common with the `first`."""

    first: Run
    second: Run
    keys: dict[str, tuple[Any, Any]]  # options of the experiments that differ
    equal: NDArray[np.bool_]  # [common rounds]: all weights of all nodes are the same bits
    parting: Parting | None
    differences: tuple[Difference, ...]

    @property
    def rounds(self) -> int:
        """Count the rounds both runs have."""
        return len(self.equal)

    @property
    def equal_rounds(self) -> int:
        """Count the rounds from the start in which all weights agree."""
        return self.rounds if self.parting is None else self.parting.round

    @property
    def agrees(self) -> bool:
        """Whether there is anything to compare, and it is the same."""
        return self.parting is None and self.rounds > 0

    @property
    def accuracy_difference(self) -> float:
        """Mean final accuracy of the second minus the first; NaN where one has none."""
        return mean(self.second.final_accuracy) - mean(self.first.final_accuracy)

    @property
    def bytes_difference(self) -> int:
        """Bytes sent by the second minus the first, in the rounds both have."""
        first, second = (int(run.columns["bytes_sent"][: self.rounds].sum()) for run in (self.first, self.second))
        return second - first


def compare(runs: Sequence[Run]) -> list[Comparison]:
    """Compare every run after the first with the first."""
    return [_compare(runs[0], run) for run in runs[1:]]


def mean(values: NDArray[np.float64]) -> float:
    """Return the mean of what is a number, else NaN."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def _compare(first: Run, second: Run) -> Comparison:
    keys = different_keys(first.experiment, second.experiment)
    same_shape = first.tensor_crcs.shape[1:] == second.tensor_crcs.shape[1:]
    rounds = min(first.rounds, second.rounds) if same_shape else 0
    a, b = first.columns["weights_crc"][:rounds], second.columns["weights_crc"][:rounds]
    shape = (rounds, first.nodes, first.tensor_crcs.shape[2])
    tensors = np.zeros(shape, np.bool_)
    if rounds:
        tensors[:] = first.tensor_crcs[:rounds] != second.tensor_crcs[:rounds]
    differs: NDArray[np.bool_] = np.asarray(tensors.any(axis=2))
    if rounds:
        differs |= a != b
    parted: NDArray[np.bool_] = np.asarray(differs.any(axis=1))
    parting = None
    if parted.any():
        at = int(np.argmax(parted))
        node = int(np.argmax(differs[at]))
        which = tensors[at, node]
        tensor = first.experiment.network.tensors[int(np.argmax(which))][0] if which.any() else "weights"
        parting = Parting(at, node, tensor, int(differs[at].sum()))
    return Comparison(first, second, keys, ~parted, parting, _differences(first, second, rounds))


def _differences(first: Run, second: Run, rounds: int) -> tuple[Difference, ...]:
    found = []
    for name in first.columns.keys() - {"weights_crc"}:
        a, b = first.columns[name][:rounds], second.columns[name][:rounds]
        if rounds == 0:
            continue
        differs = (a != b) & ~((a != a) & (b != b))  # NaN is equal to NaN
        if differs.any():
            at, node = (int(i) for i in np.unravel_index(np.argmax(differs), differs.shape))
            found.append(Difference(name, at, node, float(a[at, node]), float(b[at, node])))
    return tuple(sorted(found, key=lambda difference: (difference.round, difference.node, difference.figure)))
