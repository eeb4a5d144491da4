"""The plain script of a baseline gives the same bits as the engine and as a loop written without either."""

import json
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.integration.vanilla import sha256_alone
from tests.unit.formats.kit import export
from unifiednn_core.base.paths import Home
from unifiednn_core.compare.arms import BaselineFiles, job_of
from unifiednn_core.compare.job import ScriptJob
from unifiednn_core.compare.vanilla import PlainScript, ProgressWriter
from unifiednn_core.engine import checkpoint_file
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.device import resolve
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Captured, Ended, EpochDone, Report, Stepped
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.runtime.assembly import Workbench
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.spec.run import CheckpointSpec, RunSpec
from unifiednn_core.store.schema import SubModelRow

FORMATS = {"lenet": "pt2", "resnet": "safetensors", "transformer": "pt2", "words": "pt2"}
PLATEAU = {"name": "reduce_on_plateau", "args": {"patience": 0, "threshold": 0.9}}
Document = dict[str, Any]
Rows = dict[str, list[Document]]


@pytest.fixture
def stored(samples: Path, home: Home) -> Home:
    """A home in which the samples lie under their own names."""
    for path in samples.glob("*.*"):
        place = home.file(path.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return home


def spec_of(samples: Path, name: str, **changes: Any) -> RunSpec:
    """The demo with this sub-model alone, for two epochs."""
    document = json.loads((samples / "demo.json").read_text())
    document["submodels"] = [part for part in document["submodels"] if part["name"] == name]
    [part] = document["submodels"]
    part["hyperparameters"] |= {"epochs": 2} | changes
    schedule = part["hyperparameters"]["lr_scheduler"]
    if schedule and "total_steps" in schedule.get("args", {}):
        schedule["args"]["total_steps"] = 46
    return RunSpec.model_validate(document | {"device": "cpu", "threads": 1})


def job(home: Home, spec: RunSpec) -> ScriptJob:
    [part] = spec.submodels
    row = SubModelRow(name=part.name, model_format=FORMATS[part.name], steps_total=1)
    return replace(job_of(BaselineFiles(home, "run"), spec, part, row, threads=1, peers=1), parent_pid=None)


def by_script(home: Home, spec: RunSpec) -> tuple[str, Rows]:
    """Hash of the weights and everything that the script wrote, by kind."""
    stream, rows = StringIO(), Rows()
    with torch.random.fork_rng():
        module = PlainScript(job(home, spec), ProgressWriter(stream, 1)).train()
    for line in stream.getvalue().splitlines():
        row = json.loads(line)
        rows.setdefault(row.pop("kind"), []).append(row)
    return state_sha256(module.state_dict()), rows


def by_engine(home: Home, spec: RunSpec, every_steps: int | None = None) -> tuple[str, Rows, list[Checkpoint]]:
    """The same of the engine, and its checkpoints."""
    reports: list[Report] = []

    def take(report: Report) -> None:
        reports.append(report)
        if isinstance(report, Captured):
            engine.checkpoint_written(report.checkpoint.submodel)

    bench = Workbench(home, "run", resolve(spec.device))
    with torch.random.fork_rng(devices=[]):
        bench.add(bench.read(spec.submodels[0].name, spec, {}, lambda sentences: None))
    period = None if every_steps is None else CheckpointSpec(every_steps=every_steps)
    engine = Engine(bench.hybrid, FirstComeFirstServed(), device=bench.device, report=take, checkpoint=period)
    engine.run()
    rows: Rows = {"step": [], "epoch": []}
    for report in reports:
        if isinstance(report, Stepped):
            accuracy = None if report.correct is None else report.correct.item() / report.labels
            rows["step"].append({"step": report.step, "loss": report.loss.double().item(), "accuracy": accuracy})
        elif isinstance(report, EpochDone):
            figures = report.figures
            rows["epoch"].append({name: getattr(figures, name) for name in figures.__dataclass_fields__})
    [ended] = [report for report in reports if isinstance(report, Ended)]
    assert ended.state_dict is not None, ended.cause
    return state_sha256(ended.state_dict), rows, [r.checkpoint for r in reports if isinstance(r, Captured)]


def assert_equal(home: Home, spec: RunSpec) -> str:
    """Weights and all figures of script and engine are the same bits; returns the hash."""
    digest, told = by_script(home, spec)
    expected, rows, _ = by_engine(home, spec)
    assert digest == expected
    assert told["epoch"] == rows["epoch"]
    assert [{name: row[name] for name in ("step", "loss", "accuracy")} for row in told["step"]] == rows["step"]
    return digest


@pytest.mark.parametrize("name", ["lenet", "resnet", "transformer"])
def test_a_sample_trains_to_the_same_bits_and_figures(name: str, samples: Path, stored: Home) -> None:
    spec = spec_of(samples, name)
    digest = assert_equal(stored, spec)
    assert digest == sha256_alone(spec.model_dump(mode="json", exclude_none=True), name, samples)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["lenet", "resnet", "transformer"])
def test_a_sample_trains_to_the_same_bits_and_figures_on_a_gpu(
    name: str, samples: Path, stored: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as in every worker; read when CUDA starts
    assert_equal(stored, spec_of(samples, name).model_copy(update={"device": "cuda:0"}))


class Words(nn.Module):
    """Scores every next word of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.dropout = nn.Embedding(17, 8), nn.Dropout(0.3)
        self.lstm, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 17)

    def forward(self, texts: Tensor) -> Tensor:
        steps, _ = self.lstm(self.dropout(self.embedding(texts)))
        scores: Tensor = self.head(steps)
        return scores.permute(0, 2, 1)


def words(home: Home, **changes: Any) -> RunSpec:
    """A language model over random words: its targets are classes for every word of a text."""
    texts = torch.randint(0, 17, (30, 7), generator=torch.Generator().manual_seed(1))
    for name in ("words", "texts"):
        home.file(name).parent.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        export(home.file("words"), Words(), texts[:2, :-1])
    torch.save({"inputs": texts[:, :-1].clone(), "targets": texts[:, 1:].clone()}, home.file("texts"))
    part = {
        "name": "words",
        "model": "words",
        "train_data": "texts",
        "test_data": "texts",
        "hyperparameters": {"epochs": 2, "batch_size": 8, "optimizer": "adam", "seed": 3} | changes,
    }
    return RunSpec.model_validate({"device": "cpu", "threads": 1, "submodels": [part]})


@pytest.mark.parametrize("changes", [{}, {"batch_split": 2}])
def test_a_language_model_trains_to_the_same_bits(changes: Document, home: Home) -> None:
    digest, told = by_script(home, words(home, **changes))
    expected, rows, _ = by_engine(home, words(home, **changes))
    assert digest == expected
    assert [row["loss"] for row in told["step"]] == [row["loss"] for row in rows["step"]]
    assert [row["train_loss"] for row in told["epoch"]] == [row["train_loss"] for row in rows["epoch"]]
    assert {row["accuracy"] is not None for row in told["step"]} == {True}


def begun_at(home: Home, spec: RunSpec, begun: Checkpoint | dict[str, Tensor], **changes: Any) -> RunSpec:
    """The same, but beginning at a checkpoint, or at weights alone."""
    home.file("begun").parent.mkdir(parents=True, exist_ok=True)
    if isinstance(begun, Checkpoint):
        checkpoint_file.write(begun, home.file("begun"))
    else:
        save_file(begun, home.file("begun"))
    document = spec.model_dump(mode="json")
    [part] = document["submodels"]
    part["start_from"] = {"file": "begun", "take": "everything" if isinstance(begun, Checkpoint) else "weights"}
    part["hyperparameters"] |= changes
    return RunSpec.model_validate(document)


def test_a_checkpoint_inside_and_between_epochs_is_gone_on_from(samples: Path, stored: Home) -> None:
    """A network with dropout and an LR scheduler per step, so that every stream of the state counts."""
    whole = spec_of(samples, "transformer", batch_size=128)
    expected, rows, checkpoints = by_engine(stored, whole, every_steps=4)
    by_step = {checkpoint.step: checkpoint for checkpoint in checkpoints}
    for step in (16, 12):
        digest, told = by_script(stored, begun_at(stored, whole, by_step[step]))
        assert digest == expected
        [begun] = told["begun"]
        assert (begun["step"], begun["epoch"]) == (step, step // 12)
        assert [row["step"] for row in told["step"]] == list(range(step + 1, 25))
        assert told["epoch"] == rows["epoch"][step // 12 :]


def test_a_checkpoint_between_groups_of_batches_is_gone_on_from(samples: Path, stored: Home) -> None:
    """In the third epoch, so that the LR scheduler and early stopping go by epochs before and after it."""
    asked = {"accumulation_steps": 5, "batch_size": 128, "warm_up": {"steps": 9}, "gradient_clipping": {"norm": 0.5}}
    stopping = {"patience": 3, "min_delta": 100}
    whole = spec_of(samples, "lenet", **asked, epochs=9, early_stopping=stopping, lr_scheduler=PLATEAU)
    expected, rows, checkpoints = by_engine(stored, whole, every_steps=7)
    assert [row["epoch"] for row in rows["epoch"]] == [1, 2, 3, 4]
    digest, told = by_script(stored, begun_at(stored, whole, checkpoints[0]))
    assert digest == expected
    assert [row["step"] for row in told["step"]] == list(range(8, 13))
    assert told["epoch"] == rows["epoch"][2:]
    assert by_engine(stored, begun_at(stored, whole, checkpoints[0]))[0] == expected


def test_another_learning_rate_than_the_checkpoint_s_scales_as_in_the_engine(samples: Path, stored: Home) -> None:
    first = spec_of(samples, "lenet")
    expected, _, checkpoints = by_engine(stored, first, every_steps=30)
    spec = begun_at(stored, first, checkpoints[0], learning_rate=0.01)
    assert by_script(stored, spec)[0] == by_engine(stored, spec)[0] != expected


def test_weights_from_elsewhere_are_begun_with(samples: Path, stored: Home) -> None:
    first = spec_of(samples, "lenet")
    [trained] = by_engine(stored, first, every_steps=30)[2]
    spec = begun_at(stored, first, dict(trained.state["model"]))
    assert assert_equal(stored, spec) != by_script(stored, first)[0]
