"""Every registered format keeps the contract; a format that joins the registry needs a sample here."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.unit.intake import kit
from unifiednn_core.architectures import registry
from unifiednn_core.intake.base import Definition, Format
from unifiednn_core.intake.exported import Exported
from unifiednn_core.intake.registry import FORMATS
from unifiednn_core.intake.state_dict import StateDict
from unifiednn_core.spec import ArchitectureSpec
from unifiednn_core.testing.formats import check_format

LENET = ArchitectureSpec(name="lenet")


LAYERS = {
    "format": "unifiednn-layers",
    "seed": 3,
    "layers": [
        ["Conv2d", {"in_channels": 1, "out_channels": 4, "kernel_size": 3, "padding": 1}],
        ["Residual", [["BatchNorm2d", {"num_features": 4}], ["ReLU"]]],
        ["Flatten"],
        ["Dropout", {"p": 0.2}],
        ["Linear", {"in_features": 256, "out_features": 3}],
    ],
}


def architecture_config() -> object:
    (config,) = registry.parameters_of("huggingface")
    return config.default


def sample(model_format: Format, folder: Path) -> tuple[Path, ArchitectureSpec | None]:
    """A good file of each format."""
    path = folder / f"sample{model_format.suffixes[0]}"
    if model_format.name == "pt2":
        return kit.exported(folder, "residual"), None
    if model_format.name == "module":
        torch.save(kit.network("cnn"), path)
        return path, None
    if model_format.name == "layers":
        path.write_text(json.dumps(LAYERS))
        return path, None
    if model_format.name == "huggingface":
        path.write_text(json.dumps(architecture_config()))
        return path, None
    weights = registry.build(LENET.name, LENET.args).state_dict()
    if model_format.name == "state_dict":
        torch.save(weights, path)
    else:
        save_file(weights, path)
    return path, LENET


@pytest.mark.parametrize("model_format", FORMATS, ids=lambda known: known.name)
def test_a_registered_format_keeps_the_contract(model_format: Format, tmp_path: Path) -> None:
    check_format(model_format, *sample(model_format, tmp_path))


def test_formats_have_distinct_names() -> None:
    assert len({known.name for known in FORMATS}) == len(FORMATS)


@pytest.mark.parametrize("network", sorted(kit.NETWORKS))
def test_exported_files_of_every_kind_keep_the_contract(network: str, tmp_path: Path) -> None:
    check_format(Exported(), kit.exported(tmp_path, network))


class Forgetful(StateDict):
    """Writes what the file held before the training."""

    def save(self, state_dict: dict[str, torch.Tensor], path: Path) -> None:
        super().save({key: torch.zeros_like(tensor) for key, tensor in state_dict.items()}, path)


class Greedy(StateDict):
    """Draws random numbers while it builds."""

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        import dataclasses

        definition = super().read(path, architecture)

        def build() -> torch.nn.Module:
            torch.rand(1)
            return definition.build()

        return dataclasses.replace(definition, build=build)


@pytest.mark.parametrize(
    ("broken", "promise"), [(Forgetful(), "read back as they were written"), (Greedy(), "default RNG")]
)
def test_the_kit_notices_a_broken_format(broken: Format, promise: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_format(broken, *sample(broken, tmp_path))
