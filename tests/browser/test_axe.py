"""No page has a serious fault for people who read it otherwise, while it is live: axe-core, dark desk, light phone."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Server
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(300)]
SERIOUS = {"serious", "critical"}
LOOKS = {"desk": ({"width": 1280, "height": 800}, "dark"), "phone": ({"width": 390, "height": 844}, "light")}


@pytest.fixture
def live(server: Server) -> Iterator[dict[str, str]]:
    """Addresses of all pages, of which a run trains for longer than the test and another has ended."""
    service = Service.open(server.home)
    demo = service.library.prepare_samples()
    [part] = demo.submodels[:1]
    short, endless = (
        demo.model_copy(update={"name": name, "submodels": (part.model_copy(update={"hyperparameters": hyper}),)})
        for name, hyper in (
            (name, part.hyperparameters.model_copy(update={"epochs": epochs, "lr_scheduler": None}))
            for name, epochs in (("ended", 1), ("endless", 100_000))
        )
    )
    ended, running = service.runs.submit(short), service.runs.submit(endless)
    yield {
        "now": "",
        "queue": "queue",
        "submit": "submit",
        "build": "build",
        "library": "library",
        "runs": "run",
        "live run": f"run?run={running}",
        "ended run": f"run?run={ended}",
        "compare": "compare",
        "comparison": f"compare?run={ended}",
        "side by side": f"compare?runs={ended},{ended}/{part.name}",
    }
    service.runs.discard(running)
    service.close()


@pytest.mark.parametrize("look", ["desk", "phone"])
def test_no_page_has_a_serious_fault(look: str, live: dict[str, str], server: Server, browser: Browser) -> None:
    viewport, scheme = LOOKS[look]
    page = browser.new_context(viewport=viewport, color_scheme=scheme).new_page()  # type: ignore[arg-type]
    page.goto(server.url)  # the first visitor starts the supervisor
    service = Service.open(server.home)
    faults = []
    for name, path in live.items():
        if "run" in name or "compar" in name or "side" in name:
            _until_training(page, service)
        page.goto(f"{server.url}/{path}")
        expect(page.locator("h1").first).to_be_visible(timeout=60_000)
        page.wait_for_timeout(1500)  # the live part is drawn after the title
        found = Axe().run(page).response["violations"]
        faults += [
            f"{name}: {fault['id']} {[node['html'][:160] for node in fault['nodes'][:3]]}"
            for fault in found
            if fault["impact"] in SERIOUS
        ]
    service.close()
    assert faults == []


def _until_training(page: Page, service: Service) -> None:
    for _ in range(600):
        states = [run.state for run in service.runs.runs()]
        if State.RUNNING in states and any(state in ENDED for state in states):
            return
        page.wait_for_timeout(100)
    pytest.fail("the runs did not start")
