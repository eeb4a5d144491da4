"""A run that begins at a checkpoint of another one, or at weights from elsewhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.integration.product import EPOCHS, Product, Template
from tests.integration.vanilla import sha256_alone
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.engine import checkpoint_file
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import RunSpec, parse_run

Document = dict[str, Any]


@pytest.fixture(scope="module")
def resnet_checkpoint(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of resnet inside its second epoch, as a person downloads it."""
    folder = tmp_path_factory.mktemp("downloads")
    with template.copied(Home(tmp_path_factory.mktemp("first"))) as product:
        product.options(checkpoint={"every_s": 3600})
        product.start_and_hold("resnet", 16, 18)
        product.service.runs.save(product.run_id, "resnet")
        product.go_on()
        product.until(lambda: product.row("resnet").checkpoint_step == 16, "the checkpoint")
        path = product.service.runs.download_checkpoint(product.run_id, "resnet", folder)
    assert checkpoint_file.read(path).step == 16
    return path


def resnet(product: Product, name: str, start_from: Document, **hyperparameters: Any) -> Document:
    """Resnet of the demo under another name, beginning elsewhere."""
    spec = RunSpec.model_validate(product.service.store.runs.get(product.run_id)[0].spec)
    [part] = [part for part in spec.submodels if part.name == "resnet"]
    document: Document = part.model_dump(mode="json", exclude_none=True)
    document["hyperparameters"] |= hyperparameters
    return document | {"name": name, "start_from": start_from}


@pytest.mark.slow
def test_trainings_begin_at_a_checkpoint_and_at_weights(
    product: Product, template: Template, resnet_checkpoint: Path, alone: Callable[..., str], tmp_path: Path
) -> None:
    weights = checkpoint_file.read(resnet_checkpoint).state["model"]
    torch.save(weights, tmp_path / "elsewhere.pt")
    parts = [
        resnet(product, "longer", {"file": str(resnet_checkpoint), "take": "everything"}, epochs=EPOCHS["resnet"] + 2),
        resnet(product, "anew", {"file": str(resnet_checkpoint), "take": "weights"}, seed=80),
        resnet(product, "elsewhere", {"file": str(tmp_path / "elsewhere.pt"), "take": "weights"}, seed=80),
    ]
    product.service.runs.stop(product.run_id)  # nobody trains it here
    product.start()
    run_id = product.service.runs.submit(
        parse_run({"name": "second", "threads": 1, "device": "cpu", "submodels": parts})
    )
    product.until(lambda: product.service.runs.observe(run_id).ended_at_s is not None, "the end")
    view = product.service.runs.observe(run_id)
    assert view.state is State.COMPLETED
    hashes = {part.name: part.state_sha256 for part in view.submodels}
    assert hashes["longer"] == alone("resnet", EPOCHS["resnet"] + 2)

    save_file(weights, tmp_path / "begun.safetensors")  # the same network, as a model file of its own
    plain = resnet(product, "plain", {}, seed=80) | {"model": str(tmp_path / "begun.safetensors")}
    plain |= {f"{which}_data": str(template.spec_path.parent / f"few_{which}.pt") for which in ("train", "test")}
    expected = sha256_alone({"submodels": [plain]}, "plain", tmp_path)
    assert (hashes["anew"], hashes["elsewhere"]) == (expected, expected)


def test_starts_that_cannot_be_are_refused_and_told(product: Product, resnet_checkpoint: Path, tmp_path: Path) -> None:
    content = resnet_checkpoint.read_bytes()
    (tmp_path / resnet_checkpoint.name).write_bytes(content)
    (tmp_path / "cut.safetensors").write_bytes(content[: len(content) // 2])
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pt")
    torch.save({"hook": print}, tmp_path / "hostile.pt")
    starts: dict[str, tuple[str, str, Document]] = {
        "cut": ("cut.safetensors", "everything", {}),
        "other": ("other.pt", "weights", {}),
        "hostile": ("hostile.pt", "weights", {}),
        "bare": ("other.pt", "everything", {}),
        "done": (resnet_checkpoint.name, "everything", {"epochs": 1}),
        "sgd": (resnet_checkpoint.name, "everything", {"optimizer": "sgd", "optimizer_args": {}}),
    }
    missing = resnet(product, "missing", {"file": "nowhere.pt", "take": "weights"})
    parts = [
        resnet(product, name, {"file": file, "take": take}, **hyperparameters)
        for name, (file, take, hyperparameters) in starts.items()
    ]
    with pytest.raises(BadInput, match=r"submodels\.missing\.start_from\.file: 'nowhere.pt' cannot be read"):
        product.service.runs.submit(parse_run({"submodels": [*parts, missing]}), tmp_path)  # before any is opened
    with pytest.raises(BadInput) as refused:
        product.service.runs.submit(parse_run({"submodels": parts}), tmp_path)
    findings = [finding for finding in refused.value.findings if finding.severity == "error"]
    assert all(finding.message and finding.remedy for finding in findings)
    told = {name: [str(finding) for finding in findings if f".{name}." in finding.field] for name in starts}
    assert all(told.values()), told
    assert "cut short" in told["cut"][0]
    assert "holds no optimizer" in told["bare"][0]
    assert "has done" in told["done"][0]
    assert "optimizer 'adamw'" in told["sgd"][0]
    assert len(product.service.runs.runs()) == 1
