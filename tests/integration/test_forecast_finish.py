"""A forecast after one measured epoch, beside the engine that trains on a simulated clock, under every policy."""

import random
from dataclasses import replace

import pytest

from tests.clock import SimulatedClock
from tests.integration.kit import CPU
from tests.integration.test_simulated_order import made
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Ended, Released, Report, Stepped
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.registry import POLICIES
from unifiednn_core.scheduling.rehearsal import FEWEST_STEPS, Stretch, pace_of, paced
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.simulator import SimulatedJob
from unifiednn_core.views.forecast import JobSet, Overheads, forecast

AT_MOST = 0.15


def trained(jobs: list[SimulatedJob], policy: Policy) -> tuple[list[Stretch], dict[str, float]]:
    """Turns and ends of a real engine, for which a step takes about as long as its job says."""
    clock, data, chance = SimulatedClock(), ResidentData(CPU), random.Random(0)
    seconds, turns, ends = {job.name: job.seconds_per_step for job in jobs}, list[Stretch](), dict[str, float]()

    def report(happened: Report) -> None:
        match happened:
            case Stepped(submodel=name):
                clock.advance(seconds[name] * chance.uniform(0.9, 1.1))
            case Released(submodel=name, start_s=start_s, end_s=end_s, steps=steps):
                turns.append(Stretch(name, start_s, end_s, steps))
            case Ended(submodel=name):
                ends[name] = engine.now_s()

    engine = Engine(HybridModel(made(job, data) for job in jobs), policy, device=CPU, report=report, clock=clock)
    engine.run()
    return turns, ends


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_finish_times_are_forecast_after_one_measured_epoch(policy: type[Policy]) -> None:
    for seed in range(3):
        chance = random.Random(seed)
        jobs = [
            SimulatedJob(
                name=f"net{at}",
                priority=chance.randint(0, 1),
                epochs=chance.randint(3, 6),
                steps_per_epoch=chance.choice([4, 5]),
                seconds_per_step=chance.uniform(0.1, 2.0),
            )
            for at in range(3)
        ]
        measured, _ = trained([replace(job, epochs=1) for job in jobs], RoundRobin())
        known = []
        for job in jobs:
            own = [turn for turn in measured if turn.submodel == job.name]
            service_s, steps = sum(turn.end_s - turn.start_s for turn in own), sum(turn.steps for turn in own)
            pace = pace_of(job.name, measured, service_s=service_s, steps=steps, least_steps=FEWEST_STEPS)
            assert pace is not None
            known.append(paced(job, pace, 0.0))
        expected = forecast(JobSet(jobs=tuple(known), basis="measured", overheads=Overheads(0.0, 0.0)), policy())
        _, ends = trained(jobs, policy())
        off = {name: expected.finish_s[name] / ends[name] - 1 for name in ends}
        assert all(abs(one) <= AT_MOST for one in off.values()), (seed, off)
