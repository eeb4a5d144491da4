"""Takes the pictures of the documentation from the real dashboard: `python -m tests.browser.screenshots [FOLDER]`.

It trains the demo with its baselines once, which takes about two minutes on two idle cores.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.conftest import ARGUMENTS, CHROMIUM, ROOT, Server, free_port
from tests.browser.gallery import settled
from tests.browser.reel import Reel
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.spec.run import RunSpec, parse_run
from unifiednn_core.views.runs import RunView

IMAGES = ROOT / "docs" / "images"
SHOWN_PROGRESS, SHOWN_SHARED = 0.45, 0.1
DESK, PHONE = (1440, 1140), (390, 844)
PATIENCE_S = 600
MOST_HEIGHT = 2200


def main(folder: Path) -> None:
    """Take the film of the demo, and the pictures of every page."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        server = Server(Home(Path(home)).create(), free_port())
        server.start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        service = Service.open(server.home)
        try:
            run_id = film(browser, server, service, folder)
            pages_of(browser, server, service, run_id, folder)
        finally:
            service.close()
            browser.close()
            server.kill()


def film(browser: Browser, server: Server, service: Service, folder: Path) -> str:
    """Click the demo, watch it to its verdict, and take the pictures of what lives; returns the id of its run."""
    page = browser.new_context(viewport={"width": Reel.WIDTH, "height": Reel.HEIGHT}).new_page()
    page.goto(server.url)
    button = page.get_by_role("button", name="Try the demo").first
    expect(button).to_be_visible(timeout=60_000)
    settled(page)
    reel = Reel(page)
    reel.keep(1400)
    reel.keep(700, on=button)
    button.click()
    page.wait_for_timeout(400)
    reel.keep(700)
    page.wait_for_url("**/run*", timeout=60_000)
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=60_000)
    [hybrid] = [run for run in service.runs.runs() if run.mode == "hybrid"]
    shown = False

    def trained() -> RunView:
        return service.runs.observe(hybrid.run_id)

    while not any(part.artifact for part in trained().submodels) and trained().state not in ENDED:
        reel.take()
        page.wait_for_timeout(300)
        if not shown and trained().progress >= SHOWN_PROGRESS:
            live_pages(browser, server, hybrid.run_id, folder)
            shown = True
    reel.thin(to=16, each_ms=220)
    if not shown:
        live_pages(browser, server, hybrid.run_id, folder)
    link = page.get_by_role("link", name="Download").last
    expect(link).to_be_visible(timeout=30_000)
    link.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    reel.keep(800)
    reel.keep(1200, on=link)
    equal = service.comparisons.comparable
    wait(lambda: trained().state in ENDED and all(run.state in ENDED for run in equal(hybrid.run_id)))
    page.reload()
    verdict = page.locator(".u-card").first
    expect(verdict).to_be_visible(timeout=60_000)
    settled(page)
    reel.keep(3200)
    reel.write(folder / "demo.gif")
    page.context.close()
    return hybrid.run_id


def live_pages(browser: Browser, server: Server, run_id: str, folder: Path) -> None:
    """The pages that show what trains now."""
    shoot(opened(browser, server.url), folder / "now.png", of="u-mini")
    for scheme in ("light", "dark"):
        picture = "run.png" if scheme == "light" else "run-dark.png"
        shoot(opened(browser, f"{server.url}/run?run={run_id}", scheme), folder / picture)


def pages_of(browser: Browser, server: Server, service: Service, run_id: str, folder: Path) -> None:
    """The pages of what has ended, of drafts and of the library, and the queue with a hybrid that people share."""
    run, names = f"run?run={run_id}", [part.name for part in service.runs.observe(run_id).submodels]
    draft = service.library.clone_run(run_id)
    shared = submit_shared(service, run_id)
    one = service.library.clone_run(shared[0])
    wait(lambda: any(service.runs.observe(other).progress >= SHOWN_SHARED for other in shared))
    shoot(opened(browser, f"{server.url}/queue"), folder / "queue.png", of="st-key-rows-devices")
    for other in shared:
        service.runs.discard(other)
    sides = ",".join(f"{run_id}/{name}" for name in names)
    shoot(opened(browser, f"{server.url}/{run}", "light", PHONE), folder / "run-phone.png", whole=True)
    for path, picture, of in (
        (f"submit?draft={one}", "submit", "u-up-zone, .stButton"),
        (f"build?draft={draft}", "build", "u-gantt"),
        (f"compare?run={run_id}", "compare", "js-plotly-plot"),
        (f"compare?runs={sides}", "side-by-side", "js-plotly-plot"),
        ("library", "library", "u-lines"),
        ("people", "admin", "u-title"),
    ):
        shoot(opened(browser, f"{server.url}/{path}"), folder / f"{picture}.png", whole=True, of=of)
    page = opened(browser, f"{server.url}/api/v1")
    page.screenshot(path=folder / "api.png")
    small(folder / "api.png")
    wait(lambda: all(service.runs.observe(other).state in ENDED for other in shared))  # workers outlive the server


def submit_shared(service: Service, run_id: str) -> list[str]:
    """Submit each network of a run by itself, for a longer training."""
    spec = parse_run(service.runs.spec_document(run_id))
    longer = {"epochs": 600, "lr_scheduler": None}
    parts = [
        part.model_copy(update={"hyperparameters": part.hyperparameters.model_copy(update=longer), "priority": 0})
        for part in spec.submodels
    ]
    return [service.runs.submit(RunSpec(name=part.name, hybrid="shared", submodels=(part,))) for part in parts]


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
    expect(page.locator(f".{of}").first).to_be_visible(timeout=60_000)
    settled(page)
    page.wait_for_timeout(900)
    if whole:
        for _ in range(2):  # charts are drawn when they come into view
            height = page.evaluate("document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight")
            width = page.viewport_size["width"] if page.viewport_size else DESK[0]
            page.set_viewport_size({"width": width, "height": min(int(height), MOST_HEIGHT)})
            page.wait_for_timeout(800)
    page.screenshot(path=path)
    small(path)
    page.context.close()


def small(path: Path) -> None:
    """Write a picture again with a palette, which makes it a third as large."""
    with Image.open(path) as picture:
        flat = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    flat.save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
