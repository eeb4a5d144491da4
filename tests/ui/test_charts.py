"""The board of a page: made once for all who look at it, and anew when something changed."""

from dataclasses import replace

import pytest

from pages._ui import charts
from tests.ui.fake_views import ended, mid_flight
from tests.ui.reading import chart_names
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.figures import board
from unifiednn_core.views.runs import Series


@pytest.fixture
def made(monkeypatch):
    """Boards that were made."""
    boards, was = [], board.document
    monkeypatch.setattr(board, "document", lambda *given: boards.append(1) or was(*given))
    return boards


def test_viewers_of_a_run_share_one_board(open_page, made, monkeypatch):
    monkeypatch.setattr(charts, "_beat", lambda view: 0)
    shown = [chart_names(open_page("run", run="r-live")) for _ in range(2)]
    assert shown[0] == shown[1] and len(made) == 1
    monkeypatch.setattr(charts, "_beat", lambda view: 1)
    open_page("run", run="r-live")
    assert len(made) == 2


def test_a_board_is_made_anew_each_beat_at_a_change_of_state_and_never_after_the_end(monkeypatch):
    now_s = [1000.0]
    monkeypatch.setattr(charts, "time", type("Clock", (), {"time": staticmethod(lambda: now_s[0])}))
    live, done = mid_flight(), ended()
    before = charts._beat(live), charts._beat(done)
    assert charts._beat(replace(live, state=State.PAUSING)) != before[0]
    now_s[0] += charts.SUBMODELS_PER_BEAT
    assert charts._beat(live) != before[0] and charts._beat(done) == before[1]


def test_the_learning_rate_stands_behind_a_tab_of_the_accuracy_once_it_changes():
    rates = Series((1.0, 2.0), (0.1, 0.05))
    view = replace(
        mid_flight(), submodels=tuple(replace(part, learning_rates=rates) for part in mid_flight().submodels)
    )
    shown = {chart.name: chart.cell for chart in board.of_run(view)}
    assert shown["rate"] == shown["accuracy"] and len(set(shown.values())) == 4
    assert "rate" not in {chart.name for chart in board.of_run(mid_flight())}


def test_charts_side_by_side_are_made_anew_when_any_side_changes(made, monkeypatch):
    monkeypatch.setattr(charts, "_component", lambda: lambda **_: None)
    monkeypatch.setattr(charts.signed_in, "actor", lambda: None)
    first, second = ended(), replace(ended(), run_id="r-other")
    whole = replace(first, run_id="r-done,r-other")
    for sides in ([first, second], [first, second], [first, replace(second, attempt=second.attempt + 1)]):
        charts.of_selection(whole, sides, tuple)
    assert len(made) == 2
