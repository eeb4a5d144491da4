"""What a newcomer waits for: from a click on "Try the demo" to the first point, the first model and the verdict.

A real browser over a real server in a fresh home, one after another. The click comes some seconds after the first page,
as it does when a person reads it.
"""

import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tools.bench.dashboard import served
from tools.machine import ToolFailed
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED

MOST_S = {"point": 10.0, "model": 30.0, "verdict": 120.0}
"""Promised for two idle cores."""
TITLES = {"point": "first moving point", "model": "first model to download", "verdict": "verdict"}
READING_S = 8.0
"""Between the first page and the click."""
_PATIENCE_S, _WIDTH_PX, _HEIGHT_PX = 300.0, 1440, 900
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Traces of a hybrid, which come first, and whose loss has two points: one alone does not move.
_POINTS = """() => [...document.querySelectorAll('.js-plotly-plot')]
  .some(chart => (chart._fullData ?? []).some(trace => (trace.x?.length ?? 0) > 1))"""
_MODEL = "a[href^='files/models/']"
_VERDICT = ".u-cards .u-ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLight:
    """Seconds since the click."""

    point_s: float
    model_s: float
    verdict_s: float
    cpu_s: float
    """Processor seconds of the three runs; of the hybrid without its template."""


def measure(repeats: int = 5) -> list[FirstLight]:
    """Click so many times, each in a fresh home."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    found = []
    with sync_playwright() as playwright:
        for _ in range(repeats):
            with tempfile.TemporaryDirectory(prefix="unifiednn-bench-") as folder, served(Path(folder)) as dashboard:
                browser = playwright.chromium.launch(executable_path=chromium, args=list(_ARGUMENTS))
                try:
                    found.append(_clicked(browser, dashboard.address, Home(Path(folder))))
                finally:
                    browser.close()
    return found


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
    page.wait_for_selector(_VERDICT, state="attached")
    verdict_s = _whole(page, home, clicked_s)
    service = Service.open(home)
    try:
        runs = service.runs.runs()
    finally:
        service.close()
    return FirstLight(
        point_s=point_s, model_s=model_s, verdict_s=verdict_s, cpu_s=sum(run.cpu_s or 0.0 for run in runs)
    )


def _whole(page: Any, home: Home, clicked_s: float) -> float:
    """Seconds until the page shows the verdict against both baselines."""
    service = Service.open(home)
    try:
        while not all(run.state in ENDED for run in service.runs.runs()):
            if time.monotonic() - clicked_s > _PATIENCE_S:
                raise ToolFailed(f"The demo has not ended after {_PATIENCE_S:g} s.")
            time.sleep(0.1)
    finally:
        service.close()
    page.wait_for_function(
        f"() => document.querySelectorAll('.u-cards > .u-card').length >= 2 && document.querySelector('{_VERDICT}')"
    )
    return time.monotonic() - clicked_s


def described(found: list[FirstLight]) -> dict[str, Any]:
    """Table and figures."""
    every_s = {what: [float(getattr(one, f"{what}_s")) for one in found] for what in MOST_S}
    medians_s = {what: median(seconds) for what, seconds in every_s.items()}
    rows = [
        (
            title,
            f"{medians_s[what]:.1f} s",
            f"{min(every_s[what]):.1f} to {max(every_s[what]):.1f} s",
            f"{MOST_S[what]:g} s",
        )
        for what, title in TITLES.items()
    ]
    return {
        "about": "What a newcomer waits for after a click on Try the demo: three networks as one hybrid, then the same "
        "three in plain PyTorch, at once and one after another.",
        "passed": all(medians_s[what] <= most_s for what, most_s in MOST_S.items()),
        "thresholds": [],
        "notes": [f"CPU seconds of the three runs: {median(one.cpu_s for one in found):.1f} (median)."],
        "tables": [
            {"title": "Since the click:", "heads": ("what", "median", "range", "promised at most"), "rows": rows}
        ],
        "measured": [asdict(one) for one in found],
    }


if __name__ == "__main__":
    json.dump(described(measure(int(sys.argv[1]))), sys.stdout)
