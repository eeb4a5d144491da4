"""While the disk is full, people can still read, and orders are refused with the reason."""

import sqlite3

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.unit.service.kit import ALICE, HERS, World
from unifiednn_core.base.errors import DiskFull
from unifiednn_core.web.action import ROOT
from unifiednn_core.web.routes import routes


@pytest.fixture
def full(here: World) -> TestClient:
    """The routes for Alice, while the store of the server takes nothing."""

    def refuse(_: object) -> None:
        cause = sqlite3.OperationalError("database or disk is full")
        cause.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise OperationalError("COMMIT", None, cause)

    event.listen(here.store._database._engine, "commit", refuse)
    return TestClient(Starlette(routes=routes(lambda _: here.of(ALICE), lambda: here.service)))


def test_pages_documents_figures_and_logs_are_read(full: TestClient) -> None:
    files = (f"/files/{name}" for name in (f"runs/{HERS}.json", f"metrics/{HERS}.csv", f"logs/{HERS}.txt"))
    for path in (f"{ROOT}/runs", f"{ROOT}/runs/{HERS}", f"{ROOT}/runs/{HERS}/progress", *files):
        assert full.get(path).status_code == 200, path


def test_an_order_is_refused_with_the_reason(full: TestClient, here: World) -> None:
    answer = full.post(f"{ROOT}/runs/{HERS}/pause", json={})
    assert answer.status_code == 503
    assert "The disk of the home folder is full, so this was not done." in answer.json()["detail"]
    with pytest.raises(DiskFull, match="Make room there, then try again"):  # as pages show it
        here.of(ALICE).runs.pause(HERS)
    assert here.store.commands.open(HERS) == []


def test_the_audit_log_gets_its_lines_when_there_is_room_again(full: TestClient, here: World) -> None:
    full.get(f"/files/metrics/{HERS}.csv")
    full.post(f"{ROOT}/runs/{HERS}/pause", json={})
    assert here.store.people.audit_log(9) == []
    here.store._database._engine.dispatch.commit.clear()
    here.of(ALICE).runs.document(HERS)
    lines = [f"{line.action} {line.outcome}" for line in here.store.people.audit_log(9)]
    failed = "pause failed: OperationalError"
    assert lines == ["document allowed", failed, "pause allowed", "metrics_csv allowed"]
