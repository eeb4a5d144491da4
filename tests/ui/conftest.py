from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.components.v2 import manifest_scanner
from streamlit.runtime.state.common import is_element_id
from streamlit.runtime.state.session_state import SessionState
from streamlit.testing.v1 import AppTest

from pages._ui import frame, rows, uploads
from tests.ui.fake_views import demo_spec
from tests.ui.seed import Seeded
from unifiednn_core.machine import processes

APP = Path(__file__).parents[2] / "app.py"


@pytest.fixture(autouse=True)
def _no_scan_for_components(monkeypatch):
    """Each `AppTest.run` would read the metadata of all installed packages; the pages use no packaged components."""
    monkeypatch.setattr(manifest_scanner, "scan_component_manifests", list)


@pytest.fixture(autouse=True)
def _only_asked_for_keys(monkeypatch):
    """With each widget Streamlit reads the values of all, to see whether its key is among them."""
    whole = SessionState.filtered_state

    class Filtered(Mapping):
        def __init__(self, state):
            self._state = state

        def __contains__(self, key):
            return not is_element_id(key) and key in self._state

        def __getitem__(self, key):
            if key not in self:
                raise KeyError(key)
            return self._state[key]

        def __iter__(self):
            return iter(whole.fget(self._state))

        def __len__(self):
            return len(whole.fget(self._state))

    monkeypatch.setattr(SessionState, "filtered_state", property(Filtered))


@pytest.fixture(autouse=True)
def _no_processes_of_others(monkeypatch):
    """Without a server each page looks at all processes of this machine, whatever they are."""
    monkeypatch.setattr(processes, "_all", tuple)


@pytest.fixture
def service(home, monkeypatch):
    """A real service over seeded runs and files, in the place of the one service of the process."""
    seeded = Seeded(home.create(), monkeypatch)
    st.cache_resource.clear()  # ended runs are read once, and those of another test were others
    monkeypatch.setattr(frame, "service", lambda: seeded)
    monkeypatch.setattr(frame, "RECENT_S", 0.0)  # what is seeded is seen at once
    yield seeded
    seeded.close()


@pytest.fixture(autouse=True)
def said(monkeypatch):
    """What the viewer says to tables of rows, by key: `ticked` stays, `opened` and `sorted` count once."""
    told: dict[str, dict[str, object]] = {}

    def mount(data: Mapping[str, Any], key: str) -> dict[str, object]:
        st.html(data["html"])
        answer = dict(told.get(key, {}))
        for once in ("opened", "sorted"):
            told.get(key, {}).pop(once, None)
        return answer

    monkeypatch.setattr(rows, "mount", mount)
    return told


@pytest.fixture
def open_page(service):
    """Opens a page with query parameters; fails where the page raised anything."""

    def open_page(name: str, **query: str) -> AppTest:
        app = AppTest.from_file(APP, default_timeout=60)
        for key, value in query.items():
            app.query_params[key] = value
        if name != "now":  # which opens by itself
            app.switch_page(f"pages/{name}.py")
        app.run()
        assert not app.exception, [error.value for error in app.exception]
        return app

    return open_page


@pytest.fixture
def upload(service, monkeypatch):
    """Sends a file to an uploader, as its component in the browser does: the page is told once that it is there."""
    arrived: dict[str, str] = {}
    drawn: dict[str, tuple[str, ...]] = {}

    def sent_upload(label: str, suffixes: tuple[str, ...], *, key: str) -> str | None:
        drawn[key] = uploads.KINDS[suffixes]
        return arrived.pop(key, None)

    def upload(app: AppTest, key: str, filename: str, content: bytes) -> None:
        """`key` is how the uploader's key ends."""
        [key] = [known for known in drawn if known.endswith(key)]
        arrived[key] = service.upload(filename, content, drawn[key])
        app.run()
        assert not app.exception, [error.value for error in app.exception]
        assert not arrived

    monkeypatch.setattr(uploads, "sent_upload", sent_upload)
    return upload


@pytest.fixture
def drafted(service):
    """Id of a draft that holds the demo."""
    return service.library.save_draft(demo_spec().model_dump(mode="json", exclude_none=True))
