"""Networks with data of their own: from the empty page to a training, dropped at once and started by one click."""

from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server
from unifiednn_core.service.facade import Service

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(200)]
NAMES = ("mlp", "deep", "wide")


def own_files(folder: Path) -> list[Path]:
    """Three networks, and for each a training and a test set of its own."""
    generator = torch.Generator().manual_seed(0)
    for at, name in enumerate(NAMES, start=1):
        layers = [torch.nn.Flatten(), torch.nn.Linear(16, 8 * at), torch.nn.ReLU(), torch.nn.Linear(8 * at, 4)]
        torch.save(torch.nn.Sequential(*layers), folder / f"{name}.pt")
        for part, samples in (("train", 64), ("test", 16)):
            inputs = torch.rand(samples, 1, 4, 4, generator=generator)
            torch.save({"inputs": inputs, "targets": torch.arange(samples) % 4}, folder / f"{name}_{part}.pt")
    return list(folder.iterdir())


def test_three_networks_with_own_data_start_at_once(server: Server, page: Page, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    page.goto(f"{server.url}/build?draft=new")
    page.locator(".u-up input[type=file]").first.set_input_files(own_files(tmp_path / "own"))
    for name in NAMES:
        expect(page.get_by_text(f"{name}.pt on {name}_train.pt")).to_be_visible(timeout=60_000)
    page.reload()  # nothing of it is lost
    page.get_by_role("button", name="Start training").click()
    page.wait_for_url("**/run?run=*", timeout=60_000)
    service = Service.open(server.home)
    [run] = service.runs.runs()
    spec = service.runs.observe(run.run_id).spec
    files = {f"sha256:{file.sha256}": file.filename for file in service.library.files()}
    found = [[files[part[entry]] for entry in ("model", "train_data", "test_data")] for part in spec["submodels"]]  # type: ignore[attr-defined]
    assert sorted(found) == sorted([f"{name}.pt", f"{name}_train.pt", f"{name}_test.pt"] for name in NAMES)
    service.runs.discard(run.run_id)
    service.close()
