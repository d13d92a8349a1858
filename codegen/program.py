"""Turn a graph into a program: calls of kernels over planned memory, ready to be written as C."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from codegen import fold, memory, shapes
from codegen.ir import Graph, ModelError, OperatorError
from codegen.limits import check_flash, check_ram
from codegen.lower import Call, Table, lower_graph
from codegen.storage import Layout, Region, buffers, lay_out


@dataclass(frozen=True)
class Settings:
    """Say how to compile a model; the numbers of bytes are None for no limit."""

    name: str = "model"
    weight_bits: int = 8
    ram_limit_bytes: int | None = None
    flash_limit_bytes: int | None = None
    psram: bool = False
    keep_all: bool = False  # share no memory, so that every tensor can be read after the last call


@dataclass(frozen=True, eq=False)
class Program:
    """Hold what is written as C."""

    graph: Graph
    settings: Settings
    file: str  # that the graph came from
    layout: Layout
    arena: memory.Plan
    psram: memory.Plan

    @property
    def calls(self) -> Sequence[Call]:
        """List the calls in order."""
        return self.layout.calls

    @property
    def flash_bytes(self) -> int:
        """Count the bytes of all constant tables; code and parameter structs are not in it."""
        return sum(size for _, _, size in self.flash_rows())

    def flash_rows(self) -> list[tuple[str, str, int]]:
        """List (owner, role, bytes) of every constant table; equal tables are written once, for their first owner."""
        rows = []
        seen: set[tuple[str, bytes]] = set()
        for owner, table in self._tables():
            values = np.ascontiguousarray(table.values)
            key = values.dtype.name, values.tobytes()
            if key not in seen:
                seen.add(key)
                rows.append((owner, table.role, values.nbytes))
        return rows

    def _tables(self) -> Iterator[tuple[str, Table]]:
        for place in self.layout.storages:
            if place.region is Region.FLASH and place.tensors[0].data is not None:
                yield place.name, Table(place.tensors[0].data, "constant")
        for call in self.calls:
            for field in call.parameters.fields.values():
                if isinstance(field, Table):
                    yield call.operator.output.name, field


def compile_graph(graph: Graph, settings: Settings | None = None, file: str | None = None) -> Program:
    """Infer shapes, fold, lower, and plan the memory of a graph; `file` is where it came from, for messages.

    Raises ModelError: an operator that cannot be exported, or a limit that does not hold.
    """
    settings = settings or Settings()
    file = graph.name if file is None else file
    try:
        graph = fold.fold(shapes.infer(graph))
        if settings.weight_bits != 8:
            from codegen import subbyte

            graph = subbyte.requantize(graph, settings.weight_bits)
        lowered = lower_graph(graph)
    except OperatorError as refused:
        raise ModelError.of(refused, file) from refused
    layout = lay_out(graph, lowered, keep_all=settings.keep_all)
    program = _plan(graph, settings, file, layout)
    check_flash(program.flash_rows(), settings.flash_limit_bytes, file)
    return program


def _plan(graph: Graph, settings: Settings, file: str, layout: Layout) -> Program:
    places = layout.in_arena
    if settings.psram and settings.ram_limit_bytes is not None:
        split = memory.split(buffers(places), _accesses(layout), settings.ram_limit_bytes)
        for place, is_inner in zip(places, split.inner, strict=True):
            place.region = Region.ARENA if is_inner else Region.PSRAM
    plans = []
    for region in (Region.ARENA, Region.PSRAM):
        mine = [place for place in places if place.region is region]
        plan = memory.pack(buffers(mine))
        for place, offset in zip(mine, plan.offsets, strict=True):
            place.offset = offset
        plans.append(plan)
    arena, psram = plans
    mine = [place for place in places if place.region is Region.ARENA]
    check_ram(buffers(mine), arena, [call.operator for call in layout.calls], settings.ram_limit_bytes, file)
    return Program(graph, settings, file, layout, arena, psram)


def _accesses(layout: Layout) -> list[int]:
    """Count how often each storage of the arena is read or written."""
    counts = {id(place): 0 for place in layout.in_arena}
    for call, scratch in zip(layout.calls, layout.scratch, strict=True):
        touched = [layout.of(tensor) for tensor in (*call.inputs, *call.outputs, *call.state)]
        for place in [*touched, *([scratch] if scratch else [])]:
            if id(place) in counts:
                counts[id(place)] += 1
    return [counts[id(place)] for place in layout.in_arena]
