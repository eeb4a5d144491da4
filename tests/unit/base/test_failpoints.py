import errno
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from unifiednn_core.base import failpoints
from unifiednn_core.base.failpoints import ACTIONS, POINTS, Fault
from unifiednn_core.base.files import copy_into


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm(None)


def test_every_point_is_passed_somewhere_in_the_code() -> None:
    core = Path(failpoints.__file__).parents[1]
    code = "".join(path.read_text() for path in core.rglob("*.py") if path.name != "failpoints.py")
    around = {
        f"placement.{when}_{what}" for when in ("before", "after") for what in re.findall(r'_writes\("(.*)"\)', code)
    }
    assert [point for point in POINTS if f'passing("{point}")' not in code and point not in around] == []


def test_a_fault_strikes_at_its_hit_and_as_often_as_asked() -> None:
    failpoints.arm(Fault("store.after_commit", "disk_full", hit=2, times=2))
    failpoints.passing("store.before_commit")
    failpoints.passing("store.after_commit")
    for _ in range(2):
        with pytest.raises(OSError, match="No space") as raised:
            failpoints.passing("store.after_commit")
        assert raised.value.errno == errno.ENOSPC
    failpoints.passing("store.after_commit")


def test_faults_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, "policy.after_switch=locked")
    failpoints.arm_from_environment()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        failpoints.passing("policy.after_switch")
    monkeypatch.delenv(failpoints.VARIABLE)
    failpoints.arm_from_environment()
    failpoints.passing("policy.after_switch")


@pytest.mark.parametrize("text", ["", "nowhere=sigkill", f"{POINTS[0]}=flood", f"{POINTS[0]}={ACTIONS[0]}@0"])
def test_a_fault_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="points are"):
        Fault.parse(text)


@pytest.mark.parametrize("point", ["download.before_copy", "download.before_rename"])
def test_a_download_is_whole_or_not_there(tmp_path: Path, point: str) -> None:
    source, folder = tmp_path / "model.zip", tmp_path / "to"
    source.write_bytes(b"new" * 1000)
    folder.mkdir()
    (folder / "model.zip").write_bytes(b"old")
    failpoints.arm(Fault(point, "disk_full"))
    with pytest.raises(OSError, match="No space"):
        copy_into(source, folder)
    assert [path.name for path in folder.iterdir()] == ["model.zip"]
    assert (folder / "model.zip").read_bytes() == b"old"
    assert copy_into(source, folder).read_bytes() == source.read_bytes()
    assert copy_into(source, folder, "other.zip").name == "other.zip"
