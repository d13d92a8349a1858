"""Put the page together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import groupby

import numpy as np

from gossamer.compare import Comparison, mean
from gossamer.record import Run
from gossamer.report._assets import COLORS, SCRIPT, STYLE
from gossamer.report._chart import Series, chart

_POINTS_PAGE, _POINTS_LEAST = 360, 60  # points of all lines of a chart, and of one: a page stays below 200 kB


def page(runs: Sequence[Run], comparisons: Sequence[Comparison]) -> str:
    """Return the whole page as HTML."""
    first = runs[0]
    name = escape(first.experiment.experiment.name)
    body = [
        f"<h1>{name}</h1>",
        f'<p class="lead">{escape(_lead(first))}{f"<br>figures of {escape(_label(first))}" if comparisons else ""}</p>',
        *map(_verdict, comparisons),
        _tiles(first),
        _legend(runs),
        _charts(runs),
        _agreement(runs, comparisons) if comparisons else "",
        _figures(runs, comparisons),
        _differing_options(comparisons),
        _options(first),
        f"<footer>{escape(_footer(first))}</footer>",
    ]
    return document(first.experiment.experiment.name, "".join(body), script=SCRIPT)


def document(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """Return a page in the house style; the body, the style and the script are put in as they are."""
    ending = f"<script>{script}</script>" if script else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)} - Gossamer</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{STYLE}{style}</style></head><body><main>{body}</main>{ending}</body></html>\n"
    )


def percent(value: float) -> str:
    """Write a share: 0.9123 as 91.2 %."""
    return "-" if math.isnan(value) else f"{value * 100:.3g} %"


def compact(value: float) -> str:
    """Write a plain number shortly."""
    return f"{value:.3g}"


def size(value: float) -> str:
    """Write a number of bytes: 1234567 as 1.23 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"


def _lead(run: Run) -> str:
    e = run.experiment
    words = [
        f"{e.experiment.nodes} nodes",
        f"{run.rounds} of {e.experiment.rounds} rounds",
        f"policy {e.policy.name}",
        f"topology {e.topology.kind}",
        f"{e.policy.bits}-bit values",
        f"data {e.data.set}, {e.data.partition}",
        f"seed {e.experiment.seed}",
    ]
    return "  ·  ".join(words)


def _verdict(comparison: Comparison) -> str:
    first, second = _label(comparison.first), _label(comparison.second)
    if comparison.agrees:
        nodes, rounds = comparison.second.nodes, comparison.rounds
        what = f"{second} holds the same bits as {first} in every weight of all {nodes} nodes, after {rounds} rounds."
        return f'<p class="card verdict"><b>Bit for bit</b><span>{escape(what)}</span></p>'
    if comparison.parting is None:
        what = f"{second} has no rounds, or not the same nodes and layers, to compare with {first}."
    else:
        what = f"{second} parts from {first} after {comparison.equal_rounds} equal rounds: {comparison.parting}."
    return f'<p class="card verdict parts"><b>They part</b><span>{escape(what)}</span></p>'


def _tiles(run: Run) -> str:
    final = run.final_accuracy
    least, greatest = (percent(float(f(final))) if not math.isnan(mean(final)) else "-" for f in (np.nanmin, np.nanmax))
    tiles = {
        "final accuracy, mean": percent(mean(final)),
        "its range over the nodes": f"{least.removesuffix(' %')} .. {greatest}",
        "sent by a node": size(run.bytes_sent / run.nodes),
        "frames lost": _lost(run),
        "time": f"{run.info['seconds']:.1f} s",
    }
    cells = [f'<div class="card tile"><span>{k}</span><strong>{escape(v)}</strong></div>' for k, v in tiles.items()]
    return f'<div class="tiles">{"".join(cells)}</div>'


def _lost(run: Run) -> str:
    sent = int(run.columns["frames_sent"].sum())
    return percent(int(run.columns["frames_lost"].sum()) / sent) if sent else "-"


def _label(run: Run) -> str:
    return f"{run.folder.resolve().name}, {run.place}"


def _legend(runs: Sequence[Run]) -> str:
    names = [f'<span class="c{i % COLORS}"><i></i><b>{escape(_label(run))}</b></span>' for i, run in enumerate(runs)]
    band = "<span>line: mean over the nodes; bands: 10 % to 90 % of the nodes, and all</span>"
    return f'<div class="legend">{"".join(names)}{band}</div>'


def _charts(runs: Sequence[Run]) -> str:
    points = max(_POINTS_LEAST, _POINTS_PAGE // len(runs))

    def series(name: str) -> list[Series]:
        return [Series.of(_label(run), i % COLORS, _values(run, name), points) for i, run in enumerate(runs)]

    charts = [
        chart("Accuracy", "share of test samples predicted right", series("accuracy"), percent),
        chart("Training loss", "cross-entropy, mean over a round's steps", series("train_loss"), compact),
        chart("Bytes sent", "by a node since the start, frame headers included", series("bytes_sent"), size),
        chart("Learning rate", "used in the round", series("lr"), compact, log=True, steps=True),
    ]
    return f'<div class="charts">{"".join(charts)}</div>'


def _values(run: Run, name: str) -> np.ndarray:
    """Return what a chart shows, [rounds, nodes]; an absent node has no loss and no rate."""
    if name == "accuracy":
        return run.accuracy
    values = run.columns[name].astype(np.float64)
    if name == "bytes_sent":
        return values.cumsum(axis=0)
    return np.where(run.columns["present"] & np.isfinite(values), values, np.nan)


def _agreement(runs: Sequence[Run], comparisons: Sequence[Comparison]) -> str:
    rounds = max(run.rounds for run in runs)
    rows = [f"<span>{escape(_label(runs[0]))}</span><span>the reference</span>"]
    for comparison in comparisons:
        cells = []
        start = 0
        states = ["same" if equal else "apart" for equal in comparison.equal.tolist()]
        states += ["missing"] * (rounds - len(states))
        for state, group in groupby(states):
            count = len(list(group))
            cells.append(f'<rect class="{state}" x="{start}" width="{count}" height="1"/>')
            start += count
        bar = (
            f'<svg viewBox="0 0 {rounds} 1" preserveAspectRatio="none" role="img" aria-label="equal in '
            f'{comparison.equal_rounds} of {comparison.rounds} rounds">{"".join(cells)}</svg>'
        )
        rows.append(f"<span>{escape(_label(comparison.second))}</span>{bar}")
    scale = f'<span></span><span class="scale"><span>round 0</span><span>{rounds - 1}</span></span>'
    return (
        '<h2>Agreement</h2><div class="card"><p class="note">a round is green when every weight of every node '
        f'is the same to the bit</p><div class="strip">{"".join(rows)}{scale}</div></div>'
    )


def _figures(runs: Sequence[Run], comparisons: Sequence[Comparison]) -> str:
    names = ("rounds", "equal", "accuracy", "least", "greatest", "bytes sent", "merged", "rejected", "lost", "seconds")
    head = "".join(f'<th class="n">{name}</th>' for name in names)
    rows = []
    for number, run in enumerate(runs):
        final = run.final_accuracy
        known = final[~np.isnan(final)]
        cells = [
            f"{run.rounds}",
            f"{comparisons[number - 1].equal_rounds}" if number else "-",
            percent(mean(final)),
            percent(float(known.min())) if known.size else "-",
            percent(float(known.max())) if known.size else "-",
            f"{run.bytes_sent:,}",
            f"{int(run.columns['messages_merged'].sum()):,}",
            f"{int(run.columns['messages_rejected'].sum()):,}",
            f"{int(run.columns['frames_lost'].sum()):,}",
            f"{run.info['seconds']:.1f}",
        ]
        mark = f'<span class="c{number % COLORS}">■</span> {escape(_label(run))}'
        rows.append(f"<tr><td>{mark}</td>{''.join(f'<td class=n>{cell}</td>' for cell in cells)}</tr>")
    return (
        f'<h2>Final figures</h2><div class="card scroll"><table><thead><tr><th>run</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _differing_options(comparisons: Sequence[Comparison]) -> str:
    rows = [
        f"<tr><td>{escape(_label(c.second))}</td><td><code>{escape(key)}</code></td>"
        f"<td>{escape(_shown(a))}</td><td>{escape(_shown(b))}</td></tr>"
        for c in comparisons
        for key, (a, b) in c.keys.items()
    ]
    if not rows:
        return ""
    head = "<tr><th>run</th><th>option</th><th>first</th><th>this one</th></tr>"
    return (
        f'<h2>The experiments differ</h2><div class="card scroll"><table><thead>{head}</thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _options(run: Run) -> str:
    sections = [
        f"<section><h4>[{name}]</h4>"
        + "".join(
            f"<div><span>{escape(key)}</span><code>{escape(_shown(value))}</code></div>"
            for key, value in options.items()
        )
        + "</section>"
        for name, options in run.experiment.values().items()
    ]
    return (
        '<details class="card"><summary>The experiment, every default written out</summary>'
        f'<div class="options">{"".join(sections)}</div></details>'
    )


def _shown(value: object) -> str:
    match value:
        case None:
            return "absent"
        case bool():
            return str(value).lower()
        case tuple() | list():
            text = f"[{', '.join(map(_shown, value))}]"
        case _:
            text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _footer(run: Run) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run.info["versions"].items())
    git = f", commit {run.info['git']}" if run.info["git"] else ""
    return f"Recorded {run.info['started']} on {run.info['machine']}, with {versions}{git}."
