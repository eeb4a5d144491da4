"""What is told about the protections of this machine."""

import pytest

from unifiednn_core.base.paths import Home
from unifiednn_core.machine import peers
from unifiednn_core.service.protection import USERS_VARIABLE, protections_of


def missing(home: Home) -> dict[str, str]:
    return {one.name: f"{one.text} {one.remedy}" for one in protections_of(home) if not one.holds}


def test_a_home_that_others_can_enter_is_told(home: Home) -> None:
    assert "home" not in missing(home)
    home.root.chmod(0o755)
    assert "home" not in missing(home)  # its folders are closed
    home.files.chmod(0o750)
    assert str(home.root) in missing(home)["home"]


def test_a_dashboard_for_all_users_is_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "can_tell", lambda: True)
    assert "dashboard" not in missing(home)
    monkeypatch.setenv(USERS_VARIABLE, "all")
    assert USERS_VARIABLE in missing(home)["dashboard"]
    monkeypatch.delenv(USERS_VARIABLE)
    monkeypatch.setattr(peers, "can_tell", lambda: False)
    assert "sign-in" in missing(home)["dashboard"]
