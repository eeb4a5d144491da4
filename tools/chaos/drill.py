"""Kills one process after the other while people work, and lets everything come to its end."""

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import typer

from tools.chaos import audit
from tools.chaos.processes import Processes, Seen, kill
from tools.chaos.workload import People
from unifiednn_core.base.failpoints import POINTS
from unifiednn_core.service.facade import Service

KINDS = {"worker": 3, "server": 2, "actor": 2, "node": 1, "driver": 2}
"""How often one of a kind is drawn."""
HITS = {"store": 30, "checkpoint": 3, "command": 2, "separation": 2, "placement": 2}
FAULTS = [point for point in POINTS if point.partition(".")[0] in HITS and "acknowledgement" not in point]
"""Where a process kills itself; from `HITS` passings on, so that each worker makes progress before."""
FAULTY_SHARE, IMPATIENT_SHARE, RESUMED_SHARE = 0.4, 0.2, 0.5
"""Of servers that get a fault, of kills that do not wait until a worker trains, of rounds with a resume."""
FEW_RUNS, LONGEST_PAUSE_S, RECOVERY_PATIENCE_S, POLL_S = 3, 1.0, 60.0, 0.2
END_PATIENCE_S, RELAY_PATIENCE_S, SECONDS_PER_KILL, LEAST_S = 300.0, 60.0, 30.0, 300.0
_STEPS = "SELECT 1 FROM step_metrics JOIN attempts USING (run_id, submodel, attempt) WHERE hybrid_id = ? AND at_s > ?"
_NEXT = "SELECT min(at_s) FROM attempts WHERE hybrid_id = ? AND at_s > ?"


@dataclass
class Outcome:
    """What a drill did and found."""

    kills: Counter[str] = field(default_factory=Counter)
    servers_with_faults: Counter[str] = field(default_factory=Counter)
    kills_per_minute: float = 0.0
    recovery_s: list[float] = field(default_factory=list)
    """From the death of a worker to the begin of the next attempt on its hybrid, the shortest first."""
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def drill(folder: Path, *, kills: int, seed: int, ray: bool) -> Outcome:
    """Kill so many processes, and audit what is left."""
    processes, chance = Processes(folder, ray=ray), random.Random(seed)
    with closing(Service.open(processes.home)) as service:
        course = _Drill(processes, People(service, chance), chance)
        try:
            course.run(kills)
        finally:
            left = processes.close()
    course.outcome.findings += left
    return course.outcome


class _Drill:
    """The course of a drill."""

    def __init__(self, processes: Processes, people: People, chance: random.Random):
        self._processes, self._people, self._chance, self.outcome = processes, people, chance, Outcome()
        self._database, self._faulty_share = people.database, 0.0
        self._killed: list[tuple[str, float]] = []
        """Hybrids that lost their worker, and when."""

    def run(self, kills: int) -> None:
        """Train the references, kill, wait for the end, and audit."""
        self._processes.keep_nodes()
        self._serve()
        self._people.submit_references()
        self._await(lambda: not self._people.open_runs(), END_PATIENCE_S)
        parts = audit.read(self._database).parts.values()
        self._faulty_share, begun_s = FAULTY_SHARE, time.monotonic()
        until_s = begun_s + LEAST_S + SECONDS_PER_KILL * kills
        while self.outcome.kills.total() < kills and time.monotonic() < until_s:
            self._round()
        if (done := self.outcome.kills.total()) < kills:
            self.outcome.findings.append(f"time ran out after {done} of {kills} kills")
        self.outcome.kills_per_minute = round(60.0 * done / (time.monotonic() - begun_s), 1)
        self._faulty_share = 0.0
        if self._processes.fault:
            for target in self._processes.targets():
                kill(target)
            self._serve()
        self._await(lambda: not self._people.open_runs(), END_PATIENCE_S)
        self._await(lambda: not self._of_kind("actor"), RELAY_PATIENCE_S)
        self.outcome.findings += [f"actor {one.process.pid} outlives its run" for one in self._of_kind("actor")]
        self._audit({(part.network, part.epochs): part.state_sha256 or "" for part in parts})

    def _await(self, done: Callable[[], bool], patience_s: float) -> None:
        """Keep everything running, and resume what rests, until something is done or time is up."""
        until_s = time.monotonic() + patience_s
        while not done() and time.monotonic() < until_s:
            self._keep()
            self._people.resume()
            time.sleep(POLL_S)

    def _round(self) -> None:
        """Issue commands as people do, and kill a process."""
        self._keep()
        if self._people.open_runs() < FEW_RUNS:
            self._people.submit()
        self._people.order()
        if self._chance.random() < RESUMED_SHARE:
            self._people.resume()
        time.sleep(self._chance.uniform(0.0, LONGEST_PAUSE_S))
        self._strike()

    def _keep(self) -> None:
        """Start again what is not there."""
        code = self._processes.ended()
        if code is not None:
            if self._processes.fault and code == -9:
                self.outcome.kills["server by a fault"] += 1
            else:
                self.outcome.findings.append(f"the server ended by itself with code {code}")
            self._serve()
        self._processes.keep_nodes()

    def _serve(self) -> None:
        """Start the server, sometimes with a fault."""
        fault = ""
        if self._chance.random() < self._faulty_share:
            point = self._chance.choice(FAULTS)
            hit = HITS[point.partition(".")[0]]
            fault = f"{point}=sigkill@{self._chance.randint(hit, 2 * hit)}"
            self.outcome.servers_with_faults[point] += 1
        self._processes.serve(fault)

    def _strike(self) -> None:
        """Kill a process, usually once a worker trains."""
        if self._chance.random() >= IMPATIENT_SHARE:
            self._await(self._trains, RECOVERY_PATIENCE_S)
        if not (targets := self._processes.targets()):
            return
        [target] = self._chance.choices(targets, [KINDS[one.kind] for one in targets])
        at_s = time.time()
        if kill(target):
            self._killed += [(hybrid_id, at_s) for hybrid_id in target.hybrids]
            self.outcome.kills[target.kind] += 1
            typer.echo(f"kill {self.outcome.kills.total()}: {target.kind}", err=True)
            if target.kind == "server":
                self._serve()

    def _trains(self) -> bool:
        """Whether the server answers, and knows steps of a worker since its hybrid lost the last one."""
        lost_at_s, ids = dict(self._killed), [id_ for worker in self._of_kind("worker") for id_ in worker.hybrids]
        known = (audit.rows(self._database, _STEPS, id_, lost_at_s.get(id_, 0.0)) for id_ in ids)
        return any(known) and self._processes.answers()

    def _of_kind(self, kind: str) -> list[Seen]:
        return [one for one in self._processes.targets() if one.kind == kind]

    def _audit(self, references: dict[tuple[str, int], str]) -> None:
        outcome, people, history = self.outcome, self._people, audit.read(self._database)
        outcome.findings += audit.findings(history, people.acknowledged, references)
        begun = [(audit.rows(self._database, _NEXT, *killed)[0][0], killed[1]) for killed in self._killed]
        outcome.recovery_s = sorted(round(at_s - killed_at_s, 2) for at_s, killed_at_s in begun if at_s is not None)
        outcome.counts = {
            "acknowledged commands": len(people.acknowledged),
            "workloads": people.workloads,
            "sub-models": len(history.parts),
            "steps": sum(part.steps_done for part in history.parts.values()),
        }
