"""Draw a plan of one memory as inline SVG: calls across, bytes up, a box for each buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

from codegen._names import short_names
from codegen.memory import Buffer, Plan, live_bytes
from gossamer.report import COLORS, ticks

_LEFT, _RIGHT, _TOP, _PLOT = 74, 16, 22, 340
_WIDTH = 1060  # where the calls need no more
_COLUMN = (26, 150)  # least and greatest width of a call
_LETTER, _LINE = 7.0, 13  # of a label, with some air
_GAP = 1.0  # between boxes


@dataclass(frozen=True)
class Memory:
    """Hold one memory and what is placed in it."""

    title: str
    buffers: tuple[Buffer, ...]
    plan: Plan
    limit_bytes: int | None = None

    @cached_property
    def short(self) -> dict[str, str]:
        """Return short forms of the buffers' names."""
        return short_names(buffer.name for buffer in self.buffers)

    @property
    def busiest(self) -> int:
        """Return the call at which most is alive; the first of several."""
        return max({buffer.first for buffer in self.buffers}, key=lambda call: (live_bytes(self.buffers, call), -call))

    def alive(self, call: int) -> list[tuple[Buffer, int]]:
        """List the buffers alive at a call, with their offsets, the largest first."""
        pairs = zip(self.buffers, self.plan.offsets, strict=True)
        alive = [(buffer, offset) for buffer, offset in pairs if buffer.pinned or buffer.first <= call <= buffer.last]
        return sorted(alive, key=lambda pair: (-pair[0].size_bytes, pair[1]))


def chart(memory: Memory, calls: Sequence[str], name: str) -> str:
    """Return the SVG; `calls` are the names of the kernels, `name` makes ids of the page unique.

    The picture is at least as wide as its labels need, so put it where it can scroll.
    """
    drawing = _Drawing(memory, calls)
    width = drawing.width
    return (
        f'<svg viewBox="0 0 {width} {drawing.height}" style="min-width:{width}px" role="img" '
        f'aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(memory.title)}</title>'
        f'<desc id="{name}-desc">{escape(drawing.description())}</desc>{"".join(drawing.parts())}</svg>'
    )


class _Drawing:
    def __init__(self, memory: Memory, calls: Sequence[str]) -> None:
        self.memory = memory
        self.calls = calls
        least, greatest = _COLUMN
        self.column = min(greatest, max(least, (_WIDTH - _LEFT - _RIGHT) // max(1, len(calls))))
        self.width = _LEFT + _RIGHT + self.column * len(calls)
        self.upright = max(map(len, calls), default=0) * _LETTER > self.column  # the names of the calls
        names_height = int(max(map(len, calls), default=0) * _LETTER) + 16 if self.upright else _LINE + 8
        self.height = _TOP + _PLOT + 20 + names_height
        peak, limit = memory.plan.peak_bytes, memory.limit_bytes
        self.limit = limit if limit is not None and limit <= 2 * peak else None
        self.marks = [int(mark) for mark in ticks(0, max(peak, self.limit or 0)) if mark == int(mark)]

    def description(self) -> str:
        plan = self.memory.plan
        return (
            f"{len(self.memory.buffers)} buffers over {len(self.calls)} calls; the peak is {plan.peak_bytes:,} bytes, "
            f"and most is alive at call {self.memory.busiest}"
        )

    def parts(self) -> list[str]:
        return [self._grid(), self._names(), self._busiest(), *self._boxes(), self._load(), *self._lines()]

    def x(self, call: int) -> float:
        return _LEFT + self.column * call

    def y(self, offset_bytes: int) -> float:
        return _TOP + _PLOT * (1 - offset_bytes / self.marks[-1])

    def _grid(self) -> str:
        rows = [
            f'<line x1="{_LEFT}" x2="{self.width - _RIGHT}" y1="{self.y(mark):.1f}" y2="{self.y(mark):.1f}"/>'
            f'<text class="y" x="{_LEFT - 8}" y="{self.y(mark) + 4:.1f}">{mark:,}</text>'
            for mark in self.marks
        ]
        return f'<g class="grid">{"".join(rows)}</g>'

    def _names(self) -> str:
        """Write the number of every call, and the kernel below."""
        texts = []
        bottom = _TOP + _PLOT
        for number, name in enumerate(self.calls):
            middle = self.x(number) + self.column / 2
            texts.append(f'<text class="x" x="{middle:.1f}" y="{bottom + 16}">{number}</text>')
            if self.upright:
                at = f"{middle + 4:.1f},{bottom + 24}"
                texts.append(f'<text class="upright" transform="translate({at}) rotate(-90)">{escape(name)}</text>')
            else:
                texts.append(f'<text class="x" x="{middle:.1f}" y="{bottom + 32}">{escape(name)}</text>')
        return "".join(texts)

    def _busiest(self) -> str:
        return (
            f'<rect class="busiest" x="{self.x(self.memory.busiest):.1f}" y="{_TOP}" width="{self.column}" '
            f'height="{_PLOT}"/>'
        )

    def _boxes(self) -> list[str]:
        pairs = zip(self.memory.buffers, self.memory.plan.offsets, strict=True)
        return [self._box(number, buffer, offset) for number, (buffer, offset) in enumerate(pairs) if buffer.size_bytes]

    def _box(self, number: int, buffer: Buffer, offset: int) -> str:
        first, last = (
            (0, len(self.calls) - 1) if buffer.pinned else (buffer.first, min(buffer.last, len(self.calls) - 1))
        )
        left, right = self.x(first) + _GAP, self.x(last + 1) - _GAP
        top, bottom = self.y(offset + buffer.room_bytes), self.y(offset)
        when = "always" if buffer.pinned else f"calls {buffer.first} to {buffer.last}"
        hint = f"{buffer.name}: {buffer.size_bytes:,} bytes at {offset:,}, {when}"
        label = self._label(self.memory.short[buffer.name], left, top, right - left, bottom - top)
        return (
            f'<g class="box c{number % COLORS}"><title>{escape(hint)}</title><rect x="{left:.1f}" y="{top:.1f}" '
            f'width="{right - left:.1f}" height="{max(0.5, bottom - top - _GAP / 2):.1f}"/>{label}</g>'
        )

    def _label(self, name: str, left: float, top: float, width: float, height: float) -> str:
        """Write a name along the longer side, cut to it; nothing where it would not be read."""
        upright = height > width and len(name) * _LETTER > width - 8
        along, across = (height, width) if upright else (width, height)
        room = int((along - 8) / _LETTER)
        if across < _LINE or room < min(3, len(name)):
            return ""
        text = escape(name if len(name) <= room else name[: room - 1] + "…")
        if upright:
            at = f"{left + width / 2 + 4:.1f},{top + height - 4:.1f}"
            return f'<text transform="translate({at}) rotate(-90)">{text}</text>'
        return f'<text x="{left + 4:.1f}" y="{top + height / 2 + 4:.1f}">{text}</text>'

    def _load(self) -> str:
        """Draw what is alive at every call: no packing can have its peak below the highest step."""
        points = []
        for call in range(len(self.calls)):
            height = self.y(live_bytes(self.memory.buffers, call))
            points += [f"{self.x(call):.1f},{height:.1f}", f"{self.x(call + 1):.1f},{height:.1f}"]
        return f'<polyline class="load" points="{" ".join(points)}"/>'

    def _lines(self) -> list[str]:
        lines = [self._line("peak", self.memory.plan.peak_bytes)]
        if self.limit is not None:
            lines.append(self._line("limit", self.limit))
        return lines

    def _line(self, name: str, at_bytes: int) -> str:
        height, right = self.y(at_bytes), self.width - _RIGHT
        anchor, x = ("end", right) if name == "peak" else ("start", _LEFT + 4)
        return (
            f'<g class="{name}"><line x1="{_LEFT}" x2="{right}" y1="{height:.1f}" y2="{height:.1f}"/>'
            f'<text x="{x}" y="{height - 5:.1f}" text-anchor="{anchor}">{name} {at_bytes:,}</text></g>'
        )
