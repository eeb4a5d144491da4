"""Takes the pictures of the documentation from the real dashboard: `python -m tests.browser.screenshots [FOLDER]`."""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.conftest import ARGUMENTS, CHROMIUM, ROOT, Server, free_port
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.spec.run import BASELINES, RunSpec, parse_run

IMAGES = ROOT / "docs" / "images"
SHOWN_PROGRESS, SHOWN_SHARED = 0.62, 0.1
DESK, PHONE = (1440, 1140), (390, 844)
PATIENCE_S = 900


def main(folder: Path) -> None:
    """Take the pictures of the demo in training, of its comparison, and of the queue with its networks in a hybrid."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        server = Server(Home(Path(home)).create(), free_port())
        server.start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        service = Service.open(server.home)
        try:
            run_id = service.runs.submit(service.library.prepare_samples(), baselines=BASELINES, baselines_first=True)
            opened(browser, server.url)  # whoever opens the dashboard first starts its supervisor
            wait(lambda: service.runs.observe(run_id).progress >= SHOWN_PROGRESS)
            for scheme in ("light", "dark"):
                shoot(opened(browser, f"{server.url}/run?run={run_id}", scheme), folder / name("run", scheme))
            wait(lambda: all(run.state in ENDED for run in service.comparisons.comparable(run_id)))
            address = f"{server.url}/compare?run={run_id}"
            for scheme in ("light", "dark"):
                page = opened(browser, address, scheme)
                shoot(page, folder / name("compare", scheme), whole=True)
            shoot(opened(browser, address, "light", PHONE), folder / "compare-phone.png", whole=True)
            shoot(
                opened(browser, f"{server.url}/run?run={run_id}", "light", PHONE), folder / "run-phone.png", whole=True
            )
            shared = submit_shared(service, run_id)
            wait(lambda: any(service.runs.observe(one).progress >= SHOWN_SHARED for one in shared))
            for scheme in ("light", "dark"):
                page = opened(browser, f"{server.url}/queue", scheme)
                shoot(page, folder / name("queue", scheme), of="st-key-rows-devices")
            for one in shared:
                service.runs.discard(one)
            wait(lambda: all(service.runs.observe(one).state in ENDED for one in shared))  # workers outlive the server
        finally:
            service.close()
            browser.close()
            server.kill()


def submit_shared(service: Service, run_id: str) -> list[str]:
    """Submit each network of a run by itself, for a longer training."""
    spec = parse_run(service.runs.spec_document(run_id))
    longer = {"epochs": 600, "lr_scheduler": None}
    parts = [
        part.model_copy(update={"hyperparameters": part.hyperparameters.model_copy(update=longer), "priority": 0})
        for part in spec.submodels
    ]
    return [service.runs.submit(RunSpec(name=part.name, hybrid="shared", submodels=(part,))) for part in parts]


def name(what: str, scheme: str) -> str:
    """Name of a picture."""
    return f"{what}.png" if scheme == "light" else f"{what}-{scheme}.png"


def wait(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            sys.exit(f"Nothing to take a picture of after {PATIENCE_S} s.")
        time.sleep(0.2)


def opened(browser: Browser, url: str, scheme: str = "light", size: tuple[int, int] = DESK) -> Page:
    """A page in a browser of its own."""
    viewport = {"width": size[0], "height": size[1]}
    page = browser.new_context(viewport=viewport, color_scheme=scheme).new_page()  # type: ignore[arg-type]
    page.goto(url)
    return page


def shoot(page: Page, path: Path, *, whole: bool = False, of: str = "js-plotly-plot") -> None:
    """Take the picture of what is in view, or of the whole page, once an element of the class `of` is drawn."""
    expect(page.locator(f".{of}").first).to_be_visible(timeout=30_000)
    page.wait_for_timeout(2000)
    if whole:
        height = page.evaluate("document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight")
        width = page.viewport_size["width"] if page.viewport_size else DESK[0]
        page.set_viewport_size({"width": width, "height": int(height)})
        page.wait_for_timeout(1000)
    page.screenshot(path=path)
    page.context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
