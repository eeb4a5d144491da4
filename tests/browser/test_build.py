"""A hybrid of one's own in the browser: upload, mistakes, two files of one name, check, start."""

import hashlib
import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import State

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]
SAMPLES = Path(__file__).parents[2] / "sample_models"


def upload(page: Page, tab: str, file: Path) -> None:
    page.get_by_role("tab", name=tab, exact=True).click()
    panel = page.get_by_role("tabpanel", name=tab)
    panel.locator("input[type=file]").first.set_input_files(file)


def choose(page: Page, label: str, option: str) -> None:
    """Choose the one option that begins so."""
    page.get_by_role("combobox", name=re.compile(f"^{label}|selected.*{label}", re.IGNORECASE)).first.click()
    page.get_by_role("option", name=re.compile(f"^{re.escape(option)}")).click()


def numbers(folder: Path, seed: int) -> tuple[Path, str]:
    """A data set `numbers.pt` and its hash; another one for each seed."""
    generator = torch.Generator().manual_seed(seed)
    data = {"inputs": torch.rand(64, 1, 8, 8, generator=generator), "targets": torch.arange(64) % 10}
    folder.mkdir()
    torch.save(data, folder / "numbers.pt")
    return folder / "numbers.pt", hashlib.sha256((folder / "numbers.pt").read_bytes()).hexdigest()


def test_a_hybrid_of_ones_own_from_two_uploads_of_one_name_to_completion(
    server: Server, page: Page, tmp_path: Path
) -> None:
    page.goto(f"{server.url}/library")
    letter = tmp_path / "letter.pt2"
    letter.write_text("this is no model")
    upload(page, "Models", letter)
    expect(page.get_by_text("The text describes no network")).to_be_visible()
    assert "Traceback" not in page.content()
    upload(page, "Models", SAMPLES / "lenet.pt2")
    expect(page.get_by_role("cell", name="lenet.pt2", exact=True)).to_be_visible()
    wrong, _ = numbers(tmp_path / "first", 1)
    upload(page, "Data", wrong)
    expect(page.get_by_role("cell", name="numbers.pt", exact=True)).to_be_visible()

    page.goto(f"{server.url}/build")
    page.get_by_role("button", name="Add sub-model").click()
    choose(page, "Model", "lenet.pt2")
    choose(page, "Training data", "numbers.pt")
    page.get_by_role("button", name="Upload").nth(1).click()
    right, sha256 = numbers(tmp_path / "second", 2)
    page.get_by_test_id("stPopoverBody").locator("input[type=file]").set_input_files(right)
    expect(page.get_by_text(f"SHA-256 {sha256[:12]}")).to_be_visible()
    expect(page.get_by_test_id("stPopoverBody")).to_have_count(0)  # it would lie on the fields below
    page.get_by_role("button", name="Save sub-model").click()
    expect(page.get_by_role("button", name="Start training")).to_be_enabled()
    page.reload()  # no entry is lost
    expect(page.get_by_text(f"numbers.pt ({sha256[:4]})").first).to_be_visible()
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.get_by_text("Without test data").first).to_be_visible()
    page.get_by_role("button", name="Start training").click()
    page.get_by_role("button", name="Start anyway").click(timeout=60_000)  # there are no test data
    page.wait_for_url("**/run?run=*", timeout=60_000)
    expect(page.get_by_role("link", name="Download lenet")).to_be_visible(timeout=60_000)
    service = Service.open(server.home)
    [view] = service.runs.runs()
    assert view.state is State.COMPLETED
    assert service.runs.observe(view.run_id).spec["submodels"][0]["train_data"] == f"sha256:{sha256}"
    service.close()
    assert server.process is not None
    libraries = Path(f"/proc/{server.process.pid}/maps")
    if libraries.exists():
        assert "libtorch" not in libraries.read_text(), "the server has loaded torch"
