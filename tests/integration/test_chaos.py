import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unifiednn_core.base.failpoints import ACTIONS, POINTS

pytestmark = pytest.mark.slow

KILLS = ROUNDS = 4


def drill(folder: Path, *options: str) -> dict[str, Any]:
    """Run the chaos test in this folder; what it found, after checks of what holds of every drill."""
    own_home = folder / "own"
    command = [sys.executable, "-m", "tools.chaos", "--json", "--processes=1", f"--home={folder / 'chaos'}", *options]
    environment = os.environ | {"UNIFIEDNN_HOME": str(own_home)}
    if "--database=postgres" not in options:  # its server belongs to another user, who may not look in here
        environment["TMPDIR"] = str(folder)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["problems"] == []
    assert (done.returncode, found["passed"], found["recovered"]) == (0, True, found["exercises"])
    assert found["commands"]["lost"] == found["commands"]["applied_twice"] == 0
    assert found["steps"]["twice"] == found["steps"]["missing"] == found["steps"]["other_losses"] == 0
    assert found["submodels"]["other_bits"] == found["stores"]["unreadable"] == 0
    assert not own_home.exists()
    return found


@pytest.mark.timeout(600)
def test_nothing_is_lost_when_processes_are_killed(tmp_path: Path) -> None:
    """The short chaos test; `make chaos` runs the long one."""
    found = drill(tmp_path, f"--kills={KILLS}", f"--rounds={ROUNDS}")
    assert found["kills"] >= KILLS
    assert found["submodels"]["trained"] == 3 * found["exercises"]
    assert sum(row[action] for row in found["faults"] if row["place"] in POINTS for action in ACTIONS) > 0


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "options",
    [("--kills=1", "--rounds=3", "--seed=4"), pytest.param(("--kills=100",), marks=pytest.mark.long)],
    ids=["short", "long"],
)
def test_everybodys_submissions_go_on_when_processes_are_killed(tmp_path: Path, options: tuple[str, ...]) -> None:
    found = drill(tmp_path, "--pooled", *options)
    assert found["kills"] >= 1
    pooled = found["pooled"]
    assert pooled["left_behind"] == pooled["contradictions"] == 0
    assert pooled["submissions"] >= 3 * found["exercises"]
    assert pooled["hybrids"] >= 1
    if found["kills"] >= 100:  # in a few exercises it is up to chance whether several people meet
        assert pooled["shared_hybrids"] >= 1


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize(
    "options",
    [("--kills=3", "--rounds=5", "--seed=1"), pytest.param(("--kills=100",), marks=pytest.mark.long)],
    ids=["short", "long"],
)
def test_a_cluster_goes_on_when_hosts_and_networks_fail(
    tmp_path: Path, database: str, options: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    if database == "postgres":
        request.getfixturevalue("postgresql")  # skips where there is none
    found = drill(tmp_path, "--cluster", f"--database={database}", *options)
    assert found["kills"] >= 3
    cluster = found["cluster"]
    assert cluster["claims"] > 0
    promised = ("double_claims", "lost_checkpoints", "late_writes", "left_over", "unreadable_pages", "strange_errors")
    assert not any(cluster[name] for name in promised)
