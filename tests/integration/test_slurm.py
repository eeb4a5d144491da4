"""The batch script of docs/CLUSTER.md, run by bash as Slurm would, without Slurm."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.integration.product import Template
from tests.waiting import wait_until
from unifiednn_core.base.paths import BLOBS_SETTING, DATABASE_SETTING, Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.run import load_run

ROOT = Path(__file__).parents[2]
[SCRIPT] = re.findall(r"^```bash\n(.*?)^```", (ROOT / "docs" / "CLUSTER.md").read_text(), re.MULTILINE | re.DOTALL)


def job(folder: Path, program: str, **environment: str) -> "subprocess.Popen[str]":
    """The script as a job of Slurm; `program` is what stands behind `unifiednn` there."""
    (folder / "bin").mkdir()
    (folder / "bin" / "unifiednn").write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    (folder / "bin" / "unifiednn").chmod(0o700)
    (folder / "agent.sh").write_text(SCRIPT)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_VISIBLE", "SLURM"))}
    own |= {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_ID": "42", "SLURMD_NODENAME": "Node7"}
    own |= {"SLURM_TMPDIR": str(folder / "local"), "PYTHONPATH": str(ROOT)} | environment
    return subprocess.Popen(["bash", "agent.sh"], cwd=folder, env=own, stdout=subprocess.PIPE, text=True)


def test_the_agent_sees_the_gpus_of_its_job_alone(tmp_path: Path) -> None:
    with job(tmp_path, 'echo "[$CUDA_VISIBLE_DEVICES]"', SLURM_JOB_GPUS="6,7") as process:
        said, _ = process.communicate(timeout=60)
    assert said == "[6,7] agent --host node7-42 --until-idle 600\n"


@pytest.mark.slow
@pytest.mark.new_interpreters
def test_a_minute_before_its_end_the_job_parks_what_it_trains(
    template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "server")
    monkeypatch.setenv(BLOBS_SETTING, str(tmp_path / "blobs"))
    monkeypatch.setenv(DATABASE_SETTING, f"sqlite:///{home.database}")
    program = f"{sys.executable} -c 'from unifiednn_core.cli.main import main; main()'"
    with closing(Service.open(home)) as service, job(tmp_path, program) as process:
        try:
            wait_until(lambda: "node7-42/cpu" in {row.name for row in service.store.devices.all()})
            document = json.loads(template.spec_path.read_text()) | {"device": "node7-42/cpu"}
            document["submodels"] = document["submodels"][:1]
            document["submodels"][0]["hyperparameters"]["epochs"] = 500
            (tmp_path / "long.json").write_text(json.dumps(document))
            run_id = service.runs.submit(load_run(tmp_path / "long.json"))
            wait_until(lambda: any(row.checkpoint_step for row in service.store.runs.get(run_id)[1]))
            worker = service.store.hybrids.get(run_id)[0].worker_pid
            process.send_signal(signal.SIGTERM)  # Slurm's B:TERM: to the shell of the job alone
            assert process.wait(90) == 0
            run, [row] = service.store.runs.get(run_id)
            assert run.state == row.state == "queued", "it waits for another host, or the next job"
            assert row.checkpoint_step == row.steps_done > 0, "no step is lost"
            assert worker is not None and not psutil.pid_exists(worker)
            service.runs.stop(run_id)
        finally:
            process.kill()
            process.wait()
