from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from pages._ui import frame, uploads
from tests.ui.fake_service import FakeService
from tests.ui.fake_views import demo_spec

APP = Path(__file__).parents[2] / "app.py"


@pytest.fixture
def service(monkeypatch):
    """The fake, in the place of the one service of the process."""
    fake = FakeService()
    st.cache_resource.clear()  # runs that have ended are read once, and those of another test were others
    monkeypatch.setattr(frame, "service", lambda: fake)
    return fake


@pytest.fixture
def open_page(service):
    """Opens a page with query parameters; fails where the page raised anything."""

    def open_page(name: str, **query: str) -> AppTest:
        app = AppTest.from_file(APP, default_timeout=60).run()
        for key, value in query.items():
            app.query_params[key] = value
        app.switch_page(f"pages/{name}.py").run()
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
        service.sent["u-1"] = (filename, content, drawn[key])
        arrived[key] = "u-1"
        app.run()
        assert not app.exception, [error.value for error in app.exception]
        assert not arrived
        assert not service.sent or service.failing

    monkeypatch.setattr(uploads, "sent_upload", sent_upload)
    return upload


@pytest.fixture
def drafted(service):
    """Id of a draft that holds the demo."""
    return service.save_draft(demo_spec().model_dump(mode="json", exclude_none=True))
