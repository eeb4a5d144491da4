"""What a newcomer waits for: from a click on "Try the demo" to the first point, the first model and the verdict.

A real browser over a real server in a fresh home, one after another. The click comes some seconds after the first page,
as it does when a person reads it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tools.machine import answers, free_port, until
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED

MOST_S = {"point": 10.0, "model": 30.0, "verdict": 120.0}
"""Promised for two idle cores."""
TITLES = {"point": "first moving point", "model": "first model to download", "verdict": "verdict"}
READING_S = 8.0
"""Between the first page and the click."""
_ROOT = Path(__file__).parents[2]
_PATIENCE_S, _WIDTH_PX, _HEIGHT_PX = 300.0, 1440, 900
_ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
# Traces of a hybrid, which come first, and whose loss has two points: one alone does not move.
_POINTS = """() => [...document.querySelectorAll('.js-plotly-plot')]
  .some(chart => (chart._fullData ?? []).some(trace => (trace.x?.length ?? 0) > 1))"""
_MODEL = "a[href^='files/models/']"
_BOTH_VERDICTS = """() => document.querySelectorAll('.u-cards > .u-card').length >= 2
  && document.querySelector('.u-cards .u-ratio')"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLight:
    """Seconds since the click."""

    point_s: float
    model_s: float
    verdict_s: float
    cpu_s: float
    """Processor seconds of the three runs; of the hybrid without its template."""


def measure(repeats: int) -> list[FirstLight]:
    """Click so many times, each in a fresh home."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    found = []
    with sync_playwright() as playwright:
        for _ in range(repeats):
            with tempfile.TemporaryDirectory(prefix="unifiednn-bench-") as folder, _served(Path(folder)) as address:
                browser = playwright.chromium.launch(executable_path=chromium, args=list(_ARGUMENTS))
                try:
                    found.append(_clicked(browser, address, Home(Path(folder))))
                finally:
                    browser.close()
    return found


@contextmanager
def _served(home: Path) -> Iterator[str]:
    """Serve a home until the end of the block; yields its address. Raises `ToolFailed` if it does not answer."""
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment["UNIFIEDNN_HOME"] = str(home)
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=_ROOT)
    try:
        until(lambda: answers(port), "the dashboard")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)


def _clicked(browser: Any, address: str, home: Home) -> FirstLight:
    page = browser.new_page(viewport={"width": _WIDTH_PX, "height": _HEIGHT_PX})
    page.set_default_timeout(_PATIENCE_S * 1000)
    page.goto(address)
    button = page.get_by_role("button", name="Try the demo").first
    button.wait_for()
    time.sleep(READING_S)
    clicked_s = time.monotonic()
    button.click()
    page.wait_for_function(_POINTS, polling=50)
    point_s = time.monotonic() - clicked_s
    page.wait_for_selector(_MODEL, state="attached")
    model_s = time.monotonic() - clicked_s
    service = Service.open(home)
    try:
        until(lambda: all(run.state in ENDED for run in service.runs.runs()), "the end of the demo", 0.1)
        cpu_s = sum(run.cpu_s or 0.0 for run in service.runs.runs())
    finally:
        service.close()
    page.wait_for_function(_BOTH_VERDICTS)
    return FirstLight(point_s=point_s, model_s=model_s, verdict_s=time.monotonic() - clicked_s, cpu_s=cpu_s)


def described(found: list[FirstLight]) -> dict[str, Any]:
    """Table and figures."""
    every_s = {what: [float(getattr(one, f"{what}_s")) for one in found] for what in MOST_S}
    medians_s = {what: median(seconds) for what, seconds in every_s.items()}
    rows = []
    for what, title in TITLES.items():
        seen = every_s[what]
        rows.append((title, f"{medians_s[what]:.1f} s", f"{min(seen):.1f} to {max(seen):.1f} s", f"{MOST_S[what]:g} s"))
    return {
        "about": "What a newcomer waits for after a click on Try the demo: three networks as one hybrid, then the same "
        "three in plain PyTorch, at once and one after another.",
        "passed": all(medians_s[what] <= most_s for what, most_s in MOST_S.items()),
        "notes": [f"CPU seconds of the three runs: {median(one.cpu_s for one in found):.1f} (median)."],
        "tables": [
            {"title": "Since the click:", "heads": ("what", "median", "range", "promised at most"), "rows": rows}
        ],
        "measured": [asdict(one) for one in found],
    }


if __name__ == "__main__":
    json.dump(described(measure(int(sys.argv[1]))), sys.stdout)
