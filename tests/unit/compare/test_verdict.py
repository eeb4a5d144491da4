"""What a comparison says, and when it says nothing."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ui import fake_views
from unifiednn_core.base.units import MIB
from unifiednn_core.compare.verdict import compare
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.comparison import Comparison, Spread, Verdict, comparison_document
from unifiednn_core.views.report.cards import LOSSY as LOSSY_WEIGHTS
from unifiednn_core.views.report.cards import cards, weights_text
from unifiednn_core.views.runs import RunView, Stay, SubModelView
from unifiednn_core.views.techniques import used

LAUNCHED_S = 1_000.0
NAMES = ("lenet", "resnet")


def part(name: str, ended_after_s: float, **changes: Any) -> SubModelView:
    times = {"service_s": 3.0, "turnaround_s": ended_after_s, "ended_at_s": LAUNCHED_S + ended_after_s, "cpu_s": 2.0}
    shown = fake_views.submodel(0, name, 1, State.COMPLETED)
    return replace(
        shown, **{**times, "state_sha256": f"bits of {name}", "test_accuracy": None, "test_loss": None} | changes
    )


def run(run_id: str, mode: str = "hybrid", ends_s: tuple[float, ...] = (4.0, 10.0), **changes: Any) -> RunView:
    parts = tuple(part(name, end_s) for name, end_s in zip(NAMES, ends_s, strict=True))
    times = {"created_at_s": LAUNCHED_S, "launched_at_s": LAUNCHED_S, "ended_at_s": LAUNCHED_S + max(ends_s)}
    figures = {"makespan_s": max(ends_s), "peak_memory_bytes": 400 * MIB, "cpu_s": 10.0}
    shown = fake_views.run(run_id, State.COMPLETED, parts, mode=mode, fingerprint="same", spec={}, **times)
    return replace(shown, **figures | changes)


def comparison(*runs: RunView, of: int = 0, changed: tuple[str, ...] = (), **machine: object) -> Comparison:
    return compare(runs, runs[of], lambda view: view.run_id in changed, machine)


def with_part(view: RunView, **changes: Any) -> RunView:
    return replace(view, submodels=(replace(view.submodels[0], **changes), *view.submodels[1:]))


HYBRID = run("h")
CONCURRENT = run("c", "concurrent", (16.0, 20.0), peak_memory_bytes=1000 * MIB, cpu_s=20.0)


def ratios(verdict: Verdict) -> list[tuple[float, ...] | None]:
    """Of memory, makespan, mean turnaround, CPU seconds and GPU seconds, for each pair of repeats."""
    found = verdict.memory_ratio, verdict.makespan_ratio, verdict.mean_turnaround_ratio
    return [one and one.values for one in (*found, verdict.cpu_seconds_ratio, verdict.gpu_seconds_ratio)]


def test_ratios_are_hybrid_by_baseline_from_the_launch_of_each() -> None:
    verdict = comparison(HYBRID, CONCURRENT).verdicts["concurrent"]
    assert ratios(verdict) == [(0.4,), (10.0 / 20.0,), (7.0 / 18.0,), (0.5,), None]
    assert (verdict.withheld_because, verdict.identical_weights, verdict.notes) == (None, True, ())
    larger = run("h", ends_s=(30.0, 40.0), peak_memory_bytes=2000 * MIB)
    assert ratios(comparison(larger, CONCURRENT).verdicts["concurrent"])[:2] == [(2.0,), (2.0,)]


def test_turnaround_is_not_compared_where_the_hybrid_waited_for_the_device() -> None:
    queued = replace(HYBRID, created_at_s=LAUNCHED_S - 50.0)
    verdict = comparison(queued, CONCURRENT).verdicts["concurrent"]
    assert ratios(verdict)[1:3] == [(0.5,), None]
    assert [note for note in verdict.notes if "waited for the device" in note]


def test_without_a_baseline_nothing_is_claimed() -> None:
    found = comparison(HYBRID)
    assert found.baselines == {}
    for mode, verdict in found.verdicts.items():
        assert verdict.withheld_because == f"there is no {mode} baseline of this run yet"
        assert verdict.identical_weights is None


@pytest.mark.parametrize(
    ("hybrid", "baseline", "because"),
    [
        (replace(HYBRID, state=State.RUNNING), CONCURRENT, "hybrid run h is running"),
        (replace(HYBRID, attempt=2), CONCURRENT, "was paused or interrupted"),
        (replace(HYBRID, shared=True), CONCURRENT, "in a shared hybrid; its times and its memory are not its own"),
        (with_part(HYBRID, paused_s=2.0), CONCURRENT, "was paused"),
        (with_part(HYBRID, attempt=2), CONCURRENT, "was retried"),
        (with_part(HYBRID, redone_steps=3), CONCURRENT, "was retried"),
        (with_part(HYBRID, state=State.STOPPED), CONCURRENT, "before all sub-models were trained"),
        (
            with_part(HYBRID, cause="Its data changed.", remedy="Train it again."),
            CONCURRENT,
            "the results of hybrid run h cannot be trusted: Its data changed.",
        ),
        (HYBRID, replace(CONCURRENT, state=State.STOPPED), "concurrent run c was stopped"),
        (
            HYBRID,
            with_part(
                replace(CONCURRENT, state=State.FAILED),
                state=State.FAILED,
                cause="killed by signal 9",
                state_sha256=None,
            ),
            "concurrent run c failed (lenet: killed by signal 9)",
        ),
        (HYBRID, replace(CONCURRENT, memory_source="NVML process"), "memory was measured in different ways"),
        (HYBRID, with_part(CONCURRENT, state_sha256="other bits"), "the trained weights differ"),
    ],
)
def test_a_verdict_is_withheld_with_its_reason(hybrid: RunView, baseline: RunView, because: str) -> None:
    verdict = comparison(hybrid, baseline).verdicts["concurrent"]
    assert verdict.withheld_because is not None
    assert because in verdict.withheld_because
    assert ratios(verdict) == [None] * 5


def test_a_run_that_was_changed_while_it_trained_is_not_compared() -> None:
    verdict = comparison(HYBRID, CONCURRENT, changed=("h",)).verdicts["concurrent"]
    assert "hybrid run h was changed while it trained" in str(verdict.withheld_because)


def test_weights_are_compared_even_where_times_are_not() -> None:
    assert comparison(replace(HYBRID, attempt=2), CONCURRENT).verdicts["concurrent"].identical_weights is True


def test_figures_of_two_machines_are_not_compared() -> None:
    def on(view: RunView, *hosts: str) -> RunView:
        return replace(view, stays=tuple(Stay("lenet", f"{host}/cpu", "EPYC", 1.0) for host in hosts))

    hybrid, baseline = run("h"), run("b", "concurrent")
    apart = comparison(on(hybrid, "a"), on(baseline, "b")).verdicts["concurrent"]
    assert apart.withheld_because is not None and "the hybrid trained on a, the concurrent baseline on b" in (
        apart.withheld_because
    )
    assert comparison(on(hybrid, "a"), on(baseline, "a")).verdicts["concurrent"].withheld_because is None
    assert comparison(on(hybrid, "a", "b"), on(baseline, "a")).verdicts["concurrent"].withheld_because is not None
    assert apart.identical_weights, "bits are compared all the same"


def test_repeats_are_paired_and_none_is_averaged_away() -> None:
    slow = run("h2", ends_s=(4.0, 30.0))
    other = replace(CONCURRENT, run_id="c2", peak_memory_bytes=800 * MIB)
    found = comparison(HYBRID, slow, CONCURRENT, other)
    verdict = found.verdicts["concurrent"]
    assert found.hybrid.run_ids == ("h", "h2")
    assert ratios(verdict)[:2] == [(0.4, 0.5), (0.5, 1.5)]
    assert "Makespan: some repeats are above 1 and some below, so there is no clear difference" in verdict.notes
    assert "makespan of the hybrid repeats differs by 100 % of its median" in verdict.notes


def test_repeats_with_other_bits_disagree() -> None:
    verdict = comparison(HYBRID, with_part(run("h2"), state_sha256="other"), CONCURRENT).verdicts["concurrent"]
    assert verdict.withheld_because == "repeats disagree: the weights of lenet differ between equal hybrid runs"
    assert verdict.identical_weights is False


def test_a_failed_repeat_is_left_out_aloud() -> None:
    found = comparison(HYBRID, CONCURRENT, replace(CONCURRENT, run_id="c2", state=State.FAILED))
    assert found.baselines["concurrent"].run_ids == ("c",)
    assert found.verdicts["concurrent"].notes == ("concurrent run c2 (failed) is left out",)


def test_a_failed_baseline_is_shown_with_its_cause() -> None:
    dead = with_part(replace(CONCURRENT, state=State.FAILED), state=State.FAILED, cause="does not fit")
    arm = comparison(HYBRID, dead).baselines["concurrent"]
    assert arm.problem == "concurrent run c failed (lenet: does not fit)"
    assert arm.submodels[0].cause == "does not fit"


sizes = st.lists(st.integers(1, 10**12), min_size=1, max_size=5)


@given(sizes, sizes)
def test_each_ratio_has_its_pair_and_the_figures_shown_are_those_of_the_pairs(
    ours: list[int], theirs: list[int]
) -> None:
    hybrids = [run(f"h{at}", peak_memory_bytes=size) for at, size in enumerate(ours)]
    baselines = [run(f"c{at}", "concurrent", peak_memory_bytes=size) for at, size in enumerate(theirs)]
    found = comparison(*hybrids, *baselines, of=len(ours) - 1)
    ratio, arms = found.verdicts["concurrent"].memory_ratio, (found.hybrid, found.baselines["concurrent"])
    count = max(len(ours), len(theirs)) if 1 in (len(ours), len(theirs)) else min(len(ours), len(theirs))
    shown = [arm.memory_bytes.values if arm.memory_bytes is not None else () for arm in arms]
    assert shown == [tuple(ours[-count:]), tuple(theirs[-count:])]
    assert ratio is not None
    a, b = (values * count if len(values) == 1 else values for values in shown)
    assert ratio.values == tuple(x / y for x, y in zip(a, b, strict=True))


def test_the_run_that_was_asked_about_is_always_among_the_repeats() -> None:
    hybrids = [run(f"h{at}") for at in range(4)]
    found = comparison(*hybrids, run("c0", "concurrent"), run("c1", "concurrent"), of=0)
    assert found.hybrid.run_ids == ("h3", "h0")
    assert "hybrid run h1 (completed) is left out" in found.verdicts["concurrent"].notes


def test_hybrids_that_are_steered_in_another_way_are_no_repeats() -> None:
    steered = run("h2", checkpoint_text="every step"), with_part(run("h2"), priority=3)
    for other in (*steered, run("h2", policy_text="Round robin"), replace(run("h2"), lanes=2)):
        found = comparison(HYBRID, other, CONCURRENT)
        assert (found.hybrid.run_ids, found.verdicts["concurrent"].notes) == (("h",), ())


def with_processes(view: RunView, *threads: int, **changes: Any) -> RunView:
    """A baseline of processes with so many threads each."""
    return replace(view, processes={name: {"threads": n} for name, n in zip(NAMES, threads, strict=True)}, **changes)


def test_an_arm_with_more_threads_than_the_hybrid_gets_no_verdict() -> None:
    hybrid = replace(HYBRID, threads=4)
    older = replace(CONCURRENT, threads=4)  # its record names no processes: each had all threads
    verdict = comparison(hybrid, older).verdicts["concurrent"]
    assert verdict.withheld_because == "concurrent run c had 8 threads, the hybrid 4; run the baseline again"
    fair = with_processes(older, 2, 2)
    assert comparison(hybrid, fair).verdicts["concurrent"].withheld_because is None
    assert comparison(hybrid, older, fair).baselines["concurrent"].threads == (2, 2)


def test_one_thread_a_process_is_the_least_and_the_extra_cores_are_noted() -> None:
    baseline = with_processes(CONCURRENT, 1, 1)
    [note] = comparison(HYBRID, baseline, cores=4).verdicts["concurrent"].notes
    assert note == "2 processes of one thread used up to 2 cores, the hybrid 1"
    assert comparison(HYBRID, baseline, cores=1).verdicts["concurrent"].notes == ()


def test_lanes_of_the_hybrid_are_its_cores_and_noted_where_they_are_more() -> None:
    two = replace(HYBRID, lanes=2)
    assert comparison(two, with_processes(CONCURRENT, 1, 1), cores=4).verdicts["concurrent"].notes == ()
    sequential = with_processes(run("s", "sequential", (16.0, 20.0)), 1, 1)
    [note] = comparison(two, sequential, cores=4).verdicts["sequential"].notes
    assert note == "2 lanes of the hybrid used up to 2 cores, the sequential baseline 1"


def test_weights_are_not_compared_between_thread_counts_on_a_cpu() -> None:
    hybrid = replace(HYBRID, threads=4)
    other = with_part(with_processes(CONCURRENT, 2, 2, threads=4), state_sha256="rounded otherwise")
    verdict = comparison(hybrid, other).verdicts["concurrent"]
    assert verdict.withheld_because is None
    assert verdict.identical_weights is None
    assert verdict.notes == (
        "weights are not compared: rounding depends on threads "
        "(4 threads in the hybrid, 2 in the concurrent processes)",
    )
    on_gpu = comparison(replace(hybrid, device="cuda:0"), replace(other, device="cuda:0")).verdicts["concurrent"]
    assert on_gpu.withheld_because == "the trained weights differ, so the arms did not do the same work"


def test_the_loader_is_summed_over_processes() -> None:
    seconds = {name: {"threads": 1, "loader_s": 2.0, "loader_cpu_s": 1.5} for name in NAMES}
    found = comparison(
        HYBRID, replace(CONCURRENT, processes=seconds), run("s", "sequential", processes={NAMES[0]: {"threads": 1}})
    )
    concurrent = found.baselines["concurrent"]
    assert (concurrent.loader_s, concurrent.loader_cpu_s) == (Spread((4.0,)), Spread((3.0,)))
    assert found.baselines["sequential"].loader_s is found.hybrid.loader_s is None


def test_resident_sizes_are_said_to_count_libraries_twice() -> None:
    both = [replace(view, memory_source="process RSS") for view in (HYBRID, CONCURRENT)]
    assert any("resident size" in note for note in comparison(*both).verdicts["concurrent"].notes)


def test_a_fast_run_is_never_called_identical_nor_withheld_for_its_bits() -> None:
    fast = {"spec": {"profile": "fast"}}
    for ours in ("bits", "other bits"):
        hybrid = run("h", submodels=(part("lenet", 4.0, state_sha256=ours),), **fast)
        baseline = run("b", "sequential", submodels=(part("lenet", 9.0, state_sha256="bits"),), **fast)
        found = compare([hybrid, baseline], hybrid, lambda run: False, {}).verdicts["sequential"]
        assert found.identical_weights is None and found.withheld_because is None
        assert any("profile fast" in note for note in found.notes)
    exact = run("h", submodels=(part("lenet", 4.0, state_sha256="bits"),))
    found = compare([exact, replace(baseline, spec={})], exact, lambda run: False, {}).verdicts["sequential"]
    assert found.identical_weights is True


def test_weights_of_two_kinds_of_device_are_not_compared() -> None:
    baseline = run("b", "sequential")
    one, two = (
        replace(HYBRID, stays=tuple(Stay("lenet", device, kind, 0.0) for device, kind in there))
        for there in ([("cuda:0", "H200"), ("cuda:1", "H200")], [("cuda:0", "H200"), ("cuda:1", "A100")])
    )
    for other_bits in (False, True):
        hybrid = with_part(two, state_sha256="others") if other_bits else two
        found = comparison(hybrid, baseline).verdicts["sequential"]
        assert found.identical_weights is None and found.withheld_because is None
        assert any("2 kinds of device (H200; A100)" in note for note in found.notes)
    assert comparison(one, baseline).verdicts["sequential"].identical_weights is True, "it moved within a kind"


def test_arms_that_ran_beside_different_other_work_are_noted() -> None:
    busy, quiet = replace(HYBRID, others_share=0.45), replace(CONCURRENT, others_share=0.05)
    [note] = comparison(busy, quiet).verdicts["concurrent"].notes
    assert note.startswith("other work used 45 % of the processors during the hybrid and 5 % during concurrent")
    assert comparison(busy, replace(quiet, others_share=0.4)).verdicts["concurrent"].notes == ()
    assert comparison(busy, CONCURRENT).verdicts["concurrent"].notes == ()


def with_techniques(view: RunView, **by_name: dict[str, Any]) -> RunView:
    """The run with one technique for each of these sub-models."""
    parts = [{"name": name, "hyperparameters": {"techniques": [one]}} for name, one in by_name.items()]
    used_by = {part["name"]: used(part["hyperparameters"]) for part in parts}
    submodels = tuple(replace(one, techniques=used_by.get(one.name, ())) for one in view.submodels)
    return replace(view, spec={"submodels": parts}, submodels=submodels)


EXACT, LOSSY = {"name": "compression"}, {"name": "compression", "bfloat16": True}
ROUGH = {"state_sha256": "other bits", "test_accuracy": 0.70, "test_loss": 1.25}
PLAIN = with_part(CONCURRENT, test_accuracy=0.75, test_loss=1.0)


def test_a_lossy_technique_is_judged_by_loss_and_accuracy_and_never_by_weights() -> None:
    verdict = comparison(with_techniques(with_part(HYBRID, **ROUGH), lenet=LOSSY), PLAIN).verdicts["concurrent"]
    assert verdict.withheld_because is None and verdict.memory_ratio is not None
    assert (verdict.identical_weights, verdict.lossy) == (True, ("lenet",)), "of the other one alone"
    assert "weights are not compared: compression of lenet is lossy" in verdict.notes
    told = "lenet ends with a test accuracy of 70.0 %, concurrent 75.0 % (-5.0 points); "
    assert told + "a test loss of 1.25, concurrent 1 (+0.25)" in verdict.notes


def test_equal_weights_of_a_lossy_technique_are_not_called_identical() -> None:
    every = with_techniques(HYBRID, lenet=LOSSY, resnet=LOSSY)
    verdict = comparison(every, CONCURRENT).verdicts["concurrent"]
    assert (verdict.identical_weights, verdict.withheld_because) == (None, None)
    assert weights_text(verdict) == LOSSY_WEIGHTS


@pytest.mark.parametrize("who", [{"resnet": LOSSY}, {"lenet": EXACT}])
def test_other_bits_without_a_lossy_technique_withhold_the_verdict(who: dict[str, Any]) -> None:
    verdict = comparison(with_techniques(with_part(HYBRID, **ROUGH), **who), PLAIN).verdicts["concurrent"]
    assert verdict.identical_weights is False
    assert "the trained weights differ" in str(verdict.withheld_because)


def test_the_report_and_the_document_name_the_techniques() -> None:
    found = comparison(with_techniques(HYBRID, lenet=LOSSY, resnet=EXACT), CONCURRENT)
    lines = {"lenet": "Activation compression (bfloat16: true), lossy", "resnet": "Activation compression, exact"}
    assert all(line in cards(found) for line in lines.values())
    document: Any = comparison_document(found, {"h": {}, "c": {}})
    names = {"lenet": ["compression (bfloat16: true), lossy"], "resnet": ["compression, exact"]}
    assert document["arms"]["hybrid"]["techniques"] == names
    assert document["arms"]["concurrent"]["techniques"] == {}
    assert document["verdict"]["concurrent"]["lossy"] == ["lenet"]
    assert "techniques" not in cards(comparison(HYBRID, CONCURRENT))


def test_a_network_that_the_baseline_lacks_has_no_equal_weights() -> None:
    short = replace(CONCURRENT, submodels=CONCURRENT.submodels[:1])
    assert comparison(HYBRID, short).verdicts["concurrent"].identical_weights is None
