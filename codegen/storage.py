"""Decide where every tensor of a program lives: the caller's buffers, flash, or a place in an arena, and for how long.

Tensors that hold the same elements share one storage: what an alias renames, and what a kernel may compute in place.
`codegen.memory` then packs the storages that need room in an arena.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from codegen.ir import Graph, Tensor
from codegen.lower import Alias, Call, Lowered
from codegen.memory import Buffer


class Region(Enum):
    """Kinds of memory."""

    FLASH = "flash"  # a constant
    INPUT = "input"  # the caller's, read only
    OUTPUT = "output"  # the caller's
    ARENA = "arena"
    PSRAM = "psram"  # the second, slower arena


@dataclass(eq=False)
class Storage:
    """Hold one group of tensors, one after the other."""

    region: Region
    number: int = 0  # of the input or output
    offset: int = 0  # in the arena
    size_bytes: int = 0
    first: int = 0  # call that writes it
    last: int = 0  # last call that needs it
    tensors: list[Tensor] = field(default_factory=list)
    persistent: bool = False  # keeps its value between invocations

    @property
    def name(self) -> str:
        """Return the name of the first tensor."""
        return self.tensors[0].name if self.tensors else "scratch"


@dataclass(frozen=True, eq=False)
class Copy:
    """Copy a tensor to an output of the model that has no storage of its own."""

    source: Tensor
    output: int


@dataclass(frozen=True, eq=False)
class Layout:
    """Say where everything is: the storage of each tensor (by identity), and each call's scratch."""

    calls: tuple[Call, ...]
    copies: tuple[Copy, ...]
    storages: tuple[Storage, ...]
    scratch: tuple[Storage | None, ...]  # one a call
    _of: dict[int, Storage]

    def of(self, tensor: Tensor) -> Storage:
        """Return where a tensor lives."""
        return self._of[id(tensor)]

    def has(self, tensor: Tensor) -> bool:
        """Tell whether a tensor lives anywhere: one that a call leaves out does not."""
        return id(tensor) in self._of

    @property
    def in_arena(self) -> list[Storage]:
        """List what needs room in an arena, scratch included, in the order of calls."""
        mine = [*self.storages, *(place for place in self.scratch if place)]
        mine = [place for place in mine if place.region in (Region.ARENA, Region.PSRAM)]
        return sorted(mine, key=lambda place: (place.first, place.last, place.name))

    @property
    def state_bytes(self) -> int:
        """Count the bytes at the start of the arena that must survive between invocations."""
        ends = [place.offset + place.size_bytes for place in self.in_arena if place.persistent]
        return max(ends, default=0)


def lay_out(graph: Graph, lowered: Sequence[Lowered], *, keep_all: bool = False) -> Layout:
    """Group tensors into storages and find when each is needed; offsets are left 0 for the packer.

    With `keep_all` nothing is shared or reused, so that every tensor can be read after the last call.
    """
    return _Layouter(graph, lowered, keep_all).layout()


def buffers(storages: Sequence[Storage]) -> list[Buffer]:
    """Describe storages to the packer."""
    return [
        Buffer(place.name, place.size_bytes, place.first, place.last, pinned=place.persistent) for place in storages
    ]


class _Layouter:
    def __init__(self, graph: Graph, lowered: Sequence[Lowered], keep_all: bool) -> None:
        self.graph = graph
        self.keep_all = keep_all
        self.calls = [step for step in lowered if isinstance(step, Call)]
        self.of: dict[int, Storage] = {}
        self.storages: list[Storage] = []
        self.copies: list[Copy] = []
        self.source = {id(step.output): step.source for step in lowered if isinstance(step, Alias)}
        self.last_use = self._last_uses()

    def layout(self) -> Layout:
        self._fix_ends()
        for number, call in enumerate(self.calls):
            for tensor in call.state:
                self._add(Storage(Region.ARENA, persistent=True, first=0, last=len(self.calls) - 1), tensor)
            for tensor in map(self._root, call.inputs):
                if tensor.data is not None:
                    self._add(Storage(Region.FLASH), tensor)
            for position, tensor in enumerate(call.outputs):
                self._place_output(number, call, tensor, may_take_over=position == 0)
        if self.keep_all:
            for place in self.storages:
                place.first, place.last = 0, len(self.calls)
        scratch = [
            Storage(Region.ARENA, size_bytes=call.scratch_bytes, first=number, last=number)
            if call.scratch_bytes
            else None
            for number, call in enumerate(self.calls)
        ]
        for tensor in self.graph.tensors():
            root = self._root(tensor)
            if id(root) in self.of and root is not tensor:
                self.of[id(tensor)] = self.of[id(root)]
                self.of[id(root)].tensors.append(tensor)
        return Layout(tuple(self.calls), tuple(self.copies), tuple(self.storages), tuple(scratch), self.of)

    def _root(self, tensor: Tensor) -> Tensor:
        while id(tensor) in self.source:
            tensor = self.source[id(tensor)]
        return tensor

    def _last_uses(self) -> dict[int, int]:
        """Find the last call that reads each root."""
        found: dict[int, int] = {}
        for number, call in enumerate(self.calls):
            for tensor in call.inputs:
                found[id(self._root(tensor))] = number
        return found

    def _fix_ends(self) -> None:
        """Give the model's inputs and outputs the caller's buffers, or note a copy."""
        for number, tensor in enumerate(self.graph.inputs):
            self._add(Storage(Region.INPUT, number), tensor)
        for number, tensor in enumerate(self.graph.outputs):
            root = self._root(tensor)
            if root.data is not None:
                self._add(Storage(Region.FLASH), root)
            if id(root) in self.of:
                self.copies.append(Copy(tensor, number))
            else:
                self._add(Storage(Region.OUTPUT, number), root)

    def _place_output(self, number: int, call: Call, tensor: Tensor, may_take_over: bool) -> None:
        if id(tensor) in self.of:  # an output of the model
            self.of[id(tensor)].first = number
            return
        last = max(number, self.last_use.get(id(tensor), number))
        taken = next(self._takeable(number, call, tensor), None) if may_take_over and not self.keep_all else None
        if taken is None:
            self._add(Storage(Region.ARENA, first=number, last=last), tensor)
        else:
            taken.last = last
            self._add(taken, tensor)

    def _takeable(self, number: int, call: Call, output: Tensor) -> Iterator[Storage]:
        """Find the storages of inputs that end here and are large enough."""
        for position in call.in_place:
            tensor = call.inputs[position]
            place = self.of.get(id(self._root(tensor)))
            if place is None or place.region is not Region.ARENA or place.persistent:
                continue
            if place.last == number and place.size_bytes >= output.bytes:
                yield place

    def _add(self, place: Storage, tensor: Tensor) -> None:
        if id(tensor) in self.of:
            return
        self.of[id(tensor)] = place
        place.tensors.append(tensor)
        place.size_bytes = max(place.size_bytes, tensor.bytes)
        if place not in self.storages:
            self.storages.append(place)
