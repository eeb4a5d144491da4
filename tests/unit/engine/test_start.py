"""A training that begins at a checkpoint or at weights from elsewhere: what is recognised, refused and handed over."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.unit.engine.start_kit import FILE, SAMPLES, TAKE, checked, flipped, spec, trained
from tests.unit.formats import kit
from unifiednn_core.base.files import move
from unifiednn_core.base.paths import Home
from unifiednn_core.engine import checkpoint_file, kinds
from unifiednn_core.engine.checkpoint import FORMAT_VERSION, Checkpoint
from unifiednn_core.engine.start import initial_state
from unifiednn_core.preflight import client
from unifiednn_core.preflight.check import check
from unifiednn_core.preflight.inspection import inspect_file
from unifiednn_core.service.submission import with_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, data, weights, and checkpoints whole and damaged."""
    folder = tmp_path_factory.mktemp("files")
    kit.exported(folder, "cnn")
    torch.save({"inputs": torch.randn(SAMPLES, *kit.IMAGES), "targets": torch.arange(SAMPLES) % 3}, folder / "train.pt")
    torch.save({"inputs": torch.randn(24, *kit.IMAGES), "targets": torch.arange(24) % 3}, folder / "fewer.pt")
    whole = folder / "whole.safetensors"
    checkpoint_file.write(trained(), whole)
    checkpoint_file.write(trained(inside=False), folder / "between.safetensors")
    flipped(whole, folder / "optimizer.safetensors", "optimizer.state.0.exp_avg")
    flipped(whole, folder / "model.safetensors", "model.0.weight")
    content = whole.read_bytes()
    (folder / "cut.safetensors").write_bytes(content[:-100])
    (folder / "cut_header.safetensors").write_bytes(content[:500])
    version = b'"unifiednn_checkpoint":"%d"'
    newer = content.replace(version % FORMAT_VERSION, version % (FORMAT_VERSION + 1), 1)
    (folder / "newer.safetensors").write_bytes(newer)
    weights = kit.network("cnn", seed=6).state_dict()
    save_file(weights, folder / "weights.safetensors")
    torch.save(weights, folder / "weights.pt")
    torch.save({**weights, "more": torch.ones(1)}, folder / "more.pt")
    torch.save({"0.weight": weights["0.weight"]}, folder / "one.pt")
    torch.save({**weights, "0.weight": torch.ones(4, 1, 5, 5)}, folder / "other_shape.pt")
    torch.save({**weights, "0.weight": weights["0.weight"].double()}, folder / "other_type.pt")
    (folder / "garbage.bin").write_bytes(b"nothing that anybody knows")
    return folder


# What is this file?


def test_a_checkpoint_is_recognised(folder: Path) -> None:
    report = inspect_file(folder / "whole.safetensors", "shown.safetensors")
    assert (report.kind, report.format, report.findings) == ("checkpoint", "unifiednn-checkpoint", ())
    assert report.facts == {
        "submodel": "lenet",
        "step": 9,
        "epoch": 2,
        "elements": 151,
        "weights_bytes": 604,
        "optimizer": "adam",
        "lr_scheduler": "step",
        "torch": str(torch.__version__),
        "kinds": [kinds.current_kind(torch.device("cpu"), torch.get_num_threads()).text],
    }
    assert client.inspect(folder / "whole.safetensors", "shown.safetensors") == report


@pytest.mark.parametrize(
    ("filename", "message", "remedy"),
    [
        (
            "optimizer.safetensors",
            r"'optimizer\.state\.0\.exp_avg' that was changed",
            "Its weights are intact.*weights",
        ),
        ("model.safetensors", r"'model\.0\.weight' that was changed", "still be read with safetensors, but may"),
        ("newer.safetensors", rf"version {FORMAT_VERSION + 1}, newer", "still be read with safetensors"),
        ("cut.safetensors", "is cut short or damaged", "Nothing in it can be read"),
        ("cut_header.safetensors", "invalid header length", "Nothing in it can be read"),
    ],
)
def test_a_damaged_one_says_what_can_still_be_used(filename: str, message: str, remedy: str, folder: Path) -> None:
    report = inspect_file(folder / filename, "shown.safetensors")
    assert (report.kind, report.facts) == ("checkpoint", {})
    (finding,) = report.findings
    assert finding.severity == "error" and finding.field == "shown.safetensors"
    assert re.search(message, finding.message)
    assert re.search(remedy, finding.remedy)


def test_other_files_stay_what_they_are(folder: Path) -> None:
    kinds = {name: inspect_file(folder / name, name).kind for name in ("weights.safetensors", "weights.pt", "train.pt")}
    assert kinds == {"weights.safetensors": "weights", "weights.pt": "weights", "train.pt": "data"}


# Does it fit?


@pytest.mark.parametrize(
    "start",
    [
        {"file": "whole.safetensors"},
        {"file": "between.safetensors"},
        {"file": "whole.safetensors", "take": "weights"},
        {"file": "optimizer.safetensors", "take": "weights"},
        {"file": "weights.safetensors", "take": "weights"},
        {"file": "weights.pt", "take": "weights"},
        {"file": "cnn.pt2", "take": "weights"},
    ],
)
def test_a_start_that_fits_has_no_finding(start: dict[str, Any], folder: Path, home: Home) -> None:
    report = checked(folder, home, start)
    assert report.findings == ()
    assert start["file"] in report.files


WHOLE, BETWEEN = {"file": "whole.safetensors"}, {"file": "between.safetensors"}


def weights_of(filename: str) -> dict[str, Any]:
    return {"file": filename, "take": "weights"}


def of_schedule(per: str = "epoch", **args: Any) -> dict[str, Any]:
    return {"hyperparameters": {"lr_scheduler": {"name": "step", "args": args, "per": per}}}


@pytest.mark.parametrize(
    ("start", "changes", "field", "message"),
    [
        ({"file": "absent.safetensors"}, {}, FILE, "no such file"),
        (weights_of("absent.safetensors"), {}, FILE, "no such file"),
        ({"file": "absent.safetensors"}, {"model": "absent.pt2"}, FILE, "no such file"),
        ({"file": "weights.safetensors"}, {}, TAKE, "not a checkpoint"),
        ({"file": "weights.pt"}, {}, TAKE, "not a checkpoint"),
        ({"file": "garbage.bin"}, {}, TAKE, "not a checkpoint"),
        (weights_of("garbage.bin"), {}, FILE, "describes no network"),
        ({"file": "cut.safetensors"}, {}, FILE, "cut short"),
        ({"file": "optimizer.safetensors"}, {}, FILE, "was changed"),
        (weights_of("model.safetensors"), {}, FILE, "was changed"),
        (weights_of("more.pt"), {}, FILE, "unexpected 'more'"),
        (weights_of("one.pt"), {}, FILE, r"missing '0\.bias', '5\.weight', '5\.bias'"),
        (weights_of("other_shape.pt"), {}, FILE, r"'0\.weight' is float32 \[4, 1, 5, 5\], not float32 \[4, 1, 3, 3\]"),
        (weights_of("other_type.pt"), {}, FILE, r"'0\.weight' is float64"),
        (weights_of("train.pt"), {}, FILE, "unexpected 'inputs', 'targets'"),
        (WHOLE, {"hyperparameters": {"optimizer": "sgd"}}, TAKE, "the optimizer 'adam', .* the optimizer 'sgd'"),
        (WHOLE, {"hyperparameters": {"lr_scheduler": None}}, TAKE, "'step', .* no LR scheduler"),
        (WHOLE, {"hyperparameters": {"epochs": 2}}, TAKE, "has done 2 epochs"),
        (WHOLE, {"hyperparameters": {"batch_size": 4}}, TAKE, "inside epoch 3, with batch_size = 8; the spec has 4"),
        (WHOLE, {"hyperparameters": {"drop_last": True}}, TAKE, "drop_last = False; the spec has True"),
        (WHOLE, {"train_data": "fewer.pt"}, TAKE, "training samples = 25; the spec has 24"),
        (WHOLE, {"hyperparameters": {"optimizer_args": {"eps": 1e-4}}}, TAKE, "eps = 1e-08; the spec has eps = 0.0001"),
        (WHOLE, {"hyperparameters": {"parameter_groups": [{"names": "*.bias"}]}}, TAKE, "parameter groups"),
        (WHOLE, {"hyperparameters": {"sampler": {"name": "balanced"}}}, TAKE, "sampler = None; the spec has {'name'"),
        (WHOLE, {"hyperparameters": {"ema": {"decay": 0.9}}}, TAKE, "ema = null, the spec has"),
        (WHOLE, of_schedule(step_size=3), TAKE, "step_size = 2; the spec has step_size = 3"),
        (WHOLE, of_schedule(per="step", step_size=2), TAKE, "per = epoch; the spec has per = step"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(
    start: dict[str, Any], changes: dict[str, Any], field: str, message: str, folder: Path, home: Home
) -> None:
    report = checked(folder, home, start, **changes)
    found = [finding for finding in report.findings if finding.field == field]
    assert len(found) == 1 and found[0].severity == "error"
    assert re.search(message, found[0].message), found[0].message
    assert found[0].remedy


@pytest.mark.parametrize("changes", [{"train_data": "fewer.pt"}, {"hyperparameters": {"batch_size": 4}}])
def test_between_epochs_data_and_batch_size_may_change(changes: dict[str, Any], folder: Path, home: Home) -> None:
    assert checked(folder, home, BETWEEN, **changes).findings == ()


@pytest.mark.parametrize("take", ["everything", "weights"])
def test_weights_of_another_network_are_refused(take: str, folder: Path, tmp_path: Path, home: Home) -> None:
    other = tmp_path / "other.safetensors"
    checkpoint_file.write(trained(nn.Sequential(nn.Flatten(), nn.Linear(64, 3))), other)
    (finding,) = checked(folder, home, {"file": str(other), "take": take}).findings
    assert finding.field == FILE
    assert "missing '0.weight', '0.bias', '5.weight' and 1 more; unexpected '1.weight', '1.bias'" in finding.message


def test_arguments_may_be_written_out_and_rates_go_with_the_learning_rate(folder: Path, home: Home) -> None:
    written_out = {"optimizer_args": {"eps": 1e-8, "betas": [0.9, 0.999], "amsgrad": False}, "learning_rate": 0.02}
    assert checked(folder, home, WHOLE, hyperparameters=written_out).findings == ()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"name": "VAX"}, "Its device was VAX; here it is"),
        ({"instructions": "x86_64 SSE2"}, "Its instruction set was x86_64 SSE2"),
        ({"type": "cuda", "name": "NVIDIA H200", "driver": "570.86"}, "It was trained on NVIDIA H200,"),
    ],
)
def test_another_kind_of_device_is_a_warning(
    other: dict[str, str], said: str, folder: Path, tmp_path: Path, home: Home
) -> None:
    [row] = trained().recipe["kinds"]
    recipe = {"kinds": [{**row, **other}], "device_type": other.get("type", "cpu")}
    checkpoint_file.write(trained(**recipe), tmp_path / "old.safetensors")
    (finding,) = checked(folder, home, {"file": str(tmp_path / "old.safetensors")}).findings
    assert finding.severity == "warning" and finding.message.startswith(said)


def test_the_number_of_threads_is_no_matter_of_the_check(folder: Path, tmp_path: Path, home: Home) -> None:
    [row] = trained().recipe["kinds"]
    checkpoint_file.write(trained(kinds=[{**row, "threads": 77}]), tmp_path / "old.safetensors")
    assert checked(folder, home, {"file": str(tmp_path / "old.safetensors")}).findings == ()


def test_the_file_is_found_by_content_like_the_others(folder: Path, home: Home, tmp_path: Path) -> None:
    asked = spec(WHOLE)
    report = client.check(asked, folder, home)
    assert report.findings == ()
    for file in report.files.values():
        move(Path(shutil.copy(file.path, tmp_path)), home.file(file.sha256))
    file = report.files["whole.safetensors"]
    resolved = with_files(asked, {name: f"sha256:{found.sha256}" for name, found in report.files.items()})
    start = resolved.submodels[0].start_from
    assert start is not None and (start.file, start.take) == (f"sha256:{file.sha256}", "everything")
    assert check(resolved, folder, home).findings == ()


def test_a_spec_without_start_stays_without(folder: Path, home: Home) -> None:
    asked = spec(None)
    report = check(asked, folder, home)
    assert report.findings == () and report.files.keys() == {"cnn.pt2", "train.pt"}
    assert with_files(asked, {name: name for name in report.files}) == asked


# What the worker gets


def test_everything_is_the_whole_checkpoint(folder: Path) -> None:
    found, given = initial_state(folder / "whole.safetensors", "everything"), trained()
    assert isinstance(found, Checkpoint)
    assert (found.step, found.epoch, found.recipe) == (9, 2, given.recipe)
    assert found.state.keys() == given.state.keys()
    assert torch.equal(found.state["data"]["order"], given.state["data"]["order"])


@pytest.mark.parametrize(
    ("filename", "seed"),
    [
        ("whole.safetensors", None),
        ("optimizer.safetensors", None),
        ("weights.safetensors", 6),
        ("weights.pt", 6),
        ("cnn.pt2", 0),
    ],
)
def test_weights_are_the_state_dict_of_the_network(filename: str, seed: int | None, folder: Path) -> None:
    found = initial_state(folder / filename, "weights")
    expected = trained().state["model"] if seed is None else kit.network("cnn", seed=seed).state_dict()
    assert isinstance(found, dict) and found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
