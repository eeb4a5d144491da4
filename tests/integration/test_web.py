"""Downloads over a real server: cuts, refusals, and memory that stays flat."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.integration.web_server import WebServer
from unifiednn_core.clock import RealClock
from unifiednn_core.home import Home
from unifiednn_core.store import Store
from unifiednn_core.store.schema import RunRow, SubModelRow

MIB = 1024**2


@pytest.fixture(scope="module")
def web(tmp_path_factory) -> Iterator[WebServer]:
    server = WebServer(Home(tmp_path_factory.mktemp("web") / "home").create())
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def trained(web) -> Path:
    """File of the trained model `net` of run `r-1`."""
    return trained_in(web.home)


def trained_in(home: Home) -> Path:
    store = Store.open(home, RealClock())
    run = RunRow(id="r-1", name="r-1", state="completed", device="cpu", spec={}, threads=1, created_at_s=0.0)
    part = SubModelRow(
        run_id="r-1",
        name="net",
        arrival=0,
        state="completed",
        priority=0,
        model_format="pt2",
        parameters=1,
        epochs=1,
        steps_total=1,
        artifact="net.zip",
    )
    store.runs.add(run, [part])
    store.close()
    path = home.run("r-1") / "models" / "net.zip"
    path.parent.mkdir(parents=True)
    path.write_bytes(np.random.default_rng(1).bytes(300_000))
    return path


def test_a_download_that_was_cut_goes_on(web, trained):
    status, headers, content = web.ask("GET", "/files/models/r-1/net", Accept_Encoding="gzip")
    assert status == 200 and content == trained.read_bytes()
    assert headers["Content-Disposition"] == 'attachment; filename="r-1-net.zip"'
    assert headers["Cache-Control"] == "private, no-cache"
    status, more, rest = web.ask("GET", "/files/models/r-1/net", Range="bytes=200000-", If_Range=headers["ETag"])
    assert status == 206 and content[:200_000] + rest == trained.read_bytes()
    assert more["ETag"] == headers["ETag"]
    replaced = trained.with_suffix(".new")
    replaced.write_bytes(content[::-1])
    replaced.replace(trained)
    status, other, whole = web.ask("GET", "/files/models/r-1/net", Range="bytes=200000-", If_Range=headers["ETag"])
    assert status == 200 and whole == content[::-1]  # of other bytes the rest would be worth nothing
    assert other["ETag"] != headers["ETag"]


def test_documents_come_as_files(web, trained):
    status, headers, content = web.ask("GET", "/files/runs/r-1.json")
    assert status == 200 and json.loads(content)["run_id"] == "r-1"
    assert headers["Content-Disposition"] == 'attachment; filename="r-1.json"'
    assert web.ask("GET", "/files/checkpoints/r-1/net")[0] == 404


def test_what_is_not_there_is_told_with_a_remedy(web, trained):
    for path in (
        "/files/models/r-1/other",
        "/files/models/none/net",
        "/files/reports/none.html",
        "/files/specs/%2e%2e.json",
    ):
        status, _, content = web.ask("GET", path)
        assert status == 404, path
        [finding] = json.loads(content)["findings"]
        assert finding["message"] and finding["remedy"]


def test_other_hosts_are_refused_and_answers_carry_security_headers(web, trained):
    assert web.ask("GET", "/files/models/r-1/net", Host="evil.example")[0] == 400
    headers = web.ask("GET", "/files/runs/r-1.json")[1]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "size_bytes", [64 * MIB, pytest.param(2048 * MIB, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_a_download_needs_no_memory(web, trained, size_bytes):
    web.ask("GET", "/files/models/r-1/net")
    web.forget_peak()
    before = web.peak_bytes()
    block = np.random.default_rng(2).bytes(MIB)
    digest = hashlib.sha256()
    with trained.open("wb") as file:
        for _ in range(size_bytes // MIB):
            file.write(block)
            digest.update(block)
    connection = web.connection()
    connection.request("GET", "/files/models/r-1/net")
    answer, arrived = connection.getresponse(), hashlib.sha256()
    while piece := answer.read(MIB):
        arrived.update(piece)
    connection.close()
    assert arrived.digest() == digest.digest()
    assert web.peak_bytes() - before < 20 * MIB
