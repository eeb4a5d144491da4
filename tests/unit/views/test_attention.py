"""Failures in one line, what merging saves, and who holds a device."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ui.fake_views import ended, failed, mid_flight
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views import attention
from unifiednn_core.views.attention import Saving
from unifiednn_core.views.runs import RunView

NOW_S = 1_000_000.0
RESULTS = Path(__file__).parents[3] / "docs" / "results"


def broken(at_s: float, run_id: str = "r", cause: str = "It broke. Mend it.", name: str = "explodes") -> RunView:
    view = failed()
    part = replace(view.submodels[0], name=name, state=State.FAILED, cause=cause, ended_at_s=at_s, steps_done=2)
    return replace(view, run_id=run_id, name=f"{run_id}-run", submodels=(part,), ended_at_s=at_s)


@pytest.mark.parametrize(
    ("cause", "step", "told"),
    [
        ("The loss of explodes is nan at or before step 2.", 5, "explodes failed at step 2: its loss is NaN"),
        ("The loss of explodes is -inf at or before step 30.", 5, "explodes failed at step 30: its loss is infinite"),
        ("The file is gone. Put it back.", 0, "explodes failed: The file is gone"),
        ("Out of memory.", 1234, "explodes failed at step 1,234: Out of memory"),
        (None, 0, "explodes failed: no cause is known"),
    ],
)
def test_a_failure_is_one_line(cause: str | None, step: int, told: str) -> None:
    assert attention.failure_text("explodes", cause, step) == told


def test_failures_are_new_until_seen_and_stay_until_dismissed() -> None:
    runs = [
        broken(NOW_S - 10, "a"),
        broken(NOW_S - 20, "b"),
        broken(NOW_S - attention.SHOWN_S - 1, "old"),
        mid_flight(),
    ]

    def shown(seen: dict[str, tuple[float, bool]]) -> list[tuple[str, bool]]:
        return [(one.run_id, one.is_new) for one in attention.failures(runs, seen, NOW_S)]

    assert shown({}) == [("a", True), ("b", True)], "the newest first, and none of last week"
    assert shown({"a": (NOW_S - 5, False)}) == [("a", False), ("b", True)]
    assert shown({"a": (NOW_S - 5, True)}) == [("b", True)]
    assert shown({"a": (NOW_S - 15, True)}) == [("a", True), ("b", True)], "it failed again after it was dismissed"


def test_a_run_that_failed_without_a_sub_model_says_so_itself() -> None:
    view = replace(failed(), name="demo", submodels=ended().submodels, cause="The host died.", ended_at_s=NOW_S)
    [one] = attention.failures([view], {}, NOW_S)
    assert (one.name, one.sentence) == ("demo", "demo failed: The host died")
    assert attention.why_failed(ended()) == "" and attention.why_failed(view) == "demo failed: The host died"


def test_the_shipped_saving_is_that_of_the_results() -> None:
    shipped = attention.shipped_saving()
    case = json.loads((RESULTS / Path(shipped.source).name).read_text())["cases"][0]
    ours, theirs = case["hybrids"]["fcfs, warm"], case["baselines"][shipped.mode]
    assert shipped == Saving(
        run_id="",
        mode="concurrent",
        networks=len(case["submodels"]),
        source=shipped.source,
        hybrid_bytes=int(ours["memory_bytes"][0]),
        baseline_bytes=int(theirs["memory_bytes"][0]),
        hybrid_s=ours["makespan_s"][0],
        baseline_s=theirs["makespan_s"][0],
    )
    assert case["verdicts"]["fcfs, warm"]["concurrent"]["identical_weights"] is True
