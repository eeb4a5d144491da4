"""A large file into the library in the browser: over a connection that breaks, paused, dropped, refused."""

import hashlib
import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, Route, expect
from safetensors.torch import save_file

from tests.browser.conftest import Server
from unifiednn_core.service.facade import Service

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.timeout(200)]
SLICE_BYTES = 8 * 1024**2


@pytest.fixture
def large(tmp_path: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (22_000, 1, 32, 32), dtype=torch.uint8, generator=generator)
    path = tmp_path / "large.safetensors"
    save_file({"inputs": inputs, "targets": torch.randint(0, 10, (22_000,), generator=generator)}, path)
    return path


def test_an_upload_goes_on_after_a_cut_and_arrives_whole(server: Server, page: Page, large: Path) -> None:
    offsets: list[int] = []
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)

    def cut_once(route: Route) -> None:
        if route.request.method != "PATCH":
            route.continue_()
            return
        offsets.append(int(route.request.headers["upload-offset"]))
        if len(offsets) == 2:
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route("**/files/uploads/*", cut_once)
    page.goto(f"{server.url}/library")
    page.get_by_role("tab", name="Data", exact=True).click()
    panel = page.get_by_role("tabpanel", name="Data")
    panel.locator("input[type=file]").first.set_input_files(large)
    expect(page.get_by_role("cell", name="large.safetensors", exact=True)).to_be_visible(timeout=90_000)
    assert offsets == [0, SLICE_BYTES, SLICE_BYTES, 2 * SLICE_BYTES]  # nothing was sent twice but the lost slice
    service = Service.open(server.home)
    [held] = service.library.files()
    assert held.sha256 == hashlib.sha256(large.read_bytes()).hexdigest()
    assert held.size_bytes == large.stat().st_size
    service.close()
    assert list(server.home.quarantine.iterdir()) == []
    # Streamlit looks for its base path by trying addresses; the reset is ours.
    refused = [text for text in problems if "ERR_CONNECTION_RESET" not in text and "404" not in text]
    assert refused == []  # the security headers forbid nothing that the page needs


def test_an_upload_can_be_paused_dropped_and_refused(server: Server, page: Page, large: Path, tmp_path: Path) -> None:
    held: list[Route] = []
    page.route(
        "**/files/uploads/*", lambda route: held.append(route) if route.request.method == "PATCH" else route.continue_()
    )
    page.goto(f"{server.url}/library")
    page.get_by_role("tab", name="Data", exact=True).click()
    panel = page.get_by_role("tabpanel", name="Data")
    panel.locator("input[type=file]").first.set_input_files(large)
    panel.get_by_role("button", name="Pause").click()
    expect(panel.get_by_text("Paused.")).to_be_visible()
    with page.expect_response(lambda answer: answer.request.method == "DELETE"):
        panel.get_by_role("button", name="Cancel").click()
    expect(panel.get_by_text(re.compile(r"^Add a data set \("))).to_be_visible()
    page.unroute("**/files/uploads/*")

    empty = tmp_path / "empty.pt"
    empty.touch()
    panel.locator("input[type=file]").first.set_input_files(empty)
    expect(panel.get_by_text("This file is empty.")).to_be_visible()
    letter = tmp_path / "letter.pt"
    letter.write_text("no tensors")
    panel.locator("input[type=file]").first.set_input_files(letter)
    expect(panel.get_by_text("The text describes no network")).to_be_visible()
    assert list(server.home.quarantine.iterdir()), "refused data wait to be read with other options"
    panel.get_by_role("button", name="Discard it").click()
    expect(panel.get_by_text("The text describes no network")).to_be_hidden()
    assert list(server.home.quarantine.iterdir()) == []
