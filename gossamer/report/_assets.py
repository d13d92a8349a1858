"""Hold the page's style and its one script."""

from __future__ import annotations

from typing import Final

COLORS: Final = 6

STYLE: Final = """
:root{color-scheme:light dark;--ground:#f6f6f3;--card:#fff;--ink:#1d2126;--soft:#667079;--line:#e4e5e1;
--good:#12806a;--bad:#c43d3d;--c0:#1f6f8b;--c1:#d9822b;--c2:#7a4fa3;--c3:#3f8f4f;--c4:#b8476b;--c5:#6b6f2f}
@media(prefers-color-scheme:dark){:root{--ground:#14171a;--card:#1c2024;--ink:#e8eaec;--soft:#98a2ab;--line:#2e343a;
--good:#45c3a2;--bad:#f07878;--c0:#5fb6d3;--c1:#f0a95a;--c2:#b795dd;--c3:#7fc98d;--c4:#ec8fae;--c5:#c2c774}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;
font-variant-numeric:tabular-nums}
main{max-width:1160px;margin:0 auto;padding:40px 24px 64px}
h1{font-size:30px;line-height:1.2;margin:0 0 6px;letter-spacing:-.015em;font-weight:650}
h2{font-size:17px;margin:40px 0 12px;font-weight:600}
h3{font-size:15px;margin:0;font-weight:600}
.lead{color:var(--soft);margin:0 0 24px}
.note,.empty{color:var(--soft);font-size:13px;margin:0 0 8px}
.empty{padding:48px 0;text-align:center}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;margin:0}
.verdict{display:flex;gap:12px;align-items:baseline;border-left:4px solid var(--good);margin-bottom:10px}
.verdict.parts{border-left-color:var(--bad)}
.verdict b{color:var(--good);white-space:nowrap}.verdict.parts b{color:var(--bad)}
.tiles{margin-top:20px;display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px}
.tile span{display:block;color:var(--soft);font-size:13px}
.tile strong{display:block;font-size:24px;font-weight:600;line-height:1.3;letter-spacing:-.01em;white-space:nowrap}
.legend{display:flex;flex-wrap:wrap;gap:4px 22px;margin:32px 0 12px;font-size:13px;color:var(--soft)}
.legend i,.tip i{display:inline-block;width:14px;height:3px;border-radius:2px;margin-right:7px;vertical-align:middle;
background:currentColor}
.legend b{color:var(--ink);font-weight:500}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:14px}
.plot{position:relative}
svg{display:block;width:100%;height:auto;overflow:visible}
.grid line{stroke:var(--line)}
text{fill:var(--soft);font-size:11.5px}
text.y{text-anchor:end}text.x{text-anchor:middle}text.name{text-anchor:end}
.mean{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
.band{fill:currentColor;stroke:none}.outer{opacity:.1}.inner{opacity:.14}
circle{fill:currentColor}
.cursor{stroke:var(--soft);stroke-dasharray:2 3;visibility:hidden}
.tip{position:absolute;top:6px;pointer-events:none;background:var(--card);border:1px solid var(--line);
border-radius:7px;padding:7px 10px;font-size:12.5px;line-height:1.45;box-shadow:0 4px 16px #0002;white-space:nowrap}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}.c5{color:var(--c5)}
.strip{display:grid;grid-template-columns:max-content 1fr;gap:8px 16px;align-items:center;font-size:13px}
.strip svg{height:18px}
.same{fill:var(--good)}.apart{fill:var(--bad)}.missing{fill:var(--line)}
.scale{display:flex;justify-content:space-between;color:var(--soft);font-size:11.5px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
th{font-weight:500;color:var(--soft);font-size:13px;text-align:left}
th,td{padding:7px 14px 7px 0;border-bottom:1px solid var(--line);white-space:nowrap}
tr:last-child td{border-bottom:0}
.n{text-align:right}
details.card{margin-top:14px}summary{cursor:pointer;font-weight:600}
.options{columns:3 280px;column-gap:32px;margin-top:14px;font-size:13px}
.options section{break-inside:avoid;margin-bottom:14px}
.options h4{margin:0 0 2px;font-size:13px;color:var(--soft);font-weight:500}
.options div{display:flex;justify-content:space-between;gap:12px;border-bottom:1px dotted var(--line)}
.options code{font:12.5px ui-monospace,Menlo,Consolas,monospace;text-align:right;overflow-wrap:anywhere}
footer{color:var(--soft);font-size:12.5px;margin-top:36px}
@media print{body{background:#fff}.card{break-inside:avoid}}
"""

SCRIPT: Final = """
for (const figure of document.querySelectorAll('.chart')) {
  const data = JSON.parse(figure.querySelector('script').textContent);
  const svg = figure.querySelector('svg'), tip = figure.querySelector('.tip'), cursor = svg.querySelector('.cursor');
  const scale = (data.right - data.left) / (data.last - data.first);
  const nearest = (xs, x) => xs.reduce((best, v, i) => Math.abs(v - x) < Math.abs(xs[best] - x) ? i : best, 0);
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect(), unit = svg.viewBox.baseVal.width / box.width;
    const wanted = data.first + ((event.clientX - box.left) * unit - data.left) / scale;
    const longest = data.series.reduce((a, b) => b.x.length > a.x.length ? b : a);
    const round = longest.x[nearest(longest.x, wanted)], at = data.left + (round - data.first) * scale;
    cursor.setAttribute('x1', at); cursor.setAttribute('x2', at); cursor.style.visibility = 'visible';
    tip.replaceChildren();
    const head = document.createElement('b'); head.textContent = 'round ' + round; tip.append(head);
    for (const s of data.series) {
      const row = document.createElement('div'), mark = document.createElement('i');
      const i = nearest(s.x, round);
      mark.className = 'c' + s.color;
      row.append(mark, s.text[i] + (data.series.length > 1 ? '  ' + s.name : ''));
      if (s.x[i] === round) tip.append(row);
    }
    tip.hidden = false;
    const left = at / unit;
    tip.style.left = Math.max(0, left + (left > box.width / 2 ? -tip.offsetWidth - 12 : 12)) + 'px';
  });
  svg.addEventListener('pointerleave', () => { tip.hidden = true; cursor.style.visibility = 'hidden'; });
}
"""
