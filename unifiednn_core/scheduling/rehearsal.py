"""What a simulation needs of real sub-models: how long their steps take, who may step beside whom, how finely. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from unifiednn_core.scheduling.company import Member, MemoryRoom, obstacle
from unifiednn_core.scheduling.simulator import JobProgress, MayJoin, SimulatedJob, pays

SLOWDOWN = 1.3
"""How many times as long a step takes beside another one, until that is measured: the demo's networks on two cores of a
virtual machine took 1.22 to 1.49 times as long (2026-11-23)."""
MOST_SLOWDOWN = 4.0
SPREAD = 0.15
"""How far a speed may be off that only one turn has measured, as a share of it."""
LEAST_SPREAD, MOST_SPREAD = 0.03, 0.5
FEWEST_TURNS = 4
SETTLED_STEPS = 200
"""Steps from which on the first ones, which load kernels, hardly count."""
LEAST_STEPS, FEWEST_STEPS, LEAST_S = 20, 3, 5.0
"""A speed counts as measured after so many steps; if they are long, after the fewest, and so many seconds."""
MOST_EPOCHS, MOST_STEPS = 400, 2000
"""Of all jobs together, in a simulation that is repeated often."""


class Stretch(NamedTuple):
    """A turn that was measured; seconds on any one clock."""

    submodel: str
    start_s: float
    end_s: float
    steps: int


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a sub-model trains."""

    step_s: float
    """Seconds per step alone, with its share of the evaluations."""
    slowdown: float = SLOWDOWN
    """How many times as long a step takes beside another sub-model."""
    spread: float = SPREAD
    """How far it may be off: two standard deviations of the mean over a turn, as a share of it."""


def pace_of(
    name: str,
    turns: Sequence[Stretch],
    *,
    service_s: float,
    steps: int,
    alone_s: float | None = None,
    least_steps: int = LEAST_STEPS,
) -> Pace | None:
    """Speed of a sub-model from its turns, beside those of all others; None before it counts as measured.

    `service_s` and `steps` are all of its service. `alone_s` are seconds per step alone as known otherwise, such as CPU
    seconds with one thread on a CPU. They count if no turn was alone.
    """
    if service_s <= 0 or steps < (FEWEST_STEPS if service_s >= LEAST_S else least_steps):
        return None
    others = [turn for turn in turns if turn.submodel != name]
    own = [turn for turn in turns if turn.submodel == name and turn.steps and turn.end_s > turn.start_s]
    beside = [turn for turn in own if 2 * _overlap_s(turn, others) > turn.end_s - turn.start_s]
    measured_s, company_s = _mean_s([turn for turn in own if turn not in beside]), _mean_s(beside)
    mean_s = service_s / steps
    if company_s is None:
        return Pace(mean_s) if measured_s is None else Pace(measured_s, spread=_spread(own))
    if measured_s is None:
        measured_s = min(alone_s, mean_s) if alone_s else mean_s / SLOWDOWN
    slowdown = min(MOST_SLOWDOWN, max(1.0, company_s / measured_s))
    return Pace(company_s if slowdown == 1.0 else measured_s, slowdown, _spread(own))


def mostly_beside(name: str, turns: Sequence[Stretch]) -> bool:
    """Whether a sub-model took most of its steps beside another one."""
    others = [turn for turn in turns if turn.submodel != name]
    own = [turn for turn in turns if turn.submodel == name and turn.steps]
    beside = [turn for turn in own if 2 * _overlap_s(turn, others) > turn.end_s - turn.start_s]
    return 2 * sum(turn.steps for turn in beside) > sum(turn.steps for turn in own)


def _overlap_s(turn: Stretch, others: Iterable[Stretch]) -> float:
    return sum(max(0.0, min(turn.end_s, one.end_s) - max(turn.start_s, one.start_s)) for one in others)


def _mean_s(turns: Sequence[Stretch]) -> float | None:
    steps = sum(turn.steps for turn in turns)
    return sum(turn.end_s - turn.start_s for turn in turns) / steps if steps else None


def _spread(turns: Sequence[Stretch]) -> float:
    """Two standard deviations of the seconds per step of turns, weighted by steps, as a share of their mean."""
    mean_s, steps = _mean_s(turns), sum(turn.steps for turn in turns)
    if mean_s is None or len(turns) < FEWEST_TURNS:
        return SPREAD
    variance = sum(turn.steps * ((turn.end_s - turn.start_s) / turn.steps - mean_s) ** 2 for turn in turns) / steps
    return min(MOST_SPREAD, max(LEAST_SPREAD, 2 * math.sqrt(variance) / mean_s))


def always(candidate: JobProgress, at_work: Sequence[JobProgress], unended: Iterable[JobProgress] = ()) -> bool:
    """Company is never parted."""
    return True


def joining(room: MemoryRoom, prefix: str = "", *, on_host: bool = True, by_cpu: bool = False) -> MayJoin:
    """Who may step beside whom: where company pays, and where the predicted memory allows it, as in the engine.

    Jobs have the names of `room` after a `prefix`. `on_host` says that weights are in memory before their first step.
    `by_cpu` says that the engine judges company by CPU seconds (`company.Rates`): they hardly grow in company, although
    steps take longer, so it parts nobody.
    """
    worth = always if by_cpu else pays

    def placed_bytes(one: JobProgress) -> int:
        """Weights and optimizer state that it brings with its first step."""
        name = one.name.removeprefix(prefix)
        return room.optimizer_bytes.get(name, 0) + (0 if on_host else room.weights_bytes.get(name, 0))

    def member(one: JobProgress, *, begins: bool) -> Member:
        size = room.working_bytes.get(one.name.removeprefix(prefix), 0) + (placed_bytes(one) if begins else 0)
        return Member(
            name=one.name,
            priority=one.job.priority,
            working_bytes=size,
            shares_randomness=False,
            falls=room.falls.get(one.name.removeprefix(prefix), ()) if on_host else (),
        )

    def may_join(candidate: JobProgress, at_work: Sequence[JobProgress], unended: Iterable[JobProgress]) -> bool:
        if not worth(candidate, at_work):
            return False
        names, held_bytes = list[str](), 0
        for one in unended:
            name = one.name.removeprefix(prefix)
            names.append(name)
            if on_host:
                held_bytes += room.weights_bytes.get(name, 0)
            if one.begun:
                held_bytes += placed_bytes(one)
        beside = [member(one, begins=False) for one in at_work]
        limit_bytes = room.limit_bytes(names, held_bytes)
        return obstacle(member(candidate, begins=not candidate.begun), beside, limit_bytes) is None

    return may_join if room.working_bytes else worth


def paced(job: SimulatedJob, pace: Pace, scale: float = 1.0) -> SimulatedJob:
    """The job at a speed; `scale` -1 to 1 is the place in its range."""
    return replace(job, seconds_per_step=pace.step_s * (1 + scale * pace.spread), slowdown=pace.slowdown)


def coarse(
    jobs: Sequence[SimulatedJob], *, most_epochs: int = MOST_EPOCHS, most_steps: int = MOST_STEPS
) -> list[SimulatedJob]:
    """The same jobs in fewer and longer epochs and steps, where they have more than so many together.

    What is left of each takes as long as before. Turns of epochs become longer by one factor for all.
    """
    group = max(1, math.ceil(sum(job.epochs for job in jobs) / most_epochs))
    epochs = {job.name: max(1, round(job.epochs / group)) for job in jobs}
    steps = sum(epochs[job.name] * job.steps_per_epoch for job in jobs)
    if group == 1 and steps <= most_steps:
        return list(jobs)
    share = min(1.0, most_steps / steps)
    return [_coarser(job, epochs[job.name], max(1, round(share * job.steps_per_epoch))) for job in jobs]


def _coarser(job: SimulatedJob, epochs: int, steps_per_epoch: int) -> SimulatedJob:
    before, total = job.epochs * job.steps_per_epoch, epochs * steps_per_epoch
    done = min(total - 1, math.floor(total * job.steps_done / before))
    left_s = (before - job.steps_done) * job.seconds_per_step
    return replace(
        job, epochs=epochs, steps_per_epoch=steps_per_epoch, steps_done=done, seconds_per_step=left_s / (total - done)
    )


def left_s(jobs: Iterable[SimulatedJob]) -> Mapping[str, float]:
    """Seconds of service left of each job, alone."""
    return {job.name: (job.epochs * job.steps_per_epoch - job.steps_done) * job.seconds_per_step for job in jobs}
