"""Public kit for authors of policies: `check_policy` tests a policy against the contract in `scheduling.base`."""

import dataclasses
import random
from collections.abc import Sequence
from typing import ClassVar

from unifiednn_core.scheduling.base import Decision, Policy, Quantum, View
from unifiednn_core.scheduling.simulator import SimulatedJob, simulate

JOB_SETS = 25


def check_policy(policy: Policy, *, seed: int = 0) -> None:
    """Ask the policy about views of random runs, and simulate whole runs with it.

    Raises `AssertionError` with the first promise that it breaks. Equal values of `seed` give equal views and jobs.
    """
    _check_form(policy)
    draw = random.Random(seed)
    views = _views(draw)
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


def _views(draw: random.Random) -> list[View]:
    """All moments of random runs whose turns are random, too."""
    views: list[View] = []

    class Recorder:
        name: ClassVar[str] = "recorder"
        summary: ClassVar[str] = "Chooses at random and keeps each view."

        def decide(self, view: View) -> Decision:
            views.append(view)
            quantum = Quantum(draw.choice(("epochs", "steps")), draw.randint(1, 3))
            return Decision(draw.choice(view.jobs).name, quantum, self.summary)

    for _ in range(JOB_SETS):
        simulate(_jobs(draw), Recorder())
    return views


def _jobs(draw: random.Random) -> list[SimulatedJob]:
    """One to six jobs, with ties that a policy must break."""
    return [
        SimulatedJob(
            name=f"job{draw.randrange(1000)}_{index}",
            arrival_s=draw.choice((0.0, draw.uniform(0, 20))),
            priority=draw.randint(-1, 2),
            parameters=draw.choice((10, 20, 44_470)),
            epochs=draw.randint(1, 4),
            steps_per_epoch=draw.randint(1, 5),
            seconds_per_step=draw.uniform(0.1, 2),
            owner=draw.choice(("ann", "bob")),
            deadline_s=draw.choice((None, draw.uniform(1, 40))),
        )
        for index in range(draw.randint(1, 6))
    ]
