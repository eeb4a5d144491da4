"""A sub-model in line, and what a policy decides about those in line."""

from typing import Any

from unifiednn_core.scheduling.base import JobView, Policy, Quantum, View


def job(name: str, arrival: int, **facts: Any) -> JobView:
    plain: dict[str, Any] = {
        "in_line_since": arrival,
        "priority": 0,
        "parameters": 100,
        "epochs": 2,
        "epochs_done": 0,
        "steps_total": 20,
        "steps_done": 0,
        "seconds_per_step": None,
        "waiting_s": 0.0,
    }
    return JobView(name=name, arrival=arrival, **(plain | facts))


def expect(policy: Policy, jobs: list[JobView], chosen: str, quantum: Quantum, reason: str) -> None:
    decision = policy.decide(View(tuple(jobs), now_s=0.0))
    assert (decision.job, decision.quantum, decision.reason) == (chosen, quantum, reason)
