import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

import unifiednn_core
from tools.chaos import report
from tools.chaos.cluster.plan import DatabaseName
from tools.chaos.command import CLUSTER_RESULT, PAGE, POOLED_RESULT, RESULT, record
from tools.chaos.judge import Outcome
from tools.machine import machine

DOCS = Path(unifiednn_core.__file__).parents[1] / "docs"
ASKED = {"command": "python -m tools.chaos", "commit": "0123456789ab", "date": "2026-01-02", "machine": machine()}
OUTCOME = Outcome(
    exercises=2,
    recovered=2,
    struck=Counter({("store.after_commit", "sigkill"): 3, ("any moment: worker", "sigkill"): 1}),
    recovery_s=[float(second) for second in range(1, 101)],
    redone_steps=[0, 4],
    acknowledged=5,
    steps=100,
    submodels=6,
    stores_checked=2,
)
FOUND = report.document(OUTCOME, asked=ASKED, elapsed_s=12.34)


def test_the_document_survives_json() -> None:
    assert json.loads(json.dumps(FOUND)) == FOUND
    assert FOUND["passed"] is True
    assert FOUND["kills"] == 4


def test_a_run_that_did_not_recover_is_a_failure_and_is_shown() -> None:
    failed = report.document(Outcome(exercises=2, recovered=1, problems=["exercise 1: lost"]), asked=ASKED, elapsed_s=1)
    assert failed["passed"] is False
    assert "**It failed.**" in report.markdown(failed)
    assert "- exercise 1: lost" in report.markdown(failed)


def test_what_was_not_tried_is_no_kept_promise() -> None:
    rows = {row[0]: row[1] for row in report.result_rows(FOUND)}
    assert rows["broken downloads"] == rows["damaged checkpoints that no event reports"] == "not tried"
    assert rows["acknowledged commands lost"] == "0 of 5"


def test_a_result_is_recorded_with_its_page(tmp_path: Path) -> None:
    (tmp_path / PAGE).write_text(f"{report.BEGIN}\n{report.END}\n")
    record(tmp_path, FOUND)
    assert json.loads((tmp_path / RESULT).read_text()) == FOUND
    assert report.markdown(FOUND) in (tmp_path / PAGE).read_text()


def test_the_page_says_what_the_recorded_chaos_test_found() -> None:
    found, page = json.loads((DOCS / RESULT).read_text()), (DOCS / PAGE).read_text()
    assert page == report.with_table(page, found)


def test_the_recorded_chaos_test_was_long_and_passed() -> None:
    found = json.loads((DOCS / RESULT).read_text())
    assert found["passed"] is True
    assert found["kills"] >= 1000
    assert not found["problems"]


def test_the_page_says_what_the_recorded_test_of_shared_hybrids_found() -> None:
    found, page = json.loads((DOCS / POOLED_RESULT).read_text()), (DOCS / PAGE).read_text()
    assert page == report.with_table(page, found)
    assert found["passed"] is True
    assert found["kills"] >= 300
    assert found["pooled"]["shared_hybrids"] >= 50
    assert not found["problems"]


@pytest.mark.parametrize("database", [one.value for one in DatabaseName])
def test_the_page_says_what_the_recorded_test_on_a_cluster_found(database: str) -> None:
    result = DOCS / CLUSTER_RESULT.format(database)
    if not result.exists():
        pytest.skip("it has not been recorded: make chaos")
    found, page = json.loads(result.read_text()), (DOCS / PAGE).read_text()
    assert page == report.with_table(page, found)
    assert found["passed"] is True
    assert not found["problems"]


@pytest.mark.parametrize("arguments", [["--home", "{own}/inside"], ["--home", "{full}"], ["--write", "{full}"]])
def test_what_cannot_be_done_is_refused_before_anything_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    import typer

    from tools.chaos.command import BAD_INPUT, chaos

    own, full = tmp_path / "own", tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    monkeypatch.setenv("UNIFIEDNN_HOME", str(own))
    app = typer.Typer()
    app.command()(chaos)
    done = CliRunner().invoke(app, [part.format(own=own, full=full) for part in arguments])
    assert done.exit_code == BAD_INPUT
    assert not own.exists()
