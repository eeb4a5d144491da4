"""The script for a GPU machine, tried without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_dry_run_imports_what_a_gpu_run_needs_and_checks_its_specs(tmp_path: Path) -> None:
    environment = os.environ | {"DRY": "1", "STEPS": "tests costs demo", "OUT": str(tmp_path), "PYTHON": sys.executable}
    done = subprocess.run(["bash", "tools/gpu/run.sh"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "log.txt").read_text()
    assert "tests tests/gpu: exit 0" in log and "costs: exit 0" in log and "3 sub-models can be trained" in log
    assert not (tmp_path / "costs.txt").read_text()


def test_a_bundle_without_data_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(["bash", "tools/gpu/bundle.sh", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and f"{tmp_path} has no mnist.npz" in done.stderr
