from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages._ui import frame
from tests.ui.fake_service import FakeService

APP = Path(__file__).parents[2] / "app.py"


@pytest.fixture
def service(monkeypatch):
    """The fake, in the place of the one service of the process."""
    fake = FakeService()
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
