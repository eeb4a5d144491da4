"""What merging saved, in a real browser: the verdict, the overlaid curves, the strata, the report."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import Server, seeded
from tests.browser.test_first_light import wait_for
from tests.ui import fake_arms
from unifiednn_core.base.paths import Home

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(200)]
CHARTS = ("loss-epochs", "loss-seconds", "accuracy-epochs", "accuracy-seconds", "memory", "schedule")


@pytest.fixture
def home(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A hybrid that has ended, and its baseline."""
    return seeded(home, monkeypatch, fake_arms.hybrid(), fake_arms.baseline("concurrent"))


def traces(page: Page, title: str) -> list[str]:
    """Names of the traces of the chart with this title, those of baselines without the sub-model's letter."""
    names: list[str] = page.evaluate(
        "title => [...document.querySelectorAll('.u-cell')]"
        ".filter(cell => cell.querySelector('h3').textContent.startsWith(title))"
        ".flatMap(cell => (cell.querySelector('.js-plotly-plot')?.data ?? []).map(trace => trace.name.split(',')[0]))",
        title,
    )
    return names


def test_the_verdict_with_its_curves_and_the_report_without_a_network(
    server: Server, page: Page, browser: Browser, tmp_path: Path
) -> None:
    page.goto(f"{server.url}/run?run=r-hybrid")
    wait_for(page, lambda: "concurrent" in traces(page, "Loss"), 30)  # drawn over its own curves
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url("**/compare?run=*")
    expect(page.get_by_text("Weights: identical, every bit of every sub-model.")).to_be_visible()
    expect(page.get_by_text("51 % less memory than concurrent").first).to_be_visible()
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
