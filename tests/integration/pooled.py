"""People who submit one small network each, and what they do in hybrids together."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from sqlalchemy import select
from torch import Tensor, nn

from tests.integration.forking import ForkingLauncher
from tests.integration.mishaps import HOLD, go_file, held_file
from tests.unit.formats import kit
from tests.waiting import wait_until
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.machine.devices import Device, devices_of_host
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.service.facade import Service
from unifiednn_core.service.roles import Actor, Role
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import RunSpec, parse_run
from unifiednn_core.store import Store
from unifiednn_core.store.schema import AttemptRow, HybridRow, StrataRow, SubModelRow

PEOPLE = tuple(
    Actor(id=f"{name}@example.org", name=name, role=Role.SUBMITTER) for name in ("alice", "bob", "carol", "dave")
)
ALICE, BOB, CAROL, DAVE = PEOPLE
SAMPLES, FEATURES, CLASSES, BATCH = 24, 16, 3, 8
STEPS_PER_EPOCH = SAMPLES // BATCH
DATA_BYTES = SAMPLES * (FEATURES * 4 + 8)
"""Resident bytes of one of these data sets."""


@dataclass(frozen=True)
class Net:
    """A network of two layers with dropout between them, and how it learns."""

    name: str
    seed: int = 0
    epochs: int = 20
    hidden: int = 8
    data: int = 0
    """Seed of its data set."""

    def network(self) -> nn.Module:
        into, out = nn.Linear(FEATURES, self.hidden), nn.Linear(self.hidden, CLASSES)
        return nn.Sequential(nn.Flatten(), into, nn.ReLU(), nn.Dropout(0.3), out)

    @property
    def file(self) -> bytes:
        """The file that its owner submits."""
        return kit.file_of(self.network, self.seed)

    @property
    def steps(self) -> int:
        return self.epochs * STEPS_PER_EPOCH

    @property
    def sha256(self) -> str:
        """Hash of its weights after a plain loop of torch, without any of us."""
        return _alone(self.seed, self.epochs, self.hidden, self.data)


def numbers(seed: int) -> dict[str, Any]:
    drawn = np.random.default_rng(seed)
    inputs = drawn.random((SAMPLES, FEATURES), dtype=np.float32)
    return {"inputs": inputs, "targets": np.arange(SAMPLES) % CLASSES}


@cache
def _alone(seed: int, epochs: int, hidden: int, data: int) -> str:
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = Net("", hidden=hidden).network()
        optimizer, criterion = torch.optim.Adam(module.parameters(), lr=0.01), nn.CrossEntropyLoss()
        given = numbers(data)
        inputs, targets = (torch.from_numpy(given[name]) for name in ("inputs", "targets"))
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        for _ in range(epochs):
            for batch in torch.randperm(SAMPLES, generator=generator).split(BATCH):
                optimizer.zero_grad(set_to_none=True)
                loss: Tensor = criterion(module(inputs[batch]), targets[batch])
                loss.backward()
                optimizer.step()
    return state_sha256(module.state_dict())


@dataclass
class Pool:
    """A service over a home of its own; `start` lets its supervisor begin."""

    home: Home
    environment: dict[str, str] = field(default_factory=dict)
    """Added to that of workers that start from now on."""
    devices: Callable[[], Sequence[Device]] = devices_of_host
    sharing: str = "everyone"
    launcher: Callable[[Home], LocalLauncher] | None = None
    """By default one whose workers our template forks."""

    def __post_init__(self) -> None:
        clock = Clock()
        store = Store.open(self.home, clock)
        launcher = self.launcher or partial(ForkingLauncher, environment=self.environment)
        self.supervisor = Supervisor(store, launcher(self.home), clock, devices=lambda: self.devices())
        self.service = Service(self.home, store, self.supervisor, clock)
        self.service.people.set_sharing(self.sharing)
        self.store.devices.write(self.devices())
        self._holds: tuple[int, ...] = ()
        self.nets: dict[str, Net] = {}
        """By run."""

    @property
    def store(self) -> Store:
        return self.service.store

    def start(self) -> None:
        self.service.start_supervisor()

    def close(self) -> None:
        """Stop what still trains, and end."""
        for step in self._holds:
            self.go_on(step)
        if self.service.supervisor_alive:
            for run_id in self.nets:
                if self.state(run_id) not in ENDED:
                    self.service.runs.discard(run_id)
            self.finish()
            self.until(lambda: not self.store.workers.held(), "end of all workers")
        self.service.close()

    # -- submissions

    def submit(self, person: Actor, net: Net, **spec: Any) -> str:
        """Submit a network as one that shares its hybrid, or as `spec` says; returns the id of the run."""
        run_id = self.service.acting_as(person).runs.submit(self.spec(person, net, **spec))
        self.nets[run_id] = net
        return run_id

    def spec(self, person: Actor, net: Net, **changes: Any) -> RunSpec:
        """The spec of one network, its files kept for this person under a name of their own."""
        model = self._keep(person, f"{net.name}.pt", "model", net.file)
        where = self.home.root / "data.npz"
        np.savez(where, **numbers(net.data))
        data = self._keep(person, f"{net.name}.npz", "data", where.read_bytes())
        hyperparameters = {"epochs": net.epochs, "batch_size": BATCH, "learning_rate": 0.01, "seed": net.seed}
        part = {
            "name": net.name,
            "model": model,
            "train_data": data,
            "hyperparameters": {**hyperparameters, "optimizer": "adam"},
        }
        return parse_run({"name": f"of {net.name}", "hybrid": "shared", "threads": 1, "submodels": [part], **changes})

    def _keep(self, person: Actor, filename: str, kind: str, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        place = self.home.file(sha256)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():  # workers may have mapped it into memory
            place.write_bytes(content)
        self.store.library.add_file(
            sha256=sha256, kind=kind, filename=filename, format="", size_bytes=len(content), facts={}, owner=person.id
        )
        return f"sha256:{sha256}"

    def start_and_hold(self, name: str, *steps: int) -> None:
        """Begin to supervise; workers wait before these steps of one network. Returns at the first of them."""
        self._holds = steps
        self.environment[HOLD] = f"{name}@{','.join(map(str, steps))}"
        self.start()
        self.until_held(steps[0])

    def until(self, done: Callable[[], object], what: str) -> None:
        """Wait for something that other processes do."""
        wait_until(done, what, told=self._told)

    def _told(self) -> str:
        states = [f"{run_id}: {self.state(run_id)}, {self.waits_for(run_id)}" for run_id in self.nets]
        return "\n".join([*states, *(path.read_text()[-2000:] for path in self.home.root.rglob("worker.log"))])

    def until_held(self, step: int) -> None:
        self.until(held_file(self.home.root, step).exists, f"worker before step {step}")

    def go_on(self, step: int) -> None:
        go_file(self.home.root, step).touch()

    # -- what is there

    def row(self, run_id: str) -> SubModelRow:
        [row] = self.store.runs.get(run_id)[1]
        return row

    def state(self, run_id: str) -> State:
        return State(self.store.runs.get(run_id)[0].state)

    def waits_for(self, run_id: str) -> str:
        return self.store.runs.get(run_id)[0].waits_for or ""

    def finish(self, *run_ids: str) -> None:
        """Wait until these runs, or all, have ended."""
        self.until(lambda: all(self.state(run_id) in ENDED for run_id in run_ids or self.nets), "end of all runs")

    def hybrids(self, shared: bool = True) -> list[HybridRow]:
        """All there ever were, in order of their start."""
        with self.store._database.read() as session:
            asked = select(HybridRow).where(HybridRow.shared.is_(shared)).order_by(HybridRow.launched_at_s)
            return list(session.scalars(asked))

    def attempts(self, run_id: str) -> list[AttemptRow]:
        with self.store._database.read() as session:
            asked = select(AttemptRow).where(AttemptRow.run_id == run_id).order_by(AttemptRow.attempt)
            return list(session.scalars(asked))

    def places(self, *run_ids: str) -> list[str]:
        """The hybrid of each of these runs, "" without one."""
        return [self.row(run_id).hybrid_id or "" for run_id in run_ids]

    def data_bytes(self, hybrid_id: str) -> int:
        """Most bytes of data sets that a hybrid held at once, as far as it was measured."""
        with self.store._database.read() as session:
            points = session.scalars(select(StrataRow).where(StrataRow.hybrid_id == hybrid_id))
            return max((point.strata["data"] for point in points), default=0)

    def wrong(self) -> dict[str, str]:
        """Runs that did not complete with the bits of a plain loop, and what became of them."""
        found = {run_id: (self.state(run_id), self.row(run_id)) for run_id in self.nets}
        return {
            run_id: f"{self.nets[run_id].name}: {state}, {row.cause}, {row.steps_done} of {row.steps_total} steps"
            for run_id, (state, row) in found.items()
            if state is not State.COMPLETED
            or row.state_sha256 != self.nets[run_id].sha256
            or row.steps_done != self.nets[run_id].steps
        }


_DEVICE, _SIZE, _TIME = r"cpu(:\d)?", r"[\d.,]+ [KMG]?i?B", r"[\d.]+ \w+( [\d.]+ \w+)?"
SENTENCES = tuple(
    map(
        re.compile,
        (
            rf"{_SIZE} on (any device|the CPU|{_DEVICE}|any .+); {_DEVICE} has {_SIZE} free",
            rf"(any device|the CPU|{_DEVICE}|any .+) to be free(; {_DEVICE} is the first)?",
            rf"{_DEVICE}, which starts in a moment",
            r"its turn; (1 is|\d+ are) before it in line",
            rf"\d+ more submissions? or {_TIME}",
        ),
    )
)
"""What a submission may wait for."""


def readable(sentence: str) -> bool:
    return any(pattern.fullmatch(sentence) for pattern in SENTENCES)
