"""Exports of runs to other tools: TensorBoard event files, MLflow runs and W&B runs, one for each sub-model.

The libraries are optional. Curves hold each step once: those of an interrupted attempt that were trained again do not
count.
"""

import hashlib
import io
import os
import shutil
import zipfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.base.files import atomic_replace
from unifiednn_core.base.paths import Home
from unifiednn_core.service.permissions import Guard, Own, permission
from unifiednn_core.service.roles import Actor, Role
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store import Store
from unifiednn_core.store.schema import RunRow, SubModelRow
from unifiednn_core.store.telemetry import History, SlicePoint

_EPOCH_FIGURES = {
    "learning_rate": "epoch/learning_rate",
    "train_loss": "epoch/train_loss",
    "train_accuracy": "epoch/train_accuracy",
    "test_loss": "epoch/test_loss",
    "test_accuracy": "epoch/test_accuracy",
}
_WITHHELD = ("name", "owner", "model", "train_data", "test_data", "start_from")
"""Entries of a spec that are no settings; files may belong to others."""
_MLFLOW_BATCH, _MLFLOW_TEXT = 1000, 500
_ENDS = {State.COMPLETED: "FINISHED", State.STOPPED: "KILLED", State.FAILED: "FAILED", State.INTERRUPTED: "KILLED"}


class Point(NamedTuple):
    """One figure of a sub-model at a step."""

    figure: str
    step: int
    at_s: float
    """UTC seconds, interpolated within the turn of the step."""
    value: float


@dataclass(frozen=True, slots=True)
class ToExport:
    """One sub-model as other tools take it."""

    run_id: str
    run_name: str
    submodel: str
    state: State
    from_s: float
    to_s: float | None
    parameters: Mapping[str, str]
    points: Sequence[Point]
    tags: Mapping[str, str]
    archive: Path | None
    """The zip of the trained model."""

    @property
    def key(self) -> str:
        """Name in other tools."""
        return f"{self.run_id}/{self.submodel}"


class ExportService:
    """Writes what happened to the sub-models of a run for other tools. Methods raise `NotFound` for an unknown run."""

    def __init__(self, guard: Guard, home: Home, store: Store, actor: Actor):
        self.guard = guard
        self._home, self._store, self._actor = home, store, actor

    @permission(Role.SUBMITTER, Own.SHARE, here=True)
    def tensorboard(self, run_id: str, folder: Path) -> tuple[Path, ...]:
        """Write an event file for each sub-model into a folder of its name; an earlier export is replaced.

        Raises `BadInput` without the extra `tensorboard`, and `OSError`.
        """
        exported, written = self._exported(run_id), []
        require("tensorboard")
        for one in exported:
            place = folder / one.run_id / one.submodel
            place.mkdir(parents=True, exist_ok=True)
            written.append(place / _event_file(one))
            with atomic_replace(written[-1]) as temporary, temporary.open("wb") as file:
                _write_events(one, file)
        return tuple(written)

    @permission(Role.SUBMITTER, Own.SHARE)
    def tensorboard_zip(self, run_id: str) -> bytes:
        """The same as one zip. Raises `BadInput` without the extra `tensorboard`."""
        exported, packed = self._exported(run_id), io.BytesIO()
        require("tensorboard")
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for one in exported:
                content = io.BytesIO()
                _write_events(one, content)
                archive.writestr(f"{one.run_id}/{one.submodel}/{_event_file(one)}", content.getvalue())
        return packed.getvalue()

    @permission(Role.SUBMITTER, Own.SHARE, here=True)
    def mlflow(self, run_id: str, to: str) -> tuple[str, ...]:
        """Write an MLflow run for each sub-model into a folder or the server of a URI; returns their ids there.

        An earlier export of the same sub-model is deleted there. Raises `BadInput` without the extra `mlflow`, or if
        the place cannot be used.
        """
        exported = self._exported(run_id, with_models=True)
        require("mlflow")
        return tuple(_write_mlflow(exported, to))

    @permission(Role.SUBMITTER, Own.SHARE, here=True)
    def wandb(self, run_id: str, folder: Path) -> tuple[Path, ...]:
        """Write a W&B run for each sub-model into a folder, for `wandb sync`; returns the folders of the runs.

        Nothing is sent. An earlier export of the same sub-model is replaced. Raises `BadInput` without the extra
        `wandb`, and `OSError`.
        """
        exported = self._exported(run_id)
        require("wandb")
        folder.mkdir(parents=True, exist_ok=True)
        return tuple(_write_wandb(exported, folder))

    def _exported(self, run_id: str, *, with_models: bool = False) -> list[ToExport]:
        """The sub-models that this person may see and that have begun; raises `NotFound` if there is none."""
        run, rows = self._store.runs.get(run_id)
        history = self._store.telemetry.history(run_id, None)
        own = [row for row in rows if not self._actor.sees_only_own or row.owner == self._actor.id]
        found = [self._one(run, row, history, with_models) for row in own if row.steps_done]
        if not found:
            raise NotFound(f"Run '{run_id}' has trained nothing yet. Export it once it has begun.")
        return found

    def _one(self, run: RunRow, row: SubModelRow, history: History, with_model: bool) -> ToExport:
        began_s = run.started_at_s or run.created_at_s
        turns = [turn for turn in history.slices if turn.submodel == row.name]
        [asked] = [part for part in run.spec["submodels"] if part["name"] == row.name]
        parameters = {
            "seed": str(run.spec.get("seed", 0)),
            **_flat({name: value for name, value in asked.items() if name not in _WITHHELD}),
            "policy": str(run.spec.get("policy", {}).get("name", "fcfs")),
            "profile": str(run.spec.get("profile", "exact")),
            "parameters": str(row.parameters),
        }
        tags = {
            "unifiednn.run_id": run.id,
            "unifiednn.submodel": row.name,
            "unifiednn.state": row.state,
            "unifiednn.key": f"{run.id}/{row.name}",
            "unifiednn.state_sha256": row.state_sha256 or "",
        }
        if row.certificate is not None:
            tags["unifiednn.certificate"] = "holds" if row.certificate.get("holds") else "does not hold"
        archive = None
        if with_model and row.artifact is not None:
            archive = self._store.depot(self._home).bring(run.id, row.name, f"models/{row.artifact}")
        return ToExport(
            run.id,
            run.name,
            row.name,
            State(row.state),
            began_s,
            row.ended_at_s,
            parameters,
            tuple(_points(row.name, history, turns, began_s)),
            tags,
            archive,
        )


def require(extra: str) -> None:
    """Raise `BadInput` if the library of an optional extra is not installed."""
    if find_spec(extra) is None:
        message = f"The library of the extra '{extra}' is not installed."
        raise BadInput.of("Not installed", extra, message, f"Install it: pip install 'unifiednn[{extra}]'")


def _points(name: str, history: History, turns: Sequence[SlicePoint], began_s: float) -> Iterator[Point]:
    """Each figure of each step once, in order of steps."""
    clock = _Clock(turns, began_s)
    for step in history.steps.get(name, ()):
        for figure in ("loss", "accuracy"):
            if (value := getattr(step, figure)) is not None:
                yield Point(f"step/{figure}", step.step, clock.at_s(step.step), value)
    for epoch in history.epochs.get(name, ()):
        for column, figure in _EPOCH_FIGURES.items():
            if (value := getattr(epoch, column)) is not None:
                yield Point(figure, epoch.step, clock.at_s(epoch.step), value)


class _Clock:
    """When each step of a sub-model was done, from its turns."""

    def __init__(self, turns: Sequence[SlicePoint], began_s: float):
        self._turns, self._began_s = sorted(turns, key=lambda turn: (turn.from_step, turn.attempt)), began_s
        self._firsts = [turn.from_step for turn in self._turns]

    def at_s(self, step: int) -> float:
        """UTC seconds; the start of the run for a step in no turn."""
        place = bisect_right(self._firsts, step - 1) - 1
        if place < 0:
            return self._began_s
        turn = self._turns[place]
        share = min(1.0, (step - turn.from_step) / turn.steps) if turn.steps else 1.0
        return self._began_s + turn.start_s + share * (turn.end_s - turn.start_s)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as texts under dotted names."""
    found: dict[str, str] = {}
    for name, value in values.items():
        key = f"{prefix}{name}".removeprefix("hyperparameters.")
        if isinstance(value, Mapping):
            found |= _flat(value, f"{key}.")
        elif value is not None:
            found[key] = str(value)
    return found


def _event_file(one: ToExport) -> str:
    """Always the same name, so that a second export replaces the first."""
    return f"events.out.tfevents.{int(one.from_s):010d}.unifiednn"


def _write_events(one: ToExport, file: Any) -> None:
    """Write the event file of a sub-model: curves, and its settings for TensorBoard's table of hyper-parameters."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    writer = RecordWriter(file)

    def write(at_s: float, **content: Any) -> None:
        writer.write(Event(wall_time=at_s, **content).SerializeToString())

    write(one.from_s, file_version="brain.Event:2")
    write(one.from_s, summary=hparams_pb(dict(one.parameters), trial_id=one.key, start_time_secs=one.from_s))
    for point in one.points:
        value = Summary.Value(tag=point.figure, simple_value=point.value)
        write(point.at_s, step=point.step, summary=Summary(value=[value]))


def _write_mlflow(exported: Sequence[ToExport], to: str) -> Iterator[str]:
    import mlflow
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.exceptions import MlflowException

    uri = to if "://" in to else Path(to).resolve().as_uri()
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else a folder is refused by newer versions
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        name = f"unifiednn/{exported[0].run_name}"
        known = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if known is None else known.experiment_id
        for one in exported:
            for earlier in client.search_runs([experiment], f"tags.`unifiednn.key` = '{one.key}'"):
                client.delete_run(earlier.info.run_id)
            begun = client.create_run(experiment, start_time=_ms(one.from_s), run_name=one.key)
            run_id: str = begun.info.run_id
            client.log_batch(
                run_id,
                params=[Param(name, value[:_MLFLOW_TEXT]) for name, value in one.parameters.items()],
                tags=[RunTag(name, value) for name, value in one.tags.items()],
            )
            metrics = [Metric(point.figure, point.value, _ms(point.at_s), point.step) for point in one.points]
            for start in range(0, len(metrics), _MLFLOW_BATCH):
                client.log_batch(run_id, metrics=metrics[start : start + _MLFLOW_BATCH])
            if one.archive is not None and one.archive.is_file():
                client.log_artifact(run_id, str(one.archive))
            client.set_terminated(run_id, _ENDS.get(one.state, "RUNNING"), None if one.to_s is None else _ms(one.to_s))
            yield run_id
    except (MlflowException, ImportError) as error:  # a database needs more than the slim package
        said = (str(error).strip().splitlines() or [""])[0][:300]
        remedy = "Name a folder, or the URI of a tracking server that answers."
        raise BadInput.of("MLflow", "to", f"MLflow cannot write to {uri}: {said}", remedy) from None


def _write_wandb(exported: Sequence[ToExport], folder: Path) -> Iterator[Path]:
    os.environ["WANDB_ERROR_REPORTING"] = "false"  # it would ask for the address of a server even when offline
    import wandb

    settings = wandb.Settings(
        mode="offline",
        console="off",
        silent=True,
        save_code=False,
        disable_git=True,
        disable_code=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
    )
    try:
        for one in exported:
            wandb_id = hashlib.sha256(one.key.encode()).hexdigest()[:16]
            for earlier in folder.glob(f"wandb/offline-run-*-{wandb_id}"):
                shutil.rmtree(earlier)
            begun = wandb.init(
                project="unifiednn",
                group=one.run_name,
                name=one.key,
                id=wandb_id,
                dir=folder,
                reinit="create_new",
                config={**one.parameters, **one.tags},
                settings=settings,
            )
            points = sorted(one.points, key=lambda point: point.step)
            for step, there in groupby(points, key=lambda point: point.step):
                at_step = list(there)
                figures = {point.figure: point.value for point in at_step}
                begun.log({**figures, "_timestamp": at_step[-1].at_s}, step=step)
            begun.finish(exit_code=1 if one.state is State.FAILED else 0)
            yield from folder.glob(f"wandb/offline-run-*-{wandb_id}")
    except wandb.Error as error:
        remedy = "Name a folder that you may write to."
        raise BadInput.of("W&B", "to", f"W&B cannot write to {folder}: {error}", remedy) from None
    finally:
        wandb.teardown()


def _ms(at_s: float) -> int:
    return int(at_s * 1000)
