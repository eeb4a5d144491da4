"""Three networks with data of their own: from the empty page to a training in a few clicks, each one counted."""

from pathlib import Path

import pytest
import torch
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Server
from unifiednn_core.service.facade import Service

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(200)]
MOST_CLICKS = 15
NAMES = ("mlp", "deep", "wide")


class Hand:
    """Counts what a person presses; a file chooser counts as one click."""

    def __init__(self, page: Page):
        self.page, self.clicks = page, 0

    def press(self, label: str, at: int = 0) -> None:
        self.clicks += 1
        self.page.get_by_role("button", name=label, exact=True).nth(at).click()

    def choose(self, place: Locator, files: list[Path]) -> None:
        self.clicks += 1
        place.locator("input[type=file]").set_input_files(files)


def own_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Three networks, and for each a training and a test set of its own."""
    generator = torch.Generator().manual_seed(0)
    data = []
    for at, name in enumerate(NAMES):
        layers = [
            torch.nn.Flatten(),
            torch.nn.Linear(16, 8 * (at + 1)),
            torch.nn.ReLU(),
            torch.nn.Linear(8 * (at + 1), 4),
        ]
        torch.save(torch.nn.Sequential(*layers), folder / f"{name}.pt")
        for part, samples in (("train", 64), ("test", 16)):
            inputs = torch.rand(samples, 1, 4, 4, generator=generator)
            torch.save({"inputs": inputs, "targets": torch.arange(samples) % 4}, folder / f"{name}_{part}.pt")
            data.append(folder / f"{name}_{part}.pt")
    return [folder / f"{name}.pt" for name in NAMES], data


def test_three_networks_with_own_data_start_within_fifteen_clicks(server: Server, page: Page, tmp_path: Path) -> None:
    models, data = own_files(tmp_path)
    page.goto(f"{server.url}/build?draft=new")
    hand = Hand(page)
    hand.choose(page.locator(".u-up").first, [*models, *data])
    for name in NAMES:
        expect(page.get_by_text(f"{name}.pt on {name}_train.pt")).to_be_visible(timeout=60_000)
    page.reload()  # nothing of it is lost
    expect(page.get_by_role("button", name="Start training")).to_be_enabled()
    hand.press("Start training")
    page.wait_for_url("**/run?run=*", timeout=60_000)
    assert hand.clicks <= MOST_CLICKS, hand.clicks
    service = Service.open(server.home)
    [run] = service.runs.runs()
    spec = service.runs.observe(run.run_id).spec
    files = {f"sha256:{file.sha256}": file.filename for file in service.library.files()}
    found = [[files[part[entry]] for entry in ("model", "train_data", "test_data")] for part in spec["submodels"]]  # type: ignore[attr-defined]
    assert found == [[f"{name}.pt", f"{name}_train.pt", f"{name}_test.pt"] for name in NAMES]
    service.runs.discard(run.run_id)
    service.close()


def test_one_form_after_the_other_takes_fifteen_too(server: Server, page: Page, tmp_path: Path) -> None:
    models, data = own_files(tmp_path)
    page.goto(f"{server.url}/build?draft=new")
    hand = Hand(page)
    for at, model in enumerate(models):
        hand.press("Add sub-model")
        expect(page.locator(".st-key-editor input").first).to_be_focused()
        hand.press("Upload", 0)
        hand.choose(page.get_by_test_id("stPopoverBody"), [model])
        expect(page.get_by_role("textbox", name="Name", exact=True)).to_have_value(model.stem)
        if at == 0:  # the next ones begin with these data
            hand.press("Upload", 1)
            hand.choose(page.get_by_test_id("stPopoverBody"), [data[0]])
            expect(page.get_by_text("64 samples").last).to_be_visible()
        hand.press("Save sub-model")
        expect(page.get_by_text(f"{model.name} on {data[0].name}")).to_be_visible()
        expect(page.get_by_role("button", name=f"Edit {model.stem}")).to_be_focused()
    expect(page.get_by_role("button", name="Start training")).to_be_enabled()
    hand.clicks += 1  # Start, which the test above presses
    assert hand.clicks <= MOST_CLICKS, hand.clicks
