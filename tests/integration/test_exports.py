"""Exports to TensorBoard, MLflow and W&B, read back with the readers of these libraries."""

import importlib.util
import json
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli_kit import unifiednn
from tests.integration.product import Product, Template
from unifiednn_core.base.paths import Home
from unifiednn_core.service import exports
from unifiednn_core.store.schema import AttemptRow, EpochRow, StepRow

NAMES = ("lenet", "resnet", "transformer")
NEEDS_MLFLOW = pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="the extra mlflow is missing")
NEEDS_WANDB = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="the extra wandb is missing")


@pytest.fixture
def trained(finished: Template, home: Home) -> Iterator[Product]:
    """A home of one's own with the short demo, trained."""
    with finished.copied(home) as product:
        yield product


@pytest.fixture
def interrupted(trained: Product) -> Product:
    """The same as if the last steps of lenet had been trained a second time, with other losses."""
    store, run_id = trained.service.store, trained.run_id
    history = store.telemetry.history(run_id, None)
    last = history.steps["lenet"][-1].step
    again = last - 5
    with store._database.write() as session:
        session.add(
            AttemptRow(run_id=run_id, submodel="lenet", attempt=2, from_step=again, at_s=trained.service.clock.utc_s())
        )
        for step in range(again + 1, last + 1):
            session.add(StepRow(run_id=run_id, submodel="lenet", attempt=2, step=step, steps=1, epoch=3.0, loss=9.0))
        session.add(EpochRow(run_id=run_id, submodel="lenet", attempt=2, epoch=3, step=last, train_loss=8.0))
    return trained


def expected(product: Product, name: str) -> dict[str, dict[int, float]]:
    """Each figure by step, from the rows that count."""
    history = product.service.store.telemetry.history(product.run_id, None)
    figures: dict[str, dict[int, float]] = {}
    for row in history.steps[name]:
        for figure, value in (("step/loss", row.loss), ("step/accuracy", row.accuracy)):
            if value is not None:
                figures.setdefault(figure, {})[row.step] = value
    for row in history.epochs[name]:
        for column in ("learning_rate", "train_loss", "train_accuracy", "test_loss", "test_accuracy"):
            if getattr(row, column) is not None:
                figures.setdefault(f"epoch/{column}", {})[row.step] = getattr(row, column)
    return figures


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the library
def test_event_files_hold_each_step_once_and_are_replaced(interrupted: Product, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    run_id = interrupted.run_id
    for _ in range(2):  # a second export replaces the first
        done = unifiednn(interrupted.home, "export", run_id, str(tmp_path), "--to", "tensorboard", "--json")
        assert done.returncode == 0 and len(json.loads(done.stdout)["written"]) == 3
    run, _ = interrupted.service.store.runs.get(run_id)
    for name in NAMES:
        folder = tmp_path / run_id / name
        assert len(list(folder.iterdir())) == 1
        reader = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
        want = expected(interrupted, name)
        assert set(reader.Tags()["scalars"]) == set(want)
        for figure, values in want.items():
            events = reader.Scalars(figure)
            assert [event.step for event in events] == sorted(values), f"{name}: {figure}"
            assert [event.value for event in events] == pytest.approx([values[one.step] for one in events], rel=1e-6)
            if (name, figure) == ("lenet", "step/loss"):
                assert [event.value for event in events[-5:]] == [9.0] * 5, "the second attempt counts"
            times = [event.wall_time for event in events]
            assert times == sorted(times) and (run.started_at_s or 0) <= times[0] <= times[-1]
            assert times[-1] <= (run.ended_at_s or 0) + 1
        content = HParamsPluginData.FromString(
            reader.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        )
        settings = {key: value.string_value for key, value in content.session_start_info.hparams.items()}
        assert settings["learning_rate"] and settings["policy"] and "model" not in settings


def test_of_two_attempts_one_counts(interrupted: Product) -> None:
    """The control of the test above: the rows hold the repeated steps twice."""
    with interrupted.service.store._database.read() as session:
        rows = session.query(StepRow).filter_by(run_id=interrupted.run_id, submodel="lenet").all()
    steps = [row.step for row in rows]
    assert len(steps) > len(set(steps)) == len(expected(interrupted, "lenet")["step/loss"])


def test_a_missing_library_is_named_with_its_extra(trained: Product, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "find_spec", lambda name: None)
    for tool in ("tensorboard", "mlflow", "wandb"):
        done = unifiednn(trained.home, "export", trained.run_id, "/nowhere", "--to", tool)
        assert done.returncode == 2 and f"unifiednn[{tool}]" in done.stderr and not Path("/nowhere").exists()
    assert unifiednn(trained.home, "export", "nothing", "/nowhere", "--to", "mlflow").returncode == 2


@pytest.mark.slow
@NEEDS_MLFLOW
@pytest.mark.filterwarnings("ignore")  # those of the library
def test_mlflow_gets_a_run_for_each_submodel_and_keeps_the_last_export(
    interrupted: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    for _ in range(2):
        done = unifiednn(
            interrupted.home, "export", interrupted.run_id, str(tmp_path / "ml"), "--to", "mlflow", "--json"
        )
        assert done.returncode == 0, done.stderr
    client = MlflowClient(tracking_uri=(tmp_path / "ml").as_uri())
    [experiment] = [one for one in client.search_experiments() if one.name.startswith("unifiednn/")]
    found: dict[str, Any] = {one.data.params["submodel"]: one for one in client.search_runs([experiment.experiment_id])}
    assert sorted(found) == sorted(NAMES)
    for name, one in found.items():
        want = expected(interrupted, name)
        for figure, values in want.items():
            points = client.get_metric_history(one.info.run_id, figure)
            assert {point.step: point.value for point in points} == values and len(points) == len(values)
        assert one.info.status == "FINISHED" and one.data.params["policy"]
        assert [file.path for file in client.list_artifacts(one.info.run_id)] == [f"{name}.zip"]


def records(file: Path) -> Iterator[Any]:
    """Records of a W&B file: those of a LevelDB log with a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, part = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (room := 32_768 - at % 32_768) < 7:
            at += room
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        part += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(part)
            part = b""


@NEEDS_WANDB
@pytest.mark.filterwarnings("ignore")  # those of the library
def test_wandb_gets_a_run_for_each_submodel_and_keeps_the_last_export(interrupted: Product, tmp_path: Path) -> None:
    for _ in range(2):
        done = unifiednn(interrupted.home, "export", interrupted.run_id, str(tmp_path), "--to", "wandb", "--json")
        assert done.returncode == 0, done.stderr
    found = [list(records(file)) for file in (tmp_path / "wandb").glob("offline-run-*/*.wandb")]
    assert len(found) == 3
    for told in found:
        [run] = [one.run for one in told if one.WhichOneof("record_type") == "run"]
        settings = {item.key: json.loads(item.value_json) for item in run.config.update}
        name = settings["submodel"]
        assert run.display_name == f"{interrupted.run_id}/{name}" and settings["policy"] and "model" not in settings
        figures: dict[str, dict[int, float]] = {}
        times = []
        for one in told:
            row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in one.history.item}
            times += [row["_timestamp"]] if row else []
            for figure in (figure for figure in row if not figure.startswith("_")):
                assert row["_step"] not in figures.setdefault(figure, {})
                figures[figure][row["_step"]] = row[figure]
        assert figures == expected(interrupted, name)
        began_s = interrupted.service.runs.observe(interrupted.run_id).started_at_s
        assert began_s is not None and times == sorted(times) and times[0] >= began_s - 1


def test_an_export_that_has_no_steps_is_refused(template: Template, home: Home) -> None:
    with template.copied(home) as product, closing(product.service):
        done = unifiednn(home, "export", product.run_id, str(home.root), "--to", "tensorboard")
        assert done.returncode == 2 and "has trained nothing yet" in done.stderr


def test_a_place_that_cannot_be_written_to_is_refused(trained: Product) -> None:
    done = unifiednn(trained.home, "export", trained.run_id, "/dev/null/here", "--to", "tensorboard")
    assert done.returncode == 2 and "Cannot write to /dev/null/here" in done.stderr
