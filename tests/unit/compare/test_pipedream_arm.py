"""The arms of other systems: a script whose network is a pipeline, and one with techniques."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.compare.kit import SOURCE, job_in
from unifiednn_core.base.errors import BadInput
from unifiednn_core.compare import arms, vanilla
from unifiednn_core.compare.job import ScriptJob
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.spec.run import PIPEDREAM_STAGES, SubModelSpec
from unifiednn_core.techniques.pipelines.pipedream import PipeDream


def trained(job: ScriptJob, *, one_stage: bool = False) -> tuple[str, list[dict[str, Any]]]:
    stream = StringIO()
    with torch.random.fork_rng(devices=[]):
        script = vanilla.PlainScript(job, vanilla.ProgressWriter(stream, 1))
        if one_stage:
            script.pipeline = PipeDream([script.module], [script.optimizer])
        digest = state_sha256(script.train().state_dict())
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    return digest, [row for row in rows if row["kind"] != "begun"]


def test_a_pipeline_of_one_stage_is_the_plain_script(tmp_path: Path) -> None:
    plain = job_in(tmp_path)
    assert trained(replace(plain, pipeline_stages=2), one_stage=True) == trained(plain)


def test_several_stages_take_the_same_steps_with_delay(tmp_path: Path) -> None:
    job = job_in(tmp_path, lr_scheduler="StepLR", lr_scheduler_args={"step_size": 1})
    source = tmp_path / "without_dropout.py"
    source.write_text(SOURCE.replace(" nn.Dropout(0.5),", " nn.Identity(),"))
    job = replace(job, architecture_source=str(source))
    (plain, rows), (piped, told) = trained(job), trained(replace(job, pipeline_stages=3))
    assert piped != plain
    assert [(row["kind"], row.get("step"), row.get("epoch")) for row in told] == [
        (row["kind"], row.get("step"), row.get("epoch")) for row in rows
    ]
    assert told[0]["loss"] == rows[0]["loss"], "the first batch meets the same weights"
    assert [row["learning_rate"] for row in told if row["kind"] == "epoch"] == [0.1, 0.1 * 0.1]
    assert trained(replace(job, pipeline_stages=4)) == trained(replace(job, pipeline_stages=9)), "no more than layers"


@pytest.mark.parametrize(
    "changes", [{"accumulation_steps": 2}, {"ema": {"decay": 0.9}}, {"gradient_clipping": {"norm": 1.0}}]
)
def test_what_pipedream_has_no_counterpart_for_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=f"cannot train with: {next(iter(changes))}"):
        trained(job_in(tmp_path, pipeline_stages=3, **changes))


def test_techniques_work_in_a_script_of_their_own(tmp_path: Path) -> None:
    plain = job_in(tmp_path)
    assert trained(replace(plain, techniques=[{"name": "compression"}])) == trained(plain)


def test_each_kind_of_baseline_has_its_job(tmp_path: Path) -> None:
    part = SubModelSpec.model_validate(
        {"name": "net", "model": "m", "train_data": "d", "hyperparameters": {"techniques": ["compression"]}}
    )
    modes = "concurrent", "concurrent-techniques", "concurrent-pipedream", "sequential-resident"
    jobs = {mode: arms.job_of_mode(job_in(tmp_path), mode, part) for mode in modes}
    assert [job.pipeline_stages for job in jobs.values()] == [1, 1, PIPEDREAM_STAGES, 1]
    assert [len(job.techniques) for job in jobs.values()] == [0, 1, 0, 0]
    assert [job.resident_data for job in jobs.values()] == [False, False, False, True]
