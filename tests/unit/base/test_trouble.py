import errno
import logging
import os
import sqlite3
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError

from unifiednn_core.base import trouble
from unifiednn_core.base.trouble import is_disk_full, log_error
from unifiednn_core.base.visible import keep_log_visible

LOG = logging.getLogger("test")


def test_each_cause_is_told_once_a_minute_and_what_passes_by_itself_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(trouble, "time", SimpleNamespace(monotonic=lambda: now_s[0]))

    def told(error: Exception, message: str = "It failed.") -> list[str]:
        caplog.clear()
        try:
            raise error
        except Exception:
            log_error(LOG, message)
        return caplog.text.splitlines()

    full = OperationalError("INSERT", None, sqlite3.OperationalError("database or disk is full"))
    [line] = told(full)
    assert "It failed. OperationalError: database or disk is full" in line
    assert told(full, "Another one failed.") == [], "the cause is the same"
    assert len(told(OSError(errno.EACCES, "denied", "file"))) == 1
    assert "Traceback" in "".join(told(ValueError("a defect")))
    assert told(ValueError("a defect")) == [] != told(ValueError("a defect"), "Another one failed.")
    now_s[0] = trouble.AGAIN_S
    assert len(told(full)) == 1


def test_a_full_disk_is_recognised_in_what_the_database_says(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "db")
    database.execute("CREATE TABLE many (it BLOB)")
    database.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError) as full:
        database.execute("INSERT INTO many VALUES (zeroblob(100000))")
    with pytest.raises(sqlite3.OperationalError) as other:
        database.execute("SELECT nothing")
    database.close()
    assert is_disk_full(OperationalError("", None, full.value)) and is_disk_full(OSError(errno.ENOSPC, "full"))
    assert not any(map(is_disk_full, (OperationalError("", None, other.value), OSError(errno.EIO, ""), None)))


def test_a_log_on_a_full_disk_is_no_error_and_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "log").open("w", buffering=1) as log:
        monkeypatch.setattr(sys, "stdout", log)
        monkeypatch.setattr(sys, "stderr", log)
        keep_log_visible()
        kept, full = os.dup(log.fileno()), os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, log.fileno())
        try:
            raise ValueError("x" * 20_000)
        except ValueError:
            traceback.print_exc()
        sys.stderr.flush()
        os.dup2(kept, log.fileno())
        sys.stdout.write("there is room\n")
        os.close(kept)
        os.close(full)
    assert (tmp_path / "log").read_text().endswith("there is room\n")
