"""Plain PyTorch training of one sub-model of a spec: what the engine must equal bit for bit, written without it."""

import runpy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from sample_models.build import initial_module
from tests.integration import vanilla_loop
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.spec.run import Hyperparameters

ARCHITECTURES = Path(__file__).parents[2] / "unifiednn_core" / "formats" / "architectures"


def sha256_alone(spec: dict[str, Any], name: str, folder: Path) -> str:
    """Hash of the weights of one of a parsed spec, trained on a CPU with one thread; `folder` holds its files."""
    torch.set_num_threads(1)
    [submodel] = [entry for entry in spec["submodels"] if entry["name"] == name]
    hyper = Hyperparameters.model_validate({"seed": spec.get("seed", 0)} | submodel["hyperparameters"])
    data = torch.load(folder / submodel["train_data"], weights_only=True)
    trained = vanilla_loop.train(
        _initial(submodel, folder), hyper, (_scaled(data["inputs"], submodel), data["targets"])
    )
    return state_sha256(trained.module.state_dict())


def _initial(submodel: dict[str, Any], folder: Path) -> nn.Module:
    file = Path(submodel["model"])
    if file.suffix == ".pt2":  # the eager network of the same seed: the exported one is what is being tested
        return initial_module(file.stem)
    build = runpy.run_path(str(ARCHITECTURES / f"{submodel['architecture']['name']}.py"))["build"]
    module: nn.Module = build(**submodel["architecture"].get("args", {}))
    module.load_state_dict(load_file(folder / file))
    return module


def _scaled(inputs: Tensor, submodel: dict[str, Any]) -> Tensor:
    scale = submodel.get("scale")
    return inputs if scale is None else inputs.to(torch.float32) * scale
