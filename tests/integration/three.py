"""Three small networks that train together in many tests, and the result of each one alone."""

from dataclasses import dataclass
from functools import cache

from tests.integration.kit import Networks, Session, submodel_spec, vanilla
from unifiednn_core.engine.events import Report, Stepped
from unifiednn_core.engine.orders import AnyOrder
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.priority import Priority
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.sjf import ShortestJobFirst

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
NAMES = tuple(spec.name for _, spec in THREE)


@cache
def _plain() -> dict[str, tuple[str, list[float]]]:
    return {spec.name: vanilla(network, spec) for network, spec in THREE}


def alone(*names: str) -> dict[str, str]:
    """Hash of the weights after a plain loop, by name; of all three without `names`."""
    return {name: _plain()[name][0] for name in names or NAMES}


def losses_alone(name: str) -> list[float]:
    """Loss of each step of the plain loop."""
    return _plain()[name][1]


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
