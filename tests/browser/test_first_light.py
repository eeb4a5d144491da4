"""What a person does who has just cloned the repository, in a real browser over a real server and worker."""

import contextlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server
from tests.integration.clean import accuracies_in_a_clean_process
from tests.waiting import wait_until
from unifiednn_core.base.errors import IllegalTransition
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.views.runs import RunView

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.new_interpreters, pytest.mark.timeout(400)]
NAMES = ("lenet", "resnet", "transformer")

SAMPLES = Path(__file__).parents[2] / "sample_models"
MORE_EPOCHS = 3
CHANCE = 0.2
"""Well above a guess among ten digits."""


def only_hybrid(service: Service) -> RunView:
    """The hybrid of the demo; its baselines wait behind it."""
    [run] = [run for run in service.runs.runs() if run.mode == "hybrid"]
    return run


def start_demo(page: Page, server: Server) -> None:
    page.goto(server.url)
    page.get_by_role("button", name="Try the demo").first.click()
    page.wait_for_url("**/run*", timeout=60_000)
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=60_000)


def wait_for(page: Page, done: Callable[[], object], patience_s: float) -> None:
    """Wait while the page goes on."""
    shown = page.locator("[data-testid=stMain]").inner_text
    wait_until(done, patience_s=patience_s, pause=lambda each_s: page.wait_for_timeout(1000 * each_s), told=shown)


def points(page: Page, chart: int = 0) -> int:
    """Number of points that a chart shows now; none while it is not there."""
    count: int = page.evaluate(
        "i => (document.querySelectorAll('.js-plotly-plot')[i]?._fullData ?? [])"
        ".reduce((n, t) => n + (t.x?.length ?? 0), 0)",
        chart,
    )
    return count


def test_the_demo_from_click_to_download(server: Server, page: Page, tmp_path: Path) -> None:
    start_demo(page, server)
    service = Service.open(server.home)
    run_id = only_hybrid(service).run_id
    with contextlib.suppress(IllegalTransition):  # on a quick machine it has ended, and the others train on
        service.runs.set_epochs(run_id, NAMES[0], 100_000)  # it outlasts a slow browser, at 50 epochs a second

    # Charts move without a reload, on the same node, and keep the zoom of the user.
    page.evaluate("window.neverReloaded = true")
    page.evaluate("window.firstChart = document.querySelector('.js-plotly-plot')")
    wait_for(page, lambda: points(page) > 20, 60)
    page.evaluate("Plotly.relayout(window.firstChart, {'xaxis.range': [0, 1.5]})")
    before = points(page)
    wait_for(page, lambda: points(page) > before, 30)
    assert page.evaluate("window.neverReloaded") is True
    assert page.evaluate("document.querySelector('.js-plotly-plot') === window.firstChart")
    assert page.evaluate("window.firstChart.layout.xaxis.range") == [0, 1.5]

    # Each model downloads when it is done, while the others still train. A few epochs are enough to see that.
    with contextlib.suppress(IllegalTransition):
        service.runs.set_epochs(run_id, NAMES[0], service.runs.observe(run_id).submodels[0].epochs_done + MORE_EPOCHS)
    promised = list[float]()
    for done, name in enumerate(NAMES):
        link = page.get_by_role("link", name=f"Download {name}").first
        expect(link).to_be_visible(timeout=180_000)
        with page.expect_download() as caught:
            link.click()
        archive = tmp_path / f"{name}.zip"
        caught.value.save_as(archive)
        view = service.runs.observe(run_id)
        part = next(part for part in view.submodels if part.name == name)
        assert part.state is State.COMPLETED
        if done == 0:
            assert any(other.state not in ENDED for other in view.submodels)
            for other in view.submodels[1:]:
                with contextlib.suppress(IllegalTransition):  # it has ended meanwhile
                    epochs = min(other.epochs, other.epochs_done + MORE_EPOCHS)
                    service.runs.set_epochs(run_id, other.name, epochs)
        assert part.test_accuracy is not None and part.test_accuracy > CHANCE
        with zipfile.ZipFile(archive) as file:
            file.extractall(tmp_path / name)
        # The page says what the file does, below in a process that knows torch alone.
        shown = f"{100 * part.test_accuracy:.1f} %"
        expect(page.get_by_text(shown).first).to_be_visible()
        promised.append(part.test_accuracy)
    wait_for(page, lambda: service.runs.observe(run_id).state is State.COMPLETED, 30)
    service.close()
    page.close()  # a page that is drawn costs more than what comes now
    data = (folder / "digits_test.pt" for folder in (SAMPLES, server.home.samples))
    test_data = next(path for path in data if path.exists())
    assert accuracies_in_a_clean_process([tmp_path / name for name in NAMES], test_data) == promised
