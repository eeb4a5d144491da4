"""Takes the pictures of the documentation from the real dashboard: `python -m tests.browser.screenshots`."""

import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.conftest import ARGUMENTS, CHROMIUM, ROOT, Server, free_port
from unifiednn_core.home import Home
from unifiednn_core.service import Service

IMAGES = ROOT / "docs" / "images"
SHOWN_PROGRESS = 0.62


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = Server(Home(Path(folder)).create(), free_port())
        server.start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            page = browser.new_context(viewport={"width": 1440, "height": 960}).new_page()
            page.goto(server.url)
            page.get_by_role("button", name="Try the demo").first.click()
            page.wait_for_url("**/run?run=*", timeout=60_000)
            service = Service.open(server.home)
            [run] = service.runs()
            while service.observe(run.run_id).progress < SHOWN_PROGRESS:
                time.sleep(0.2)
            page.wait_for_timeout(1500)
            shoot(page, "run")
            dark = browser.new_context(viewport={"width": 1440, "height": 960}, color_scheme="dark").new_page()
            dark.goto(page.url)
            expect(dark.locator(".js-plotly-plot").first).to_be_visible(timeout=30_000)
            dark.wait_for_timeout(1500)
            shoot(dark, "run-dark")
            service.stop(run.run_id)
            service.close()
        finally:
            browser.close()
            server.kill()


def shoot(page: Page, name: str) -> None:
    page.screenshot(path=IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
