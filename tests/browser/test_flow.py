"""All that a person does with a hybrid, from the files to the verified models, by keyboard alone.

Requests to any other machine are stopped, and there must be none.
"""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Server
from tests.browser.hands import Keyboard, focused
from tests.browser.test_first_light import points, wait_for
from tests.integration.clean import accuracies_in_a_clean_process
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(400)]
PATIENCE_MS = 30_000
NAMES = ("small", "wide")
EPOCHS = 2000
"""They outlast the way of a keyboard to the button that pauses."""
EDITOR, POPOVER, DIALOG = ".st-key-editor", "[data-testid=stPopoverBody]", "[role=dialog]"


def own_files(folder: Path) -> None:
    """Two networks, and data to train and to test them with."""
    generator = torch.Generator().manual_seed(0)
    for width, name in enumerate(NAMES, start=1):
        layers = [torch.nn.Flatten(), torch.nn.Linear(16, 8 * width), torch.nn.ReLU(), torch.nn.Linear(8 * width, 4)]
        torch.save(torch.nn.Sequential(*layers), folder / f"{name}.pt")
    for part, samples in (("train", 64), ("test", 16)):
        inputs = torch.rand(samples, 1, 4, 4, generator=generator)
        torch.save({"inputs": inputs, "targets": torch.arange(samples) % 4}, folder / f"own_{part}.pt")


def test_the_whole_flow(server: Server, page: Page, tmp_path: Path) -> None:
    own_files(tmp_path)
    hand = Keyboard(page)
    foreign: list[str] = []

    def stop_foreign(route: Route) -> None:
        if route.request.url.startswith(server.url):
            route.continue_()
        else:
            foreign.append(route.request.url)
            route.abort()

    page.route("**/*", stop_foreign)
    page.goto(server.url)
    hand.press("link", "Build")
    assemble(hand, tmp_path)
    choose_policy(hand)
    start(hand)
    service = Service.open(server.home)
    [run] = service.runs.runs()
    try:
        change(hand, service, run.run_id)
        promised = deliver(hand, service, run.run_id, tmp_path)
        compare(hand, service, run.run_id)
    finally:
        if service.runs.observe(run.run_id).state not in ENDED:
            service.runs.discard(run.run_id)
        service.close()
    page.close()  # a page that is drawn costs more than what comes now
    verify(tmp_path, promised)
    assert foreign == []
    assert server.process is not None
    libraries = Path(f"/proc/{server.process.pid}/maps")
    if libraries.exists():
        assert "libtorch" not in libraries.read_text(), "the server has loaded torch"


def assemble(hand: Keyboard, folder: Path) -> None:
    """Upload two models and their data in forms, and put the second before the first."""
    page = hand.page
    for at, name in enumerate(NAMES):
        hand.press("button", "Add sub-model")
        expect_focus(hand, f"{EDITOR} input")
        upload(hand, 0, folder / f"{name}.pt")
        expect(page.get_by_role("textbox", name="Name", exact=True)).to_have_value(name, timeout=PATIENCE_MS)
        upload(hand, 1, folder / "own_train.pt")
        expect(page.get_by_text("64 samples").last).to_be_visible(timeout=PATIENCE_MS)
        upload(hand, 2, folder / "own_test.pt")
        expect(page.get_by_text("16 samples").last).to_be_visible(timeout=PATIENCE_MS)
        hand.write("spinbutton", "Epochs", str(EPOCHS), within=EDITOR)
        hand.press("button", "Save sub-model")
        expect(page.get_by_text(f"{name}.pt on own_train.pt").first).to_be_visible(timeout=PATIENCE_MS)
        expect_focus(hand, f".st-key-edit-{at} button")
    hand.press("button", f"Move up {NAMES[1]}")
    expect(page.locator(".st-key-row-build-0")).to_contain_text(NAMES[1], timeout=PATIENCE_MS)


def upload(hand: Keyboard, at: int, file: Path) -> None:
    """Send a file by the upload button at a place of the form."""
    hand.press("button", "Upload", within=f"{EDITOR} [data-testid=stColumn] >> nth={at}")
    hand.send([file], within=POPOVER)
    expect(hand.page.locator(POPOVER)).to_have_count(0, timeout=PATIENCE_MS)


def choose_policy(hand: Keyboard) -> None:
    """Choose a policy with the forecast of all of them in view, and check."""
    page = hand.page
    hand.pick("Policy: which sub-model trains next", "Priority")
    hand.choose("Lanes", "1")  # one at a time, so that priorities decide
    forecast = page.get_by_role("table", name="Finish and figures under each policy")
    expect(forecast.get_by_role("row", name=re.compile("Priority chosen"))).to_be_visible(timeout=PATIENCE_MS)
    for policy in ("First come", "Shortest job", "Round robin"):
        expect(forecast.get_by_role("row", name=re.compile(policy))).to_be_visible()
    hand.press("link", "3 Check")
    expect(page.locator("#part-check")).to_be_in_viewport(timeout=PATIENCE_MS)
    hand.press("button", "Check")
    expect(page.get_by_text("This run can start.")).to_be_visible(timeout=PATIENCE_MS)


def start(hand: Keyboard) -> None:
    """Start, and wait for the first points."""
    hand.press("button", "Start training")
    hand.page.wait_for_url("**/run?run=*", timeout=PATIENCE_MS)
    expect_focus(hand, "[data-testid=stMain]")
    wait_for(hand.page, lambda: points(hand.page) > 0, 60)


def change(hand: Keyboard, service: Service, run_id: str) -> None:
    """Pause, change a priority with its consequences in view, resume, and watch further points arrive."""
    page = hand.page
    hand.press("button", "Pause", within=".st-key-run-head")
    expect(page.get_by_role("button", name="Resume", exact=True).first).to_be_visible(timeout=PATIENCE_MS)
    hand.press("button", "Adjust")
    hand.write("spinbutton", f"Priority of {NAMES[1]}", "7", within=DIALOG)
    # Where both step at once in two lanes, as measured until now, a priority moves no end.
    foreseen = re.compile(rf"{NAMES[0]} .* earlier|No finish time changes")
    expect(page.locator(DIALOG).get_by_text(foreseen)).to_be_visible(timeout=PATIENCE_MS)
    hand.press("button", "Apply priorities", within=DIALOG)
    wait_for(page, lambda: service.runs.observe(run_id).submodels[0].priority == 7, 30)
    hand.close()
    expect(page.locator(DIALOG)).to_have_count(0)
    expect_focus(hand, ".st-key-adjust button")
    assert service.runs.observe(run_id).state is State.PAUSED
    before = reached(page)
    hand.press("button", "Resume", within=".st-key-run-head")
    wait_for(page, lambda: reached(page) > before, 60)


def reached(page: Page) -> float:
    """Where the curves of the first chart end; the number of their points is bounded."""
    traces = "(document.querySelector('.js-plotly-plot')?._fullData ?? [])"
    return float(page.evaluate(f"Math.max(0, ...{traces}.flatMap(trace => [...(trace.x ?? [])]))"))


def deliver(hand: Keyboard, service: Service, run_id: str, folder: Path) -> dict[str, float | None]:
    """Wait for the end, download one model and then all of them; returns what the run says of their accuracy."""
    page = hand.page
    expect(page.get_by_role("link", name="Download all")).to_be_visible(timeout=4 * PATIENCE_MS)
    wait_for(page, lambda: all(part.certificate for part in service.runs.observe(run_id).submodels), 60)
    hand.take("link", f"Download {NAMES[0]}").save_as(folder / "one.zip")
    hand.take("link", "Download all").save_as(folder / "all.zip")
    return {part.name: part.test_accuracy for part in service.runs.observe(run_id).submodels}


def compare(hand: Keyboard, service: Service, run_id: str) -> None:
    """Train the same without merging, and see the verdict."""
    page = hand.page
    hand.press("button", "Run concurrent")
    wait_for(page, lambda: len(service.comparisons.comparable(run_id)) == 2, 30)
    hand.press("button", "Compare", within=".st-key-run-head")
    page.wait_for_url("**/compare?run=*", timeout=PATIENCE_MS)
    wait_for(page, lambda: all(run.state in ENDED for run in service.comparisons.comparable(run_id)), 120)
    verdict = page.get_by_text("Weights: identical, every bit of every sub-model.")
    expect(verdict).to_be_visible(timeout=PATIENCE_MS)


def verify(folder: Path, promised: dict[str, float | None]) -> None:
    """The certificate of the model holds, and torch alone finds the accuracy of each that the page told."""
    command = [sys.executable, "-m", "unifiednn_core.cli.main", "verify", str(folder / "one.zip")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    unpacked(folder / "all.zip", folder)
    assert (folder / f"{NAMES[0]}.zip").read_bytes() == (folder / "one.zip").read_bytes()
    folders = [unpacked(folder / f"{name}.zip", folder / name) for name in promised]
    assert accuracies_in_a_clean_process(folders, folder / "own_test.pt") == list(promised.values())


def unpacked(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    return folder


def expect_focus(hand: Keyboard, where: str) -> None:
    """The focus must come to this place by itself."""
    try:
        expect(hand.page.locator(where).first).to_be_focused(timeout=10_000)
    except AssertionError as error:
        raise AssertionError(f"the focus is at {focused(hand.page)}") from error
