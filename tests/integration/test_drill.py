"""The drill on a real server: processes are killed, and nothing is lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("kills", "options"),
    [
        pytest.param(6, (), id="one host"),
        pytest.param(30, (), id="one host, long", marks=pytest.mark.long),
        pytest.param(30, ("--ray",), id="two Ray nodes, long", marks=pytest.mark.long),
    ],
)
def test_nothing_is_lost_when_processes_are_killed(tmp_path: Path, kills: int, options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tools.chaos", f"--kills={kills}", "--seed=1", f"--write={tmp_path}", *options]
    environment = os.environ | {"UNIFIEDNN_HOME": str(tmp_path / "own")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    [result] = tmp_path.glob("drill*.json")
    found = json.loads(result.read_text())
    assert sum(found["kills"].values()) >= kills
    assert found["findings"] == []
    assert found["recovery_s"]
    assert not (tmp_path / "own").exists()
