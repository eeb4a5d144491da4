"""Uploads and downloads over a real server: cuts, resumptions, refusals, and memory that stays flat."""

import hashlib
import json
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.integration.web_server import WebServer, pieces
from tests.unit.rows import part_of, row_of
from tests.waiting import wait_until
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home
from unifiednn_core.service.uploads import BLOCK_BYTES
from unifiednn_core.store import Store

MIB = 1024**2


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[WebServer]:
    server = WebServer(Home(tmp_path_factory.mktemp("web") / "home").create())
    server.start()
    yield server
    server.kill()


@pytest.fixture
def web(server) -> Iterator[WebServer]:
    """The server of this file; an upload that a test leaves behind is gone before the next one."""
    yield server
    for file in server.home.quarantine.iterdir():
        file.unlink()


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> bytes:
    """A small data set of 1.2 MB."""
    path = tmp_path_factory.mktemp("data") / "digits.safetensors"
    save_file(data_of(1200), path)
    return path.read_bytes()


def data_of(samples: int) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(0)
    inputs = numbers.integers(0, 256, (samples, 1, 32, 32), dtype=np.uint8)
    return {"inputs": inputs, "targets": np.arange(samples, dtype=np.int64) % 10}


def quarantined(web: WebServer) -> list[str]:
    return sorted(file.name for file in web.home.quarantine.iterdir())


def finding(content: bytes) -> str:
    [found] = json.loads(content)["findings"]
    assert found["remedy"]
    return f"{found['message']} {found['remedy']}"


def half_sent(web: WebServer, upload: str, sent: bytes, announced: int):
    """A connection that has sent only a part of what it announced, so that the server waits for more.

    A block of it is on disk: from there on it is the writer. To ask by writing could come between.
    """
    assert BLOCK_BYTES <= len(sent) < announced
    connection = web.connection()
    connection.putrequest("PATCH", upload)
    connection.putheader("Upload-Offset", "0")
    connection.putheader("Content-Length", str(announced))
    connection.endheaders()
    connection.send(sent)
    wait_until(lambda: web.offset(upload) >= BLOCK_BYTES)
    return connection


def test_a_cut_connection_goes_on_where_it_was(web, data):
    digest = hashlib.sha256(data).hexdigest()
    upload = web.begin("digits.safetensors", len(data), sha256=digest, kinds=["data"])
    there = BLOCK_BYTES + 10_000
    cut = half_sent(web, upload, data[:there], len(data))
    cut.close()
    wait_until(lambda: web.offset(upload) == there)
    wait_until(lambda: web.send(upload, there, data[there : there + 1])[0] == 204, "the end of the dead connection")
    assert web.send(upload, there + 1, data[there + 1 :]) == (204, len(data))
    status, _, content = web.ask("POST", f"{upload}/finish")
    assert status == 200 and json.loads(content)["sha256"] == digest
    assert web.home.file(digest).read_bytes() == data
    assert quarantined(web) == []
    assert web.ask("GET", upload)[0] == 404


@pytest.mark.slow
def test_a_killed_server_loses_nothing(web, data):
    upload = web.begin("digits.safetensors", len(data))
    assert web.send(upload, 0, data[:300_000]) == (204, 300_000)
    web.kill()
    web.start()
    assert web.offset(upload) == 300_000
    assert web.send(upload, 300_000, data[300_000:]) == (204, len(data))
    assert web.ask("POST", f"{upload}/finish")[0] == 200


def test_another_place_than_the_end_is_refused_and_the_end_told(web):
    upload = web.begin("a.pt", 10)
    assert web.send(upload, 0, b"12345") == (204, 5)
    for wrong in (0, 4, 6, 10, 2**70):
        assert web.send(upload, wrong, b"67890") == (409, 5)
    assert web.ask("PATCH", upload, b"67890", Upload_Offset="-1")[0] == 422
    assert web.ask("PATCH", upload, b"67890")[0] == 422
    assert web.offset(upload) == 5
    assert web.ask("POST", f"{upload}/finish")[0] == 409  # not whole yet, and it stays
    assert web.ask("DELETE", upload)[0] == 204
    assert web.ask("HEAD", upload)[0] == 404


def test_an_upload_has_one_writer(web):
    sent = bytes(BLOCK_BYTES) + b"123"
    upload = web.begin("a.pt", len(sent) + 7)
    first = half_sent(web, upload, sent, len(sent) + 7)
    for offset in (0, web.offset(upload), len(sent)):
        assert web.send(upload, offset, b"4567890")[0] == 409
    first.close()
    wait_until(lambda: web.offset(upload) == len(sent))
    wait_until(lambda: web.send(upload, len(sent), b"4567890") == (204, len(sent) + 7))
    identity = upload.rpartition("/")[2]
    assert (web.home.quarantine / identity).read_bytes() == sent + b"4567890"
    web.ask("DELETE", upload)


def test_a_wrong_hash_is_refused_and_nothing_kept(web, data):
    upload = web.begin("digits.safetensors", len(data), sha256="0" * 64)
    web.send(upload, 0, data)
    status, _, content = web.ask("POST", f"{upload}/finish")
    assert status == 422 and "SHA-256" in finding(content)
    assert quarantined(web) == []


def test_more_than_announced_is_refused(web):
    upload = web.begin("a.pt", 5)
    status, _, content = web.ask("PATCH", upload, b"123456", Upload_Offset="0")
    assert status == 422 and "announced" in finding(content)
    web.ask("DELETE", upload)


@pytest.mark.parametrize(
    "asked",
    [
        {"filename": "a.pt"},
        {"filename": "a.pt", "size_bytes": 0},
        {"filename": "a.pt", "size_bytes": -1},
        {"filename": "a.pt", "size_bytes": "9"},
        {"filename": "a.pt", "size_bytes": 2**62},
        {"filename": "a.pt", "size_bytes": 9, "sha256": "../../x"},
        {"filename": "a.pt", "size_bytes": 9, "kinds": ["anything"]},
        {"filename": "a.pt", "size_bytes": 9, "owner": "somebody"},
        {"filename": "..", "size_bytes": 9},
        {"filename": "\x00\n", "size_bytes": 9},
        {"filename": "a" * 20_000, "size_bytes": 9},
        [],
    ],
)
def test_what_cannot_be_is_refused_at_the_beginning(web, asked):
    status, _, content = web.ask("POST", "/files/uploads", json.dumps(asked))
    assert status == 422 and finding(content)
    assert quarantined(web) == []


@pytest.mark.parametrize(
    "headers", [{"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}, {"Origin": "http://evil.example"}]
)
def test_a_page_of_another_site_can_cause_nothing(web, headers):
    body = json.dumps({"filename": "a.pt", "size_bytes": 3})
    assert web.ask("POST", "/files/uploads", body, **headers)[0] == 403
    upload = web.begin("a.pt", 3)
    assert web.ask("PATCH", upload, b"123", Upload_Offset="0", **headers)[0] == 403
    assert web.ask("POST", f"{upload}/finish", **headers)[0] == 403
    assert web.ask("DELETE", upload, **headers)[0] == 403
    assert web.offset(upload) == 0
    own = {"Origin": f"http://127.0.0.1:{web.port}"}
    assert web.ask("DELETE", upload, **own)[0] == 204


@pytest.mark.parametrize("name", ["0" * 32, "..", "..%2funifiednn.sqlite3", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "a%00"])
def test_unknown_uploads_and_runs_are_not_found(web, name):
    assert web.ask("GET", f"/files/uploads/{name}")[0] == 404
    assert web.ask("PATCH", f"/files/uploads/{name}", b"1", Upload_Offset="0")[0] == 404
    for path in (f"models/{name}/x", f"models/x/{name}", f"checkpoints/{name}/{name}", f"runs/{name}.json"):
        assert web.ask("GET", f"/files/{path}")[0] == 404


def test_every_answer_has_the_headers_and_only_known_hosts_get_one(web):
    for path in ("/files/runs/none.json", "/nowhere"):
        _, headers, _ = web.ask("GET", path)
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert web.ask("GET", "/files/runs/none.json", Host="evil.example")[0] == 400
    assert web.ask("GET", "/files/runs/none.json", Host=f"localhost:{web.port}")[0] == 404


@pytest.fixture(scope="module")
def trained(server) -> Path:
    """File of the trained model `net` of run `r-1`."""
    home = server.home
    store = Store.open(home, Clock())
    part = part_of(run_id="r-1", name="net", state="completed", artifact="net.zip")
    store.runs.add((row_of("r-1", state="completed"), [part]))
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


def test_runs_side_by_side_come_as_files(web, trained):
    found = {kind: web.ask("GET", f"/files/selections.{kind}?runs=r-1,r-1/net") for kind in ("json", "csv", "html")}
    assert [status for status, _, _ in found.values()] == [200, 200, 200]
    document = json.loads(found["json"][2])
    assert [side["ref"] for side in document["runs"]] == ["r-1", "r-1/net"]
    assert found["csv"][2].startswith(b"submodel,data,epoch,loss,accuracy") and b'id="board"' in found["html"][2]
    assert web.ask("GET", "/files/selections.json?runs=r-1")[0] == 422
    assert web.ask("GET", "/files/selections.json?runs=r-1,r-2")[0] == 404


def up_and_down(web: WebServer, path: Path) -> int:
    """Upload a file and download it again, as large as it is; returns how much the server's memory grew."""
    size_bytes = path.stat().st_size
    warm = web.begin("warm.safetensors", 3)
    web.send(warm, 0, b"123")
    web.ask("DELETE", warm)
    web.ask("GET", "/files/models/r-1/net")
    web.forget_peak()
    before = web.peak_bytes()
    upload = web.begin("large.safetensors", size_bytes, sha256=digest_of(path), kinds=["data"])
    with path.open("rb") as file:
        assert web.send(upload, 0, file) == (204, size_bytes)
    status, _, content = web.ask("POST", f"{upload}/finish")
    assert status == 200, content
    kept = web.home.file(json.loads(content)["sha256"])
    model = web.home.run("r-1") / "models" / "net.zip"
    model.unlink()
    model.hardlink_to(kept)
    connection = web.connection()
    connection.request("GET", "/files/models/r-1/net")
    answer, arrived = connection.getresponse(), hashlib.sha256()
    while piece := answer.read(MIB):
        arrived.update(piece)
    connection.close()
    assert arrived.hexdigest() == digest_of(path)
    return web.peak_bytes() - before


def digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    for piece in pieces(path):
        digest.update(piece)
    return digest.hexdigest()


@pytest.mark.slow
def test_50_megabytes_up_and_down_need_no_memory(web, trained, tmp_path):
    path = tmp_path / "large.safetensors"
    save_file(data_of(48_000), path)
    assert up_and_down(web, path) < 10 * MIB


def test_a_server_that_may_open_no_more_files_says_so(web: WebServer) -> None:
    assert web.process is not None
    pid, connection = web.process.pid, web.connection()

    def answer() -> tuple[int, str]:
        connection.request("GET", "/assets/charts.js")
        said = connection.getresponse()
        return said.status, said.read().decode()

    assert answer()[0] == 200
    open_files = {int(file.name) for file in Path(f"/proc/{pid}/fd").iterdir()}
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    lowest_free = min(set(range(len(open_files) + 1)) - open_files)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        status, text = answer()
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    assert status == 503 and "as many files open as it may" in text and "ulimit -n" in text
    assert answer()[0] == 200
    connection.close()
