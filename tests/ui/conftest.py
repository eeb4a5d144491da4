from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from pages._ui import frame
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
def drafted(service):
    """Id of a draft that holds the demo."""
    return service.save_draft(demo_spec().model_dump(mode="json", exclude_none=True))
