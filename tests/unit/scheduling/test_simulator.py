"""What one simulation does, by examples that can be checked by hand."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.scheduling.base import Decision, Quantum, View
from unifiednn_core.scheduling.registry import describe, policy_named
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.simulator import SimulatedHybrid, SimulatedJob, simulate


@dataclass(frozen=True)
class _Once:
    """Grants the first job some seconds once, then everything; shows its views to the test."""

    amount_s: float
    views: list[View]
    name: ClassVar[str] = "once"
    summary: ClassVar[str] = "For tests."

    def decide(self, view: View) -> Decision:
        self.views.append(view)
        quantum = Quantum("seconds", self.amount_s) if len(self.views) == 1 else Quantum("completion")
        return Decision(view.jobs[0].name, quantum, f"{view.jobs[0].name} is first.")


def test_policies_see_what_is_done_measured_and_waited_for() -> None:
    views: list[View] = []
    jobs = [SimulatedJob(name=name, epochs=2, steps_per_epoch=4, seconds_per_step=0.5) for name in "ab"]
    simulate([*jobs, replace(jobs[0], name="c", arrival_s=9.0)], _Once(2.75, views))
    seen = [
        (view.now_s, job.name, job.in_line_since, job.epochs_done, job.steps_done, job.seconds_per_step, job.waiting_s)
        for view in views
        for job in view.jobs
    ]
    assert seen == [
        (0.0, "a", 0, 0, 0, None, 0.0),
        (0.0, "b", 1, 0, 0, None, 0.0),
        (3.0, "a", 2, 1, 6, 0.5, 0.0),
        (3.0, "b", 1, 0, 0, None, 3.0),
        (4.0, "b", 1, 0, 0, None, 4.0),
        (9.0, "c", 5, 0, 0, None, 0.0),
    ]


def test_one_that_leaves_takes_its_progress_along() -> None:
    hybrid = SimulatedHybrid(RoundRobin(unit="steps", amount=2))
    for name in "ab":
        hybrid.join(SimulatedJob(name=name, epochs=4), 0.0)
    hybrid.advance()
    hybrid.leave("a", 0.5)
    assert hybrid.next_s == 1.0
    ended, [left] = hybrid.advance()
    assert (ended, left.name, left.steps_done, left.service_s) == ([], "a", 1, 1.0)
    while hybrid.next_s < 100:
        ended += hybrid.advance()[0]
    assert (ended, hybrid.turns[-1].end_s) == (["b"], 5.0)


@dataclass(frozen=True)
class _Stranger:
    name: ClassVar[str] = "stranger"
    summary: ClassVar[str] = "For tests."

    def decide(self, view: View) -> Decision:
        return Decision("nobody", Quantum("completion"), "nobody is next.")


def test_a_policy_that_chooses_a_stranger_is_refused() -> None:
    with pytest.raises(ValueError, match=r"chose 'nobody', which is not in line\. In line: a\."):
        simulate([SimulatedJob(name="a")], _Stranger())


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 5), st.sampled_from([0.001, 0.0131, 0.3])), min_size=1, max_size=4
    ),
    st.integers(1, 3),
    st.floats(1.7e9, 1.9e9),
    st.sampled_from([card.name for card in describe()]),
)
def test_moments_in_utc_end_too(shapes: list[tuple[int, int, float]], lanes: int, now_s: float, policy: str) -> None:
    """UTC seconds are exact to a quarter of a microsecond: much, beside a step of a millisecond."""
    hybrid = SimulatedHybrid(policy_named(policy, {}), lanes)
    for place, (epochs, steps, step_s) in enumerate(shapes):
        job = SimulatedJob(
            name=f"j{place}", epochs=epochs, steps_per_epoch=steps, seconds_per_step=step_s, measured=True
        )
        hybrid.join(job, now_s)
    most_looks = 10 * sum(epochs * steps for epochs, steps, _ in shapes)
    while hybrid.next_s < float("inf"):
        hybrid.advance()
        most_looks -= 1
        assert most_looks > 0, "the simulation does not get on"
    assert sum(turn.steps for turn in hybrid.turns) == sum(epochs * steps for epochs, steps, _ in shapes)
