"""Processor time of whole pages over one home, drawn as Streamlit's own tests draw them. No browser, no training.

In a process of its own: `python -m tools.bench.scale_pages PLACES REPEATS`, with places as JSON, prints JSON. One place
alone is drawn once, for the memory that this takes.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import streamlit as st
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from pages._ui import frame, rows, signed_in
from tests.counted import counted
from tests.many_runs import run_id
from tools.bench.scale_reads import Resting, cpu_ms, opened
from unifiednn_core.base.paths import DATABASE_SETTING, Home

APP = Path(__file__).parents[2] / "app.py"
PATIENCE_S = 600.0
"""A page over a large home may take minutes, which is a result."""


class Place(NamedTuple):
    """A home, its database unless it is SQLite's, and how many ended runs it has."""

    root: str
    url: str | None
    ended: int


def pages(ended: int) -> Mapping[str, tuple[str, Mapping[str, str], Mapping[str, Any]]]:
    """Page, query and session state, by what is shown."""
    last = run_id(ended - 1)
    return {
        "Now": ("now", {}, {}),
        "Queue": ("queue", {}, {}),
        "Runs": ("run", {}, {}),
        "Runs, search": ("run", {}, {"runs-text": f"run {ended - 7}"}),
        "Runs, by accuracy": ("run", {}, {"runs-sort": ("accuracy", True)}),
        "Runs, third page": ("run", {}, {"runs-page": 2}),
        "Run": ("run", {"run": last}, {}),
        "Compare, chooser": ("compare", {}, {}),
        "Library": ("library", {}, {}),
        "Admin, disk": ("people", {}, {"people-tabs": "Disk"}),
        "Admin, audit log": ("people", {}, {"people-tabs": "Audit log"}),
        "Submit": ("submit", {}, {}),
        "Build": ("build", {}, {}),
    }


def measured(places: Sequence[Place], repeats: int) -> dict[str, Any]:
    """Milliseconds of each page drawn again, in each home by turns, so that all see the same machine."""
    services = {place.ended: _opened(place) for place in places}
    now = [services[places[0].ended]]
    manifest_scanner.scan_component_manifests = lambda max_workers=None: []  # it reads all installed packages
    frame.service = signed_in.service = lambda: now[0]
    rows.mount = _mounted
    found: dict[str, Any] = {}
    for name in pages(1):
        costs: dict[int, list[float]] = {ended: [] for ended in services}
        asked: dict[int, tuple[int, int]] = {}
        apps = {}
        for ended, service in services.items():
            now[0] = service
            st.cache_resource.clear()
            apps[ended] = _app(*pages(ended)[name])
            _require_drawn(name, apps[ended].run())
            with counted(service.store._database._engine) as sent:
                apps[ended].run()
            asked[ended] = sent.statements, sent.steps
        for _ in range(repeats):
            for ended, service in services.items():
                now[0] = service
                costs[ended].append(cpu_ms(apps[ended].run, 1))
        least, most = min(services), max(services)
        found[name] = {
            "cpu_ms": {ended: median(one) for ended, one in costs.items()},
            "growth": median(many / few for few, many in zip(costs[least], costs[most], strict=True)),
            "statements": {ended: one[0] for ended, one in asked.items()},
            "steps": {ended: one[1] for ended, one in asked.items()},
        }
    return found


def drawn_once(place: Place) -> tuple[int, int]:
    """Memory of this process before and after each page was drawn once, in bytes."""
    service = _opened(place)
    manifest_scanner.scan_component_manifests = lambda max_workers=None: []
    frame.service = signed_in.service = lambda: service
    rows.mount = _mounted
    before = own_bytes()
    for name, asked in pages(place.ended).items():
        _require_drawn(name, _app(*asked).run())
    return before, own_bytes()


def _opened(place: Place) -> Resting:
    os.environ.pop(DATABASE_SETTING, None)
    if place.url is not None:
        os.environ[DATABASE_SETTING] = place.url
    return opened(Home(Path(place.root)))


def _app(page: str, query: Mapping[str, str], state: Mapping[str, Any]) -> AppTest:
    app = AppTest.from_file(APP, default_timeout=PATIENCE_S)
    for key, value in query.items():
        app.query_params[key] = value
    for key, value in state.items():
        app.session_state[key] = value
    if page != "now":  # which opens by itself
        app.switch_page(f"pages/{page}.py")
    return app


def _require_drawn(name: str, app: AppTest) -> None:
    if app.exception:
        raise RuntimeError(f"{name}: {[error.value for error in app.exception]}")


def _mounted(data: Mapping[str, Any], key: str) -> dict[str, object]:
    st.html(data["html"])
    return {}


def own_bytes() -> int:
    """Memory of this process without files."""
    rollup = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    [kib] = re.findall(r"^Pss_Anon: +(\d+) kB", rollup, re.MULTILINE)
    return int(kib) * 1024


if __name__ == "__main__":
    given = [Place(*one) for one in json.loads(sys.argv[1])]
    answer = drawn_once(given[0]) if len(given) == 1 else measured(given, int(sys.argv[2]))
    sys.stdout.write(json.dumps(answer) + "\n")
