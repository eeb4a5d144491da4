"""The engine and the simulator of a hybrid train the same steps in the same order, with networks that join."""

import random
from functools import partial

import pytest

from tests.clock import SimulatedClock
from tests.integration.kit import CPU, submodel, submodel_spec
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Report, Stepped
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.job import Job, Standing
from unifiednn_core.engine.orders import Join
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.fair import FairShares
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.las import LeastAttainedService
from unifiednn_core.scheduling.priority import Priority
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.simulator import SimulatedJob, simulate
from unifiednn_core.scheduling.sjf import ShortestJobFirst

CASES = 100
SAMPLES = 37


def policy_of(chance: random.Random) -> Policy:
    return chance.choice(
        [
            FirstComeFirstServed(),
            Priority(),
            ShortestJobFirst(by="epochs"),
            RoundRobin(amount=chance.randint(1, 2)),
            RoundRobin(unit="steps", amount=chance.randint(1, 4)),
            RoundRobin(unit="seconds", amount=chance.randint(1, 16) / 8),
            FairShares(turn_s=chance.randint(1, 16) / 8),
            LeastAttainedService(),
        ]
    )


def jobs_of(chance: random.Random) -> list[SimulatedJob]:
    """One to four, the later ones before the first has ended. Seconds are eighths, so that sums are exact."""
    found: list[SimulatedJob] = []
    for place in range(chance.randint(1, 4)):
        busy_s = sum(job.epochs * job.steps_per_epoch * job.seconds_per_step for job in found)
        found.append(
            SimulatedJob(
                name=f"net{place}",
                arrival_s=0.0 if place == 0 or chance.random() < 0.3 else chance.randrange(int(busy_s * 8)) / 8,
                priority=chance.randint(0, 1),
                epochs=chance.randint(1, 3),
                steps_per_epoch=chance.choice([1, 2, 5]),
                seconds_per_step=chance.randint(1, 12) / 8,
                owner=chance.choice("ab"),
                tickets=1.0,
            )
        )
    return sorted(found, key=lambda job: job.arrival_s)


def made(job: SimulatedJob, data: ResidentData) -> SubModel:
    batch_size = -(-SAMPLES // job.steps_per_epoch)
    return submodel(
        "plain", submodel_spec(job.name, priority=job.priority, epochs=job.epochs, batch_size=batch_size), data
    )


def trained(jobs: list[SimulatedJob], policy: Policy) -> list[str]:
    """The sub-model of each step of a real engine, for which a step takes as long as the job says."""
    clock, steps, data = SimulatedClock(), list[str](), ResidentData(CPU)
    seconds = {job.name: job.seconds_per_step for job in jobs}
    coming = [job for job in jobs if job.arrival_s > 0]
    hybrid = HybridModel(made(job, data) for job in jobs if job.arrival_s == 0)

    def join(job: SimulatedJob) -> SubModel:
        added = made(job, data)
        hybrid.add(added)
        return added

    def report(happened: Report) -> None:
        if isinstance(happened, Stepped):
            steps.append(happened.submodel)
            clock.advance(seconds[happened.submodel])
            while coming and coming[0].arrival_s <= clock.monotonic_s():
                job = coming.pop(0)
                engine.post(Join(job.name, partial(join, job), standing=Standing(owner=job.owner)))

    first = [job for job in jobs if job.arrival_s == 0]
    standings = [
        Job(hybrid.submodel(job.name), place, standing=Standing(owner=job.owner)) for place, job in enumerate(first)
    ]
    engine = Engine(hybrid, policy, device=CPU, report=report, clock=clock, jobs=standings)
    engine.run()
    return steps


@pytest.mark.parametrize("block", range(4))
def test_engine_and_simulator_agree_on_the_order_of_steps(block: int) -> None:
    for seed in range(block * CASES // 4, (block + 1) * CASES // 4):
        chance = random.Random(seed)
        jobs, policy = jobs_of(chance), policy_of(chance)
        simulated = [turn.submodel for turn in simulate(jobs, policy) for _ in range(turn.steps)]
        assert trained(jobs, policy) == simulated, (seed, policy, jobs)
