"""Draw a chart of lines with bands as inline SVG."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_WIDTH, _HEIGHT = 560, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 12, 34
_LOG_SPAN = 20.0  # a log axis where the greatest is this many times the least


@dataclass(frozen=True)
class Series:
    """Hold one run's figure, summed up over its nodes; all arrays [points], x in rounds."""

    name: str
    color: int
    x: NDArray[np.int64]
    mean: NDArray[np.float64]
    least: NDArray[np.float64]
    greatest: NDArray[np.float64]
    low: NDArray[np.float64]  # 10th percentile
    high: NDArray[np.float64]  # 90th percentile

    @classmethod
    def of(cls, name: str, color: int, values: NDArray[np.float64], points: int) -> Series:
        """Sum up values [rounds, nodes] over the nodes, at most at `points` rounds; NaN is what was not measured."""
        measured = np.nonzero(~np.isnan(values).all(axis=1))[0]
        places = np.linspace(0, max(0, len(measured) - 1), points).round().astype(np.int64)
        keep = np.unique(places)[: len(measured)]
        x = measured[keep]
        rows = values[x]
        if not len(x):
            none = np.zeros(0)
            return cls(name, color, x, none, none, none, none, none)
        low, high = np.nanpercentile(rows, [10, 90], axis=1)
        return cls(
            name, color, x, np.nanmean(rows, axis=1), np.nanmin(rows, axis=1), np.nanmax(rows, axis=1), low, high
        )


@dataclass(frozen=True)
class Axis:
    """Map values to places on the page, on a linear or a logarithmic scale."""

    first: float
    last: float
    at_first: float
    at_last: float
    ticks: tuple[float, ...]
    log: bool = False

    def __call__(self, value: float) -> float:
        first, last = self.first, self.last
        if self.log:
            value, first, last = math.log(max(value, first)), math.log(first), math.log(last)
        return self.at_first + (value - first) / (last - first) * (self.at_last - self.at_first)


def chart(
    title: str,
    note: str,
    series: Sequence[Series],
    show: Callable[[float], str],
    *,
    log: bool = False,
    steps: bool = False,
) -> str:
    """Return a figure: title, SVG, and the numbers for the pointer.

    `show` writes a value; `steps` draws values that hold until the next.
    """
    drawn = [s for s in series if len(s.x)]
    head = f'<h3>{escape(title)}</h3><p class="note">{escape(note)}</p>'
    if not drawn:
        return f'<figure class="card">{head}<p class="empty">not measured in this run</p></figure>'
    x = _x_axis(drawn)
    y = _y_axis(drawn, log)
    parts = [_grid(x, y, show)]
    parts += [_band(s, x, y) for s in drawn]
    parts += [_line(s, number, x, y, steps) for number, s in enumerate(drawn)]
    cursor = f'<line class="cursor" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>'
    data = {
        "left": _LEFT,
        "right": _WIDTH - _RIGHT,
        "first": x.first,
        "last": x.last,
        "series": [_pointer_data(s, show) for s in drawn],
    }
    numbers = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # a name must not end the script
    return (
        f'<figure class="card chart">{head}<div class="plot">'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}{cursor}</svg>'
        f'<div class="tip" hidden></div></div>'
        f'<script type="application/json">{numbers}</script></figure>'
    )


def ticks(least: float, greatest: float, about: int = 5) -> tuple[float, ...]:
    """Return round numbers that span a range."""
    span = greatest - least or abs(greatest) or 1.0
    magnitude = 10.0 ** math.floor(math.log10(span / about))
    step = next(m for m in (1, 2, 2.5, 5, 10) if m * magnitude >= span / about) * magnitude
    first, last = math.floor(least / step + 1e-9), math.ceil(greatest / step - 1e-9)
    return tuple(step * i for i in range(first, max(last, first + 1) + 1))


def _x_axis(series: Sequence[Series]) -> Axis:
    first, last = min(int(s.x[0]) for s in series), max(int(s.x[-1]) for s in series)
    last = max(last, first + 1)
    marks = tuple(t for t in ticks(first, last, 6) if first <= t <= last and t == int(t))
    return Axis(first, last, _LEFT, _WIDTH - _RIGHT, marks)


def _y_axis(series: Sequence[Series], log: bool) -> Axis:
    least, greatest = min(float(s.least.min()) for s in series), max(float(s.greatest.max()) for s in series)
    top, bottom = _TOP, _HEIGHT - _BOTTOM
    if log and least > 0 and greatest / least >= _LOG_SPAN:
        decades = range(math.floor(math.log10(least) + 1e-9), math.ceil(math.log10(greatest) - 1e-9) + 1)
        marks = tuple(10.0**d for d in decades)
        return Axis(marks[0], marks[-1], bottom, top, marks, log=True)
    marks = ticks(min(least, 0.0) if least < 0.5 * greatest else least, greatest)
    return Axis(marks[0], marks[-1], bottom, top, marks)


def _grid(x: Axis, y: Axis, show: Callable[[float], str]) -> str:
    rows = [
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(t):.1f}" y2="{y(t):.1f}"/>'
        f'<text class="y" x="{_LEFT - 8}" y="{y(t) + 3.5:.1f}">{escape(show(t))}</text>'
        for t in y.ticks
    ]
    columns = [f'<text class="x" x="{x(t):.1f}" y="{_HEIGHT - _BOTTOM + 18}">{int(t)}</text>' for t in x.ticks]
    name = f'<text class="x name" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 2}">round</text>'
    return f'<g class="grid">{"".join(rows)}{"".join(columns)}{name}</g>'


def _points(s: Series, values: NDArray[np.float64], x: Axis, y: Axis) -> list[str]:
    return [f"{x(a):.1f},{y(b):.1f}" for a, b in zip(s.x.tolist(), values.tolist(), strict=True)]


def _band(s: Series, x: Axis, y: Axis) -> str:
    if np.allclose(s.least, s.greatest):
        return ""
    shapes = []
    for name, low, high in (("outer", s.least, s.greatest), ("inner", s.low, s.high)):
        outline = " ".join(_points(s, high, x, y) + _points(s, low, x, y)[::-1])
        shapes.append(f'<polygon class="band {name} c{s.color}" points="{outline}"/>')
    return "".join(shapes)


def _line(s: Series, number: int, x: Axis, y: Axis, steps: bool) -> str:
    """Draw the mean; later runs are dashed, so that an equal one beneath still shows."""
    dash = f' stroke-dasharray="6 {6 * number}"' if number else ""
    points = _points(s, s.mean, x, y)
    end_x, end_y = points[-1].split(",")
    if steps:
        corners = [f"{after.split(',')[0]},{before.split(',')[1]}" for before, after in pairwise(points)]
        points = [point for pair in zip(points, [*corners, points[-1]], strict=True) for point in pair]
    line = f'<polyline class="mean c{s.color}"{dash} points="{" ".join(points)}"/>'
    return f'{line}<circle class="c{s.color}" cx="{end_x}" cy="{end_y}" r="3"/>'


def _pointer_data(s: Series, show: Callable[[float], str]) -> dict[str, object]:
    text = [
        show(m) if a == b else f"{show(m)} ({show(a)} .. {show(b)})"
        for m, a, b in zip(s.mean.tolist(), s.least.tolist(), s.greatest.tolist(), strict=True)
    ]
    return {"name": s.name, "color": s.color, "x": s.x.tolist(), "text": text}
