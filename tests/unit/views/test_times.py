"""Wait, service, turnaround and makespan mean the same in every document, table and verdict."""

from dataclasses import replace

import pytest

from tests.unit.rows import part_of, run_of
from unifiednn_core.compare import verdict
from unifiednn_core.views import run_rows, times
from unifiednn_core.views.comparison import comparison_document

CREATED_S, LAUNCHED_S, STARTED_S = 1_000.0, 1_000.5, 1_006.0
RATIOS = ("memory_ratio", "makespan_ratio", "mean_turnaround_ratio", "cpu_seconds_ratio")


def run_row(mode="hybrid", **columns):
    """A run that took 5.5 s from its launch to its first step, as starting a process with torch does."""
    who = {"id": mode, "name": "demo", "mode": mode, "device": "cpu", "fingerprint": "same", "submitter": ""}
    asked = {"spec": {"submodels": [{"name": "a"}, {"name": "b"}]}, "environment": {}, "prediction": {}, "threads": 1}
    times = {"created_at_s": CREATED_S, "launched_at_s": LAUNCHED_S, "ended_at_s": LAUNCHED_S + 31.0}
    times["started_at_s"] = STARTED_S if mode == "hybrid" else LAUNCHED_S
    figures = {"attempt": 1, "recoveries": 0, "peak_memory_bytes": 300, "memory_source": "process PSS", "cpu_s": 20.0}
    return run_of(**{**who, **asked, **times, **figures, "memory_notes": [], "state": "completed", **columns})


def part_row(name="a", ends_s=30.0, **columns):
    who = {"name": name, "number": 0, "owner": "", "state": "completed", "attempt": 1, "state_sha256": name}
    done = {"epochs_done": 1, "steps_total": 1, "steps_done": 1, "service_s": 4.0, "paused_s": 0.0}
    figures = {"ended_at_s": LAUNCHED_S + ends_s, "peak_memory_bytes": 1, "cpu_s": 1.0, "model_format": "module"}
    return part_of(**{**who, **done, **figures, **columns})


def view(mode="hybrid", ends_s=(20.0, 30.0), **columns):
    rows = [part_row(name, end_s) for name, end_s in zip("ab", ends_s, strict=True)]
    return run_rows.run_view(run_row(mode, **columns), rows, LAUNCHED_S + 100.0)


def test_the_figures_that_a_comparison_prints_give_the_ratios_that_it_prints():
    """The document of a hybrid once counted from its first step, its verdict from the launch."""
    hybrid = view()
    views = [hybrid, view("concurrent", (40.0, 41.0), peak_memory_bytes=700), view("sequential", (17.0, 33.0))]
    found = verdict.compare(views, hybrid, lambda view: False, {})
    document = comparison_document(found, {view.run_id: run_rows.document(view, {}) for view in views})

    def figures(run):
        turnarounds_s = [part["turnaround_s"] for part in run["submodels"].values()]
        return run["memory"]["peak_bytes"], run["makespan_s"], sum(turnarounds_s) / len(turnarounds_s), run["cpu_s"]

    for mode, ratios in document["verdict"].items():
        ours, theirs = figures(document["hybrid"]), figures(document["baselines"][mode])
        assert [ratios[name] for name in RATIOS] == [one / other for one, other in zip(ours, theirs, strict=True)]
        for arm, run in (("hybrid", document["hybrid"]), (mode, document["baselines"][mode])):
            assert document["arms"][arm]["makespan_s"] == [run["makespan_s"]]


def test_a_makespan_counts_from_the_launch_to_the_last_model():
    assert view().makespan_s == view().elapsed_s == 30.0
    waiting = [part_row(), part_row("b", ended_at_s=None)]
    assert times.makespan_s(run_row(), waiting) is None
    assert times.elapsed_s(run_row(ended_at_s=None), waiting, LAUNCHED_S + 9.0) == 9.0
    assert times.elapsed_s(run_row(), waiting, LAUNCHED_S + 99.0) == 31.0, "an interrupted run stands still"
    assert times.elapsed_s(run_row(launched_at_s=None), waiting, LAUNCHED_S) is None


def test_a_hybrid_counts_from_its_submission_and_a_baseline_from_its_launch():
    now_s = LAUNCHED_S + 100.0
    assert times.part_times(run_row(), part_row(), now_s) == times.PartTimes(26.5, 0.0, 30.5)
    assert times.part_times(run_row("concurrent"), part_row(), now_s) == times.PartTimes(26.0, 0.0, 30.0)
    queued = run_row("concurrent", launched_at_s=None)
    assert times.part_times(queued, part_row(ended_at_s=None, service_s=0.0), now_s).wait_s == 0.0


def test_a_sub_model_that_joins_later_counts_from_then():
    joined = part_row(joined_at_s=LAUNCHED_S + 24.0)
    assert times.part_times(run_row(), joined, LAUNCHED_S + 99.0) == times.PartTimes(2.0, 0.0, 6.0)


@pytest.mark.parametrize("ended", [True, False])
def test_a_pause_is_no_wait(ended):
    row = part_row(paused_s=3.0, paused_since_s=None if ended else LAUNCHED_S + 20.0)
    row.ended_at_s = row.ended_at_s if ended else None
    found = times.part_times(run_row(), row, LAUNCHED_S + 30.0)
    assert found.paused_s == (3.0 if ended else 13.0)
    assert found.wait_s + found.paused_s + row.service_s == 30.5
    assert (found.turnaround_s is None) is not ended


def test_mean_turnaround_needs_every_sub_model():
    assert times.mean_turnaround_s([1.0, 3.0]) == 2.0
    assert times.mean_turnaround_s([1.0, None]) is None
    assert times.mean_turnaround_s([]) is None


def test_the_queue_decides_no_ratio():
    late = view(created_at_s=CREATED_S - 300.0)
    found = verdict.compare([late, view("concurrent")], late, lambda view: False, {}).verdicts["concurrent"]
    assert found.mean_turnaround_ratio is None and found.makespan_ratio is not None
    assert replace(found, notes=()).withheld_because is None
