from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from unifiednn_core.scheduling.base import Decision, View
from unifiednn_core.scheduling.registry import POLICIES, policy_named
from unifiednn_core.scheduling.simulator import SimulatedJob, Stage, stages

JOBS = (
    SimulatedJob(name="a", priority=1, parameters=30, epochs=2, steps_per_epoch=10),
    SimulatedJob(name="b", priority=0, parameters=10, epochs=3, steps_per_epoch=10),
    SimulatedJob(name="c", priority=1, parameters=20, epochs=1, steps_per_epoch=10),
)


def turns(policy: str, **parameters: Any) -> list[tuple[str, str, str]]:
    """Holder, who has started and who waits, turn by turn."""
    found = stages(JOBS, policy_named(policy, parameters))
    return [(stage.holder, "".join(sorted(stage.started)), "".join(sorted(stage.waiting))) for stage in found]


def test_to_completion_one_is_started_at_a_time() -> None:
    assert turns("fcfs") == [("a", "a", "bc"), ("b", "b", "c"), ("c", "c", "")]
    assert turns("sjf", by="parameters") == [("b", "b", "ac"), ("c", "c", "a"), ("a", "a", "")]


def test_in_turns_all_are_there_at_once_and_each_holds_the_device_then() -> None:
    found = turns("round_robin", unit="steps", amount=2)
    assert {holder for holder, started, _ in found if started == "abc"} == {"a", "b", "c"}


def test_one_that_is_done_within_its_first_turn_is_gone_before_the_next() -> None:
    found = turns("round_robin", unit="steps", amount=25)
    assert found[0] == ("a", "a", "bc")
    assert not [stage for stage in found[1:] if "a" in stage[1]]


def test_equal_priorities_share_and_higher_values_wait() -> None:
    found = turns("priority")
    assert found[0] == ("b", "b", "ac")
    assert {("a", "a", "c"), ("c", "ac", "")} <= set(found)
    assert not [stage for stage in found if "b" in stage[1] and stage[1] != "b"]


def test_a_policy_that_measures_starts_all() -> None:
    assert ("c", "abc", "") in turns("sjf", by="time")


@pytest.mark.parametrize("policy", ["las", "fair", "finish_time", "srtf"])
def test_policies_that_take_turns_by_time_start_all(policy: str) -> None:
    jobs = [replace(job, owner=job.name) for job in JOBS]
    assert "".join(sorted(stages(jobs, policy_named(policy, {}))[2].started)) == "abc"


def test_one_that_overruns_its_deadline_stays_while_others_train() -> None:
    jobs = [replace(job, deadline_s=30.0 - place) for place, job in enumerate(JOBS)]
    found = [(stage.holder, "".join(sorted(stage.started))) for stage in stages(jobs, policy_named("deadline", {}))]
    assert found[0] == ("c", "c")  # it may not be done when its time is up
    assert ("b", "bc") in found


@pytest.mark.parametrize("policy", [policy.name for policy in POLICIES])
def test_a_million_epochs_cost_no_more_than_two(policy: str) -> None:
    jobs = [SimulatedJob(name=f"j{n}", epochs=1_000_000, steps_per_epoch=1_000_000) for n in range(32)]
    found = stages(jobs, policy_named(policy, {}))
    assert len(found) <= 3 * len(jobs)
    assert {stage.holder for stage in found} == {job.name for job in jobs}
    assert all(isinstance(stage, Stage) and stage.holder in stage.started for stage in found)


@dataclass(frozen=True)
class _Broken:
    name: ClassVar[str] = "broken"
    summary: ClassVar[str] = "Always raises."

    def decide(self, view: View) -> Decision:
        raise KeyError("a bug in the policy")


def test_a_policy_that_raises_is_followed_as_the_engine_does(caplog: pytest.LogCaptureFixture) -> None:
    assert stages(JOBS, _Broken()) == stages(JOBS, policy_named("round_robin", {}))
    assert "The policy failed." in caplog.text
