from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.views.figures.marks import SIGNS, draw, gather
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


def test_signs_that_would_overlap_are_gathered_and_still_told():
    near = [Mark(at_s, "load", None, f"load {at_s:g}") for at_s in (0.0, 0.1, 50.0)]
    end = Mark(100.0, "end", None, "end")
    first, second, last = gather([*near, end])
    assert (first.text, first.count) == ("load 0; load 0.1", 2) and (second, last) == (near[2], end)
    chain = [Mark(float(at), "checkpoint", None, "x") for at in range(1000)]
    assert len(gather(chain)) > 30, "a row of near marks does not become one"


def test_marks_move_with_the_launch():
    _, [line] = draw([Mark(2.0, "pause", None, "paused")], 1.5)
    assert line["x0"] == line["x1"] == 3.5
