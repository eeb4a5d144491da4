"""What merging saved, in a real browser over real arms: the verdict, the overlaid curves, the strata, the report."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import Server
from tests.browser.test_first_light import wait_for
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import RunSpec

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
EPOCHS = 4
CHARTS = ("loss-epochs", "loss-seconds", "accuracy-epochs", "accuracy-seconds", "memory", "schedule")


def shortened(spec: RunSpec) -> RunSpec:
    parts = [
        part.model_copy(update={"hyperparameters": part.hyperparameters.model_copy(update={"epochs": EPOCHS})})
        for part in spec.submodels
        if part.name != "transformer"  # its LR schedule ends with its epochs
    ]
    return spec.model_copy(update={"submodels": tuple(parts)})


def traces(page: Page, title: str) -> list[str]:
    """Names of the traces of the chart with this title, those of baselines without the sub-model's letter."""
    names: list[str] = page.evaluate(
        "title => [...document.querySelectorAll('.u-cell')]"
        ".filter(cell => cell.querySelector('h3').textContent.startsWith(title))"
        ".flatMap(cell => (cell.querySelector('.js-plotly-plot')?.data ?? []).map(trace => trace.name.split(',')[0]))",
        title,
    )
    return names


def test_the_demo_against_its_baseline_and_the_report_without_a_network(
    server: Server, page: Page, browser: Browser, tmp_path: Path
) -> None:
    service = Service.open(server.home)
    run_id = service.runs.submit(shortened(service.library.prepare_samples()))
    page.goto(f"{server.url}/run?run={run_id}")
    page.get_by_role("button", name="Run concurrent").click()
    expect(page.get_by_text("waits for the device").or_(page.get_by_text("%").first).first).to_be_visible()
    wait_for(page, lambda: len(service.comparisons.comparable(run_id)) == 2, 30)
    wait_for(page, lambda: all(run.state in ENDED for run in service.comparisons.comparable(run_id)), 240)
    assert {run.state for run in service.comparisons.comparable(run_id)} == {State.COMPLETED}

    # The run's page draws the baseline's curves over its own.
    wait_for(page, lambda: "concurrent" in traces(page, "Loss"), 30)
    expect(page.get_by_text("no longer updated")).to_be_visible()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url("**/compare?run=*")

    comparison = service.comparisons.comparison(run_id)
    assert comparison.verdicts["concurrent"].withheld_because is None
    assert comparison.verdicts["concurrent"].identical_weights is True
    expect(page.get_by_text("Weights: identical, every bit of every sub-model.")).to_be_visible()
    expect(page.get_by_text("than concurrent").or_(page.get_by_text("from concurrent")).first).to_be_visible()
    expect(page.get_by_text("There is no sequential baseline").first).to_be_visible()
    page.get_by_role("heading", name="Loss by epoch").scroll_into_view_if_needed()  # charts are drawn in sight
    wait_for(page, lambda: "concurrent" in traces(page, "Loss by epoch"), 90)
    assert "concurrent" in traces(page, "Loss over time")
    page.get_by_role("heading", name="Memory").scroll_into_view_if_needed()
    wait_for(page, lambda: "total" in traces(page, "Memory"), 30)
    memory = traces(page, "Memory")
    assert {"context", "A weights", "B weights", "unexplained", "total", "concurrent"} <= set(memory)

    with page.expect_download() as caught:
        page.get_by_role("link", name="Report").click()
    report = tmp_path / "report.html"
    caught.value.save_as(report)
    opens_without_a_network(browser, report)
    service.close()


def opens_without_a_network(browser: Browser, report: Path) -> None:
    asked: list[str] = []
    troubles: list[str] = []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.abort()

    context = browser.new_context(offline=True)
    page = context.new_page()
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    page.route(lambda url: not url.startswith("file:"), refuse)
    page.goto(report.as_uri())
    expect(page.get_by_text("Weights: identical, every bit of every sub-model.")).to_be_visible()
    expect(page.locator(".js-plotly-plot")).to_have_count(len(CHARTS))
    for place in range(len(CHARTS)):
        chart = page.locator(".u-chart").nth(place)
        assert chart.locator(".main-svg .trace, .main-svg .bars .point").count() > 0, CHARTS[place]
    assert asked == [] and troubles == []
    context.close()
