"""What an engine shows to a policy: owners, service, deadlines, and who is at work."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from tests.clock import SimulatedClock
from tests.integration.kit import CPU, submodel, submodel_spec
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Report, Stepped
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.job import Job, Standing
from unifiednn_core.engine.orders import Adjust, AnyOrder, Join
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.scheduling.base import Decision, Policy, View
from unifiednn_core.scheduling.fair import FairShares
from unifiednn_core.scheduling.round_robin import RoundRobin

ANN, BOB = Standing(owner="ann", tickets=2, deadline_s=50.0), Standing(owner="bob")


@dataclass(frozen=True)
class Watched:
    """Another policy, which keeps its views."""

    policy: Policy
    views: list[View] = field(default_factory=list)
    name: ClassVar[str] = "watched"
    summary: ClassVar[str] = "For tests."

    def decide(self, view: View) -> Decision:
        self.views.append(view)
        return self.policy.decide(view)


def run(
    policy: Watched, standings: list[Standing], joins: Standing | None = None, orders: Sequence[AnyOrder] = ()
) -> list[str]:
    """Train a sub-model for each standing, a second for each step; returns the sub-model of each step.

    After step 3 another one joins, and orders are given.
    """
    clock, steps = SimulatedClock(), list[str]()

    def report(happened: Report) -> None:
        if isinstance(happened, Stepped):
            steps.append(happened.submodel)
            clock.advance(1.0)
            if len(steps) == 3 and joins is not None:
                engine.post(Join("late", partial(_join, hybrid), standing=joins))
            for order in orders if len(steps) == 3 else ():
                engine.post(order)

    jobs = [
        Job(submodel("plain", submodel_spec(f"net{place}")), place, standing=one) for place, one in enumerate(standings)
    ]
    hybrid = HybridModel(job.submodel for job in jobs)
    engine = Engine(hybrid, policy, device=CPU, report=report, clock=clock, jobs=jobs)
    engine.run()
    return steps


def _join(hybrid: HybridModel) -> SubModel:
    late = submodel("plain", submodel_spec("late"))
    hybrid.add(late)
    return late


def test_a_policy_sees_owners_service_deadlines_and_who_is_at_work() -> None:
    watched = Watched(RoundRobin(unit="steps", amount=2))
    run(watched, [ANN, BOB], joins=BOB)
    seen = [
        (
            view.now_s,
            view.at_work,
            [
                (job.name, job.owner, job.tickets, job.deadline_s, job.service_s, job.owner_service_s, job.waiting_s)
                for job in view.jobs
            ],
        )
        for view in watched.views
    ]
    assert seen[:4] == [
        (0.0, (), [("net0", "ann", 2, 50.0, 0.0, 0.0, 0.0), ("net1", "bob", 1, None, 0.0, 0.0, 0.0)]),
        (2.0, (), [("net0", "ann", 2, 50.0, 2.0, 2.0, 0.0), ("net1", "bob", 1, None, 0.0, 0.0, 2.0)]),
        # asked in the turn of net1, because another one joined: it does not wait, its service counts at the end
        (
            3.0,
            ("net1",),
            [
                ("net0", "ann", 2, 50.0, 2.0, 2.0, 1.0),
                ("net1", "bob", 1, None, 0.0, 0.0, 2.0),
                ("late", "bob", 1, None, 0.0, 0.0, 0.0),
            ],
        ),
        (
            4.0,
            (),
            [
                ("net0", "ann", 2, 50.0, 2.0, 2.0, 2.0),
                ("net1", "bob", 1, None, 2.0, 2.0, 2.0),
                ("late", "bob", 1, None, 0.0, 2.0, 1.0),
            ],
        ),
    ]


def test_a_deadline_can_be_set_and_removed_while_it_trains() -> None:
    watched = Watched(RoundRobin(unit="steps", amount=2))
    late = Standing(submitted_s=-5.0, deadline_s=60.0)
    run(
        watched,
        [late, BOB],
        orders=[
            Adjust("net0", "deadline_s", None),
            Adjust("net1", "deadline_s", 30.0),
            Adjust("gone", "deadline_s", 1.0),
        ],
    )
    shown = [[job.deadline_s for job in view.jobs] for view in watched.views]
    assert shown[0] == [55.0, None]
    assert shown[2] == [None, 30.0]


def test_under_fair_shares_an_owner_with_two_tickets_gets_two_of_three_steps() -> None:
    steps = run(Watched(FairShares()), [ANN, BOB, BOB])
    assert [steps[:n].count("net0") for n in (3, 6, 9)] == [2, 4, 6]
