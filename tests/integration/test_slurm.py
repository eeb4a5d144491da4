"""The job script of docs/CLUSTER.md for a lab with Slurm alone, as Slurm runs it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT, write_spec
from tests.integration.product import Product
from tests.waiting import wait_until
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import State

EPOCHS = {"lenet": 60, "resnet": 2, "transformer": 2}
JOB = "4711"


@pytest.mark.slow
@pytest.mark.new_interpreters
def test_a_job_that_slurm_ends_pauses_its_run_and_the_requeued_one_finishes_it(samples: Path, tmp_path: Path) -> None:
    [script] = re.findall(
        r"```bash\n(#!/bin/bash\n[^`]*?--signal=B:TERM[^`]*)```", (ROOT / "docs/CLUSTER.md").read_text()
    )
    program(
        tmp_path / "bin/unifiednn", f'exec {sys.executable} -c "from unifiednn_core.cli.main import main; main()" "$@"'
    )
    program(tmp_path / "bin/scontrol", 'echo "$@" >>requeued')
    write_spec(samples, tmp_path, epochs=EPOCHS)
    environment = os.environ | {"HOME": str(tmp_path), "SLURM_JOB_ID": JOB}
    environment["PATH"] = f"{tmp_path / 'bin'}:{environment['PATH']}"
    home = Home(tmp_path / "unifiednn-jobs" / JOB).create()
    product = Product(home, "", Service.open(home))

    def job() -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        return subprocess.Popen(
            ["bash", "-c", script], cwd=tmp_path, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )

    first = job()
    product.run_id = wait_until(lambda: next((run.run_id for run in product.service.runs.runs()), None), "a run")
    product.until(lambda: product.row("lenet").steps_done > 0, "some training")
    first.send_signal(signal.SIGTERM)
    told, _ = first.communicate(timeout=60)
    assert f"Pausing. Continue it with: unifiednn resume {product.run_id}" in told
    assert product.state() is State.PAUSED and product.worker() is None
    assert (tmp_path / "requeued").read_text() == f"requeue {JOB}\n"

    second = job()
    told, _ = second.communicate(timeout=120)
    assert (second.returncode, product.state()) == (0, State.COMPLETED), told
    for name in EPOCHS:
        product.lost_steps(name)
    product.close()


def program(path: Path, line: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{line}\n")
    path.chmod(0o755)
