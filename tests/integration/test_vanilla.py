"""The plain PyTorch loop that the engine is held against, and the samples that both train."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from sample_models import build
from tests.integration.vanilla import state_sha256, train_alone
from unifiednn_core.formats.base import count_parameters
from unifiednn_core.spec.run import parse_run

SAMPLES = sorted(build.SAMPLES)


@pytest.fixture(scope="session")
def folder(samples: Path) -> Path:
    return samples


def demo(folder: Path, *, epochs: int | None = None, seed: int | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads((folder / "demo.json").read_text(encoding="utf-8"))
    for submodel in spec["submodels"]:
        changes = {"epochs": epochs, "seed": seed}
        submodel["hyperparameters"] |= {key: value for key, value in changes.items() if value is not None}
    return spec


def test_the_hash_is_that_of_names_types_shapes_and_bytes_in_sorted_order() -> None:
    state_dict = {
        "b": torch.tensor([[1.5, -2.0]]),
        "a": torch.tensor(7, dtype=torch.int64),
        "c": torch.arange(4, dtype=torch.int32).reshape(2, 2).T,
    }
    by_hand = hashlib.sha256(
        b"a"
        + b"torch.int64"
        + b"[]"
        + struct.pack("<q", 7)
        + b"b"
        + b"torch.float32"
        + b"[1, 2]"
        + struct.pack("<ff", 1.5, -2.0)
        + b"c"
        + b"torch.int32"
        + b"[2, 2]"
        + struct.pack("<iiii", 0, 2, 1, 3)
    ).hexdigest()
    assert state_sha256(state_dict) == by_hand


@pytest.mark.parametrize("name", SAMPLES)
def test_training_twice_gives_the_same_bits(name: str, folder: Path) -> None:
    spec = demo(folder, epochs=1)
    first, second = train_alone(spec, name, folder), train_alone(spec, name, folder)
    assert first.state_sha256 == second.state_sha256
    assert (first.losses, first.test_accuracy) == (second.losses, second.test_accuracy)
    assert len(first.losses) == -(-1437 // submodel_of(spec, name)["hyperparameters"]["batch_size"])


@pytest.mark.parametrize("name", ["lenet", *(pytest.param(n, marks=pytest.mark.slow) for n in SAMPLES if n != "lenet")])
def test_another_seed_gives_other_weights(name: str, folder: Path) -> None:
    results = [train_alone(demo(folder, epochs=1, seed=seed), name, folder) for seed in (1, 2)]
    assert results[0].state_sha256 != results[1].state_sha256


@pytest.mark.parametrize("change", [{"drop_last": True}, {"lr_scheduler": None}, {"batch_size": 100}])
def test_every_hyperparameter_has_an_effect(change: dict[str, Any], folder: Path) -> None:
    plain, changed = demo(folder, epochs=2), demo(folder, epochs=2)
    submodel_of(changed, "lenet")["hyperparameters"] |= change
    before, after = (train_alone(spec, "lenet", folder).state_sha256 for spec in (plain, changed))
    assert before != after


@pytest.mark.parametrize("name", ["lenet", "transformer"])
def test_an_exported_sample_trains_to_the_same_bits_as_its_source(name: str, folder: Path) -> None:
    submodel = submodel_of(demo(folder), name)
    program = torch.export.load(folder / submodel["model"])  # written by this very test: to be trusted
    eager, exported = build.initial_module(name), program.module()
    data = torch.load(folder / submodel["train_data"], weights_only=True)
    for module in (eager, exported):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
        torch.manual_seed(3)
        for size in (64, 29, 2):
            optimizer.zero_grad(set_to_none=True)
            outputs = module(data["inputs"][:size].to(torch.float32) * submodel["scale"])
            torch.autograd.backward(torch.nn.functional.cross_entropy(outputs, data["targets"][:size]))
            optimizer.step()
    assert list(exported.state_dict()) == list(eager.state_dict())
    assert state_sha256(exported.state_dict()) == state_sha256(eager.state_dict())
    assert state_sha256(eager.state_dict()) != state_sha256(build.initial_module(name).state_dict())


def test_an_exported_sample_tells_nothing_of_the_machine_that_wrote_it(folder: Path) -> None:
    for sample in (folder / "lenet.pt2", folder / "transformer.pt2"):
        assert b".py" not in sample.read_bytes()


def test_writing_the_samples_again_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    rng_state = torch.get_rng_state()
    again = build.main(tmp_path)
    assert torch.equal(torch.get_rng_state(), rng_state)
    assert [path.read_bytes() for path in again] == [(folder / path.name).read_bytes() for path in again]
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in again} | {build.STAMP}


def test_samples_that_are_up_to_date_are_left_alone_and_missing_ones_come_back(tmp_path: Path) -> None:
    paths = build.main(tmp_path)
    before = [path.stat().st_mtime_ns for path in paths]
    build.main(tmp_path)
    assert [path.stat().st_mtime_ns for path in paths] == before
    paths[0].unlink()
    build.main(tmp_path)
    assert paths[0].is_file()


def test_the_two_parts_of_the_digits_hold_every_digit_once_as_scikit_learn_has_it(folder: Path) -> None:
    train, test = (torch.load(folder / f"digits_{part}.pt", weights_only=True) for part in ("train", "test"))
    digits = load_digits()
    parts = train_test_split(
        digits.images[:, None], digits.target, test_size=360, stratify=digits.target, random_state=0
    )
    written = train["inputs"], test["inputs"], train["targets"], test["targets"]
    assert all((ours.numpy() == theirs).all() for ours, theirs in zip(written, parts, strict=True))
    assert (len(train["targets"]), len(test["targets"])) == (1437, 360)
    for part in (train, test):
        assert (part["inputs"].dtype, part["targets"].dtype) == (torch.uint8, torch.int64)
        assert part["inputs"].shape == (len(part["targets"]), 1, 8, 8)
        assert (int(part["inputs"].min()), int(part["inputs"].max())) == (0, 16)
    pixels = torch.cat([train["inputs"], test["inputs"]]).flatten(1)
    assert len({row.numpy().tobytes() for row in pixels}) == 1797


def test_the_demo_is_a_valid_spec_and_names_what_was_written(folder: Path) -> None:
    spec = parse_run(demo(folder))
    assert [submodel.name for submodel in spec.submodels] == list(build.SAMPLES)
    for submodel in spec.submodels:
        sample = build.SAMPLES[submodel.name]
        assert submodel.model == sample.file
        assert all((folder / file).is_file() for file in (sample.file, submodel.train_data, str(submodel.test_data)))
        if submodel.architecture:
            assert (submodel.architecture.name, submodel.architecture.args) == (sample.architecture, sample.args)


def test_the_one_cycle_of_the_demo_spans_the_whole_training(folder: Path) -> None:
    hyper = submodel_of(demo(folder), "transformer")["hyperparameters"]
    steps_per_epoch = -(-1437 // hyper["batch_size"])
    assert hyper["lr_scheduler"]["args"]["total_steps"] == hyper["epochs"] * steps_per_epoch


def test_the_readme_states_the_number_of_weights_of_each_sample() -> None:
    readme = (build.HERE / "README.md").read_text(encoding="utf-8")
    for name, sample in build.SAMPLES.items():
        (line,) = (line for line in readme.splitlines() if line.startswith(f"| `{sample.file}`"))
        assert f"{count_parameters(build.initial_module(name)):,} weights" in line
        assert line.endswith(f"| {sample.seed} |")


@pytest.mark.parametrize("name", ["lenet", *(pytest.param(n, marks=pytest.mark.long) for n in SAMPLES if n != "lenet")])
def test_a_sample_reaches_the_promised_accuracy(name: str, folder: Path) -> None:
    assert train_alone(demo(folder), name, folder).test_accuracy >= 0.95


def submodel_of(spec: dict[str, Any], name: str) -> dict[str, Any]:
    submodels: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in spec["submodels"]}
    return submodels[name]
