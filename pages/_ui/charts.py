"""The charts of a page: one board, made once for all its viewers and updated in place, so that zoom and hover survive.

What the viewer chooses (axis, scale, smoothing, what is shown) happens in the browser; the server only sends figures.
"""

import time
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from pages._ui import signed_in
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.views import markup, report, wording
from unifiednn_core.views.figures import board
from unifiednn_core.views.report.charts import scripts
from unifiednn_core.views.runs import RunView

REPORT = Path(report.__file__).parent
"""Folder of the scripts and styles that pages and reports share."""
SUBMODELS_PER_BEAT = 5
"""A board is made anew each second, with more sub-models only each so many seconds."""
KEPT_S = 5.0
"""How long a board is kept for other viewers; one of a long run is some 100 KiB."""


def of_run(view: RunView, baselines: Sequence[RunView] = ()) -> None:
    """Loss and accuracy with the baselines' dashed over them, schedule and memory."""
    if not any(submodel.loss.x for submodel in view.submodels):
        st.html(markup.small(wording.NO_CURVES))
        return
    _draw(view, baselines, lambda: board.of_run(view, baselines))
    notes = [markup.quiet("info", note) for note in view.memory_notes]
    if notes:
        st.html("".join(notes))


def of_hybrid(view: RunView) -> None:
    """Turns and memory of a hybrid with all its members."""
    if not view.schedule and not view.memory.x:
        st.html(markup.small(wording.NO_CURVES))
        return
    _draw(view, (), lambda: board.of_hybrid(view), kind="hybrid")


def of_comparison(
    view: RunView, baselines: Sequence[RunView], charts: Callable[[], Sequence[board.Chart]], quantity: str
) -> None:
    """The charts of a comparison of one quantity."""
    _draw(view, baselines, charts, kind=f"comparison-{quantity}")


def of_selection(view: RunView, sides: Sequence[RunView], charts: Callable[[], Sequence[board.Chart]]) -> None:
    """The charts of `sides`, `view` being all of them as one."""
    _draw(view, (), charts, kind="selection", sides=sides)


def of_check(charts: Sequence[board.Chart]) -> None:
    """Charts of what a check found, before there is a run."""
    if charts:
        made = board.packed(board.of_charts("check", charts))
        _component()(data=made, key="charts-check", height="content")


def _draw(
    view: RunView,
    baselines: Sequence[RunView],
    charts: Callable[[], Sequence[board.Chart]],
    *,
    kind: str = "run",
    sides: Sequence[RunView] = (),
) -> None:
    """Draw a board; the browser redraws only the charts that differ from the last ones."""
    person = signed_in.actor()
    audience = None if person is None else (person.id if person.sees_only_own else person.role)
    arms = tuple((arm.run_id, _beat(arm)) for arm in (*baselines, *sides))
    made = _packed(
        (kind, view.run_id, audience, _beat(view), arms),
        lambda: board.packed(board.document(view, charts(), baselines)),
    )
    _component()(data=made, key=f"charts-{kind}", height="content")


def _beat(view: RunView) -> tuple[object, ...]:
    """What changes when a board of this run has to be made anew."""
    structure = (view.state, view.attempt, tuple(part.state for part in view.submodels))
    period_s = 1 + len(view.submodels) // SUBMODELS_PER_BEAT
    return (*structure, view.ended_at_s if view.state in ENDED else time.time() // period_s)


@st.cache_resource(show_spinner=False, max_entries=64, ttl=KEPT_S)
def _packed(key: tuple[object, ...], _make: Callable[[], bytes]) -> bytes:
    """The board of this key: viewers of one run share it."""
    return _make()


@cache
def _component() -> Any:
    address = f"assets/charts.js?v={zlib.crc32(scripts().encode()):x}"
    script = Path(__file__).with_name("live_chart.js").read_text(encoding="utf-8").replace("SCRIPTS", address)
    return st.components.v2.component("unifiednn_charts", js=script, isolate_styles=False)
