"""The charts of a live run with many sub-models, in a real browser: chips, axes, one zoom, one cursor, values."""

import json
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import insert

from tests.browser.conftest import Server, seeded
from tests.ui import fake_arms, fake_views
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store import Store
from unifiednn_core.store.schema import StepRow
from unifiednn_core.views.runs import RunView

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(200)]
COUNT, LONG = 12, "x" * 58
NAMES = tuple(f"net{at:02}{LONG}" for at in range(COUNT))
PLOTS = """() => Object.fromEntries([...document.querySelectorAll('.u-cell')].map(cell => {
  const plot = cell.querySelector('.js-plotly-plot');
  const bright = (plot?.data ?? []).filter(t => t.meta.of && t.hoverinfo !== 'skip');
  return [cell.querySelector('h3').textContent, plot && {
    range: plot._fullLayout.xaxis.range.map(Number), type: plot._fullLayout.yaxis.type,
    bright: [...new Set(bright.map(t => t.name.split(' ')[0]))], points: plot.data.map(t => t.x.length),
    height: plot.clientHeight, left: plot._fullLayout._size.l, width: plot._fullLayout._size.w,
  }];
}))"""
COUNTED = """() => {
  const was = Plotly.react;
  window.redrawn = new Set();
  Plotly.react = (node, ...more) => (window.redrawn.add(node.getAttribute('aria-label')), was(node, ...more));
}"""


def live() -> RunView:
    """A run that trains, whose beat stays fresh however long the page takes."""
    parts = tuple(fake_views.submodel(at, name, 4, State.RUNNING) for at, name in enumerate(NAMES))
    failed = replace(parts[2], state=State.FAILED, cause="The loss is nan at step 46.")
    view = fake_views.run("r-charts", State.RUNNING, (*parts[:2], failed, *parts[3:]), heartbeat_age_s=-600.0)
    return replace(view, launched_at_s=fake_views.START_S, breakdown=fake_arms.breakdown(NAMES))


@pytest.fixture
def home(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    return seeded(home, monkeypatch, live())


def test_chips_axes_zoom_cursor_and_values_of_a_live_run(server: Server, page: Page) -> None:
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(f"{server.url}/run?run=r-charts")
    chips = page.get_by_role("group", name="Sub-models in the charts").get_by_role("button")
    expect(chips).to_have_count(COUNT, timeout=60_000)
    page.set_viewport_size({"width": 1440, "height": 1600})

    def plots() -> dict[str, Any]:
        page.wait_for_function("() => document.querySelectorAll('.js-plotly-plot').length === 4")
        return dict(page.evaluate(PLOTS))

    def becomes(true: str, argument: object = None) -> None:
        page.wait_for_function(f"(given) => {{ const plots = ({PLOTS})(); return {true}; }}", arg=argument)

    first = plots()
    assert set(first) == {"Loss", "Accuracy", "Schedule", "Memory"}
    assert {first[name]["height"] for name in ("Loss", "Accuracy")} == {250}, "names take no room in the chart"
    assert {first["Schedule"][side] - first["Memory"][side] for side in ("left", "width")} == {0}
    assert all(width <= 260 for width in chips.evaluate_all("chips => chips.map(chip => chip.clientWidth)"))

    # One alone, by mouse and by keyboard; another away; back.
    chips.nth(1).click()
    expect(chips.nth(1)).to_have_attribute("aria-pressed", "true")
    for title in ("Loss", "Accuracy", "Schedule"):
        becomes("plots[given].bright.join() === 'B'", title)
    chips.nth(1).press("Enter")
    becomes("plots.Loss.bright.length === 12")
    chips.nth(0).click(modifiers=["Shift"])
    becomes("plots.Loss.bright.length === 11 && !plots.Schedule.bright.includes('A')")
    chips.nth(0).press("h")
    becomes("plots.Loss.bright.length === 12")
    page.get_by_role("searchbox").press_sequentially("net07")
    assert [chip.text_content() for chip in chips.all() if chip.is_visible()] == [f"H {NAMES[7]}"]
    page.get_by_role("searchbox").fill("")

    # The zoom of one chart is that of all charts of its axis, outlasts new data, and ends with one click.
    page.get_by_role("combobox", name="Over").select_option("seconds")
    becomes("plots.Loss.range[1] > 20 && plots.Accuracy.range[1] > 20")
    plot = page.locator(".u-chart").first
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 120)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 121, steps=5)
    page.mouse.up()
    becomes("new Set(Object.values(plots).map(plot => plot.range.join())).size === 1")
    zoomed = plots()["Loss"]["range"]
    shown = plots()["Loss"]["points"]
    page.evaluate("window.first = document.querySelector('.js-plotly-plot')")
    page.evaluate(COUNTED)
    train(server.home, 5)
    becomes("plots.Loss.points.join() !== given.join()", shown)
    assert page.evaluate("window.first === document.querySelector('.js-plotly-plot')")
    page.wait_for_timeout(1500)
    assert set(page.evaluate("[...window.redrawn]")) == {"Loss of each sub-model", "Accuracy of each sub-model"}
    assert plots()["Loss"]["range"] == pytest.approx(zoomed) == plots()["Memory"]["range"]
    page.mouse.move(box["x"] + 300, box["y"] + 100)
    expect(page.locator(".u-cursor:not([hidden])")).to_have_count(3)
    page.get_by_role("button", name="zoomed · reset").click()
    becomes("plots.Loss.range[0] < 3 && plots.Memory.range[0] === 0")
    expect(page.get_by_role("button", name="zoomed · reset")).to_be_hidden()

    # What is behind a chart, for everyone.
    page.get_by_role("button", name="Values: Loss").click()
    table = page.get_by_role("dialog").get_by_role("table")
    expect(table.get_by_role("columnheader")).to_have_text(["curve", "seconds since the launch", "value"])
    assert table.get_by_role("row").count() > 100
    page.get_by_role("button", name="Close").click()

    # Choices are kept for the run, in this browser.
    page.get_by_role("combobox", name="Scale").select_option("log")
    page.get_by_label("Smoothing").fill("0.8")
    page.get_by_label("Without context").check()
    becomes("plots.Loss.type === 'log' && plots.Accuracy.type === 'linear'")
    page.reload()
    expect(page.get_by_role("combobox", name="Over")).to_have_value("seconds")
    becomes("plots.Loss?.type === 'log'")
    assert page.get_by_label("Without context").is_checked()
    curves_are_transformed_truly(page)
    assert troubles == []


def train(home: Home, steps: int) -> None:
    """More steps of the first sub-model."""
    store = Store.open(home, Clock())
    columns = {"run_id": "r-charts", "submodel": NAMES[0], "attempt": 1, "steps": 1, "loss": 0.5, "accuracy": 0.5}
    per_epoch = fake_views.STEPS_PER_EPOCH
    done = 4 * per_epoch
    rows = [columns | {"step": at, "epoch": at / per_epoch} for at in range(done + 1, done + 1 + steps)]
    with store._database.write() as session:
        session.execute(insert(StepRow), rows)
    store.close()


def curves_are_transformed_truly(page: Page) -> None:
    """The pure functions of the page's script, over many curves."""
    found = page.evaluate(
        """() => {
          const failed = [], check = (true_, what) => true_ || failed.push(what);
          for (let seed = 1; seed <= 50; seed++) {
            const noise = (at) => Math.sin(seed * 12.9898 + at * 78.233) * 2;
            const x = Float64Array.from({length: 60}, (_, at) => at + Math.abs(noise(at)) / 3);
            const y = x.map((_, at) => noise(at)), gap = y.map((value, at) => at === 9 ? NaN : value);
            const soft = smoothed(x, y, 0.9), flat = smoothed(x, x.map(() => 7), 0.9), holed = smoothed(x, gap, 0.9);
            check(Math.max(...soft) <= Math.max(...y) && Math.min(...soft) >= Math.min(...y), 'within the raw values');
            check(flat.every(value => Math.abs(value - 7) < 1e-9), 'a constant stays');
            const lifted = {x, y: x.map((_, at) => at ? 1 : 1e6)}, calm = smoothedCurve(lifted, 0.9, true).y;
            check(calm[30] < smoothedCurve(lifted, 0.9, false).y[30] && calm[0] > 9e5, 'exponents are smoothed');
            check(soft[0] === y[0], 'the first value stays');
            check(Number.isNaN(holed[9]) && Number.isFinite(holed[10]), 'a gap stays a gap');
            const values = Array.from(y, Math.abs).sort((a, b) => a - b), wide = [values[0] || 1, ...values, 1e6];
            const chart = {log: true}, auto = {scale: 'auto'};
            check(!isLog(chart, [1, 2, 99], auto) && isLog(chart, [1, 101], auto), 'log from a hundredfold');
            check(!isLog(chart, [-1, ...wide], auto) && !isLog({}, wide, auto), 'no log of what is not positive');
            check(isLog(chart, [1, 2], {scale: 'log'}) && !isLog(chart, wide, {scale: 'linear'}), 'as chosen');
          }
          check(decades(undefined, [-1, 0.0005, 2]) === 4 && decades([0.1, 0.9], [0.0005, 2]) === 0, 'powers of ten');
          check(csvOf(['a'], [['=1+1'], ['x,y'], ['q"q']]) === 'a\\n\\'=1+1\\n"x,y"\\n"q""q"', 'no formula in a CSV');
          check(decoded({dtype: 'f4', bdata: btoa(String.fromCharCode(0, 0, 128, 63))})[0] === 1, 'packed values');
          return failed;
        }"""
    )
    assert found == [], json.dumps(found)
