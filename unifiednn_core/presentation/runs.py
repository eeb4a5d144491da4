"""Runs as the values that are shown."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from unifiednn_core.errors import BadInput
from unifiednn_core.lifecycle import ENDED, Event, State, actions, submodel_actions
from unifiednn_core.presentation.early_stop import early_stop
from unifiednn_core.presentation.memory import gaps, marks_of, series_of_card, strata_of
from unifiednn_core.presentation.prediction import prediction_of
from unifiednn_core.scheduling.registry import policy_named, policy_text
from unifiednn_core.spec import CheckpointSpec, PolicySpec
from unifiednn_core.store.commands import OF_A_BASELINE, Command, command_text
from unifiednn_core.store.schema import HYBRID, EpochRow, RunRow, SubModelRow
from unifiednn_core.store.telemetry import History, StepPoint
from unifiednn_core.views.runs import (
    CommandView,
    EventView,
    RunView,
    Series,
    Slice,
    SubModelView,
)

_OF_A_BASELINE = {Event(verb) for verb in OF_A_BASELINE}

Rows = Sequence[tuple[RunRow, Sequence[SubModelRow]]]


def run_view(
    run: RunRow,
    submodels: Sequence[SubModelRow],
    now_s: float,
    all_runs: Rows,
    history: History | None = None,
    commands: Sequence[Command] = (),
) -> RunView:
    """One run; curves and events only with a `history`, the place in the queue only with `all_runs`."""
    policy = PolicySpec.model_validate(run.spec.get("policy", {}))
    until_s = run.ended_at_s if run.ended_at_s is not None else now_s
    return RunView(
        run_id=run.id,
        name=run.name,
        state=State(run.state),
        policy=policy.name,
        policy_text=_policy_text(policy),
        device=run.device,
        mode=run.mode,  # type: ignore[arg-type]
        fingerprint=run.fingerprint,
        threads=run.threads,
        created_at_s=run.created_at_s,
        launched_at_s=run.launched_at_s,
        started_at_s=run.started_at_s,
        ended_at_s=run.ended_at_s,
        cause=run.cause,
        remedy=run.remedy,
        now_reason=run.now_reason,
        submodels=tuple(_submodel_view(run, row, now_s, history) for row in submodels),
        actions=_actions(run),
        attempt=run.attempt,
        recoveries=run.recoveries,
        checkpoint_text=_period_text(CheckpointSpec.model_validate(run.spec.get("checkpoint", {}))),
        recovery=run.spec.get("recovery", "auto"),
        waiting_commands=tuple(
            CommandView(submodel=command.submodel, text=command_text(command), issued_at_s=command.issued_at_s)
            for command in commands
        ),
        memory_source=run.memory_source,
        peak_memory_bytes=run.peak_memory_bytes,
        memory_notes=tuple(run.memory_notes),
        waits_for=run.waits_for,
        prediction=prediction_of(run.prediction),
        cpu_s=run.cpu_s,
        gpu_s=run.gpu_s,
        energy_j=run.energy_j,
        heartbeat_age_s=None if run.heartbeat_at_s is None else max(0.0, now_s - run.heartbeat_at_s),
        elapsed_s=None if run.started_at_s is None else max(0.0, until_s - run.started_at_s),
        queue_position=_queue_position(run, all_runs),
        **({} if history is None else _memory(run, history)),
        schedule=_schedule(history) if history else (),
        events=_events(history) if history else (),
        spec=run.spec,
    )


def document(view: RunView, model_paths: Mapping[str, str | None]) -> dict[str, object]:
    """The document of `unifiednn train --json`."""
    return {
        "run_id": view.run_id,
        "status": view.state.value,
        "policy": view.policy,
        "device": view.device,
        "profile": view.spec.get("profile", "exact"),
        "threads": view.threads,
        "mode": view.mode,
        "makespan_s": view.elapsed_s,
        "cpu_s": view.cpu_s,
        "gpu_s": view.gpu_s,
        "energy_j": view.energy_j,
        "memory": {"peak_bytes": view.peak_memory_bytes, "source": view.memory_source},
        "submodels": {
            part.name: {
                "status": part.state.value,
                "epochs": part.epochs_done,
                "steps": part.steps_done,
                "wait_s": part.wait_s,
                "service_s": part.service_s,
                "turnaround_s": part.turnaround_s,
                "cpu_s": part.cpu_s,
                "train_loss": _finite(part.train_loss),
                "train_accuracy": part.train_accuracy,
                "test_loss": _finite(part.test_loss),
                "test_accuracy": part.test_accuracy,
                "peak_memory_bytes": part.peak_memory_bytes,
                "model_path": model_paths.get(part.name),
                "state_sha256": part.state_sha256,
                "cause": part.cause,
                "remedy": part.remedy,
            }
            for part in view.submodels
        },
        "schedule": [
            {"submodel": s.submodel, "start_s": s.start_s, "end_s": s.end_s, "steps": s.steps, "reason": s.reason}
            for s in view.schedule
        ],
    }


def stamp(utc_s: float) -> str:
    """A moment as `20261121-143207`, in UTC."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(utc_s))


def _finite(value: float | None) -> float | None:
    """Value as JSON can hold it; a loss that is infinite or no number becomes null."""
    return value if value is not None and math.isfinite(value) else None


def _policy_text(policy: PolicySpec) -> str:
    try:
        return policy_text(policy_named(policy.name, policy.parameters))
    except BadInput:  # a run of an older version may name a policy that is gone
        return policy.name


def _queue_position(run: RunRow, all_runs: Rows) -> int | None:
    if run.state != State.QUEUED.value or run.heartbeat_at_s is not None:
        return None
    ahead = [
        other
        for other, _ in all_runs
        if other.state == State.QUEUED.value
        and other.heartbeat_at_s is None
        and other.device == run.device
        and (other.created_at_s, other.id) < (run.created_at_s, run.id)
    ]
    return len(ahead) + 1


def _submodel_view(run: RunRow, row: SubModelRow, now_s: float, history: History | None) -> SubModelView:
    """Waiting is what is left of the time since submission after service and pauses."""
    steps: Sequence[StepPoint] = history.steps.get(row.name, ()) if history else ()
    epochs: Sequence[EpochRow] = history.epochs.get(row.name, ()) if history else ()
    until_s = row.ended_at_s if row.ended_at_s is not None else now_s
    so_far_s = until_s - run.created_at_s
    paused_s = row.paused_s + (max(0.0, until_s - row.paused_since_s) if row.paused_since_s is not None else 0.0)
    hyperparameters = _hyperparameters(run, row.name)
    lost = _tails(history.lost_steps.get(row.name, ())) if history else []
    early = early_stop(row, hyperparameters)
    return SubModelView(
        name=row.name,
        arrival=row.arrival,
        number=row.number,
        state=State(row.state),
        priority=row.priority,
        model_format=row.model_format,
        parameters=row.parameters,
        epochs=row.epochs,
        epochs_done=row.epochs_done,
        steps_total=row.steps_done if early else row.steps_total,
        steps_done=row.steps_done,
        holds_device=run.now_submodel == row.name and State(row.state) not in ENDED,
        wait_s=max(0.0, so_far_s - row.service_s - paused_s),
        service_s=row.service_s,
        turnaround_s=so_far_s if row.ended_at_s is not None else None,
        ended_at_s=row.ended_at_s,
        paused_s=paused_s,
        attempt=row.attempt,
        cpu_s=row.cpu_s,
        train_loss=row.train_loss,
        train_accuracy=row.train_accuracy,
        test_loss=row.test_loss,
        test_accuracy=row.test_accuracy,
        peak_memory_bytes=row.peak_memory_bytes,
        cause=row.cause or early,
        remedy=row.remedy,
        artifact=row.artifact,
        artifact_bytes=row.artifact_bytes,
        state_sha256=row.state_sha256,
        actions=submodel_actions(State(run.state), State(row.state)) if run.mode == HYBRID else frozenset(),
        checkpoint_step=row.checkpoint_step,
        checkpoint_bytes=row.checkpoint_bytes,
        checkpoint_at_s=row.checkpoint_at_s,
        learning_rate=hyperparameters.get("learning_rate"),
        batch_size=hyperparameters.get("batch_size"),
        batch_split=hyperparameters.get("batch_split", 1),
        redone_steps=sum(step.steps for tail in lost for step in tail),
        loss=_series((step.epoch, step.loss) for step in steps),
        accuracy=_series((step.epoch, step.accuracy) for step in steps),
        test_loss_curve=_series((epoch.epoch, epoch.test_loss) for epoch in epochs),
        test_accuracy_curve=_series((epoch.epoch, epoch.test_accuracy) for epoch in epochs),
        lost_loss=tuple(_series((step.epoch, step.loss) for step in tail) for tail in lost),
        lost_accuracy=tuple(_series((step.epoch, step.accuracy) for step in tail) for tail in lost),
    )


def _actions(run: RunRow) -> frozenset[Event]:
    """What can be asked of a run; a retry is asked of the sub-model that failed."""
    able = actions(State(run.state)) - {Event.RETRY}
    return able if run.mode == HYBRID else frozenset(event for event in able if event in _OF_A_BASELINE)


def _memory(run: RunRow, history: History) -> dict[str, Any]:
    """Everything that is drawn of memory; a gap in sampling is a value that is no number."""
    utilisation, power_w = series_of_card(history.strata)
    points: list[tuple[float, float]] = list(history.memory)
    for place in reversed(gaps([at_s for at_s, _ in points])):
        points.insert(place, ((points[place - 1][0] + points[place][0]) / 2, math.nan))
    return {
        "memory": _series(points),
        "strata": strata_of(history.strata),
        "marks": marks_of(history.slices, history.marks, run.started_at_s),
        "utilisation": utilisation,
        "power_w": power_w,
    }


def _tails(lost: Sequence[StepPoint]) -> list[list[StepPoint]]:
    """Void steps, one list for each attempt that had some."""
    return [list(tail) for _, tail in groupby(lost, key=lambda step: step.attempt)]


def _hyperparameters(run: RunRow, name: str) -> Mapping[str, Any]:
    parts = {part["name"]: part for part in run.spec.get("submodels", ())}
    found: Mapping[str, Any] = parts.get(name, {}).get("hyperparameters", {})
    return found


def _period_text(period: CheckpointSpec) -> str:
    steps = None if period.every_steps is None else f"every {period.every_steps} steps"
    seconds = None if period.every_s is None else f"every {period.every_s:g} s"
    return " or ".join(text for text in (seconds, steps) if text)


def _series(points: Iterable[tuple[float, float | None]]) -> Series:
    known = [(float(x), float(y)) for x, y in points if y is not None]
    return Series(tuple(x for x, _ in known), tuple(y for _, y in known))


def _schedule(history: History) -> tuple[Slice, ...]:
    return tuple(
        Slice(
            submodel=s.submodel,
            start_s=s.start_s,
            end_s=s.end_s,
            steps=history.counted_steps.get(s.id, s.steps),
            reason=s.reason,
        )
        for s in history.slices
    )


def _events(history: History) -> tuple[EventView, ...]:
    return tuple(
        EventView(at_s=event.at_s, submodel=event.submodel, kind=event.kind, message=event.message)
        for event in history.events
    )
