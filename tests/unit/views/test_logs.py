"""Lines of logs: levels, names, folding, filters."""

from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.logs import LEVELS, LogLine, chosen, event_lines, worker_lines
from unifiednn_core.views.runs import EventView

TRACE = """UserWarning: cnn-2 uses a slow kernel
Traceback (most recent call last):
  File "engine.py", line 1, in _grant
    raise Diverged(name)

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "engine.py", line 2, in cnn
ValueError: The loss of lenet is nan.
all is well with cnn
"""


def event(name: str | None, state: State | None, code: str = "entered", **fields: object) -> EventView:
    message = f"{name} is {state}." if state else f"about {name}"
    kind = "state" if code == "entered" else "error"
    return EventView(at_s=1.0, submodel=name, kind=kind, message=message, code=code, state=state, fields=fields)


def test_a_traceback_is_one_error_about_those_whom_it_names() -> None:
    first, *trace, last = worker_lines(TRACE, ["cnn", "cnn-2", "lenet"])
    assert (first.level, first.who) == ("warning", ("cnn-2",))
    assert {(line.level, line.who) for line in trace} == {("error", ("cnn", "lenet"))} and len(trace) == 9
    assert (last.level, last.who) == ("info", ("cnn",))


@given(st.text(), st.lists(st.from_regex(r"\A[\w-]{1,8}\Z"), min_size=1))
def test_no_line_is_lost_and_nothing_invisible_is_left(text: str, names: list[str]) -> None:
    lines = worker_lines(text, names)
    assert all(name in names for line in lines for name in line.who)
    assert all(
        sign.isprintable() or sign == "\t" or sign == " " or ord(sign) > 127 for line in lines for sign in line.text
    )


def test_sub_models_that_enter_the_same_state_one_after_another_are_one_line() -> None:
    names = [f"net{place}" for place in range(14)]
    events = [
        *(event(name, State.RUNNING) for name in names),
        event("net1", State.FAILED, cause="nan"),
        event("net2", State.FAILED, cause="nan"),
        event(None, State.COMPLETED),
        event("net3", State.COMPLETED),
    ]
    lines = event_lines(events)
    assert [line.text for line in lines] == [
        "net0, net1 and 12 more are running.",
        "net1 is failed.",
        "net2 is failed.",
        "None is completed.",
        "net3 is completed.",
    ]
    assert lines[0].who == tuple(names), "a filter by one of them still finds it"


def test_filters_keep_what_fits_all_of_them() -> None:
    lines = [
        LogLine("Loss is NaN", "error", ("a",)),
        LogLine("slow kernel", "warning", ("b",)),
        LogLine("fine", who=("a", "b")),
    ]
    assert chosen(lines) == tuple(lines)
    assert chosen(lines, "nan LOSS") == (lines[0],)
    assert chosen(lines, least="warning") == (lines[0], lines[1])
    assert chosen(lines, who="b") == (lines[1], lines[2])
    assert chosen(lines, "fine", "error", "a") == ()
    assert LEVELS == ("info", "warning", "error"), "in this order"
