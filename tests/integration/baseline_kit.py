"""A run of the short demo that is trained as a baseline, with a runner and scripts in processes of their own."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from tests.integration.product import EPOCHS, STEPS_PER_EPOCH
from tests.waiting import wait_until
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.schema import HybridRow, RunRow, SubModelRow
from unifiednn_core.views.runs import RunView


class Baseline:
    """A run of the short demo that is to be trained as a baseline, in a home of its own."""

    def __init__(self, home: Home, run_id: str):
        self.home, self.run_id = home, run_id
        self.service = Service.open(home)
        self.store = self.service.store

    def prepare(self, mode: str, names: tuple[str, ...], epochs: dict[str, int], **options: Any) -> "Baseline":
        """Make the run that waits one of this mode, of these sub-models, as if it had been submitted so."""
        run, _ = self.store.runs.get(self.run_id)
        parts = [part for part in run.spec["submodels"] if part["name"] in names]
        parts.sort(key=lambda part: names.index(part["name"]))
        for part in parts:
            part["hyperparameters"]["epochs"] = epochs.get(part["name"], EPOCHS[part["name"]])
        self.store.runs.update(self.run_id, mode=mode, spec=run.spec | options | {"submodels": parts})
        self.store.hybrids.update(self.run_id, mode=mode)
        with closing(sqlite3.connect(self.home.database)) as database, database:
            marks = ", ".join("?" * len(names))
            database.execute(f"DELETE FROM submodels WHERE run_id = ? AND name NOT IN ({marks})", (self.run_id, *names))
            for place, name in enumerate(names):
                count = epochs.get(name, EPOCHS[name])
                changed = (place, count, count * STEPS_PER_EPOCH[name], self.run_id, name)
                columns = "arrival = ?, epochs = ?, steps_total = ?"
                database.execute(f"UPDATE submodels SET {columns} WHERE run_id = ? AND name = ?", changed)
        return self

    def start(self) -> "Baseline":
        self.service.start_supervisor()
        return self

    @property
    def row(self) -> RunRow:
        return self.store.runs.get(self.run_id)[0]

    @property
    def hybrid(self) -> HybridRow:
        return self.store.hybrids.get(self.run_id)[0]

    @property
    def parts(self) -> dict[str, SubModelRow]:
        return {part.name: part for part in self.store.runs.get(self.run_id)[1]}

    def states(self) -> dict[str, State]:
        return {name: State(part.state) for name, part in self.parts.items()}

    def scripts(self) -> dict[str, int]:
        """Process ids of the scripts that run."""
        pid = self.hybrid.worker_pid
        if pid is None or not psutil.pid_exists(pid):
            return {}
        children = psutil.Process(pid).children()
        alive = [child.pid for child in children if child.status() != psutil.STATUS_ZOMBIE]
        return {Path(f"/proc/{pid}/fd/2").readlink().stem: pid for pid in alive}  # each logs to a file of its name

    def until_trained(self, name: str) -> None:
        """Wait until an epoch of this sub-model is in the store."""
        wait_until(lambda: self.parts[name].epochs_done > 0)

    def finish(self) -> RunView:
        """Wait until the run has ended for good."""
        wait_until(lambda: State(self.row.state) in (State.COMPLETED, State.FAILED, State.STOPPED))
        return self.view

    @property
    def view(self) -> RunView:
        return self.service.runs.observe(self.run_id)

    def rows(self, query: str) -> list[Any]:
        """Rows of a query with the run's id as its only parameter."""
        with closing(sqlite3.connect(self.home.database)) as database:
            return database.execute(query, (self.run_id,)).fetchall()

    def slices(self) -> dict[str, tuple[float, float, int]]:
        """Start, end and steps of each process, from its start to its end."""
        query = "SELECT submodel, min(start_s), max(end_s), sum(steps) FROM slices WHERE run_id = ? GROUP BY submodel"
        return {name: (start_s, end_s, steps) for name, start_s, end_s, steps in self.rows(f"{query} ORDER BY 2")}

    def said(self, kind: str, name: str | None = None) -> list[str]:
        return [event.message for event in self.view.events if event.kind == kind and name in (None, event.submodel)]

    def close(self) -> None:
        pid = self.hybrid.worker_pid
        self.service.close()
        if pid is not None and State(self.row.state) not in (State.COMPLETED, State.FAILED, State.STOPPED):
            os.kill(pid, signal.SIGKILL)  # its scripts end with it
