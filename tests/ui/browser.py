"""Open pages in a real browser, at any width, and return what it sees."""

from __future__ import annotations

import json
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium: install it to see pages in a real browser")

_INSIDE = """
<script>
const failures = [];
addEventListener('error', event => failures.push(event.message));
const look = () => {
%s
};
addEventListener('load', () => { parent.postMessage({
  seen: look(), failures,
  overflow: document.documentElement.scrollWidth - innerWidth,
  ground: getComputedStyle(document.body).backgroundColor,
  requests: performance.getEntriesByType('resource').map(entry => entry.name).filter(name => !/^data:/.test(name)),
}, '*'); });
</script>
"""

_OUTSIDE = """<!doctype html><body style="margin:0"><script>
addEventListener('message', event => {
  const out = document.createElement('pre');
  out.id = 'probe';
  out.textContent = JSON.stringify(event.data);
  document.body.append(out);
});
</script><iframe style="border:0;width:%dpx;height:1400px" srcdoc="%s"></iframe></body>"""


def look(path: Path, width: int, script: str, *, dark: bool = False) -> dict[str, Any]:
    """Open a page in a frame of this width, run the script in it, and return what all pages are asked and `seen`.

    The script is the body of a function. A browser's own window has a least width, a frame has none.
    """
    assert BROWSER is not None
    probe = path.with_name(f"probe-{path.name}")
    page = path.read_text().replace("<head>", f"<head>{_INSIDE % script}")
    probe.write_text(_OUTSIDE % (width, escape(page)))
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1400",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--user-data-dir={path.parent / 'profile'}",
        "--virtual-time-budget=3000", "--dump-dom", probe.as_uri(),
    ]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found: dict[str, Any] = json.loads(unescape(dom.split('<pre id="probe">')[1].split("</pre>")[0]))
    return found
