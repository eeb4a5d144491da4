"""The plain PyTorch loop that the engine is held against, and the samples that both train."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from sample_models import build
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


def test_an_exported_sample_tells_nothing_of_the_machine_that_wrote_it(folder: Path) -> None:
    for sample in (folder / "lenet.pt2", folder / "transformer.pt2"):
        assert b".py" not in sample.read_bytes()


def test_writing_the_samples_again_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    rng_state = torch.get_rng_state()
    again = build.main(tmp_path)
    assert torch.equal(torch.get_rng_state(), rng_state)
    assert [path.read_bytes() for path in again] == [(folder / path.name).read_bytes() for path in again]
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in again} | {build.STAMP}


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


def submodel_of(spec: dict[str, Any], name: str) -> dict[str, Any]:
    submodels: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in spec["submodels"]}
    return submodels[name]
