import json
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.unit.compare.kit import SAMPLES, data, job_in
from unifiednn_core.base.errors import Diverged
from unifiednn_core.compare import vanilla
from unifiednn_core.compare.job import ScriptJob
from unifiednn_core.data.batch import Batch
from unifiednn_core.engine import device as devices


def rows_of(job: ScriptJob, kind: str) -> list[dict[str, object]]:
    """Train in this very process, and leave its RNG alone."""
    stream = StringIO()
    with torch.random.fork_rng(devices=[]):
        vanilla.PlainScript(job, vanilla.ProgressWriter(stream, job.report_every_steps)).train()
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [row for row in rows if row.pop("kind") == kind]


def test_the_loader_is_timed(tmp_path: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        script = vanilla.PlainScript(job_in(tmp_path, epochs=2), vanilla.ProgressWriter(StringIO(), 1))
        script.train()
    assert script.loader_s > 0
    assert script.loader_cpu_s > 0


def test_figures_of_an_epoch_are_those_of_a_loop_by_hand(tmp_path: Path) -> None:
    job = job_in(tmp_path, epochs=1, optimizer_args={"lr": 1e-12}, architecture_args={})
    job = replace(job, architecture_source=str(without_dropout(tmp_path)))
    [epoch] = rows_of(job, "epoch")
    script = vanilla.PlainScript(job, vanilla.ProgressWriter(StringIO(), 1))  # a learning rate that moves nothing
    for name, content in (("train", data()), ("test", data(5, seed=1))):
        with torch.no_grad():
            outputs = script.module(content["inputs"] / 255)
        assert epoch[f"{name}_loss"] == pytest.approx(functional.cross_entropy(outputs, content["targets"]).item())
        right = (outputs.argmax(1) == content["targets"]).double().mean().item()
        assert epoch[f"{name}_accuracy"] == pytest.approx(right)
    assert (epoch["epoch"], epoch["step"], epoch["learning_rate"]) == (1, 3, 1e-12)


def without_dropout(folder: Path) -> Path:
    path = folder / "plain.py"
    path.write_text((folder / "architecture.py").read_text().replace("nn.Dropout(0.5)", "nn.Identity()"))
    return path


def test_rows_of_several_steps_hold_their_mean_and_none_is_lost(tmp_path: Path) -> None:
    job = job_in(tmp_path, epochs=3)
    single = rows_of(job, "step")
    double = rows_of(replace(job, report_every_steps=2), "step")
    assert [row["step"] for row in single] == list(range(1, 10))
    assert [row["epoch"] for row in single][:3] == [1 / 3, 2 / 3, 1.0]
    assert [(row["step"], row["steps"]) for row in double] == [(2, 2), (4, 2), (6, 2), (8, 2)]  # the ninth ends with it
    losses = [torch.tensor(float(str(row["loss"])), dtype=torch.float64) for row in single]
    assert [row["loss"] for row in double] == [torch.stack(losses[i : i + 2]).mean().item() for i in (0, 2, 4, 6)]


def test_the_last_steps_are_told_with_the_weights(tmp_path: Path) -> None:
    stream = StringIO()
    reporter = vanilla.ProgressWriter(stream, 2)
    for step in (1, 2, 3):
        reporter.step(step, step / 3, torch.tensor(float(step)), torch.tensor(1), 2)
    reporter.done(state_sha256="abc", peak_bytes=None, loader_s=0.5, loader_cpu_s=0.25)
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {"kind": "step", "step": 2, "steps": 2, "epoch": 2 / 3, "loss": 1.5, "accuracy": 0.5},
        {"kind": "step", "step": 3, "steps": 1, "epoch": 1.0, "loss": 3.0, "accuracy": 0.5},
        {"kind": "done", "state_sha256": "abc", "peak_bytes": None, "loader_s": 0.5, "loader_cpu_s": 0.25},
    ]


def test_targets_that_are_no_classes_have_no_accuracy(tmp_path: Path) -> None:
    job = job_in(tmp_path, criterion="MSELoss", scores_classes=False)
    torch.save({"inputs": data()["inputs"], "targets": torch.rand(SAMPLES, 3)}, job.train_data)
    torch.save({"inputs": data()["inputs"], "targets": torch.rand(SAMPLES, 3)}, str(job.test_data))
    assert [row["accuracy"] for row in rows_of(job, "step")] == [None] * 6
    assert [(row["train_accuracy"], row["test_accuracy"]) for row in rows_of(job, "epoch")] == [(None, None)] * 2


def test_a_loss_that_is_no_number_ends_the_training(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"The loss of tiny is nan at or before step \d+\."):
        rows_of(job_in(tmp_path, optimizer_args={"lr": 1e30}, epochs=9), "epoch")


def test_facts_have_the_names_and_values_of_a_hybrid() -> None:
    device = torch.device("cpu")
    assert vanilla.facts_of(device, 3) == devices.environment(device, 3)


def test_a_script_ends_at_once_where_its_parent_is_gone(tmp_path: Path) -> None:
    job_in(tmp_path, parent_pid=1).write(tmp_path / "job.json")
    command = [sys.executable, "-m", "unifiednn_core.compare.vanilla", str(tmp_path / "job.json")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "The process that started this one is gone." in ended.stderr


@pytest.mark.slow
def test_a_script_loads_no_more_than_one_of_torch_alone(tmp_path: Path) -> None:
    """Every module of this project that it loads, and nothing of what they could bring along."""
    job_in(tmp_path).write(tmp_path / "job.json")
    code = (
        "import sys; from unifiednn_core.compare import vanilla; sys.argv = ['vanilla', sys.argv[1]]; vanilla.main();"
        "print([m for m in sorted(sys.modules) if m.startswith('unifiednn_core.')]);"
        "print([m for m in ('pydantic', 'sqlalchemy', 'psutil') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "job.json")]
    *_, own, others = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True
    ).stdout.splitlines()
    scripts = (f"compare{part}" for part in ("", ".job", ".recipe", ".vanilla"))
    names = (*scripts, "data", "data.batch", "engine", "engine.step", "formats", "formats.weights")
    assert own == str([f"unifiednn_core.{name}" for name in names])
    assert others == "[]"


def test_outputs_keep_the_type_of_the_network_unless_layers_compute_in_a_lower_one(tmp_path: Path) -> None:
    script = vanilla.PlainScript(job_in(tmp_path), vanilla.ProgressWriter(StringIO(), 1))
    low, batch = nn.Linear(2, 3).bfloat16(), Batch({"inputs": torch.ones(4, 2).bfloat16()})
    assert script._forward(low, batch)[0].dtype is torch.bfloat16
    script.job = replace(script.job, precision="bfloat16")
    assert script._forward(low, batch)[0].dtype is torch.float32
