"""The whole product over a home of its own, to be interrupted at will: supervisor, workers, store, files."""

import json
import math
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration import mishaps
from tests.integration.forking import fork, open_service
from tests.waiting import wait_until
from unifiednn_core.base.paths import Home
from unifiednn_core.compare.oracle import ask_torch
from unifiednn_core.runtime import launchers
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import HybridSettings, RunSpec, load_run
from unifiednn_core.store.schema import SubModelRow
from unifiednn_core.store.workers import WorkerIdentity
from unifiednn_core.views.runs import RunView

EPOCHS = {"lenet": 3, "resnet": 2, "transformer": 2}
STEPS_PER_EPOCH = {"lenet": 23, "resnet": 12, "transformer": 23}
EVERY_STEPS = 5
PATIENCE_S = 150.0  # a worker that never came up is given up after 120 s


@dataclass(frozen=True)
class Template:
    """A home in which a run waits, to be copied."""

    home: Home
    run_id: str
    spec_path: Path

    @classmethod
    def submit(cls, spec_path: Path, folder: Path) -> "Template":
        service = open_service(Home(folder / "home").create(), {})
        run_id = service.runs.submit(load_run(spec_path))
        run, rows = service.store.runs.get(run_id)  # baselines of copies then find what torch says of the networks
        ask_torch(service.home, RunSpec.model_validate(run.spec), {row.name: row.model_format for row in rows})
        service.close()
        return cls(service.home, run_id, spec_path)

    @contextmanager
    def copied(self, home: Home) -> Iterator["Product"]:
        shutil.copytree(self.home.root, home.root, dirs_exist_ok=True)
        product = Product(home, self.run_id)
        try:
            yield product
        finally:
            product.close()


class Product:
    """A service over a home, and one run in it that most of this is about."""

    def __init__(self, home: Home, run_id: str, service: Service | None = None):
        """Without a service it has one whose workers our template forks."""
        self.home, self.run_id = home, run_id
        self.environment: dict[str, str] = {}
        """Added to that of workers that are started from now on."""
        self._holds: list[tuple[str, int]] = []
        self._processes: list[WorkerIdentity] = []
        self.service = service or open_service(home, self.environment)
        self._database = home.database

    # -- processes

    def start(self) -> None:
        """Begin to supervise."""
        self.service.start_supervisor()

    def restart(self) -> None:
        """End this service as its death would, and open another one that supervises."""
        self.service.close()
        self.service = open_service(self.home, self.environment)
        self.start()

    def start_server(self) -> int:
        """Let a process of its own supervise; returns its id."""
        pid = fork("server", self.home, self.run_id, self.environment)
        self._processes.append(launchers.identity_of(pid))
        return pid

    def worker(self, run_id: str | None = None) -> int | None:
        """Process id of the worker of the run."""
        hybrid, _ = self.service.store.hybrids.get(run_id or self.run_id)
        if hybrid.worker_pid is None or hybrid.worker_started_at_s is None:
            return None
        identity = WorkerIdentity(hybrid.worker_pid, hybrid.worker_started_at_s, hybrid.worker_boot_id or "")
        self._processes.append(identity)
        return hybrid.worker_pid if launchers.is_alive(identity) else None

    def training(self) -> int:
        """Process id of a worker that trains."""
        self.until(
            lambda: self.worker() and any(part.steps_done for part in self.view.submodels), "a worker that trains"
        )
        return self.worker() or 0

    def signal_worker(self, number: int = signal.SIGKILL) -> None:
        pid = self.worker()
        assert pid is not None, "there is no worker"
        os.kill(pid, number)

    def mishap(self, name: str, action: str, step: int) -> None:
        """Let something happen to workers that are started from now on, whenever they come to a step."""
        self.environment[mishaps.MISHAP] = f"{name}={action}@{step}"

    def start_and_hold(self, name: str, *steps: int) -> None:
        """Begin to supervise, and have the worker wait before each of these steps of one sub-model.

        It trains in one lane, so that nobody else goes on meanwhile.
        """
        self.options(lanes=1)
        self.hold(name, *steps)
        self.start()
        self.until_held()

    def hold(self, name: str, *steps: int) -> None:
        """Have the workers that start from now on wait before each of these steps of one sub-model."""
        self.environment[mishaps.HOLD] = f"{name}@{','.join(str(step) for step in steps)}"
        self._holds = [(name, step) for step in steps]

    def go_on(self) -> None:
        """Let the worker take its step, once it has heard all that was asked for; it waits again at the next one."""
        _, step = self._holds.pop(0)
        mishaps.go_file(self.home.root, step).touch()
        if self._holds:
            self.until_held()

    def until_held(self) -> None:
        name, step = self._holds[0]
        self.until(mishaps.held_file(self.home.root, step).exists, f"step {step} of {name}")
        self.until(lambda: self.row(name).steps_done == step - 1, "the report of all before")

    def close(self) -> None:
        """End everything that still runs."""
        for run in self.service.runs.runs():
            self.worker(run.run_id)
        self.service.close()
        for process in self._processes:
            if launchers.is_alive(process):
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)

    # -- the run

    def options(self, **changes: Any) -> None:
        """Change the spec of the run that waits, as if it had been submitted so."""
        run, _ = self.service.store.runs.get(self.run_id)
        spec = run.spec | changes
        self.service.store.runs.update(self.run_id, spec=spec)
        settings = {name: spec[name] for name in HybridSettings.model_fields if name in spec}
        self.service.store.hybrids.update(self.run_id, settings=settings)

    def hyperparameters(self, name: str, **changes: Any) -> None:
        """Change how a sub-model of the run that waits is trained, as if it had been submitted so."""
        run, _ = self.service.store.runs.get(self.run_id)
        parts = [
            {**part, "hyperparameters": part["hyperparameters"] | changes} if part["name"] == name else part
            for part in run.spec["submodels"]
        ]
        self.options(submodels=parts)

    def queue_again(self) -> str:
        """Queue the run once more, as it stands there before it began; returns the other's id."""
        other = f"{self.run_id}-again"
        with closing(sqlite3.connect(self._database)) as database, database:
            for table, keys in (("runs", ["id"]), ("hybrids", ["id"]), ("submodels", ["run_id", "hybrid_id"])):
                names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
                rest = ", ".join(name for name in names if name not in keys)
                into = f"INSERT INTO {table} ({', '.join(keys)}, {rest})"
                copied = f"SELECT {', '.join('?' for _ in keys)}, {rest} FROM {table} WHERE {keys[0]} = ?"
                database.execute(f"{into} {copied}", (*[other] * len(keys), self.run_id))
        return other

    @property
    def view(self) -> RunView:
        return self.service.runs.observe(self.run_id)

    def row(self, name: str) -> SubModelRow:
        [row] = [row for row in self.service.store.runs.get(self.run_id)[1] if row.name == name]
        return row

    def state(self, name: str | None = None) -> State:
        run, _ = self.service.store.runs.get(self.run_id)
        return State(run.state if name is None else self.row(name).state)

    def until(self, done: Callable[[], object], what: str = "it") -> None:
        """Wait for something that other processes do."""
        wait_until(done, what, told=self._told)

    def _told(self) -> str:
        events = (f"{event.kind} {event.submodel}: {event.message}" for event in self.view.events)
        return "\n".join([*events, self.log()])

    def finish(self) -> RunView:
        """Wait until the run has ended for good."""
        final = ENDED - {State.INTERRUPTED}
        self.until(lambda: self.state() in final, "the end of the run")
        return self.view

    def hashes(self) -> dict[str, str | None]:
        return {part.name: part.state_sha256 for part in self.view.submodels}

    def messages(self, kind: str, name: str | None = None) -> list[str]:
        """Lines of the run's history of one kind."""
        return [event.message for event in self.view.events if event.kind == kind and name in (None, event.submodel)]

    def checkpoints(self, name: str) -> list[Path]:
        """Checkpoints of a sub-model, the oldest first."""
        return sorted(self.home.checkpoints(self.run_id, name).glob("step-*.safetensors"))

    def log(self) -> str:
        path = self.home.run(self.run_id) / "worker.log"
        return path.read_text() if path.exists() else ""

    def lost_steps(self, name: str) -> list[int]:
        """How many recorded steps each later attempt on a sub-model trained again.

        Fails unless the rows that count tile all its steps, and its epochs stand there once each.
        """
        with closing(sqlite3.connect(self._database)) as database:

            def rows(query: str) -> list[Any]:
                return database.execute(query, (self.run_id, name)).fetchall()

            of_this = "WHERE run_id = ? AND submodel = ?"
            begun = dict(rows(f"SELECT attempt, from_step FROM attempts {of_this}"))
            steps = rows(f"SELECT attempt, step, steps FROM step_metrics {of_this} ORDER BY attempt, step")
            epochs = rows(f"SELECT attempt, step, epoch FROM epoch_metrics {of_this} ORDER BY epoch")
        ends = {attempt: min((begun[a] for a in begun if a > attempt), default=math.inf) for attempt in begun}
        reached = 0
        for attempt, step, count in steps:
            if step <= ends[attempt]:
                assert step - count == reached, (
                    f"{name}: after step {reached} comes a row of {count} steps up to {step}"
                )
                reached = step
        row = self.row(name)
        assert reached == row.steps_done
        counted = [epoch for attempt, step, epoch in epochs if step <= ends[attempt]]
        assert counted == list(range(1, row.epochs_done + 1))
        return [
            sum(count for a, step, count in steps if a == attempt and step > end)
            for attempt, end in sorted(ends.items())
            if end < math.inf
        ]


def flip_a_byte(path: Path) -> None:
    """Damage a file in its middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def timeless(document: dict[str, Any]) -> dict[str, Any]:
    """A document of `train --json` without what depends on time, machine and folder; turns only as what they sum to."""
    text = json.dumps(document)
    kept: dict[str, Any] = json.loads(text)
    turns = kept.pop("schedule")
    for key in ("run_id", "makespan_s", "memory", "cpu_s", "gpu_s", "energy_j", "start_s"):
        kept.pop(key)
    for name, part in kept["submodels"].items():
        for key in ("wait_s", "service_s", "turnaround_s", "cpu_s", "peak_memory_bytes", "model_path", "certificate"):
            part.pop(key)
        part["steps_of_turns"] = sum(turn["steps"] for turn in turns if turn["submodel"] == name)
        assert part["steps_of_turns"] == part["steps"]
    return kept
