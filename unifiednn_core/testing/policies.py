"""Public kit for authors of policies: `check_policy` tests a policy against the contract in `scheduling.base`."""

import dataclasses
import random
from collections.abc import Sequence

from unifiednn_core.scheduling.base import Decision, JobView, Policy, Quantum, View
from unifiednn_core.scheduling.simulator import SimulatedJob, simulate

VIEWS = 200
JOB_SETS = 25


def check_policy(policy: Policy, *, seed: int = 0) -> None:
    """Ask the policy about many random views, and run whole simulations with it.

    Raises `AssertionError` with the first promise that it breaks. Equal values of `seed` give equal views and jobs.
    """
    _check_form(policy)
    draw = random.Random(seed)
    views = [_view(draw) for _ in range(VIEWS)]
    decisions = [policy.decide(view) for view in views]
    for view, decision in zip(views, decisions, strict=True):
        _check_decision(view, decision)
    again = [dataclasses.replace(policy).decide(view) for view in reversed(views)]  # type: ignore[type-var]
    _require(again == decisions[::-1], "the same view must give the same decision, whatever was asked before")
    for _ in range(JOB_SETS):
        _check_simulation(_jobs(draw), policy)


def _require(kept: bool, promise: str) -> None:
    if not kept:
        raise AssertionError(f"Broken promise: {promise}.")


def _check_form(policy: Policy) -> None:
    parameters = getattr(type(policy), "__dataclass_params__", None)
    _require(parameters is not None and parameters.frozen, "a policy is a frozen dataclass")
    _require(policy.name.isidentifier() and policy.name.islower(), "the name is lower case, such as round_robin")
    _require(_is_sentence(policy.summary), "the summary is a sentence that ends with a full stop")
    _require(type(policy).__str__ is not object.__str__, "str(policy) names its parameters in words")


def _check_decision(view: View, decision: Decision) -> None:
    names = [job.name for job in view.jobs]
    _require(isinstance(decision, Decision), f"decide returns a Decision, not {decision!r}")
    _require(decision.job in names, f"'{decision.job}' was chosen but only {', '.join(names)} are in line")
    _require(isinstance(decision.quantum, Quantum), f"a decision grants a Quantum, not {decision.quantum!r}")
    _require(_is_sentence(decision.reason), "the reason is a sentence that ends with a full stop")
    _require(decision.job in decision.reason, f"the reason names the job that was chosen, '{decision.job}'")


def _check_simulation(jobs: Sequence[SimulatedJob], policy: Policy) -> None:
    turns = simulate(jobs, policy)
    _require(turns == simulate(jobs, policy), "the same jobs must give the same turns")
    for job in jobs:
        steps = sum(part.steps for part in turns if part.submodel == job.name)
        _require(steps == job.epochs * job.steps_per_epoch, f"every step of '{job.name}' runs exactly once")


def _is_sentence(text: str) -> bool:
    return text.endswith(".") and text == text.strip() and len(text) > 1


def _view(draw: random.Random) -> View:
    """Random moment in a run of 1 to 6 jobs, with ties that a policy must break."""
    arrivals = sorted(draw.sample(range(10), draw.randint(1, 6)))
    ticks = draw.sample(range(100), len(arrivals))
    jobs = tuple(_job_view(draw, arrival, tick) for arrival, tick in zip(arrivals, ticks, strict=True))
    return View(jobs, now_s=draw.uniform(0, 1000))


def _job_view(draw: random.Random, arrival: int, tick: int) -> JobView:
    epochs, steps_per_epoch = draw.randint(1, 4), draw.randint(1, 5)
    steps_done = draw.randrange(epochs * steps_per_epoch)
    return JobView(
        name=f"job{draw.randrange(1000)}_{arrival}",
        arrival=arrival,
        in_line_since=tick,
        priority=draw.randint(-1, 2),
        parameters=draw.choice((10, 20, 44_470)),
        epochs=epochs,
        epochs_done=steps_done // steps_per_epoch,
        steps_total=epochs * steps_per_epoch,
        steps_done=steps_done,
        seconds_per_step=draw.choice((0.5, 1.0)) if steps_done else None,
        waiting_s=draw.uniform(0, 100),
    )


def _jobs(draw: random.Random) -> list[SimulatedJob]:
    return [
        SimulatedJob(
            name=f"job{index}",
            arrival_s=draw.choice((0.0, draw.uniform(0, 20))),
            priority=draw.randint(0, 2),
            parameters=draw.choice((10, 20, 30)),
            epochs=draw.randint(1, 4),
            steps_per_epoch=draw.randint(1, 5),
            seconds_per_step=draw.uniform(0.1, 2),
        )
        for index in range(draw.randint(1, 6))
    ]
