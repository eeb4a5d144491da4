"""Nothing of a hostile file runs, nothing is written, no socket opened, memory stays small, the finding is clear."""

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    makers = {**CORPUS, **{f"good/{name}": maker for name, maker in HARMLESS.items()}}
    for name, make in makers.items():
        place = folder / name.replace("/", " - ")
        place.mkdir()
        make(place)
    return folder


def probed(place: Path) -> Any:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.hostile.probe", str(place)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    cases: dict[str, Any] = probed(folder)
    return {name: case | json.loads(case["report"]) for name, case in cases.items()}


def test_a_payload_that_runs_would_be_heard(tmp_path: Path) -> None:
    heard = probed(CORPUS["pickle/bare pickle"](tmp_path))
    assert any(event.startswith("os.mkdir") and CANARY in event for event in heard)
    assert (tmp_path / CANARY).is_dir()


def test_the_corpus_is_large() -> None:
    assert len(CORPUS) >= 300


@pytest.mark.parametrize("name", CORPUS)
def test_a_hostile_file_gets_a_clear_finding_and_nothing_else(name: str, found: dict[str, Any], folder: Path) -> None:
    case = found[name.replace("/", " - ")]
    assert case["heard"] == []
    errors = [finding for finding in case["findings"] if finding["severity"] == "error"]
    assert errors, f"it was taken for {case['kind']}"
    assert all(finding["title"] and finding["message"] and finding["remedy"] for finding in errors)
    assert "Traceback" not in str(errors)
    assert all(error["message"].isprintable() for error in errors)
    assert not list(folder.rglob(CANARY))


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_never_opened_does_no_harm(name: str, found: dict[str, Any]) -> None:
    case = found[f"good - {name}"]
    assert (case["findings"], case["heard"]) == ([], [])
    assert case["kind"] in ("model", "data")


def test_memory_stays_small(found: dict[str, Any]) -> None:
    grown = {name: case["grown_bytes"] for name, case in found.items()}
    assert {name for name, grown_bytes in grown.items() if grown_bytes > MEMORY_CAP_BYTES} == set()


def test_no_file_takes_long(found: dict[str, Any]) -> None:
    """What is written down in a few bytes must not cost minutes; each takes a second or two."""
    assert {name for name, case in found.items() if case["cpu_s"] > CPU_CAP_S} == set()


def test_nothing_was_written_beside_the_files(folder: Path, found: dict[str, Any]) -> None:
    assert found
    assert not (folder.parent / "escaped").exists()
    assert not (ROOT / CANARY).exists()
