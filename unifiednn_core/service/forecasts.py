"""Forecasts for one person: of a spec under every policy, of a change of a run, and the one that a run keeps."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput
from unifiednn_core.machine import allocator
from unifiednn_core.machine.budget import device_type
from unifiednn_core.machine.devices import best_match, threads_of
from unifiednn_core.preflight.forecast import Forecast, memory_key, memory_room
from unifiednn_core.preflight.forecast import forecast as memory_forecast
from unifiednn_core.preflight.memory_over_time import MemoryModel
from unifiednn_core.preflight.report import CheckReport, SubModelReport
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.company import MemoryRoom
from unifiednn_core.scheduling.registry import policies, policy_named
from unifiednn_core.scheduling.rehearsal import (
    FEWEST_STEPS,
    SETTLED_STEPS,
    SLOWDOWN,
    Pace,
    Stretch,
    coarse,
    joining,
    mostly_beside,
    pace_of,
    paced,
)
from unifiednn_core.scheduling.simulator import SimulatedJob, simulate
from unifiednn_core.service import rehearsals
from unifiednn_core.service.rehearsals import FORECAST
from unifiednn_core.service.roles import Actor
from unifiednn_core.spec.run import PolicySpec, RunSpec, SubModelSpec
from unifiednn_core.store import Store
from unifiednn_core.store.schema import HYBRID, RunRow, SubModelRow
from unifiednn_core.store.speeds import TimedTurn, Trained
from unifiednn_core.views.estimates import Basis, Estimate, KeptForecast
from unifiednn_core.views.forecast import Counterfactual, JobSet, Overheads, PolicyForecast, forecast, forecasts, kept

WHOLE_WORK_S = 100.0
"""Sum of all relative times, which so are percent of the work."""
MOST_FORECAST = 100
"""Sub-models of a spec whose end is foreseen under every policy: that costs CPU seconds of a server for everybody."""
_log = logging.getLogger(__name__)


def require_few(spec: RunSpec) -> None:
    """Raise `BadInput` for more sub-models than a forecast takes."""
    if (count := len(spec.submodels)) > MOST_FORECAST:
        message = f"There are {count} sub-models, those of sweeps included."
        raise BadInput.of("Forecast", "submodels", message, f"A forecast takes at most {MOST_FORECAST}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """A change of a run that trains. What is left out stays; priorities and epochs are by sub-model."""

    policy: PolicySpec | None = None
    priorities: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, int] = field(default_factory=dict)
    order: Sequence[str] = ()

    def policy_of(self, run: RunRow) -> Policy:
        """The policy of a run after the change; raises `BadInput` for an unknown one."""
        asked = self.policy
        return rehearsals.policy_of(run) if asked is None else policy_named(asked.name, asked.parameters)

    def of_job(self, job: SimulatedJob) -> SimulatedJob:
        """A job after the change."""
        epochs = max(self.epochs.get(job.name, job.epochs), -(-(job.steps_done + 1) // job.steps_per_epoch))
        return replace(job, priority=self.priorities.get(job.name, job.priority), epochs=epochs)


AS_IT_IS = RunChange()


class Forecasts:
    """Makes forecasts; only what this person may know of earlier trainings counts."""

    def __init__(self, store: Store, clock: Clock, actor: Actor):
        self._store, self._clock = store, clock
        self._owner = actor.id if actor.sees_only_own else None

    def of_spec(self, spec: RunSpec, report: CheckReport | None) -> tuple[PolicyForecast, ...]:
        """What every policy would do with a spec, its own first; relative times without a `report` of its check."""
        own = policy_named(spec.policy.name, spec.policy.parameters)
        return forecasts(self.job_set(spec, report), (own, *(one() for one in policies() if one.name != own.name)))

    def to_keep(self, spec: RunSpec, report: CheckReport) -> KeptForecast | None:
        """The forecast that a run of this spec keeps; None if no seconds are known."""
        job_set = self.job_set(spec, report)
        if spec.hybrid == "shared" or job_set.basis == "relative":
            return None
        return kept(forecast(job_set, policy_named(spec.policy.name, spec.policy.parameters)), job_set.jobs)

    def job_set(self, spec: RunSpec, report: CheckReport | None) -> JobSet:
        """A spec as a job set: sizes from the check, else from the library; seconds as measured, else as timed."""
        paces, basis = self._paces(spec, report)
        sizes = self._sizes(spec, report)
        jobs = [_job(part, *sizes[part.name]) for part in spec.submodels]
        jobs = _relative(jobs, spec) if basis == "relative" else [paced(job, paces[job.name], 0.0) for job in jobs]
        measured = None if self._owner else self._store.measured
        memory = None if report is None else memory_forecast(spec, report, measured)
        room = MemoryRoom() if memory is None else memory_room(memory.document)
        lanes = rehearsals.lanes_on(spec.lanes, spec.threads, spec.device)
        by_cpu = rehearsals.judged_by_cpu(lanes, spec.threads, spec.device)
        return JobSet(
            jobs=tuple(jobs),
            basis=basis,
            lanes=lanes,
            may_join=joining(room, on_host=_on_cpu(spec), by_cpu=by_cpu),
            overheads=self._overheads(),
            memory=None if memory is None else _memory_model(spec, memory),
            peaks={} if memory is None else memory.prediction.by_policy,
        )

    def change(self, run_id: str, change: RunChange) -> Counterfactual:
        """When each sub-model of a private run that still trains ends, as it is and after a change.

        Raises `NotFound`, and `BadInput` for an unknown policy.
        """
        run, rows = self._store.runs.get(run_id)
        if run.shared or run.mode != HYBRID:
            return Counterfactual(before={}, after={})
        before = self._ends(run, rows, rehearsals.policy_of(run))
        after = self._ends(run, rows, change.policy_of(run), change)
        return Counterfactual(before=before, after=after)

    def renew(self, run_id: str, change: RunChange = AS_IT_IS, timed: Mapping[str, float] | None = None) -> None:
        """Keep a new forecast for a run that was just changed so; nothing changes if seconds are unknown.

        `timed` are seconds per step of a newcomer, by memory key. An error is logged: the change itself is accepted.
        """
        try:
            self._renew(run_id, change, timed or {})
        except Exception:  # such as one of a third party's policy
            _log.exception("The forecast of run %s could not be renewed.", run_id)

    # -- inside

    def _renew(self, run_id: str, change: RunChange, timed: Mapping[str, float]) -> None:
        run, rows = self._store.runs.get(run_id)
        if run.shared or run.mode != HYBRID:
            return
        asked = change.policy_of(run)
        ends = self._ends(run, rows, asked, change, timed)
        if not ends or None in ends.values():
            return
        now_s = self._clock.utc_s()
        zero_s = self._overheads().start_s if run.launched_at_s is None else now_s - run.launched_at_s
        ended = {
            row.name: row.ended_at_s - run.launched_at_s
            for row in rows
            if row.ended_at_s is not None and run.launched_at_s is not None
        }
        found = {name: zero_s + end.likely_s for name, end in ends.items() if end is not None}
        before = run.environment.get(FORECAST) or {}
        finish_s = {**ended, **before.get("finish_s", {}), **found}
        new_s = {row.name: timed[row.memory_key] for row in rows if row.memory_key in timed}
        document = KeptForecast(
            policy=asked.name,
            finish_s=finish_s,
            makespan_s=max(finish_s.values()),
            mean_turnaround_s=sum(finish_s.values()) / len(finish_s),
            basis="measured",
            renewed=True,
            step_s={**new_s, **before.get("step_s", {})},
        ).document
        self._store.runs.note_fact(run_id, FORECAST, document)

    def _ends(
        self,
        run: RunRow,
        rows: Sequence[SubModelRow],
        policy: Policy,
        change: RunChange = AS_IT_IS,
        timed: Mapping[str, float] | None = None,
    ) -> dict[str, Estimate | None]:
        """Seconds from now until each sub-model that trains has its file; None for all if one's speed is unknown."""
        now_s, open_rows = self._clock.utc_s(), [row for row in rows if rehearsals.trains(row)]
        known = self._store.runs.speeds([row.memory_key for row in open_rows], self._owner)
        before = {key: Pace(step_s) for key, step_s in {**(timed or {}), **known}.items()}
        paces = rehearsals.paces_of(run, rows, self._store.speeds.turns([run.id])[run.id], before)
        if not paces or len(paces) < len(open_rows):
            return dict.fromkeys(row.name for row in open_rows)
        places = {name: place for place, name in enumerate(change.order)}
        jobs = [
            change.of_job(rehearsals.job_of_row(run, row, paces[row.name], now_s))
            for row in sorted(open_rows, key=lambda row: places.get(row.name, row.arrival))
        ]
        rules, export_s = rehearsals.rules_of(run, rows), self._overheads().export_s
        found: list[dict[str, float]] = []
        for scale in (0.0, -1.0, 1.0):
            at_pace = coarse([paced(job, paces[job.name], scale) for job in jobs])
            turns = simulate(at_pace, policy, lanes=rules.lanes, may_join=rules.may_join)
            found.append({turn.submodel: turn.end_s for turn in sorted(turns, key=lambda turn: turn.end_s)})
        return {
            job.name: Estimate(*(export_s + one(ends[job.name] for ends in found) for one in (next, min, max)))
            if all(job.name in ends for ends in found)
            else None
            for job in jobs
        }

    def _paces(self, spec: RunSpec, report: CheckReport | None) -> tuple[dict[str, Pace], Basis]:
        """Speed of each sub-model, and where all are from; relative if one is unknown."""
        if report is None or any(part.name not in report.submodels for part in spec.submodels):
            return {}, "relative"
        keys = {part.name: memory_key(spec, part, report) for part in spec.submodels}
        place = best_match(spec.device)
        threads = spec.threads or threads_of(spec.device)
        trained = self._store.speeds.trained(
            keys.values(),
            least_steps=FEWEST_STEPS,
            threads=threads,
            device_kind="" if place is None else place.kind,
            owner=self._owner,
        )
        turns = self._store.speeds.turns(one.run_id for one in trained.values())
        found = dict[str, Pace]()
        basis: Basis = "measured"
        one_thread = threads == 1 and _on_cpu(spec)
        for name, key in keys.items():
            pace, checked = None, report.submodels[name]
            timed_s = checked.seconds_per_step
            if key in trained:
                pace = _measured(trained[key], turns[trained[key].run_id], checked, one_thread=one_thread)
            if pace is None and timed_s and _on_cpu(spec):
                pace, basis = Pace(timed_s, SLOWDOWN), "timed"
            if pace is None:
                return {}, "relative"
            found[name] = pace
        return found, basis

    def _sizes(self, spec: RunSpec, report: CheckReport | None) -> dict[str, tuple[int, int]]:
        """Number of weights and steps per epoch of each sub-model; 1 where nothing is known of a file."""
        if report is not None and all(part.name in report.submodels for part in spec.submodels):
            known = report.submodels
            return {name: (one.parameters, max(1, one.steps_per_epoch)) for name, one in known.items()}
        # what is known of a file of others would tell that they have it
        files = self._store.library.files(self._owner or "", only_own=self._owner is not None)
        facts = {f"sha256:{row.sha256}": row.facts for row in files}

        def sizes(part: SubModelSpec) -> tuple[int, int]:
            weights = facts.get(part.model, {}).get("parameters") or 1
            samples = facts.get(part.train_data, {}).get("samples") or part.hyperparameters.batch_size
            return int(weights), max(1, part.hyperparameters.steps_per_epoch(int(samples)))

        return {part.name: sizes(part) for part in spec.submodels}

    def _overheads(self) -> Overheads:
        start_s, export_s = self._store.speeds.overheads()
        usual = Overheads()
        return Overheads(
            usual.start_s if start_s is None else start_s, usual.export_s if export_s is None else export_s
        )


def _measured(one: Trained, turns: Sequence[TimedTurn], checked: SubModelReport, *, one_thread: bool) -> Pace | None:
    """Speed as an earlier training measured it. One of few steps mostly warmed up: then that of its later steps counts.

    With `one_thread` on a CPU, CPU seconds stand in for those of a step alone.
    """
    stretches = [Stretch(*turn[:4]) for turn in turns]
    if one.steps < SETTLED_STEPS and one.step_s:
        whole_s = one.step_s / (1 - checked.evaluation_share)
        return Pace(whole_s / SLOWDOWN if mostly_beside(one.name, stretches) else whole_s)
    cpu_s = one.cpu_s / one.steps if one.cpu_s and one_thread else None
    return pace_of(
        one.name, stretches, service_s=one.service_s, steps=one.steps, alone_s=cpu_s, least_steps=FEWEST_STEPS
    )


def _on_cpu(spec: RunSpec) -> bool:
    return device_type(spec.device) == "cpu"


def _memory_model(spec: RunSpec, memory: Forecast) -> MemoryModel:
    return MemoryModel(
        parts=memory.parts,
        device_type=device_type(spec.device),
        context_bytes=memory.prediction.context_bytes,
        company_bytes=memory.prediction.company_bytes,
        allocator=allocator.of_workers(),
    )


def _job(part: SubModelSpec, parameters: int, steps_per_epoch: int) -> SimulatedJob:
    return SimulatedJob(
        name=part.name,
        priority=part.priority,
        parameters=parameters,
        epochs=part.hyperparameters.epochs,
        steps_per_epoch=steps_per_epoch,
        deadline_s=part.deadline_s,
    )


def _relative(jobs: Sequence[SimulatedJob], spec: RunSpec) -> list[SimulatedJob]:
    """Jobs whose steps take as long as their weights by their batch, in percent of all work."""
    batches = {part.name: part.hyperparameters.batch_size for part in spec.submodels}
    work = {job.name: job.parameters * batches[job.name] for job in jobs}
    whole = sum(work[job.name] * job.epochs * job.steps_per_epoch for job in jobs)
    return [replace(job, seconds_per_step=WHOLE_WORK_S * work[job.name] / whole) for job in jobs]
