"""A simulated cluster: nothing is lost or counted twice, whatever fails, and its files are read or refused by line."""

import math
import random
from collections import defaultdict
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import GIB
from unifiednn_core.scheduling import cluster_arms, simulator
from unifiednn_core.scheduling.cluster import (
    Cluster,
    ClusterJob,
    WithoutRechecks,
    cluster_of,
    draw_jobs,
    entries_of,
    failures_of,
    view_of,
)
from unifiednn_core.scheduling.cluster_arms import ClusterArm, busy_shares, run_arm, trace_of, usual_arms
from unifiednn_core.scheduling.cluster_run import ClusterRequest, check, document, request_of
from unifiednn_core.scheduling.cluster_trace import COLUMNS, is_ours, read_jobs
from unifiednn_core.scheduling.fleet import run_fleet
from unifiednn_core.scheduling.fleet_events import FleetTrace, HeldDevices
from unifiednn_core.scheduling.srtf import ShortestRemainingTime
from unifiednn_core.scheduling.workloads import HELIOS, PHILLY

PERIOD_S, STEP_S = 30.0, 1.0
TWO_KINDS = cluster_of(0, 0, ("H100:8:80", "A100:6:40"), gpu_failure_s=40_000.0, host_failure_s=400_000.0)


def drawn(cluster: Cluster, seed: int, jobs: int = 60) -> tuple[ClusterJob, ...]:
    """Jobs of one GPU, of several, and of those that ask for a kind."""
    chance = random.Random(seed)
    found = draw_jobs(replace(PHILLY, longest_s=9000.0), cluster, jobs=jobs, load=1.5, seed=seed, several=0.2)
    return tuple(
        replace(job, gpus=min(job.gpus, 4), kind=chance.choice([None, None, cluster.kinds[0].name]), priority=at % 3)
        for at, job in enumerate(found)
    )


def lasts_s(job: ClusterJob) -> float:
    """Seconds in whole steps."""
    steps = max(1, round(job.duration_s / STEP_S / 10))
    return 10 * steps * STEP_S


def check_trace(cluster: Cluster, jobs: tuple[ClusterJob, ...], trace: FleetTrace, deaths_s: list[float]) -> None:
    """Every job ends once; seconds of GPUs add up; no failure takes more than a period and a step of any of them."""
    assert trace.ends_s.keys() == {job.name for job in jobs}
    for job in jobs:
        lost_s = trace.lost_s.get(job.name, 0.0)
        assert trace.service_s[job.name] == pytest.approx(lasts_s(job) + lost_s, abs=1e-3), job
        assert lost_s <= len(deaths_s) * (PERIOD_S + STEP_S) + 1e-6
        assert trace.ends_s[job.name] >= job.submitted_s + lasts_s(job) - 1e-6
        assert trace.starts_s[job.name] >= trace.placed_s[job.name] >= job.submitted_s - 1e-6
    begins = [(one.begin_s, one.devices) for one in trace.held]
    changes = sorted([*begins, *((one.end_s, -one.devices) for one in trace.held)])
    held = 0
    for _, change in changes:  # those that give back come first
        held += change
        assert 0 <= held <= cluster.gpus
    assert held == 0


@pytest.mark.parametrize("seed", range(6))
def test_every_job_ends_once_and_gpu_seconds_add_up(seed: int) -> None:
    jobs = drawn(TWO_KINDS, seed)
    arms = (
        ClusterArm(policy="fcfs", placement="private", failures=True),
        ClusterArm(policy="sjf", moves=True, failures=True),
        ClusterArm(policy=("las", "round_robin", "fair", "srtf")[seed % 4], failures=seed % 2 == 0),
    )
    for arm in arms:
        trace, _ = trace_of(arm, TWO_KINDS, jobs, seed=seed, checkpoint_s=PERIOD_S)
        last_s = max(trace.ends_s.values())
        dead = [one.at_s for one in islice(failures_of(TWO_KINDS, seed), 500) if one.at_s <= last_s]
        check_trace(TWO_KINDS, jobs, trace, dead if arm.failures else [])
        assert not arm.failures or trace.deaths > 0


def test_a_failure_without_checkpoints_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, arm = drawn(TWO_KINDS, 0), ClusterArm(policy="fcfs", failures=True)
    lose = simulator.SimulatedHybrid.lose
    monkeypatch.setattr(simulator.SimulatedHybrid, "lose", lambda one, now_s, kept_s, ended=(): lose(one, now_s, 0.0))
    trace, _ = trace_of(arm, TWO_KINDS, jobs, checkpoint_s=1e9)
    with pytest.raises(AssertionError):
        check_trace(TWO_KINDS, jobs, trace, [0.0])


@pytest.mark.parametrize("mode", ["pooled", "private"])
def test_no_gpu_is_promised_twice(mode: str) -> None:
    """By kind and claim: placements are checked against the memory of each GPU at each plan."""
    jobs = drawn(TWO_KINDS, 3)
    waiting, simulated = entries_of(TWO_KINDS, jobs)
    needs = {job.name: job for job in jobs}
    kinds = {one.name: one.kind for one in view_of(TWO_KINDS, "pooled", moves=False).devices}
    seen = [0]

    def watch(now: object, plan: object) -> None:
        on: dict[str, list[str]] = defaultdict(list)
        for hybrid in now.hybrids:  # type: ignore[attr-defined]
            for name in (hybrid.device, *hybrid.also):
                on[name] += [member.key for member in hybrid.members]
        for one in plan.placements:  # type: ignore[attr-defined]
            for name in (one.device, *one.also):
                on[name] += one.keys
                assert {needs[key].kind for key in one.keys} <= {None, kinds[name]}
            assert len({kinds[name] for name in (one.device, *one.also)}) == 1
            assert all(needs[key].gpus == 1 + len(one.also) for key in one.keys)
        for name, keys in on.items():
            seen[0] += 1
            total = (80 if kinds[name] == "H100" else 40) * GIB
            kept = sum(needs[key].kept_bytes for key in keys)
            assert kept + max(needs[key].working_bytes for key in keys) <= total
            assert len(keys) == 1 or (mode == "pooled" and all(needs[key].gpus == 1 for key in keys))

    view = view_of(TWO_KINDS, mode, moves=mode == "pooled")  # type: ignore[arg-type]
    policy = WithoutRechecks(ShortestRemainingTime())
    run_fleet(view, policy, jobs=simulated, coming=waiting, watch=watch, fetch_s=5.0,
              failures=failures_of(TWO_KINDS, 1), checkpoint_s=PERIOD_S)  # fmt: skip
    assert seen[0] > 100


def test_equal_seeds_give_equal_figures_and_others_do_not() -> None:
    cluster = cluster_of(6, 80 * GIB, gpu_failure_s=50_000.0)
    arm = ClusterArm(policy="sjf", moves=True, failures=True)
    found = [replace(run_arm(arm, cluster, drawn(cluster, seed), seed=seed), cpu_s=0.0) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_a_policy_that_need_not_look_again_decides_the_same() -> None:
    for seed in range(5):
        jobs = draw_jobs(replace(HELIOS, longest_s=600.0), cluster_of(2, 80 * GIB), jobs=20, load=2.0, seed=seed)
        waiting, simulated = entries_of(cluster_of(2, 80 * GIB), jobs)
        view = view_of(cluster_of(2, 80 * GIB), "pooled", moves=False)
        plain, steady = (run_fleet(view, policy, jobs=simulated, coming=waiting)
                         for policy in (ShortestRemainingTime(), WithoutRechecks(ShortestRemainingTime())))  # fmt: skip
        assert plain.ends_s == pytest.approx(steady.ends_s) and plain.turns > steady.turns


def test_a_thousand_gpus() -> None:
    cluster = cluster_of(1000, 80 * GIB, gpu_failure_s=200 * 3600.0)
    jobs = draw_jobs(PHILLY, cluster, jobs=1500, load=40.0, seed=0)
    alone = run_arm(ClusterArm(policy="fcfs", placement="private"), cluster, jobs)
    hybrids = run_arm(ClusterArm(policy="sjf", moves=True, failures=True), cluster, jobs)
    assert alone.unfinished == hybrids.unfinished == 0
    assert hybrids.p95_slowdown < alone.p95_slowdown and hybrids.deaths > 0
    assert all(0 <= share <= 1 + 1e-9 for _, share in (*alone.busy, *hybrids.busy))


def test_nothing_gains_where_nothing_was_measured() -> None:
    """With gains only a CPU trains faster, by as much as lanes were measured."""
    for kind, faster in (("GPU:2:80", False), ("cpu:2:80", True)):
        cluster = cluster_of(0, 0, (kind,))
        jobs = tuple(ClusterJob(name=f"j{at}", submitted_s=0.0, duration_s=1000.0, kept_bytes=GIB) for at in range(8))
        plain, gained = (run_arm(ClusterArm(policy="fcfs"), cluster, jobs, gains=on).makespan_s for on in (False, True))
        expected = plain * cluster_arms.GAINS["cpu"].slowdown / 2 if faster else plain
        assert gained == pytest.approx(expected, rel=0.01)


def test_busy_shares_are_those_of_a_count() -> None:
    held = [HeldDevices(0.0, 10.0, 1), HeldDevices(5.0, 6.0, 2), HeldDevices(-3.0, 2.0, 1), HeldDevices(9.5, 40.0, 1)]
    for points in (1, 3, 10, 20):
        found = busy_shares(held, 0.0, 20.0, 4, points)
        moments = [(at + 0.5) * 20 / 4000 for at in range(4000)]
        for at, (begin_s, share) in enumerate(found):
            inside = [sum(one.devices for one in held if one.begin_s <= moment < one.end_s) / 4
                      for moment in moments if at * 20 / points <= moment < (at + 1) * 20 / points]  # fmt: skip
            assert begin_s == pytest.approx(at * 20 / points)
            assert share == pytest.approx(sum(inside) / len(inside), abs=0.01)


# --- requests and files -----------------------------------------------------------------------------------------------


def test_a_request_survives_its_document_and_a_wrong_one_is_refused() -> None:
    asked = ClusterRequest(gpus=20, jobs=50, policies=("sjf",), moves=True, kinds=("H100:12:80", "A100:8:40"))
    assert request_of(asked.document) == asked
    found = document(asked)
    assert [one["name"] for one in found["arms"]] == ["exclusive, fcfs", "hybrids, sjf + moves"]
    assert found["workload"]["gpus"] == 20 and found["workload"]["hosts"] == 3
    for name, value in (("gpus", 0), ("jobs", 10**9), ("load", math.nan), ("statistics", "mine"), ("gpu", 3),
                        ("policies", ["best"]), ("placements", []), ("kinds", ["H100"]), ("seed", "first"),
                        ("kinds", ["a:1:1", "a:2:2"])):  # fmt: skip
        with pytest.raises(BadInput) as refused:
            request_of({**asked.document, name: value})
        assert all(one.remedy for one in refused.value.findings), name
    with pytest.raises(BadInput):
        check(replace(asked, estimates_off=-1))
    names = {arm.name for arm in usual_arms(failures=True)}
    assert len(names) == 11 and "hybrids, sjf + moves + failures" in names


def test_our_trace_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("\ufeffduration_s,submitted_s,gpus,kind,memory_bytes,kept_bytes,owner,priority\n"
                    "60,20,1,,1000,400,ann,2\n\n30.5,10,2,H100,,,bob,\n", encoding="utf-8")  # fmt: skip
    assert is_ours(path)
    first, second = read_jobs(path, TWO_KINDS, most=10)
    assert (first.submitted_s, first.duration_s, first.gpus, first.kind, first.kept_bytes) == (10, 30.5, 2, "H100", GIB)
    assert (second.kept_bytes, second.working_bytes, second.owner, second.priority) == (400, 600, "ann", 2)
    assert read_jobs(path, TWO_KINDS, most=1) == (first,)
    shown = document(ClusterRequest(kinds=("H100:2:80",), trace=str(path), load=None, policies=("fcfs",)))
    assert shown["workload"]["jobs"] == 2 and all(one["unfinished"] == 0 for one in shown["arms"])


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [("submitted_s,durations_s\n1,2\n", 1, "'duration_s' is missing"),
     ("submitted_s,duration_s,gpu\n1,2,1\n", 1, "Did you mean 'gpus'?"),
     ("submitted_s,duration_s,gpus,gpus\n1,2,1,1\n", 1, "twice"),
     ("submitted_s,duration_s\n1,2\n3\n", 3, "1 values for 2"),
     ("submitted_s,duration_s\n1,2\n3,-4\n", 3, "'-4' cannot"),
     ("submitted_s,duration_s\n1,2\n3,\n", 3, "no value"),
     ("submitted_s,duration_s\nnan,2\n", 2, "'nan' cannot"),
     ("submitted_s,duration_s,gpus\n1,2,1.5\n", 2, "'1.5' cannot"),
     ("submitted_s,duration_s,gpus\n1,2,9\n", 2, "more than there are, 8"),
     ("submitted_s,duration_s,kind\n1,2,V100\n", 2, "no 'V100'"),
     ("submitted_s,duration_s,memory_bytes,kept_bytes\n1,2,5,6\n", 2, "more than memory_bytes"),
     ("submitted_s,duration_s\n", 0, "No job")],
)  # fmt: skip
def test_a_bad_trace_file_is_refused_by_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as refused:
        read_jobs(path, TWO_KINDS, most=10)
    assert any(words in one.message and one.remedy for one in refused.value.findings), refused.value
    assert any(f"line {line}" in one.field for one in refused.value.findings) or not line


def test_columns_are_documented() -> None:
    described = str(read_jobs.__globals__["__doc__"])
    assert all(f"`{name}`" in described for name in COLUMNS)
