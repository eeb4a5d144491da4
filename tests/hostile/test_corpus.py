"""Nothing of a hostile file runs, nothing is written, no socket is opened, memory stays small, the finding is clear.

The corpus is read in groups, each in one process whose every move is recorded.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.corpus import CORPUS, HARMLESS
from tests.hostile.marks import CANARY

ROOT = Path(__file__).parents[2]
MEMORY_CAP_BYTES = 320 * 1024**2
"""Most that reading one of them may take."""
CPU_CAP_S = 20.0


GROUPS = {
    "networks": ("exported", "pickle", "module", "weights"),
    "data": ("data", "table", "text", "images", "readers", "document"),
}


def probed(place: Path, *more: str) -> Any:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.hostile.probe", str(place), *more]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_a_payload_that_runs_would_be_heard(tmp_path: Path) -> None:
    heard = probed(CORPUS["pickle/bare pickle"](tmp_path))
    assert any(event.startswith("os.mkdir") and CANARY in event for event in heard)
    assert (tmp_path / CANARY).is_dir()


def test_the_corpus_is_large_and_in_groups() -> None:
    assert len(CORPUS) >= 300
    assert {name.partition("/")[0] for name in (*CORPUS, *HARMLESS)} == {
        room for rooms in GROUPS.values() for room in rooms
    }


@pytest.mark.slow
@pytest.mark.parametrize("group", ["networks", "data"])
def test_a_hostile_file_gets_a_clear_finding_and_nothing_else(group: str, tmp_path: Path) -> None:
    """Harmless files are taken for what they are: what would do harm in them is never opened."""
    folder = tmp_path / "corpus"
    for kind, makers in (("bad", CORPUS), ("good", HARMLESS)):
        for name, make in makers.items():
            if name.partition("/")[0] in GROUPS[group]:
                place = folder / f"{kind} - {name.replace('/', ' - ')}"
                place.mkdir(parents=True)
                make(place)
    found = probed(folder)
    assert len(found) == len(list(folder.iterdir()))
    assert {name: said for name, case in found.items() if (said := _objections(name, case))} == {}
    assert not list(tmp_path.rglob(CANARY))
    assert not (tmp_path / "escaped").exists()
    assert not (ROOT / CANARY).exists()


def _objections(name: str, case: Any) -> list[str]:
    report = json.loads(case["report"])
    findings, errors = report["findings"], [one for one in report["findings"] if one["severity"] == "error"]
    checks = {
        f"it did {case['heard']}": case["heard"],
        f"it took {case['grown_bytes']:,} bytes": case["grown_bytes"] > MEMORY_CAP_BYTES,
        f"it took {case['cpu_s']} s": case["cpu_s"] > CPU_CAP_S,
    }
    if name.startswith("good"):
        checks[f"it was not accepted: {report['kind']}, {findings}"] = findings or report["kind"] not in (
            "model",
            "data",
        )
    else:
        checks[f"it was accepted as {report['kind']}"] = not errors
        checks["an error lacks title, message or remedy"] = any(
            not (one["title"] and one["message"] and one["remedy"]) for one in errors
        )
        checks[f"the message is not for people: {errors}"] = "Traceback" in str(errors) or any(
            not one["message"].isprintable() for one in errors
        )
    return [said for said, objection in checks.items() if objection]
