"""Turn the faults of an experiment into what the plan knows: absences, partitions and noise (SPEC.md 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gossamer.spec import rng
from gossamer.spec.plan import Absence, Noise, Partition

if TYPE_CHECKING:
    from gossamer.experiment._sections import FaultEvent, FaultsSection

RATE: Final = 0.5  # of spoiling a frame of a corrupted link
_ENDS: Final = {"kill": "restart", "pause": "resume"}


@dataclass(frozen=True)
class Fault:
    """Name what happens to nodes, ascending, ahead of a round."""

    round: int
    do: str  # an action of `FaultEvent`
    nodes: tuple[int, ...]


@dataclass
class Effects:
    """Collect what the faults of a run amount to, in rounds first <= r < end."""

    absences: list[Absence] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    noises: list[Noise] = field(default_factory=list)
    problems: list[tuple[int, str, str]] = field(default_factory=list)  # the event's place in the file, what, the mend


def nodes_of(names: Sequence[int | str], groups: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Return the nodes that are named, by number or group, ascending. Raises KeyError: no such group."""
    found: set[int] = set()
    for name in names:
        found.update(groups[name] if isinstance(name, str) else (name,))
    return tuple(sorted(found))


def schedule(section: FaultsSection) -> list[Fault]:
    """Return all faults in the order of the rounds, those of one round as the file has them."""
    events = sorted(section.event, key=lambda event: event.round)
    return [Fault(event.round, event.do, nodes_of(event.nodes, section.groups)) for event in events]


def effects(section: FaultsSection, rounds: int) -> Effects:
    """Follow the faults through a run of so many rounds."""
    result = Effects()
    away: dict[int, tuple[str, int]] = {}  # node -> by what, since which round
    cuts: list[tuple[int, tuple[int, ...], FaultEvent]] = []  # open partitions and noise: since when, whose
    numbered = sorted(enumerate(section.event), key=lambda item: item[1].round)
    for number, event in numbered:
        nodes = nodes_of(event.nodes, section.groups)
        if event.do in ("partition", "corrupt_link"):
            cuts.append((event.round, nodes, event))
        elif event.do == "heal":
            healed = [cut for cut in cuts if not nodes or set(nodes) & set(cut[1])]
            if not healed:
                result.problems.append((number, "nothing to heal", "partition or corrupt_link these nodes before"))
            cuts = [cut for cut in cuts if cut not in healed]
            _close(healed, event.round, result)
        else:
            result.problems += _move(number, event, nodes, away, result)
    _close(cuts, rounds, result)
    result.absences += [Absence(node, first, rounds) for node, (_, first) in sorted(away.items()) if first < rounds]
    return result


def _move(
    number: int, event: FaultEvent, nodes: Sequence[int], away: dict[int, tuple[str, int]], result: Effects
) -> Iterator[tuple[int, str, str]]:
    """Let nodes go, or come back."""
    for node in nodes:
        by, first = away.get(node, ("", 0))
        if event.do in _ENDS:
            if by:
                yield number, f"node {node} is away since round {first} ({by})", f"{_ENDS[by]} it before"
            else:
                away[node] = event.do, event.round
        elif event.do == "resume" and by != "pause":
            yield number, f"node {node} is not paused", "pause it before, or restart it"
        elif by:
            del away[node]
            if first < event.round:
                result.absences.append(Absence(node, first, event.round))


def _close(cuts: Sequence[tuple[int, tuple[int, ...], FaultEvent]], end: int, result: Effects) -> None:
    for first, nodes, event in cuts:
        if first >= end:
            continue
        if event.do == "partition":
            result.partitions.append(Partition(nodes, first, end))
        else:
            rate = RATE if event.rate is None else event.rate
            result.noises.append(Noise(nodes, first, end, rng.probability24(rate)))
