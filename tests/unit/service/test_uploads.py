import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.base.files import safe_file_name
from unifiednn_core.base.paths import Home
from unifiednn_core.service import uploads as uploads_module
from unifiednn_core.service.uploads import STALE_S, Uploads

KINDS = ("data",)


@pytest.fixture
def uploads(home: Home) -> Uploads:
    return Uploads(home.quarantine)


async def chunks(*given: bytes, failing: Exception | None = None):
    for chunk in given:
        yield chunk
    if failing is not None:
        raise failing


def append(uploads: Uploads, upload_id: str, offset: int, *given: bytes, failing: Exception | None = None) -> int:
    return asyncio.run(uploads.append(upload_id, offset, chunks(*given, failing=failing))).offset_bytes


def test_what_arrived_before_a_failure_is_kept(uploads):
    upload = uploads.begin("a.pt", 10, None, KINDS)
    with pytest.raises(ConnectionResetError):
        append(uploads, upload.upload_id, 0, b"123", b"4", failing=ConnectionResetError())
    assert uploads.get(upload.upload_id).offset_bytes == 4
    assert append(uploads, upload.upload_id, 4, b"567890") == 10
    with uploads.finishing(upload.upload_id) as (_, path):
        assert path.read_bytes() == b"1234567890"


def test_a_refused_upload_is_kept_on_request_unless_its_bytes_are_wrong(uploads, home):
    upload = uploads.begin("a.pt", 3, None, KINDS)
    append(uploads, upload.upload_id, 0, b"123")
    with pytest.raises(BadInput), uploads.finishing(upload.upload_id, keep_refused=True):
        raise BadInput.of("No", field="a", message="No.", remedy="No.")
    with uploads.finishing(upload.upload_id) as (_, path):
        assert path.read_bytes() == b"123"
    upload = uploads.begin("a.pt", 3, "0" * 64, KINDS)
    append(uploads, upload.upload_id, 0, b"123")
    with pytest.raises(BadInput), uploads.finishing(upload.upload_id, keep_refused=True):
        pass
    assert list(home.quarantine.iterdir()) == []


def test_an_upload_that_is_dropped_while_it_is_written_stays_gone(uploads, home):
    upload = uploads.begin("a.pt", 3, None, KINDS)

    async def dropped_meanwhile():
        yield b"12"
        uploads.drop(upload.upload_id)
        yield b"3"

    with pytest.raises(NotFound):
        asyncio.run(uploads.append(upload.upload_id, 0, dropped_meanwhile()))
    assert list(home.quarantine.iterdir()) == []


def test_announced_sizes_count_against_the_quota_at_once(uploads, monkeypatch):
    monkeypatch.setattr(uploads_module, "QUOTA_BYTES", 100)
    first = uploads.begin("a.pt", 60, None, KINDS)
    with pytest.raises(BadInput, match="room"):
        uploads.begin("b.pt", 41, None, KINDS)
    second = uploads.begin("b.pt", 40, None, KINDS)
    uploads.drop(first.upload_id)
    uploads.drop(second.upload_id)
    uploads.begin("c.pt", 100, None, KINDS)


def test_two_that_begin_at_once_do_not_count_on_the_same_room(uploads, monkeypatch):
    monkeypatch.setattr(uploads_module, "QUOTA_BYTES", 100)
    outcomes: list[str] = []
    gate = threading.Barrier(8, timeout=60)

    def begin():
        gate.wait()
        try:
            uploads.begin("a.pt", 60, None, KINDS)
            outcomes.append("begun")
        except BadInput:
            outcomes.append("refused")

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["begun"] + 7 * ["refused"]


def test_what_nobody_went_on_with_for_a_day_is_removed(uploads, home):
    old, new = (uploads.begin("a.pt", 3, None, KINDS).upload_id for _ in range(2))
    forgotten = home.quarantine / "0123456789abcdef"  # of an import whose process was killed
    forgotten.touch()
    long_ago = time.time() - STALE_S - 1
    for name in (old, forgotten.name):
        os.utime(home.quarantine / name, (long_ago, long_ago))
    third = uploads.begin("a.pt", 3, None, KINDS).upload_id
    names = {file.name for file in home.quarantine.iterdir()}
    assert names == {new, f"{new}.json", third, f"{third}.json"}


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("model.pt2", "model.pt2"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\a\\net.pt", "net.pt"),
        ("/absolute/x.pt", "x.pt"),
        ("a\x00b\nc\x1b[31m.pt", "abc[31m.pt"),
        ("invoice\u202etp.exe", "invoicetp.exe"),  # right-to-left override
        ("  .hidden. ", "hidden"),
        ("Netz für Ä.pt", "Netz für Ä.pt"),
        ("<svg onload=alert(1)>.pt2", "<svg onload=alert(1)>.pt2"),
    ],
)
def test_of_a_name_only_its_plain_last_part_is_kept(given, plain):
    assert safe_file_name(given) == plain


def test_a_long_name_keeps_its_suffix():
    assert safe_file_name("n" * 1000 + ".safetensors") == "n" * (160 - 12) + ".safetensors"
    assert len(safe_file_name("n." + "s" * 1000)) == 160


@pytest.mark.parametrize("given", ["", "..", "a/", "\u202e", " . "])
def test_a_name_of_nothing_is_refused(given):
    with pytest.raises(BadInput):
        safe_file_name(given)


def test_what_a_killed_intake_process_left_is_removed_and_blocks_no_upload(uploads, home):
    left = home.quarantine / "tmpk1ll3d"
    left.mkdir()
    (left / "converted").write_bytes(b"x")
    long_ago = time.time() - STALE_S - 1
    os.utime(left, (long_ago, long_ago))
    upload_id = uploads.begin("a.pt", 3, None, KINDS).upload_id
    assert {file.name for file in home.quarantine.iterdir()} == {upload_id, f"{upload_id}.json"}


def test_what_cannot_be_removed_blocks_no_upload(uploads, home, monkeypatch):
    (home.quarantine / "0123456789abcdef").touch()
    os.utime(home.quarantine / "0123456789abcdef", (0, 0))

    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == "0123456789abcdef":
            raise PermissionError("no")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert uploads.begin("a.pt", 3, None, KINDS).offset_bytes == 0
