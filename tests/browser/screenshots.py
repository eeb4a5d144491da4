"""Takes the pictures of the documentation from the real dashboard: `python -m tests.browser.screenshots [FOLDER]`.

It trains the demo with its baselines twice, for the film and for the figures, which takes about four minutes on two
idle cores. On a busy machine it refuses, because the pictures would say so; `--busy` takes them all the same.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.conftest import ARGUMENTS, CHROMIUM, ROOT, Server
from tests.browser.reel import Reel, settled
from tests.ports import free_port
from tests.waiting import wait_until
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.spec.run import BASELINES, RunSpec, parse_run
from unifiednn_core.views.runs import RunView

IMAGES = ROOT / "docs" / "images"
SHOWN_PROGRESS, SHOWN_SHARED = 0.45, 0.03
WIDTH, HEIGHT = 1440, 1140
BUSY, LOOKED_S = 0.1, 5.0
"""Share of the processors that other programs may use, and how long they are watched."""
TICK_MS = 1500
"""So long after a change of the window every chart of a live page has been drawn anew."""
MOST_BYTES = 400_000
"""A larger picture gets a palette: the repository keeps every version."""
NO_TOOLS = ".modebar-container { display: none !important; }"


def main(folder: Path, *, even_if_busy: bool = False) -> None:
    """Take the film of the demo, and the pictures of pages."""
    share = psutil.cpu_percent(interval=LOOKED_S) / 100
    if share > BUSY and not even_if_busy:
        sys.exit(f"Other programs use {share:.0%} of the processors. Take the pictures later, or with --busy.")
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            with served() as (server, service):
                film(browser, server, service, folder)
            with served() as (server, service):
                pages_of(browser, server, service, trained_unwatched(browser, server, service), folder)
        finally:
            browser.close()


@contextmanager
def served() -> Iterator[tuple[Server, Service]]:
    """A server with a home of its own."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Home(Path(folder)).create(), free_port())
        server.start()
        service = Service.open(server.home)
        try:
            yield server, service
        finally:
            service.close()
            server.kill()


def trained_unwatched(browser: Browser, server: Server, service: Service) -> str:
    """Train the demo and its baselines while no browser takes time from them; returns the id of the hybrid."""
    page = opened(browser, server.url)  # the first visit starts what trains
    expect(page.get_by_role("button", name="Try the demo").first).to_be_visible(timeout=60_000)
    wait(lambda: bool(service.devices.devices()))
    page.context.close()
    run_id = service.runs.submit(service.library.prepare_samples(), baselines=BASELINES)
    wait(lambda: all(run.state in ENDED for run in service.runs.runs()))
    share = service.runs.observe(run_id).others_share or 0.0
    if share > BUSY:
        told(f"Other programs used {share:.0%} of the processors while the demo trained: take the pictures again.")
    return run_id


def film(browser: Browser, server: Server, service: Service, folder: Path) -> None:
    """Click the demo, watch it to its verdict, and take the picture of its page."""
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
    shown, address = False, f"{server.url}/run?run={hybrid.run_id}"

    def trained() -> RunView:
        return service.runs.observe(hybrid.run_id)

    def filmed() -> bool:
        nonlocal shown
        reel.take()
        page.wait_for_timeout(200)
        if not shown and trained().progress >= SHOWN_PROGRESS:
            shoot(opened(browser, address), folder / "run.png")
            shown = True
        return any(part.artifact for part in trained().submodels) or trained().state in ENDED

    wait(filmed)
    reel.thin(to=16, each_ms=220)
    if not shown:
        shoot(opened(browser, address), folder / "run.png")
    link = page.locator(".st-key-rows-submodels a.u-download").first
    expect(link).to_be_attached(timeout=30_000)
    link.evaluate("link => link.scrollIntoView({block: 'center'})")  # without waiting: the row is drawn each second
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


def pages_of(browser: Browser, server: Server, service: Service, run_id: str, folder: Path) -> None:
    """The page of a draft with its check, the queue with a hybrid that people share, and a verdict."""
    page = opened(browser, f"{server.url}/build?draft={service.library.clone_run(run_id)}")
    page.get_by_role("button", name="Check", exact=True).click()
    policies = page.get_by_role("region", name="Finish and figures under each policy")
    expect(policies).not_to_contain_text("not available", timeout=120_000)  # peaks are known once it is checked
    shoot(page, folder / "build.png", of="u-gantt")
    shared = submit_shared(service, run_id)
    wait(lambda: any(service.runs.observe(other).progress >= SHOWN_SHARED for other in shared))
    spec = parse_run(service.runs.spec_document(run_id))
    behind = [service.runs.submit(spec.model_copy(update={"name": name})) for name in ("night run", "second try")]
    wait(lambda: len(service.queue.line()) == len(behind))
    shoot(opened(browser, f"{server.url}/queue"), folder / "queue.png", of="st-key-rows-line")
    for other in (*behind, *shared):
        service.runs.discard(other)
    shoot(opened(browser, f"{server.url}/compare?run={run_id}"), folder / "compare.png", of="u-board")
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
    wait_until(done, patience_s=600)


def opened(browser: Browser, url: str) -> Page:
    """A page in a browser of its own."""
    page = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light").new_page()
    page.goto(url)
    return page


def shoot(page: Page, path: Path, *, of: str = "js-plotly-plot") -> None:
    """Take the picture of the whole page, once an element of the class `of` is drawn."""
    expect(page.locator(f".{of}").first).to_be_visible(timeout=60_000)
    settled(page)
    for _ in range(2):  # charts are drawn when they come into view
        height = page.evaluate("document.querySelector('[data-testid=stMainBlockContainer]')?.scrollHeight ?? 0")
        page.set_viewport_size({"width": WIDTH, "height": max(int(height) + 20, HEIGHT)})
        page.wait_for_timeout(TICK_MS)
    page.screenshot(path=path, style=NO_TOOLS)
    small(path)
    page.context.close()


def small(path: Path) -> None:
    """Write a picture again as small as it gets with all of its colours, or with few of them if it is large."""
    with Image.open(path) as picture:
        plain = picture.convert("RGB")
    plain.save(path, optimize=True)
    if path.stat().st_size > MOST_BYTES:
        plain.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


def told(words: str) -> None:
    """Say what is wrong with the pictures."""
    sys.stderr.write(f"\n*** {words}\n\n")


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != "--busy"]
    main(Path(names[0]) if names else IMAGES, even_if_busy="--busy" in sys.argv)
