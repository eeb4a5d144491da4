"""A hybrid of one's own in the browser: upload, mistakes, check, start."""

import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server
from unifiednn_core.lifecycle import State
from unifiednn_core.service import Service

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
SAMPLES = Path(__file__).parents[2] / "sample_models"


def upload(page: Page, tab: str, file: Path) -> None:
    page.get_by_role("tab", name=tab, exact=True).click()
    panel = page.get_by_role("tabpanel", name=tab)
    panel.locator("input[type=file]").set_input_files(file)


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_role("combobox", name=re.compile(f"^{label}|selected.*{label}", re.IGNORECASE)).first.click()
    page.get_by_role("option", name=option).click()


def test_a_hybrid_of_ones_own_from_upload_to_completion(server: Server, page: Page, tmp_path: Path) -> None:
    page.goto(f"{server.url}/library")
    letter = tmp_path / "letter.pt2"
    letter.write_text("this is no model")
    upload(page, "Models", letter)
    expect(page.get_by_text("The file is text")).to_be_visible(timeout=30_000)
    assert "Traceback" not in page.content()
    upload(page, "Models", SAMPLES / "lenet.pt2")
    expect(page.get_by_role("cell", name="lenet.pt2")).to_be_visible(timeout=30_000)
    numbers = tmp_path / "numbers.pt"
    torch.save({"inputs": torch.rand(64, 1, 8, 8), "targets": torch.randint(0, 10, (64,))}, numbers)
    upload(page, "Data", numbers)
    expect(page.get_by_role("cell", name="numbers.pt")).to_be_visible(timeout=30_000)

    page.goto(f"{server.url}/build")
    page.get_by_role("button", name="Add sub-model").click()
    choose(page, "Model", "lenet.pt2")
    choose(page, "Training data", "numbers.pt")
    page.get_by_role("button", name="Save sub-model").click()
    expect(page.get_by_role("button", name="Start training")).to_be_enabled(timeout=15_000)
    page.reload()  # nothing that was entered is lost
    expect(page.get_by_text("lenet", exact=True).first).to_be_visible(timeout=15_000)
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.get_by_text("Without test data nothing tells")).to_be_visible(timeout=30_000)
    page.get_by_role("button", name="Start training").click()
    page.get_by_role("button", name="Start anyway").click(timeout=60_000)  # there are no test data
    page.wait_for_url("**/run?run=*", timeout=60_000)
    expect(page.get_by_role("link", name="Download lenet")).to_be_visible(timeout=60_000)
    service = Service.open(server.home)
    [view] = service.runs()
    assert view.state is State.COMPLETED
    service.close()
    assert server.process is not None
    libraries = Path(f"/proc/{server.process.pid}/maps")
    if libraries.exists():
        assert "libtorch" not in libraries.read_text(), "the server has loaded torch"
