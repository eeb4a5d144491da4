"""Every registered format keeps the contract; a format that joins the registry needs a sample here."""

import ast
import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.unit.formats import kit
from unifiednn_core.formats.architectures import registry
from unifiednn_core.formats.base import Definition, Format
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.registry import FORMATS
from unifiednn_core.formats.state_dict import STATE_DICT, WeightsFormat
from unifiednn_core.spec.run import ArchitectureSpec
from unifiednn_core.testing.formats import check_format

LENET = ArchitectureSpec(name="lenet")


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


def test_a_format_never_imports_a_format() -> None:
    modules = {type(known).__module__ for known in FORMATS}
    for module in modules:
        spec = importlib.util.find_spec(module)
        assert spec is not None and spec.origin is not None
        tree = ast.parse(Path(spec.origin).read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        named = {
            name for node in imports for name in (node.module, *(f"{node.module}.{one.name}" for one in node.names))
        }
        assert not named & (modules - {module})


@pytest.mark.parametrize("network", sorted(kit.NETWORKS))
def test_exported_files_of_every_kind_keep_the_contract(network: str, tmp_path: Path) -> None:
    check_format(ExportedFormat(), kit.exported(tmp_path, network))


def save_zeros(state_dict: dict[str, torch.Tensor], path: Path) -> None:
    torch.save({key: torch.zeros_like(tensor) for key, tensor in state_dict.items()}, path)


class Greedy(WeightsFormat):
    """Draws random numbers while it builds."""

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        definition = WeightsFormat.read(self, path, architecture)

        def build() -> torch.nn.Module:
            torch.rand(1)
            return definition.build()

        return dataclasses.replace(definition, build=build)


FORGETFUL = dataclasses.replace(STATE_DICT, save=save_zeros)
GREEDY = Greedy(**{field.name: getattr(STATE_DICT, field.name) for field in dataclasses.fields(STATE_DICT)})


@pytest.mark.parametrize(
    ("broken", "promise"), [(FORGETFUL, "read back as they were written"), (GREEDY, "default RNG")]
)
def test_the_kit_notices_a_broken_format(broken: Format, promise: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_format(broken, *sample(broken, tmp_path))
