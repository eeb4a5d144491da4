"""What people do in a drill: they submit a fixed workload and give random orders."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy.exc import OperationalError

from tools.chaos.audit import Command, rows
from unifiednn_core.base.errors import BadInput, IllegalTransition, NotFound
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.pooling import Pooling
from unifiednn_core.spec.run import CheckpointSpec, HybridSettings, PolicySpec, RunSpec

CHECKPOINT = CheckpointSpec(every_steps=8)
ENDED = "('completed', 'stopped', 'failed', 'interrupted')"
STRETCHED, MOST_EPOCHS = "transformer", 5
"""The network of which a person may ask for more epochs, and how many it then has at most."""
WORKLOAD: Mapping[str, tuple[Mapping[str, int], Mapping[str, Any] | None]] = {
    "turns": ({"lenet": 14, "transformer": 3}, {"name": "round_robin", "unit": "steps", "amount": 3}),
    "by priority": ({"lenet": 10, "resnet": 2}, {"name": "priority"}),
    "shortest": ({"resnet": 3, "transformer": 4}, {"name": "sjf"}),
    "ana's": ({"lenet": 12}, None),
    "ben's": ({"transformer": 2}, None),
}
"""Epochs of networks of the demo, and the policy of a private run; those without one share a pooled hybrid.

All epochs of the stretched network from the fewest to the most are there, so that any of them has its reference.
"""
_ORDERS = {"pause": 4, "pause run": 2, "priority": 3, "epochs": 3, "stop": 1}
"""How often each is drawn; `pause run` pauses a whole run."""
_OPEN = f"""
SELECT run_id, submodels.name, epochs FROM submodels JOIN runs ON runs.id = run_id
WHERE submodels.state NOT IN {ENDED} AND runs.state NOT IN {ENDED} ORDER BY runs.created_at_s, submodels.name
"""
_RESTING = """
SELECT id, NULL FROM runs WHERE state IN ('paused', 'interrupted')
UNION ALL SELECT run_id, name FROM submodels WHERE state = 'paused'
"""


class People:
    """Submit, give orders, and remember which were acknowledged."""

    def __init__(self, service: Service, chance: random.Random):
        self._runs, self._chance = service.runs, chance
        self._demo = service.library.prepare_samples()
        self.database = service.home.database
        self.acknowledged: list[Command] = []
        self.workloads = 0
        self._has_stopped = False
        hybrid = HybridSettings(policy=PolicySpec(name="fair"), checkpoint=CHECKPOINT)
        service.queue.set_pooling(Pooling(hybrid=hybrid))

    def submit_references(self) -> None:
        """Submit each network with all epochs that the workload may give it, as one run."""
        asked = {pair for epochs, _ in WORKLOAD.values() for pair in epochs.items()} | {(STRETCHED, MOST_EPOCHS)}
        self._submit("references", sorted(asked), {"name": "fcfs"})

    def submit(self) -> None:
        """Submit the workload once more."""
        for name, (epochs, policy) in WORKLOAD.items():
            self._submit(name, epochs.items(), policy)
        self.workloads, self._has_stopped = self.workloads + 1, False

    def open_runs(self) -> int:
        """Number of runs that have not ended."""
        [(count,)] = rows(self.database, f"SELECT count(*) FROM runs WHERE state NOT IN {ENDED}")
        return int(count)

    def order(self) -> None:
        """Give one random order about something that has not ended; a workload has one stop at most."""
        targets = rows(self.database, _OPEN)
        if not targets:
            return
        run_id, name, epochs = self._chance.choice(targets)
        match self._chance.choices(list(_ORDERS), list(_ORDERS.values())):
            case ["pause"]:
                self._ask("pause", run_id, name)
            case ["pause run"]:
                self._ask("pause", run_id, None)
            case ["priority"]:
                self._ask("priority", run_id, name, self._chance.randint(0, 9))
            case ["epochs"] if name.startswith(STRETCHED):
                self._ask("epochs", run_id, name, min(epochs + 1, MOST_EPOCHS))
            case ["stop"] if not self._has_stopped:
                self._has_stopped = self._ask("stop", run_id, name)

    def resume(self) -> None:
        """Resume all that rests."""
        for run_id, name in rows(self.database, _RESTING):
            self._ask("resume", run_id, name)

    def _ask(self, verb: str, run_id: str, name: str | None, *value: int) -> bool:
        """Ask, and note whether it was acknowledged."""
        try:
            getattr(self._runs, f"set_{verb}" if value else verb)(run_id, name, *value)
        except (IllegalTransition, BadInput, NotFound, OperationalError):
            return False
        self.acknowledged.append(Command(run_id, name, verb, *value))
        return True

    def _submit(self, name: str, epochs: Iterable[tuple[str, int]], policy: Mapping[str, Any] | None) -> None:
        """Submit networks on one thread, so that equal bits can be asked for."""
        parts, demo = [], {part.name: part for part in self._demo.submodels}
        for network, count in epochs:
            hyperparameters = demo[network].hyperparameters.model_copy(update={"epochs": count})
            changes = {"name": f"{network}-{count}", "hyperparameters": hyperparameters}
            parts.append(demo[network].model_copy(update=changes))
        spec = RunSpec(name=name, device="cpu", threads=1, hybrid="shared", submodels=tuple(parts))
        if policy is not None:
            private = {"hybrid": "private", "policy": PolicySpec.model_validate(policy), "checkpoint": CHECKPOINT}
            spec = spec.model_copy(update=private)
        self._runs.submit(spec)
