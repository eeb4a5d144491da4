"""A tick of the page that one just left must not clear the page that one came to."""

from dataclasses import replace

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.browser.conftest import Server, seeded
from tests.ui.fake_views import mid_flight
from unifiednn_core.base.paths import Home

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.fixture
def home(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    return seeded(home, monkeypatch, replace(mid_flight(), heartbeat_age_s=-600.0))


class LateTicks:
    """The connection of a page whose last tick of each fragment arrives when the next page has begun."""

    def __init__(self, page: Page) -> None:
        self.held: dict[str, bytes] = {}
        self.page_hash = ""
        self.late = 0
        page.route_web_socket("**/_stcore/stream", self._connected)

    def _connected(self, client: WebSocketRoute) -> None:
        server = client.connect_to_server()

        def asks(message: str | bytes) -> None:
            if isinstance(message, bytes):
                asked = BackMsg.FromString(message).rerun_script
                if asked.is_auto_rerun:
                    self.held[asked.fragment_id] = message
            server.send(message)

        def answers(message: str | bytes) -> None:
            client.send(message)
            if isinstance(message, bytes):
                told = ForwardMsg.FromString(message)
                if told.WhichOneof("type") == "new_session":
                    page_hash, self.page_hash = self.page_hash, told.new_session.page_script_hash
                    if page_hash and page_hash != self.page_hash:
                        self.late += len(self.held)
                        for tick in self.held.values():
                            server.send(tick)
                        self.held.clear()

        client.on_message(asks)
        server.on_message(answers)


def test_a_late_tick_leaves_the_next_page_whole(server: Server, page: Page) -> None:
    ticks = LateTicks(page)
    page.goto(f"{server.url}/run?run={mid_flight().run_id}")
    expect(page.locator("#submodel-0")).to_be_attached()
    page.wait_for_timeout(2500)  # ticks of every fragment
    before = ticks.late
    page.get_by_role("link", name="Library").click()
    page.wait_for_url("**/library")
    page.wait_for_timeout(2000)
    assert ticks.late > before
    expect(page.get_by_role("heading", name="Library")).to_be_visible()
