"""Networks with data of their own: from the empty page to a training in a few clicks, nothing guessed in silence."""

from pathlib import Path

import pytest
import torch
from playwright.sync_api import Locator, Page, expect
from safetensors.torch import load_file

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


def test_a_second_drop_has_data_and_scale_of_its_own_and_learns_as_in_plain_torch(
    server: Server, page: Page, tmp_path: Path
) -> None:
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (60, 3, 8, 8), dtype=torch.uint8, generator=generator)
    torch.save({"inputs": pictures, "targets": torch.arange(60) % 3}, tmp_path / "shapes.pt")
    digits = torch.load(Path(__file__).parents[2] / "sample_models" / "digits_train.pt")
    numbers = {"inputs": digits["inputs"].flatten(1) / 4, "targets": digits["targets"]}
    torch.save(numbers, tmp_path / "digits.pt")
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 10))
    torch.save(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3)), tmp_path / "picture-net.pt")
    torch.save(network, tmp_path / "digit-net.pt")
    page.goto(f"{server.url}/build?draft=new")
    rows = page.locator(".u-entry")
    for at, names in enumerate((("picture-net.pt", "shapes.pt"), ("digit-net.pt", "digits.pt"))):
        page.locator(".u-up input[type=file]").first.set_input_files([tmp_path / name for name in names])
        expect(rows).to_have_count(at + 1, timeout=60_000)
    expect(rows.nth(0)).to_contain_text("pixels / 255, 80/20 split, 3 classes (guessed)")
    expect(rows.nth(1)).to_contain_text("32 · 80/20 split, 10 classes (guessed)")
    expect(page.get_by_role("button", name="Start training")).to_be_enabled()
    page.get_by_role("button", name="Start training").click()
    page.wait_for_url("**/run?run=*", timeout=60_000)
    expect(page.get_by_role("link", name="Download digit-net")).to_be_visible(timeout=60_000)
    service = Service.open(server.home)
    [run] = service.runs.runs()
    view = service.runs.observe(run.run_id)
    service.close()
    pictured, plain = view.spec["submodels"]  # type: ignore[misc]
    assert (pictured["scale"], plain.get("scale")) == (1 / 255, None)
    train, test = (load_file(next(server.home.files.rglob(plain[part][7:]))) for part in ("train_data", "test_data"))
    order = torch.randperm(len(train["inputs"]), generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(network.parameters(), 0.01)
    for batch in order.split(32):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(train["inputs"][batch]), train["targets"][batch]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    right = network(test["inputs"]).argmax(1) == test["targets"]
    assert view.submodels[1].test_accuracy == pytest.approx(float(right.double().mean()))
    assert right.double().mean() > 0.5


def test_one_form_after_the_other_takes_nineteen(server: Server, page: Page, tmp_path: Path) -> None:
    models, data = own_files(tmp_path)
    page.goto(f"{server.url}/build?draft=new")
    hand = Hand(page)
    for at, model in enumerate(models):
        hand.press("Add sub-model")
        expect(page.locator(".st-key-editor input").first).to_be_focused()
        hand.press("Upload", 0)
        hand.choose(page.get_by_test_id("stPopoverBody"), [model])
        expect(page.get_by_role("textbox", name="Name", exact=True)).to_have_value(model.stem)
        if at == 0:
            hand.press("Upload", 1)
            hand.choose(page.get_by_test_id("stPopoverBody"), [data[0]])
        else:  # nothing is taken over from the last one
            hand.clicks += 2
            page.get_by_role("combobox", name="Training data").click()
            page.get_by_role("option", name=data[0].name).click()
        expect(page.get_by_text("64 samples").last).to_be_visible()
        hand.press("Save sub-model")
        expect(page.get_by_text(f"{model.name} on {data[0].name}")).to_be_visible()
        expect(page.get_by_role("button", name=f"Edit {model.stem}")).to_be_focused()
    expect(page.get_by_role("button", name="Start training")).to_be_enabled()
    hand.clicks += 1  # Start, which the tests above press
    assert hand.clicks <= 19, hand.clicks
