"""The report in a real browser: it draws, reacts to the pointer, and reports no error."""

from __future__ import annotations

from pathlib import Path

from gossamer.experiment import load_experiment
from gossamer.report import write_report
from tests.fakes import record_run
from tests.ui.browser import look, needs_browser

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "digits_gist.toml"

LOOK = """
  const svg = document.querySelector('.chart svg'), box = svg.getBoundingClientRect(), tips = [];
  for (const share of [0.05, 0.55, 0.999]) {
    svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + share * box.width, clientY: box.top + 50}));
    const tip = svg.parentNode.querySelector('.tip'), frame = tip.getBoundingClientRect();
    const inside = frame.right <= box.right + 1 && frame.left >= box.left - 1;
    tips.push({hidden: tip.hidden, text: tip.innerText, inside});
  }
  svg.dispatchEvent(new PointerEvent('pointerleave'));
  return {
    tips,
    hiddenAfter: svg.parentNode.querySelector('.tip').hidden,
    lines: [...document.querySelectorAll('.mean')].map(line => line.getTotalLength()),
    charts: document.querySelectorAll('.chart').length,
  };
"""


@needs_browser
def test_the_report_draws_and_reacts(tmp_path: Path) -> None:
    experiment = load_experiment(EXAMPLE)
    runs = [
        record_run(tmp_path / name, experiment, differ=(17, 3, 1) if name == "odd" else None) for name in ("sim", "odd")
    ]
    path = tmp_path / "report.html"
    write_report(runs, path)

    page = look(path, 1200, LOOK)
    assert page["failures"] == [] and page["requests"] == [] and page["overflow"] <= 0
    seen = page["seen"]
    assert seen["charts"] == 4 and len(seen["lines"]) == 8 and min(seen["lines"]) > 300
    assert [tip["hidden"] for tip in seen["tips"]] == [False] * 3 and seen["hiddenAfter"]
    assert all(tip["inside"] for tip in seen["tips"])
    assert seen["tips"][0]["text"].startswith("round 0\n") and seen["tips"][2]["text"].startswith("round 29\n")
    assert "odd, sim (numpy)" in seen["tips"][0]["text"]

    narrow_and_dark = look(path, 375, LOOK, dark=True)
    assert narrow_and_dark["overflow"] <= 0 and narrow_and_dark["ground"] != page["ground"]
