"""Deadlines before a submission is queued, simulated with measured speeds."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.preflight.test_forecast import report, spec
from unifiednn_core.base.errors import Finding
from unifiednn_core.preflight import deadlines
from unifiednn_core.scheduling.simulator import SimulatedJob

SPEEDS = {"small": 1.0, "large": 2.0}
"""12 steps each, 4 in an epoch: 12 s and 24 s."""


def found(due: dict[str, float], speeds: dict[str, float] = SPEEDS, **given: Any) -> list[Finding]:
    asked = spec(policy={"name": given.pop("policy", "deadline")}, names=("small", "large"))
    parts = [part.model_copy(update={"deadline_s": due.get(part.name)}) for part in asked.submodels]
    asked = asked.model_copy(update={"submodels": tuple(parts)})
    return list(deadlines.findings(asked, report(asked), speeds, **given))


@pytest.mark.parametrize(
    "due", [{}, {"small": 12}, {"large": 24}, {"small": 36, "large": 24}, {"small": 12, "large": 36}]
)
def test_deadlines_that_hold_are_not_mentioned(due: dict[str, float]) -> None:
    assert found(due) == []


def test_one_that_cannot_hold_even_alone_says_how_long_it_takes() -> None:
    [finding] = found({"large": 23.0})
    assert (finding.severity, finding.field) == ("error", "submodels.large.deadline_s")
    assert finding.message == "large needs about 24.0 s, not 23.0 s."
    assert finding.remedy == "Give it 24 s or more, or fewer epochs."


def test_one_that_others_hold_up_names_the_moment_that_would_hold() -> None:
    [finding] = found({"small": 35, "large": 24})
    assert finding.field == "submodels.small.deadline_s"
    assert finding.remedy == "Give it 36 s or more, or fewer epochs, or others later deadlines."
    promised = int(re.findall(r"(\d+) s or more", finding.remedy)[0])
    assert found({"small": promised, "large": 24}) == []


def test_a_joining_one_may_not_break_the_deadline_of_another() -> None:
    beside = [SimulatedJob(name="theirs", steps_per_epoch=10, deadline_s=30.0)]
    assert found({"small": 40}, beside=beside) == []
    [finding] = found({"small": 29, "large": 29}, beside=beside)[-1:]
    assert finding.field == "submodels.small" and "Another sub-model" in finding.message
    assert "theirs" not in str(finding), "its owner may be a stranger"
    late = [SimulatedJob(name="theirs", steps_per_epoch=10, deadline_s=5.0)]
    assert found({"small": 29}, beside=late) == [], "it misses its deadline anyway"


def test_one_that_is_due_at_the_same_moment_counts_as_ahead() -> None:
    job, other = (
        SimulatedJob(name=name, seconds_per_step=left_s, deadline_s=20.0) for name, left_s in (("a", 10), ("b", 15))
    )
    assert deadlines.needed_s(job, [other]) == 25.0


def test_an_unknown_speed_is_a_warning_and_the_others_are_still_checked() -> None:
    unknown, late = sorted(
        found({"small": 99, "large": 20}, {"large": 2.0}), key=lambda one: one.severity, reverse=True
    )
    assert (unknown.severity, unknown.field) == ("warning", "submodels.small.deadline_s")
    assert (late.severity, late.field) == ("error", "submodels.large.deadline_s")


def test_another_policy_promises_nothing() -> None:
    [finding] = found({"small": 1}, policy="fcfs")
    assert (finding.severity, finding.field) == ("warning", "policy.name")
    assert found({}, policy="fcfs", beside=[SimulatedJob(name="theirs", deadline_s=1.0)]) == []


JOBS = st.lists(
    st.builds(
        SimulatedJob,
        name=st.sampled_from("abcdef"),
        steps_per_epoch=st.integers(1, 20),
        deadline_s=st.one_of(st.none(), st.integers(1, 60).map(float)),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda job: job.name,
)


@settings(deadline=None)
@given(JOBS, st.integers(1, 40).map(float))
def test_the_deadline_that_a_remedy_names_holds_and_an_earlier_one_does_not(
    jobs: list[SimulatedJob], asked_s: float
) -> None:
    *others, first = jobs[1:] + jobs[:1]
    least_s = deadlines.needed_s(replace(first, deadline_s=asked_s), others)

    def ends_s(deadline_s: float) -> dict[str, float]:
        return deadlines.ends_of([*others, replace(first, deadline_s=deadline_s)])

    assert ends_s(least_s)[first.name] <= least_s
    earlier = ends_s(least_s - 1)
    if least_s > asked_s and all(earlier[job.name] <= (job.deadline_s or 999) for job in others):
        assert earlier[first.name] > least_s - 1
