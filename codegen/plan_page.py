"""Write a page about the memory of a model: each arena as a picture, what its peak is made of, and the flash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Final

from codegen._names import short_names
from codegen._plan_chart import Memory, chart
from codegen.memory import Plan
from codegen.program import Program
from codegen.storage import Region, Storage, buffers
from gossamer.report import document

__all__ = ["Memory", "page", "program_page"]

_STYLE: Final = """
.box rect{fill:currentColor;fill-opacity:.22;stroke:currentColor;stroke-width:1}
.box:hover rect{fill-opacity:.45}
.box text{fill:var(--ink)}
text.upright{text-anchor:end}
.busiest{fill:var(--soft);opacity:.13}
.load{fill:none;stroke:var(--ink);stroke-width:1.5;opacity:.55}
.peak line{stroke:var(--bad);stroke-dasharray:6 4}.peak text{fill:var(--bad);font-weight:600}
.limit line{stroke:var(--good);stroke-dasharray:2 3}.limit text{fill:var(--good);font-weight:600}
.tables{margin-top:14px;display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:14px}
.tables>*{min-width:0}
tfoot td{font-weight:600}
td.name{white-space:normal;overflow-wrap:anywhere;min-width:9em}
.lead code{font:13px ui-monospace,Menlo,Consolas,monospace;overflow-wrap:anywhere}
"""


def program_page(program: Program) -> str:
    """Return the page about a compiled model."""
    settings = program.settings
    memories = [_memory("Internal RAM", program, Region.ARENA, program.arena, settings.ram_limit_bytes)]
    if settings.psram:
        memories.append(_memory("PSRAM", program, Region.PSRAM, program.psram, None))
    calls = [call.operator.kind for call in program.calls]
    lead = f"{program.file}, SHA-256 {program.graph.sha256 or 'unknown'}"
    return page(f"Memory of {settings.name}", lead, memories, calls, program.flash_rows())


def page(
    title: str, lead: str, memories: Sequence[Memory], calls: Sequence[str], flash: Sequence[tuple[str, str, int]]
) -> str:
    """Return one self-contained HTML page, without scripts.

    `calls` names the kernels in order; the buffers' `first` and `last` count them. `flash` lists (owner, role, bytes).
    """
    body = [
        f'<h1>{escape(title)}</h1><p class="lead"><code>{escape(lead)}</code></p>',
        _tiles(memories, calls, flash),
        *(_section(memory, calls, f"memory{number}") for number, memory in enumerate(memories)),
        _flash(flash),
    ]
    return document(title, "".join(body), style=_STYLE)


def _memory(title: str, program: Program, region: Region, plan: Plan, limit_bytes: int | None) -> Memory:
    mine = [place for place in program.layout.in_arena if place.region is region]
    places = zip(buffers(mine), mine, strict=True)
    named = tuple(replace(buffer, name=_names(place)) for buffer, place in places)
    return Memory(title, named, plan, limit_bytes)


def _names(place: Storage) -> str:
    """Name all tensors that share a storage, each once, in order of time; or say whose scratch it is."""
    return ", ".join(dict.fromkeys(tensor.name for tensor in place.tensors)) or f"scratch of call {place.first}"


def _tiles(memories: Sequence[Memory], calls: Sequence[str], flash: Sequence[tuple[str, str, int]]) -> str:
    tiles = []
    for memory in memories:
        tiles.append((memory.title, f"{memory.plan.peak_bytes:,} B", _quality(memory.plan)))
    tiles.append(("Flash, without code", f"{sum(size for _, _, size in flash):,} B", f"{len(flash)} tables"))
    tiles.append(("Calls of kernels", f"{len(calls)}", f"{len(set(calls))} kinds"))
    cells = [
        f'<div class="card tile"><span>{escape(name)}</span><strong>{value}</strong><span>{escape(note)}</span></div>'
        for name, value, note in tiles
    ]
    return f'<div class="tiles">{"".join(cells)}</div>'


def _quality(plan: Plan) -> str:
    if plan.peak_bytes == plan.lower_bound_bytes:
        return "the sum of what is alive: no plan is smaller"
    if plan.proved_optimal:
        return f"proved the least; {plan.lower_bound_bytes:,} are alive at once"
    return f"{plan.ratio:.3f} times what is alive at once, {plan.lower_bound_bytes:,}"


def _section(memory: Memory, calls: Sequence[str], name: str) -> str:
    if not memory.plan.peak_bytes:
        return f'<h2>{escape(memory.title)}</h2><p class="card empty">nothing is placed here</p>'
    note = (
        "calls of kernels across, bytes up; a box is one place in memory for as long as it is needed; "
        "the line is the sum of what is alive"
    )
    return (
        f'<h2>{escape(memory.title)}</h2><figure class="card"><p class="note">{note}</p>'
        f'<div class="scroll" tabindex="0">{chart(memory, calls, name)}</div></figure>'
        f'<div class="tables">{_peak_table(memory, calls)}{_all_table(memory)}</div>'
    )


def _peak_table(memory: Memory, calls: Sequence[str]) -> str:
    call = memory.busiest
    alive = [(buffer, offset) for buffer, offset in memory.alive(call) if buffer.size_bytes]
    kernel = f" ({calls[call]})" if call < len(calls) else ""
    rows = [
        (memory.short[buffer.name], f"{buffer.size_bytes:,}", f"{buffer.room_bytes / memory.plan.peak_bytes:.0%}")
        for buffer, _ in alive
    ]
    total = sum(buffer.room_bytes for buffer, _ in alive)
    foot = ("together, rounded up", f"{total:,}", f"{total / memory.plan.peak_bytes:.0%}")
    head = f"Alive at call {call}{kernel}, where most is"
    return f"<div>{_table(head, ('tensors', 'bytes', 'of the peak'), rows, foot)}</div>"


def _all_table(memory: Memory) -> str:
    pairs = sorted(zip(memory.plan.offsets, memory.buffers, strict=True), key=lambda pair: (pair[0], pair[1].first))
    rows = [
        (
            memory.short[buffer.name],
            f"{offset:,}",
            f"{buffer.size_bytes:,}",
            "always" if buffer.pinned else f"{buffer.first} to {buffer.last}",
        )
        for offset, buffer in pairs
    ]
    return f"<div>{_table('Everything, from the bottom', ('tensors', 'offset', 'bytes', 'calls'), rows)}</div>"


def _flash(flash: Sequence[tuple[str, str, int]]) -> str:
    if not flash:
        return '<h2>Flash</h2><p class="card empty">no constants</p>'
    total = sum(size for _, _, size in flash)
    largest = sorted(flash, key=lambda row: (-row[2], row[0], row[1]))
    short = short_names(owner for owner, _, _ in flash)
    rows = [(short[owner], role, f"{size:,}", f"{size / max(1, total):.1%}") for owner, role, size in largest]
    foot = ("together", "", f"{total:,}", "")
    return f"<h2>Flash</h2>{_table('Constants, the largest first', ('owner', 'role', 'bytes', 'share'), rows, foot)}"


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], foot: Sequence[str] | None = None) -> str:
    """Return a card with a table; columns of words are set left and may wrap, those of numbers right."""
    words = {"tensors": ' class="name"', "owner": ' class="name"', "role": ""}
    styles = [words.get(name, ' class="n"') for name in head]

    def line(cells: Sequence[str], tag: str) -> str:
        pairs = zip(cells, styles, strict=True)
        return f"<tr>{''.join(f'<{tag}{style}>{escape(cell)}</{tag}>' for cell, style in pairs)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    end = f"<tfoot>{line(foot, 'td')}</tfoot>" if foot else ""
    return (
        f'<div class="card"><h3>{escape(title)}</h3><div class="scroll" tabindex="0"><table><thead>{line(head, "th")}'
        f"</thead><tbody>{body}</tbody>{end}</table></div></div>"
    )
