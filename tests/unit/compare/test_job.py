import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.compare.kit import job_in
from unifiednn_core.base.paths import Home
from unifiednn_core.compare import arms
from unifiednn_core.compare.job import ScriptJob
from unifiednn_core.formats.architectures import registry
from unifiednn_core.spec.run import RunSpec
from unifiednn_core.store.schema import SubModelRow
from unifiednn_core.store.telemetry import curve_stride


def test_a_job_reads_back_as_it_was_written(tmp_path: Path) -> None:
    job = job_in(tmp_path, lr_scheduler="StepLR", lr_scheduler_args={"step_size": 2}, parent_pid=3)
    job.write(tmp_path / "job.json")
    assert ScriptJob.read(tmp_path / "job.json") == job


def planned(home: Home, **changes: Any) -> ScriptJob:
    hyperparameters = {
        "epochs": 3,
        "batch_size": 16,
        "optimizer": "adam",
        "learning_rate": 0.5,
        "optimizer_args": {"betas": [0.8, 0.9]},
        "criterion": "nll",
        "lr_scheduler": {"name": "one_cycle", "args": {"max_lr": 1.0, "total_steps": 9}, "per": "step"},
    }
    part = {
        "name": "net",
        "model": "sha256:abc",
        "architecture": {"name": "lenet", "args": {"classes": 7}},
        "train_data": "sha256:def",
        "scale": 0.5,
        "hyperparameters": hyperparameters,
    }
    spec = RunSpec.model_validate({"seed": 4, "device": "cuda:1", "submodels": [part | changes]})
    row = SubModelRow(name="net", model_format="safetensors", steps_total=90_000)
    return arms.job_of(arms.BaselineFiles(home, "run"), spec, spec.submodels[0], row, threads=3, peers=2)


def test_a_job_names_everything_as_torch_does_and_files_by_their_place(home: Home) -> None:
    job = planned(home)
    assert (job.optimizer, job.optimizer_args) == ("Adam", {"lr": 0.5, "betas": [0.8, 0.9]})
    assert (job.criterion, job.scores_classes) == ("NLLLoss", True)
    assert (job.lr_scheduler, job.lr_scheduler_args, job.lr_steps_by) == (
        "OneCycleLR",
        {"max_lr": 1.0, "total_steps": 9},
        "step",
    )
    assert (job.device, job.threads, job.seed, job.parent_pid) == ("cuda:1", 3, 4, os.getpid())
    assert (job.model, job.train_data, job.test_data) == (str(home.file("abc")), str(home.file("def")), None)
    assert (job.architecture_source, job.architecture_args) == (str(registry.source_file("lenet")), {"classes": 7})
    assert (job.start_from, job.weights) == (None, str(home.run("run") / "models" / "net.safetensors"))


def test_a_job_starts_where_the_spec_says(home: Home) -> None:
    job = planned(home, start_from={"file": "sha256:fed", "take": "everything"})
    assert (job.start_from, job.take) == (str(home.file("fed")), "everything")


def test_a_curve_has_as_many_points_as_that_of_a_hybrid(home: Home) -> None:
    assert planned(home).report_every_steps == 30
    assert (curve_stride(10, 1), curve_stride(6001, 1), curve_stride(400, 100)) == (1, 2, 2)


@pytest.mark.parametrize(
    ("mode", "budget", "threads"),
    [
        ("sequential", 7, (7, 7, 7)),
        ("concurrent", 7, (3, 2, 2)),
        ("concurrent", 6, (2, 2, 2)),
        ("concurrent", 1, (1, 1, 1)),
    ],
)
def test_an_arm_shares_its_thread_budget(mode: str, budget: int, threads: tuple[int, ...]) -> None:
    assert arms.share_threads(mode, budget, ("a", "b", "c")) == dict(zip("abc", threads, strict=True))
