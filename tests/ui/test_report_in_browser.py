"""The report in a real browser: it draws, reacts to the pointer, and reports no error."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gossamer.experiment import load_experiment
from gossamer.report import write_report
from tests.fakes import record_run

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "digits_gist.toml"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

PROBE = """
<script>
const failures = [];
addEventListener('error', event => failures.push(event.message));
addEventListener('load', () => {
  const svg = document.querySelector('.chart svg'), box = svg.getBoundingClientRect(), tips = [];
  for (const share of [0.05, 0.55, 0.999]) {
    svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + share * box.width, clientY: box.top + 50}));
    const tip = svg.parentNode.querySelector('.tip'), frame = tip.getBoundingClientRect();
    const inside = frame.right <= box.right + 1 && frame.left >= box.left - 1;
    tips.push({hidden: tip.hidden, text: tip.innerText, inside});
  }
  svg.dispatchEvent(new PointerEvent('pointerleave'));
  const result = {
    tips, failures,
    hiddenAfter: svg.parentNode.querySelector('.tip').hidden,
    lines: [...document.querySelectorAll('.mean')].map(line => line.getTotalLength()),
    charts: document.querySelectorAll('.chart').length,
    overflow: document.documentElement.scrollWidth - innerWidth,
    ground: getComputedStyle(document.body).backgroundColor,
    requests: performance.getEntriesByType('resource').map(entry => entry.name).filter(name => !/^data:/.test(name)),
  };
  const out = document.createElement('pre');
  out.id = 'probe';
  out.textContent = JSON.stringify(result);
  document.body.append(out);
});
</script>
"""


def look(path: Path, width: int, dark: bool = False) -> dict[str, Any]:
    """Open the page, move the pointer over it, and return what the browser sees."""
    assert BROWSER is not None
    probe = path.with_name(f"probe-{path.name}")
    probe.write_text(path.read_text().replace("<head>", f"<head>{PROBE}"))
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},1400",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--user-data-dir={path.parent / 'profile'}",
        "--virtual-time-budget=3000", "--dump-dom", probe.as_uri(),
    ]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found: dict[str, Any] = json.loads(dom.split('<pre id="probe">')[1].split("</pre>")[0].replace("&gt;", ">"))
    return found


@pytest.mark.skipif(BROWSER is None, reason="no chromium: install it to see the report in a real browser")
def test_the_report_draws_and_reacts(tmp_path: Path) -> None:
    experiment = load_experiment(EXAMPLE)
    runs = [
        record_run(tmp_path / name, experiment, differ=(17, 3, 1) if name == "odd" else None) for name in ("sim", "odd")
    ]
    path = tmp_path / "report.html"
    write_report(runs, path)

    seen = look(path, 1200)
    assert seen["failures"] == [] and seen["requests"] == []
    assert seen["charts"] == 4 and len(seen["lines"]) == 8 and min(seen["lines"]) > 300
    assert [tip["hidden"] for tip in seen["tips"]] == [False] * 3 and seen["hiddenAfter"]
    assert all(tip["inside"] for tip in seen["tips"])
    assert seen["tips"][0]["text"].startswith("round 0\n") and seen["tips"][2]["text"].startswith("round 29\n")
    assert "odd, sim (numpy)" in seen["tips"][0]["text"]
    assert seen["overflow"] <= 0

    narrow_and_dark = look(path, 500, dark=True)
    assert narrow_and_dark["overflow"] <= 0 and narrow_and_dark["ground"] != seen["ground"]
