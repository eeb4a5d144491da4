"""Exports of runs to other tools: TensorBoard event files, MLflow runs and W&B runs, one for each sub-model.

Curves hold each step once, as the last attempt trained it. An earlier export of the same sub-model is replaced.
"""

import io
import os
import shutil
import zipfile
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import product
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from unifiednn_core.base.errors import BadInput, NotFound, first_line
from unifiednn_core.base.files import atomic_replace
from unifiednn_core.base.paths import Home
from unifiednn_core.service.permissions import Guard, Own, permission
from unifiednn_core.service.roles import Actor, Role
from unifiednn_core.store import Store
from unifiednn_core.store.schema import RunRow, SubModelRow
from unifiednn_core.store.telemetry import History

_EPOCH = ("learning_rate", "train_loss", "train_accuracy", "test_loss", "test_accuracy")
_WITHHELD = ("name", "owner", "model", "train_data", "test_data", "start_from", "hyperparameters")
"""Entries of a spec that are no settings; files may belong to others."""
_MLFLOW_BATCH, _MLFLOW_TEXT = 1000, 500
_MLFLOW_ENDS = {"completed": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "interrupted": "KILLED"}
_WANDB_OFF = ("disable_git", "disable_code", "x_disable_meta", "x_disable_stats", "x_disable_machine_info")


class Point(NamedTuple):
    """One figure of a sub-model at a step; `at_s` is in UTC seconds, interpolated within the turn of the step."""

    figure: str
    step: int
    at_s: float
    value: float


class Exported(NamedTuple):
    """One sub-model as other tools take it, `key` is its name there; `model` is the zip of the trained model."""

    key: str
    run_name: str
    row: SubModelRow
    settings: Mapping[str, str]
    began_s: float
    points: Sequence[Point]
    model: Path | None


class ExportService:
    """Writes sub-models for other tools; `NotFound` says that nothing is trained yet, `BadInput` what is missing."""

    def __init__(self, guard: Guard, home: Home, store: Store, actor: Actor):
        self.guard = guard
        self._home, self._store, self._actor = home, store, actor

    @permission(Role.SUBMITTER, Own.SHARE, here=True)
    def export(self, run_id: str, tool: str, place: str) -> tuple[str, ...]:
        """Write each sub-model for one of `TOOLS` into a folder, or to the URI of an MLflow server.

        Returns paths, of MLflow ids; raises `BadInput` if it cannot write there. What W&B wrote, `wandb sync` sends.
        """
        exported = self._exported(run_id, tool)
        try:
            return tuple(TOOLS[tool](exported, place))
        except Exception as error:  # each library has errors of its own
            remedy = "Name a folder that you may write to, or for MLflow the URI of a server that answers."
            raise BadInput.of("Export", "to", f"Cannot write to {place}: {first_line(error)}.", remedy) from error

    @permission(Role.SUBMITTER, Own.SHARE)
    def tensorboard_zip(self, run_id: str) -> bytes:
        """Event files for TensorBoard as one zip."""
        packed, exported = io.BytesIO(), self._exported(run_id, "tensorboard")
        with TemporaryDirectory() as folder, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in map(Path, _write_tensorboard(exported, folder)):
                archive.write(path, path.relative_to(folder))
        return packed.getvalue()

    def _exported(self, run_id: str, tool: str) -> list[Exported]:
        """The sub-models that this person may see and that have begun."""
        run, rows = self._store.runs.get(run_id)
        history = self._store.telemetry.history(run_id, None)
        began_s, found = run.started_at_s or run.created_at_s, []
        for row in rows:
            if row.steps_done and (not self._actor.sees_only_own or row.owner == self._actor.id):
                taken = tool == "mlflow" and row.artifact is not None
                model = self._home.kept(run_id, f"models/{row.artifact}") if taken else None
                points = list(_points(row.name, history, began_s))
                key = f"{run_id}/{row.name}"
                found.append(Exported(key, run.name, row, _settings(run, row), began_s, points, model))
        if not found:
            raise NotFound(f"Run '{run_id}' has trained nothing yet. Export it once it has begun.")
        if find_spec(tool) is None:
            message = f"The library of the extra '{tool}' is not installed."
            raise BadInput.of("Not installed", tool, message, f"Install it: pip install 'unifiednn[{tool}]'")
        return found


def _settings(run: RunRow, row: SubModelRow) -> dict[str, str]:
    """What a sub-model was asked to do, and what identifies the result."""
    [asked] = [part for part in run.spec["submodels"] if part["name"] == row.name]
    found = {"seed": run.spec.get("seed", 0)} | {name: asked[name] for name in asked if name not in _WITHHELD}
    found |= asked.get("hyperparameters", {})
    found |= {"policy": run.spec.get("policy", {}).get("name", "fcfs"), "profile": run.spec.get("profile", "exact")}
    found |= {"submodel": row.name, "parameters": row.parameters, "state_sha256": row.state_sha256}
    return {name: str(value) for name, value in found.items() if value is not None}


def _points(name: str, history: History, began_s: float) -> Iterator[Point]:
    """Each figure of each step once, in order of steps."""
    turns = sorted((turn.from_step, turn.attempt, turn) for turn in history.slices if turn.submodel == name)

    def at_s(step: int) -> float:
        if not (place := bisect_left(turns, (step,))):  # in no turn
            return began_s
        from_step, _, turn = turns[place - 1]
        return began_s + turn.start_s + min(1.0, (step - from_step) / max(turn.steps, 1)) * (turn.end_s - turn.start_s)

    for kind, figures, rows in (("step", ("loss", "accuracy"), history.steps), ("epoch", _EPOCH, history.epochs)):
        there: Sequence[Any] = rows.get(name, ())
        for row, figure in product(there, figures):
            if (value := getattr(row, figure)) is not None:
                yield Point(f"{kind}/{figure}", row.step, at_s(row.step), value)


def _write_tensorboard(exported: Sequence[Exported], place: str) -> Iterator[str]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    for one in exported:
        path = Path(place, one.key, f"events.out.tfevents.{int(one.began_s):010d}.unifiednn")
        path.parent.mkdir(parents=True, exist_ok=True)
        settings = hparams_pb(dict(one.settings), trial_id=one.key, start_time_secs=one.began_s)
        with atomic_replace(path) as temporary, temporary.open("wb") as file:
            writer = RecordWriter(file)
            writer.write(Event(wall_time=one.began_s, file_version="brain.Event:2").SerializeToString())
            writer.write(Event(wall_time=one.began_s, summary=settings).SerializeToString())
            for point in one.points:
                summary = Summary(value=[Summary.Value(tag=point.figure, simple_value=point.value)])
                writer.write(Event(wall_time=point.at_s, step=point.step, summary=summary).SerializeToString())
        yield str(path)


def _write_mlflow(exported: Sequence[Exported], place: str) -> Iterator[str]:
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else a folder is refused by newer versions
    import mlflow
    from mlflow.entities import Metric, Param

    client = mlflow.MlflowClient(tracking_uri=place if "://" in place else Path(place).resolve().as_uri())
    name = f"unifiednn/{exported[0].run_name}"
    known = client.get_experiment_by_name(name)
    experiment = client.create_experiment(name) if known is None else known.experiment_id
    for one in exported:
        for earlier in client.search_runs([experiment], f"tags.`unifiednn.key` = '{one.key}'"):
            client.delete_run(earlier.info.run_id)
        begun = client.create_run(experiment, int(one.began_s * 1000), {"unifiednn.key": one.key}, one.key)
        run_id: str = begun.info.run_id
        client.log_batch(run_id, params=[Param(name, text[:_MLFLOW_TEXT]) for name, text in one.settings.items()])
        metrics = [Metric(point.figure, point.value, int(point.at_s * 1000), point.step) for point in one.points]
        for start in range(0, len(metrics), _MLFLOW_BATCH):
            client.log_batch(run_id, metrics[start : start + _MLFLOW_BATCH])
        if one.model is not None and one.model.is_file():
            client.log_artifact(run_id, str(one.model))
        ended_ms = None if one.row.ended_at_s is None else int(one.row.ended_at_s * 1000)
        client.set_terminated(run_id, _MLFLOW_ENDS.get(one.row.state, "RUNNING"), ended_ms)
        yield run_id


def _write_wandb(exported: Sequence[Exported], place: str) -> Iterator[str]:
    os.environ["WANDB_ERROR_REPORTING"] = "false"  # it would ask for the address of a server even when offline
    import wandb

    (folder := Path(place)).mkdir(parents=True, exist_ok=True)
    off: dict[str, Any] = dict.fromkeys(_WANDB_OFF, True)
    settings = wandb.Settings(mode="offline", console="off", silent=True, **off)
    try:
        for one in exported:
            wandb_id = one.key.replace("/", "-")
            for earlier in folder.glob(f"wandb/offline-run-*-{wandb_id}"):
                shutil.rmtree(earlier)
            about: dict[str, Any] = {"project": "unifiednn", "group": one.run_name, "name": one.key, "id": wandb_id}
            begun = wandb.init(**about, dir=folder, config=dict(one.settings), reinit="create_new", settings=settings)
            for point in sorted(one.points, key=attrgetter("step")):  # those of one step become one row
                begun.log({point.figure: point.value, "_timestamp": point.at_s}, step=point.step)
            begun.finish(exit_code=int(one.row.state == "failed"))
            yield from map(str, folder.glob(f"wandb/offline-run-*-{wandb_id}"))
    finally:
        wandb.teardown()


TOOLS = {"tensorboard": _write_tensorboard, "mlflow": _write_mlflow, "wandb": _write_wandb}
