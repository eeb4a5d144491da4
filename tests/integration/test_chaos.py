import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unifiednn_core.base.failpoints import ACTIONS, POINTS

KILLS = ROUNDS = 4


@pytest.mark.timeout(600)
def test_nothing_is_lost_when_processes_are_killed(tmp_path: Path) -> None:
    """The short chaos test; `make chaos` runs the long one."""
    own_home = tmp_path / "own"
    command = [sys.executable, "-m", "tools.chaos", "--json", f"--kills={KILLS}", f"--rounds={ROUNDS}", "--processes=1"]
    environment = os.environ | {"UNIFIEDNN_HOME": str(own_home), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*command, f"--home={tmp_path / 'chaos'}"], capture_output=True, text=True, env=environment, check=False
    )
    found = json.loads(done.stdout)
    assert found["problems"] == []
    assert (done.returncode, found["passed"], found["recovered"]) == (0, True, found["exercises"])
    assert found["kills"] >= KILLS
    assert found["commands"]["lost"] == found["commands"]["applied_twice"] == 0
    assert found["steps"]["twice"] == found["steps"]["missing"] == found["steps"]["other_losses"] == 0
    assert found["submodels"]["other_bits"] == found["stores"]["unreadable"] == 0
    assert found["submodels"]["trained"] == 3 * found["exercises"]
    assert sum(row[action] for row in found["faults"] if row["place"] in POINTS for action in ACTIONS) > 0
    assert not own_home.exists()
