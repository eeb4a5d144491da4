"""What policies would do with a job set, simulated with their own code: finish times, fairness, memory. Pure.

Fairness is Jain's index (Jain, Chiu and Hawe, "A Quantitative Measure of Fairness and Discrimination", DEC TR-301,
1984) of the speed that each sub-model got: its time alone by its turnaround. 1 if all were slowed down alike, 1 / n if
one alone had everything.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from unifiednn_core.preflight.memory_over_time import MemoryModel, memory_over_time
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.rehearsal import coarse, left_s
from unifiednn_core.scheduling.simulator import MayJoin, SimulatedJob, SimulatedTurn, pays, simulate
from unifiednn_core.views.estimates import Basis, Estimate, KeptForecast
from unifiednn_core.views.people import view_of
from unifiednn_core.views.runs import RunView, Series, Slice

FINEST_EPOCHS, FINEST_STEPS = 1500, 6000
"""Of a forecast that is made once."""
MOST_TURNS = 2000
"""Turns that a forecast keeps for its chart."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds that are no training."""

    start_s: float = 1.0
    """From the launch of the worker to the first step."""
    export_s: float = 0.5
    """From the last step of a sub-model to its verified file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSet:
    """All that a forecast depends on, beside the policy."""

    jobs: tuple[SimulatedJob, ...]
    """In order of arrival."""
    basis: Basis
    lanes: int = 1
    may_join: MayJoin = pays
    overheads: Overheads = field(default_factory=Overheads)
    memory: MemoryModel | None = None
    peaks: Mapping[str, int] = field(default_factory=dict)
    """Predicted peak in bytes, by policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyForecast:
    """What one policy would do. Seconds count from the launch of the worker; relative ones are shares of the work."""

    policy: str
    policy_text: str
    """With its parameters, as text for people."""
    turns: tuple[Slice, ...]
    finish_s: Mapping[str, float]
    """By sub-model, in order of arrival: when its file is there."""
    mean_turnaround_s: float
    makespan_s: float
    fairness: float
    peak_bytes: int | None = None
    memory: Series = field(default_factory=Series)
    """Bytes over seconds; each value holds until the next."""
    basis: Basis = "measured"

    @property
    def document(self) -> dict[str, Any]:
        """As JSON, without turns and curves."""
        return {**asdict(self), "turns": None, "memory": None, "finish_s": dict(self.finish_s)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """When each sub-model that still trains would end, before and after a change; None for one without a speed yet."""

    before: Mapping[str, Estimate | None]
    after: Mapping[str, Estimate | None]

    @property
    def known(self) -> bool:
        """Whether anything can be said."""
        return any(one is not None for one in (*self.before.values(), *self.after.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishRow:
    """Predicted and actual finish of a sub-model, or of the whole run; seconds from the launch."""

    name: str
    predicted_s: float
    actual_s: float | None
    """None until it has ended."""
    expected_s: float | None = None
    """As it looks now, while it trains."""

    @property
    def off(self) -> float | None:
        """How far the prediction was off, as a share of the actual time: above 0 if it took less than predicted."""
        return None if not self.actual_s else self.predicted_s / self.actual_s - 1


def forecast(job_set: JobSet, policy: Policy, *, finely: bool = True) -> PolicyForecast:
    """What one policy would do; `finely` with more and shorter turns. Raises what the policy raises."""
    limits = {"most_epochs": FINEST_EPOCHS, "most_steps": FINEST_STEPS} if finely else {}
    jobs, start_s, export_s = coarse(job_set.jobs, **limits), job_set.overheads.start_s, job_set.overheads.export_s
    if job_set.basis == "relative":
        start_s = export_s = 0.0
    turns = simulate(jobs, policy, lanes=job_set.lanes, may_join=job_set.may_join)
    ends_s = {turn.submodel: max(0.0, turn.end_s) for turn in sorted(turns, key=lambda turn: turn.end_s)}
    finish_s = {job.name: start_s + ends_s.get(job.name, 0.0) + export_s for job in jobs}
    points = () if job_set.memory is None else memory_over_time(turns, job_set.memory)
    peak_bytes = job_set.peaks.get(policy.name, max((size for _, size in points), default=0))
    return PolicyForecast(
        policy=policy.name,
        policy_text=str(policy),
        turns=tuple(_slice(turn, start_s) for turn in turns[:MOST_TURNS]),
        finish_s=finish_s,
        mean_turnaround_s=sum(finish_s.values()) / len(finish_s),
        makespan_s=max(finish_s.values()),
        fairness=fairness(left_s(job_set.jobs), ends_s),
        peak_bytes=peak_bytes or None,
        memory=Series(tuple(start_s + at_s for at_s, _ in points), tuple(float(size) for _, size in points)),
        basis=job_set.basis,
    )


def forecasts(job_set: JobSet, policies: Iterable[Policy]) -> tuple[PolicyForecast, ...]:
    """What each of these policies would do; one that fails, such as that of another package, is left out and logged."""
    found = list[PolicyForecast]()
    for policy in policies:
        try:
            found.append(forecast(job_set, policy))
        except Exception:  # the code of another package can raise anything
            _log.exception("The policy '%s' cannot be simulated.", policy.name)
    return tuple(found)


def kept(made: PolicyForecast, jobs: Iterable[SimulatedJob]) -> KeptForecast | None:
    """What a run keeps of the forecast of these jobs; None if only ratios are known."""
    if made.basis == "relative":
        return None
    return view_of(KeptForecast, made, step_s={job.name: job.seconds_per_step for job in jobs}, renewed=False)


def fairness(alone_s: Mapping[str, float], turnarounds_s: Mapping[str, float]) -> float:
    """Jain's index of the speed that each sub-model got; 1.0 without any."""
    speeds = [alone_s[name] / turnaround_s for name, turnaround_s in turnarounds_s.items() if turnaround_s > 0]
    return sum(speeds) ** 2 / (len(speeds) * sum(speed**2 for speed in speeds)) if any(speeds) else 1.0


def best(made: Sequence[PolicyForecast]) -> dict[str, frozenset[str]]:
    """Policies that are best in each figure, by figure; within half a percent they are equal."""
    values: dict[str, dict[str, float]] = {
        "mean_turnaround_s": {one.policy: one.mean_turnaround_s for one in made},
        "makespan_s": {one.policy: one.makespan_s for one in made},
        "fairness": {one.policy: -one.fairness for one in made},
        "peak_bytes": {one.policy: float(one.peak_bytes) for one in made if one.peak_bytes is not None},
    }
    found = {}
    for figure, by_policy in values.items():
        least = min(by_policy.values(), default=0.0)
        margin = 0.005 * abs(least)
        found[figure] = frozenset(name for name, value in by_policy.items() if value <= least + margin)
    return found


def finish_rows(view: RunView) -> tuple[FinishRow, ...]:
    """Predicted against actual finish of each sub-model and, last, of the whole run; empty without a forecast."""
    made, launched_at_s = view.forecast, view.launched_at_s
    if made is None:
        return ()
    so_far_s = view.elapsed_s or 0.0
    rows = []
    for part in view.submodels:
        if part.name in made.finish_s:
            ended = None if part.ended_at_s is None or launched_at_s is None else part.ended_at_s - launched_at_s
            expected = None if part.ends_in_s is None else so_far_s + part.ends_in_s.likely_s
            rows.append(
                FinishRow(name=part.name, predicted_s=made.finish_s[part.name], actual_s=ended, expected_s=expected)
            )
    expected = None if view.ends_in_s is None else so_far_s + view.ends_in_s.likely_s
    whole = FinishRow(name="", predicted_s=made.makespan_s, actual_s=view.makespan_s, expected_s=expected)
    return (*rows, whole)


def _slice(turn: SimulatedTurn, start_s: float) -> Slice:
    return Slice(turn.submodel, start_s + turn.start_s, start_s + turn.end_s, turn.steps, turn.reason, turn.lane)
