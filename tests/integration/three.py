"""Three small networks that train together in many tests, and what each comes to alone."""

from dataclasses import dataclass

from tests.integration.kit import Networks, Session, submodel_spec, vanilla
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.priority import Priority
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.sjf import ShortestJobFirst
from unifiednn_core.training.events import (
    Report,
    Stepped,
)
from unifiednn_core.training.orders import AnyOrder

POLICIES: tuple[Policy, ...] = (
    FirstComeFirstServed(),
    Priority(),
    ShortestJobFirst(),
    ShortestJobFirst(by="epochs"),
    ShortestJobFirst(by="time"),
    RoundRobin(),
    RoundRobin(unit="steps", amount=3),
    RoundRobin(unit="seconds", amount=0.001),
)

THREE: Networks = [
    ("lstm", submodel_spec("first", priority=2, epochs=3)),
    ("mlp", submodel_spec("second", priority=1)),
    ("cnn", submodel_spec("third", priority=1, batch_size=16)),
]
ALONE = {spec.name: vanilla(network, spec)[0] for network, spec in THREE}
ALONE_LOSSES = {spec.name: vanilla(network, spec)[1] for network, spec in THREE}


def at_step(name: str, step: int, *orders: AnyOrder) -> "Trigger":
    return Trigger(name, step, orders)


@dataclass(frozen=True)
class Trigger:
    name: str
    step: int
    orders: tuple[AnyOrder, ...]

    def __call__(self, session: Session, report: Report) -> None:
        if isinstance(report, Stepped) and (report.submodel, report.step) == (self.name, self.step):
            for order in self.orders:
                session.engine.post(order)
