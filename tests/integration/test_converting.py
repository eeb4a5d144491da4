from pathlib import Path

import pytest

from tests.unit.sandbox import hostile
from unifiednn_core.errors import BadInput
from unifiednn_core.home import Home
from unifiednn_core.intake.remedies import SANDBOX_SETTING
from unifiednn_core.packing.request import Example
from unifiednn_core.sandbox.request import ConversionRequest
from unifiednn_core.service import Service


def request(path: Path) -> ConversionRequest:
    return ConversionRequest(path=path, example=Example(shape=(1, 6, 6)), factory="build")


def quarantined(home: Home) -> list[str]:
    return sorted(path.name for path in home.quarantine.iterdir())


def test_the_service_runs_no_foreign_code_unless_it_is_allowed(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SANDBOX_SETTING, raising=False)
    path = hostile.saying(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')")
    service = Service.open(home)
    try:
        assert not service.sandbox().usable
        with pytest.raises(BadInput, match="off"):
            service.import_converted(request(path))
        assert (service.files(), quarantined(home)) == ((), [])
        assert not (tmp_path / "ran").exists()

        monkeypatch.setenv(SANDBOX_SETTING, "on")
        view = service.sandbox()
        assert view.enabled
        assert view.usable == (view.reason == "")
        assert view.usable == bool({"seccomp", "limits"} <= set(view.walls))
    finally:
        service.close()


@pytest.mark.long
def test_a_converted_file_is_a_model_of_the_library_and_a_hostile_one_leaves_nothing(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile.require_walls()
    monkeypatch.setenv(SANDBOX_SETTING, "on")
    service = Service.open(home)
    try:
        database = home.root / "unifiednn.sqlite3"
        assert database.is_file()
        with pytest.raises(BadInput, match=r"Permission denied|No such file"):  # with bubblewrap it is not there at all
            service.import_converted(request(hostile.saying(tmp_path, f"open({str(database)!r}, 'rb')")))
        assert (service.files(), quarantined(home)) == ((), [])
        file = service.import_converted(request(hostile.good(tmp_path)))
        assert (file.filename, file.kind, file.format) == ("good.pt2", "model", "pt2")
        assert [held.sha256 for held in service.files()] == [file.sha256]
        assert home.file(file.sha256).is_file()
        assert quarantined(home) == []
    finally:
        service.close()
