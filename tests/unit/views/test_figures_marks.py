from hypothesis import given
from hypothesis import strategies as st

from tests.unit.views.reading import unpack
from unifiednn_core.views.figures.marks import MAX_LINES, SIGNS, draw, gather, key
from unifiednn_core.views.memory import Mark

moments = st.builds(
    Mark, at_s=st.floats(0, 1e5), kind=st.sampled_from(list(SIGNS)), submodel=st.none(), text=st.text("abc", max_size=3)
)


@given(st.lists(moments, max_size=200), st.integers(1, 20))
def test_gathering_loses_no_mark_and_keeps_order_and_limit(marks, limit):
    gathered = gather(marks, limit)
    assert sum(moment.count for moment in gathered) == len(marks)
    assert [moment.at_s for moment in gathered] == sorted(moment.at_s for moment in gathered)
    for kind in SIGNS:
        assert sum(moment.kind == kind for moment in gathered) <= limit


def test_few_marks_stay_as_they_are():
    marks = [Mark(1.0, "load", "a", "a was loaded"), Mark(0.5, "switch", "a", "a trains")]
    assert [(m.at_s, m.text) for m in gather(marks)] == [(0.5, "a trains"), (1.0, "a was loaded")]


def test_a_gathered_mark_says_how_many_and_when():
    marks = [Mark(float(at), "switch", None, "x") for at in range(300)]
    first = gather(marks, 3)[0]
    assert first.text == "100 switches, 0.0 s to 1 min 39 s" and first.count == 100


def test_signs_that_would_overlap_are_gathered_and_still_told():
    near = [Mark(at_s, "load", None, f"load {at_s:g}") for at_s in (0.0, 0.1, 50.0)]
    end = Mark(100.0, "end", None, "end")
    first, second, last = gather([*near, end])
    assert (first.text, first.count) == ("load 0; load 0.1", 2) and (second, last) == (near[2], end)
    chain = [Mark(float(at), "checkpoint", None, "x") for at in range(1000)]
    assert len(gather(chain)) > 30, "a row of near marks does not become one"


def test_kinds_that_come_together_stand_in_two_rows():
    traces, _ = draw([Mark(1.0, kind, None, "x") for kind in ("end", "separation", "switch", "load")])
    rows = {trace["name"]: unpack(trace["y"])[0] for trace in traces}
    assert rows["end"] == rows["load"] > rows["separation"] == rows["switch"]
    assert all(trace["cliponaxis"] is False for trace in traces)


def test_a_switch_gets_no_line_through_the_chart_and_too_many_of_a_kind_get_none():
    rare = [Mark(float(at), "checkpoint", None, "x") for at in range(MAX_LINES)]
    switches = [Mark(float(at), "switch", None, "x") for at in range(5)]
    traces, lines = draw([*rare, *switches])
    assert [trace["name"] for trace in traces] == ["switch", "checkpoint"] and len(lines) == MAX_LINES
    assert draw([*rare, Mark(float(MAX_LINES), "checkpoint", None, "x")])[1] == []


def test_marks_move_with_the_launch():
    _, [line] = draw([Mark(2.0, "pause", None, "paused")], 1.5)
    assert line["x0"] == line["x1"] == 3.5


def test_the_key_names_what_is_there():
    assert key([Mark(0.0, "switch", None, ""), Mark(0.0, "load", None, "")]) == "▼ load · | switch"
