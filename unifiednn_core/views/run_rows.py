"""Rows of the store as values of `views.runs`, and a run as the document of `train --json`. Pure."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.visible import cell
from unifiednn_core.machine import allocator
from unifiednn_core.machine.budget import device_type
from unifiednn_core.machine.host import others_share
from unifiednn_core.preflight import deadlines
from unifiednn_core.preflight.estimate import Part, predict
from unifiednn_core.preflight.prediction import Prediction
from unifiednn_core.preflight.report import OracleReport
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.lifecycle import ENDED, Event, State, actions, submodel_actions
from unifiednn_core.spec.run import CheckpointSpec, EarlyStopping, PolicySpec
from unifiednn_core.store.commands import OF_A_BASELINE, brief_of
from unifiednn_core.store.schema import (
    HYBRID,
    AttemptRow,
    CommandRow,
    EventRow,
    FileRow,
    HybridRow,
    RunRow,
    SubModelRow,
)
from unifiednn_core.store.telemetry import EpochPoint, History, SlicePoint, StepPoint
from unifiednn_core.views import runs, times
from unifiednn_core.views.certificate import certificate_of
from unifiednn_core.views.estimates import KeptForecast
from unifiednn_core.views.event_text import command_text, event_text
from unifiednn_core.views.memory import breakdown_of, marks_of, with_gaps
from unifiednn_core.views.people import view_of
from unifiednn_core.views.standing import line_of
from unifiednn_core.views.techniques import nodes_of, used

if TYPE_CHECKING:
    from pandas import DataFrame

_SHOWN_HYPERPARAMETERS = ("learning_rate", "batch_size", "batch_split")
_PART_FIGURES = (
    "wait_s",
    "service_s",
    "turnaround_s",
    "cpu_s",
    "train_loss",
    "train_accuracy",
    "test_loss",
    "test_accuracy",
    "peak_memory_bytes",
)
_OF_A_BASELINE = frozenset(Event(verb) for verb in OF_A_BASELINE)
_MADE = {"state", "device", "spec", "prediction", "memory_notes", "steps_total", "cause", "paused_s", "certificate"}
"""Fields that differ from the column of their name."""


def _same(view: type, row: type) -> tuple[str, ...]:
    """Fields of a view that are columns of a row."""
    columns = set(row.__table__.columns.keys())  # type: ignore[attr-defined]
    return tuple(one.name for one in fields(view) if one.name in columns - _MADE)


_RUN, _PART = _same(runs.RunView, RunRow), _same(runs.SubModelView, SubModelRow)
_HYBRID = tuple(name for name in _same(runs.RunView, HybridRow) if name not in {*_RUN, *_MADE})
_NONE = HybridRow(memory_notes=[], environment={}, attempt=0, recoveries=0)
"""What a run in shared hybrids has instead of its own: whose figures are not those of one run."""
_PREDICTION = TypeAdapter(Prediction)


def _columns(row: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return dict(zip(names, attrgetter(*names)(row), strict=True))


def run_view(
    run: RunRow,
    submodels: Sequence[SubModelRow],
    now_s: float,
    *,
    history: History | None = None,
    commands: Sequence[CommandRow] = (),
    attempts: Sequence[AttemptRow] = (),
) -> runs.RunView:
    """One run; curves and events only with a `history`."""
    asked = {part["name"]: part.get("hyperparameters", {}) for part in run.spec.get("submodels", ())}
    hybrid = run.hybrid or _NONE
    policy = run.spec.get("policy", {})
    due = _due(run, submodels, policy, now_s)
    turns_s = None if history is None else {turn.submodel: turn.end_s for turn in history.slices}
    line = line_of(run, submodels, policy, now_s, turns_s)
    values = _run_values(run, hybrid, submodels, policy, now_s) | {
        "device": hybrid.device or (attempts[-1].device if run.shared and attempts else run.device),
        "stays": tuple(runs.Stay(one.submodel, one.device, one.device_kind, one.at_s) for one in attempts),
        "now_reason": hybrid.now_reason or _own_reason(run, submodels),
        "submodels": tuple(
            _submodel_view(
                run,
                hybrid,
                row,
                now_s,
                asked.get(row.name, {}),
                {**due.get(row.name, {}), "line": line.get(row.name)},
                history,
            )
            for row in submodels
        ),
        "cause": run.cause,
        "checkpoint_text": _period_text(json.dumps(run.spec.get("checkpoint", {}))),
        "recovery": run.spec.get("recovery", "auto"),
        "waiting_commands": tuple(map(_command_view, commands)),
        "memory_notes": tuple(hybrid.memory_notes),
        "processes": hybrid.environment.get("processes", {}),
        "start": hybrid.environment.get("start"),
        "oracle": {name: OracleReport(**answer) for name, answer in hybrid.environment.get("oracle", {}).items()},
        "pages": hybrid.environment.get("pages", {}),
        "others_share": None if run.shared else others_share(hybrid.environment.get("load", [])),
        "allocator": hybrid.environment.get("allocator"),
        "lanes": hybrid.environment.get("lanes"),
        "prediction": prediction_of(run.prediction, run.spec, hybrid.device or run.device),
        "forecast": _kept_forecast(run.environment.get("forecast")),
        "spec": run.spec,
    }
    if history is not None:
        values |= _memory(run, history) | {
            "schedule": _schedule(run, hybrid, submodels, history.slices, now_s),
            "events": tuple(map(_event_view, history.events)),
        }
    return runs.RunView(**values)


def _kept_forecast(document: Mapping[str, Any] | None) -> KeptForecast | None:
    """The forecast of a run as a value; None without one, or if another version wrote other fields."""
    try:
        return None if document is None else KeptForecast(**document)
    except TypeError:
        return None


def _own_reason(run: Any, submodels: Sequence[Any]) -> str | None:
    """Why the policy of a shared hybrid chose a sub-model of this run."""
    reasons = (row.turn_reason for row in submodels if run.shared and row.lane == 1)
    return next((plain_names(run.id, reason) for reason in reasons if reason), None)


def plain_names(run_id: str, text: str) -> str:
    """A policy's reason in which the sub-models of this run have the names that their owner gave them."""
    return text.replace(f"{run_id}/", "")


def listed_views(
    listed: Iterable[tuple[Any, Sequence[Any]]], now_s: float, places: Mapping[str, int] | None = None
) -> tuple[runs.RunView, ...]:
    """Runs for a list, from the light rows of `store.runs.listed`: without spec and curves.

    `places` are those in the line, by run; without them, `listed` are all runs.
    """
    rows = [_ListedRun(run, parts, (tuple(run), *map(tuple, parts))) for run, parts in listed]
    places = _places_in_line([row.run for row in rows]) if places is None else places
    return tuple(_final_view(row) if row.is_final else _listed_view(row, now_s, places.get(row.run.id)) for row in rows)


@dataclass(frozen=True, slots=True)
class _ListedRun:
    """The light rows of one run; equal if all their values are."""

    run: Any = field(compare=False)
    parts: Sequence[Any] = field(compare=False)
    values: tuple[tuple[Any, ...], ...]

    def __hash__(self) -> int:
        return hash(self.run.id)

    @property
    def is_final(self) -> bool:
        """Whether the view no longer depends on the time."""
        ended = self.run.ended_at_s is not None and self.run.heartbeat_at_s is None
        return ended and all(part.ended_at_s is not None for part in self.parts)


@lru_cache(maxsize=2048)
def _final_view(listed: _ListedRun) -> runs.RunView:
    """View of an ended run, made once: a list of hundreds is read every second."""
    return _listed_view(listed, 0.0, None)


def _listed_view(listed: _ListedRun, now_s: float, place: int | None) -> runs.RunView:
    run, parts = listed.run, listed.parts
    due = _due(run, parts, run.policy or {}, now_s)
    line = line_of(run, parts, run.policy or {}, now_s)
    values = _run_values(run, run, parts, run.policy or {}, now_s)
    return runs.RunView(
        **values | {"now_reason": values["now_reason"] or _own_reason(run, parts)},
        device=run.device,
        submodels=tuple(
            _part_view(run, run, part, now_s, part.cause, line=line.get(part.name), **due.get(part.name, {}))
            for part in parts
        ),
        cause=run.cause,
        queue_position=place,
    )


def file_view(row: FileRow) -> runs.FileView:
    """One file of the library."""
    return view_of(runs.FileView, row)


def trained_view(row: Any) -> runs.TrainedView:
    """One separated model, from a row of `store.kept`."""
    return runs.TrainedView(
        run_id=row.run_id,
        run_name=row.run_name,
        submodel=row.name,
        filename=row.artifact or "",
        size_bytes=row.artifact_bytes or 0,
        state_sha256=row.state_sha256 or "",
        test_accuracy=row.test_accuracy,
        created_at_s=row.artifact_at_s,
    )


def prediction_of(
    document: Mapping[str, Any], spec: Mapping[str, Any] | None = None, device: str = "cpu"
) -> Prediction | None:
    """`RunRow.prediction` as a value; None without one, or if another version wrote other fields.

    With the `spec` of the run, the prediction follows later changes of the run.
    """
    try:
        if spec is not None and document.get("parts"):
            made_of = [document["parts"], document["context_bytes"], document.get("company_bytes", 0)]
            document = {**document, **_renewed(json.dumps(made_of), _edits(spec), device)}
        return _PREDICTION.validate_python(document)
    except (KeyError, TypeError, ValueError, BadInput):
        return None


@lru_cache(maxsize=64)
def _renewed(made_of: str, edits: str, device: str) -> dict[str, Any]:
    """Fields of a prediction that change with the policy, the order, priorities and epochs of a run."""
    parts, context_bytes, company_bytes = json.loads(made_of)
    edited = json.loads(edits)
    policy = policy_named(edited["policy"].pop("name", "fcfs"), edited["policy"])
    known = {part["name"]: part for part in parts}
    asked = [Part.model_validate(known[name] | values) for name, values in edited["parts"].items() if name in known]
    used, kind = allocator.of_workers(), device_type(device)
    found = predict(asked, policy, device_type=kind, context_bytes=context_bytes, allocator=used)
    more_bytes = company_bytes if len(asked) > 1 else 0
    by_policy = {name: size + more_bytes for name, size in found.by_policy.items()}
    return {"peak_bytes": found.peak_bytes + more_bytes, "by_policy": by_policy}


def _edits(spec: Mapping[str, Any]) -> str:
    """The settings that people can change and that memory depends on, as a key."""
    parts = {
        part["name"]: {
            "priority": part.get("priority", 0),
            "epochs": part["hyperparameters"]["epochs"],
            "deadline_s": part.get("deadline_s"),
        }
        for part in spec["submodels"]
    }
    return json.dumps({"policy": spec.get("policy", {}), "parts": parts})


def early_stop(row: SubModelRow, hyperparameters: Mapping[str, Any]) -> str | None:
    """Sentence about a sub-model that stopped early; None for all others."""
    asked = hyperparameters.get("early_stopping")
    return EarlyStopping.model_validate(asked).sentence(row.epochs_done, row.epochs) if asked and _early(row) else None


def summary(view: runs.RunView) -> dict[str, object]:
    """One run in the list of `unifiednn runs --json`."""
    names = ("run_id", "name", "mode", "state", "policy", "device", "progress", "created_at_s", "elapsed_s")
    return {"status" if name == "state" else name: getattr(view, name) for name in names}


def document(view: runs.RunView, model_paths: Mapping[str, str | None]) -> dict[str, object]:
    """The document of `unifiednn train --json`."""
    return {
        "run_id": view.run_id,
        "status": view.state.value,
        "policy": view.policy,
        "device": view.device,
        "profile": view.spec.get("profile", "exact"),
        **_columns(view, ("threads", "mode", "makespan_s", "cpu_s", "gpu_s", "energy_j", "start", "start_s")),
        "memory": {"peak_bytes": view.peak_memory_bytes, "source": view.memory_source},
        "submodels": {
            part.name: {
                "status": part.state.value,
                "epochs": part.epochs_done,
                "steps": part.steps_done,
                **{name: _finite(getattr(part, name)) for name in _PART_FIGURES},
                "peak_memory_source": None if part.peak_memory_bytes is None else runs.peak_source(view),
                "model_path": model_paths.get(part.name),
                **_columns(part, ("state_sha256", "cause", "remedy", "not_learning")),
                "certificate": None if part.certificate is None else part.certificate.model_dump(mode="json"),
            }
            for part in view.submodels
        },
        "schedule": [
            _columns(s, ("submodel", "start_s", "end_s", "steps", "reason"))
            for s in view.schedule
            # The start of a baseline's process is no turn; a turn that still runs is not recorded yet.
            if not s.running and (s.steps or view.mode == HYBRID)
        ],
    }


def metrics_frame(view: runs.RunView) -> "DataFrame":
    """Every point of every curve of a run, one row each: sub-model, data, epochs trained, loss and accuracy."""
    import pandas as pd

    curves = [
        pd.DataFrame({"submodel": part.name, "data": data, "epoch": series.x, figure: series.y})
        for part in view.submodels
        for data, prefix, suffix in (("train", "", ""), ("test", "test_", "_curve"))
        for figure in ("loss", "accuracy")
        if (series := getattr(part, f"{prefix}{figure}{suffix}")).x
    ]
    keys = ["submodel", "data", "epoch"]
    whole = pd.concat([pd.DataFrame(columns=[*keys, "loss", "accuracy"]), *curves])
    return whole.groupby(keys, sort=False, as_index=False).first()


def metrics_csv(view: runs.RunView) -> str:
    """`metrics_frame` as CSV text; names are safe in spreadsheets."""
    frame = metrics_frame(view)
    return frame.assign(submodel=[cell(name) for name in frame["submodel"]]).to_csv(index=False)


def _run_values(
    run: Any, hybrid: Any, submodels: Sequence[Any], policy: Mapping[str, Any], now_s: float
) -> dict[str, Any]:
    """Fields that light rows have, too; those hold the columns of run and hybrid."""
    name, text = _policy_texts(json.dumps(policy, sort_keys=True))
    able = actions(State(run.state)) - {Event.RETRY}  # only of the sub-model that failed
    beat_s = hybrid.heartbeat_at_s
    return (
        _columns(run, _RUN)
        | _columns(hybrid, _HYBRID)
        | {
            "run_id": run.id,
            "state": State(run.state),
            "policy": name,
            "policy_text": text,
            "actions": able if run.mode == HYBRID else able & _OF_A_BASELINE,
            "attempt": max((part.attempt for part in submodels), default=0) if run.shared else hybrid.attempt,
            "heartbeat_age_s": None if beat_s is None else max(0.0, now_s - beat_s),
            "elapsed_s": times.elapsed_s(run, submodels, now_s),
            "makespan_s": times.makespan_s(run, submodels),
        }
    )


@lru_cache(maxsize=256)
def _policy_texts(policy: str) -> tuple[str, str]:
    """Name of a policy and its text for people."""
    spec = PolicySpec.model_validate_json(policy)
    try:
        return spec.name, str(policy_named(spec.name, spec.parameters))
    except BadInput:  # of a plugin that is gone
        return spec.name, spec.name


def _places_in_line(listed: Iterable[Any]) -> dict[str, int]:
    """Place of each queued run in the line, from 1."""
    waiting = [run for run in listed if run.state == State.QUEUED.value]
    line = sorted(waiting, key=attrgetter("line_at_s", "id"))
    return {run.id: place for place, run in enumerate(line, start=1)}


def _command_view(row: CommandRow) -> runs.CommandView:
    text = command_text(row.submodel, brief_of(row))
    return runs.CommandView(submodel=row.submodel, text=text, issued_at_s=row.issued_at_s)


def _event_view(row: EventRow) -> runs.EventView:
    return view_of(runs.EventView, row, state=None if row.state is None else State(row.state), message=event_text(row))


def _finite(value: float | None) -> float | None:
    """Value for JSON: NaN and infinity become null."""
    return value if value is not None and math.isfinite(value) else None


def _early(row: Any) -> bool:
    return bool(row.state == State.COMPLETED.value and row.epochs_done < row.epochs)


def _part_view(run: Any, hybrid: Any, row: Any, now_s: float, cause: str | None, **curves: Any) -> runs.SubModelView:
    state = State(row.state)
    values = _columns(row, _PART) | times.part_times(run, row, now_s)._asdict() | curves
    return runs.SubModelView(
        **values,
        state=state,
        steps_total=row.steps_done if _early(row) else row.steps_total,
        holds_device=row.lane is not None and (run.shared or hybrid.heartbeat_at_s is not None) and state not in ENDED,
        cause=cause,
        actions=submodel_actions(State(run.state), state) if run.mode == HYBRID else frozenset(),
    )


def _due(run: Any, rows: Sequence[Any], policy: Mapping[str, Any], now_s: float) -> dict[str, dict[str, Any]]:
    """Fields about the deadlines of a run, by sub-model; nothing for one without."""
    with_deadline = [row for row in rows if row.deadline_s is not None] if run.mode == HYBRID else []
    if not with_deadline:
        return {}
    jobs = {job.name: job for job in deadlines.jobs_of(run, rows, now_s)}
    promised = policy.get("name") == deadlines.POLICY.name
    ends_s = deadlines.ends_of(list(jobs.values())) if promised else {}
    found: dict[str, dict[str, Any]] = {}
    for row in with_deadline:
        due_in_s = deadlines.due_at_s(run, row) - now_s
        if row.ended_at_s is not None:
            met = row.state == State.COMPLETED.value and row.ended_at_s <= deadlines.due_at_s(run, row)
            found[row.name] = {"deadline": "met" if met else "missed"}
        elif due_in_s < 0:
            found[row.name] = {"deadline": "missed", "due_in_s": due_in_s}
        else:  # under another policy only the time that it needs alone is known
            end_s = ends_s.get(row.name) or (deadlines.alone_left_s(jobs[row.name]) if row.name in jobs else None)
            late = end_s is not None and end_s > due_in_s
            stands = "late" if late else "holds" if row.name in ends_s else None
            found[row.name] = {"deadline": stands, "due_in_s": due_in_s}
    return found


def _submodel_view(
    run: RunRow,
    hybrid: HybridRow,
    row: SubModelRow,
    now_s: float,
    asked: Mapping[str, Any],
    stands: Mapping[str, Any],
    history: History | None,
) -> runs.SubModelView:
    """A sub-model with its hyper-parameters, its deadline, its place in line and, with a history, its curves."""
    values: dict[str, Any] = {
        **stands,
        "certificate": certificate_of(row.certificate),
        "techniques": used(asked) if run.mode == HYBRID else (),
        **{name: asked[name] for name in _SHOWN_HYPERPARAMETERS if name in asked},
    }
    if run.mode == HYBRID and (nodes := nodes_of(asked)) is not None:
        values |= {"nodes": nodes, "batch_split": nodes.count}
    if history is not None:
        steps, epochs = history.steps.get(row.name, ()), history.epochs.get(row.name, ())
        lost = [list(tail) for _, tail in groupby(history.lost_steps.get(row.name, ()), attrgetter("attempt"))]
        values |= {
            "redone_steps": sum(step.steps for tail in lost for step in tail),
            "loss": _curve(steps, "loss"),
            "accuracy": _curve(steps, "accuracy"),
            "test_loss_curve": _curve(epochs, "test_loss"),
            "test_accuracy_curve": _curve(epochs, "test_accuracy"),
            "learning_rates": _curve(epochs, "learning_rate"),
            "lost_loss": tuple(_curve(tail, "loss") for tail in lost),
            "lost_accuracy": tuple(_curve(tail, "accuracy") for tail in lost),
        }
    return _part_view(run, hybrid, row, now_s, row.cause or early_stop(row, asked), **values)


def _memory(run: RunRow, history: History) -> dict[str, Any]:
    """Fields about memory; a gap in sampling is a NaN."""
    return {
        "memory": _series(with_gaps(history.memory, math.nan)),
        "breakdown": breakdown_of(history.strata),
        "marks": marks_of(history.slices, history.marks, run.started_at_s),
        **{
            figure: _series([(row.at_s, float(row.strata[figure])) for row in history.strata if figure in row.strata])
            for figure in ("utilisation", "power_w")  # empty without a GPU
        },
    }


@lru_cache(maxsize=256)
def _period_text(checkpoint: str) -> str:
    period = CheckpointSpec.model_validate_json(checkpoint)
    steps = None if period.every_steps is None else f"every {period.every_steps} steps"
    seconds = None if period.every_s is None else f"every {period.every_s:g} s"
    return " or ".join(text for text in (seconds, steps) if text)


def _curve(points: Sequence[StepPoint | EpochPoint], figure: str) -> runs.Series:
    """A figure over epochs, without the points that lack it."""
    return _series([pair for pair in map(attrgetter("epoch", figure), points) if pair[1] is not None])


def _series(points: Sequence[tuple[float, float]]) -> runs.Series:
    return runs.Series(tuple([x for x, _ in points]), tuple([y for _, y in points]))


def _schedule(
    run: RunRow, hybrid: HybridRow, submodels: Sequence[SubModelRow], slices: Sequence[SlicePoint], now_s: float
) -> tuple[runs.Slice, ...]:
    """Turns that ended, and those that still run."""
    ended = [runs.Slice(s.submodel, s.start_s, s.end_s, s.steps, plain_names(run.id, s.reason), s.lane) for s in slices]
    if run.started_at_s is None or (hybrid.heartbeat_at_s is None and not run.shared):
        return tuple(ended)
    reached = {s.submodel: s.from_step + s.steps for s in slices}
    until_s = now_s - run.started_at_s
    for row in submodels:
        since_s = _since_s(run, row, slices)
        if since_s is not None:
            steps = max(0, row.steps_done - reached.get(row.name, 0))
            reason = plain_names(run.id, row.turn_reason or "")
            turn = runs.Slice(row.name, since_s, max(since_s, until_s), steps, reason, row.lane or 1)
            ended.append(turn._replace(running=True))
    return tuple(ended)


def _since_s(run: RunRow, row: SubModelRow, slices: Sequence[SlicePoint]) -> float | None:
    """Start of the running turn of a sub-model, in seconds since the start of the run; None if none runs."""
    if run.mode == HYBRID:
        return None if row.lane is None else row.turn_since_s
    if State(row.state) is not State.RUNNING:
        return None
    last_s = [s.end_s for s in slices if s.submodel == row.name]  # of a process: its start
    return max([row.turn_since_s or 0.0, *last_s])
