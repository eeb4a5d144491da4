"""Plain PyTorch training of one sub-model: what the engine must equal bit for bit, written without it."""

import hashlib
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from sample_models.build import initial_module

ARCHITECTURES = Path(__file__).parents[2] / "unifiednn_core" / "formats" / "architectures"

OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}
CRITERIA = {"cross_entropy": nn.CrossEntropyLoss, "nll": nn.NLLLoss}
LR_SCHEDULERS = {
    "step": torch.optim.lr_scheduler.StepLR,
    "multi_step": torch.optim.lr_scheduler.MultiStepLR,
    "exponential": torch.optim.lr_scheduler.ExponentialLR,
    "cosine": torch.optim.lr_scheduler.CosineAnnealingLR,
    "linear": torch.optim.lr_scheduler.LinearLR,
    "one_cycle": torch.optim.lr_scheduler.OneCycleLR,
}


@dataclass(frozen=True)
class VanillaResult:
    state_sha256: str
    losses: list[float]
    """Of every step, in order."""
    test_accuracy: float
    """Fraction, after the last epoch."""
    state_dict: dict[str, Tensor]


def train_alone(spec: dict[str, Any], submodel_name: str, folder: Path) -> VanillaResult:
    """Train one sub-model of a parsed spec on CPU with one thread; `folder` holds the files that it names."""
    torch.set_num_threads(1)
    (submodel,) = (entry for entry in spec["submodels"] if entry["name"] == submodel_name)
    hyper = submodel["hyperparameters"]
    epochs, batch_size, seed = hyper["epochs"], hyper["batch_size"], hyper.get("seed", spec.get("seed", 0))
    module = _initial(submodel, folder)
    train_inputs, train_targets = _dataset(folder / submodel["train_data"])
    test_inputs, test_targets = _dataset(folder / submodel["test_data"])

    optimizer_args = {"lr": hyper["learning_rate"], **hyper.get("optimizer_args", {})}
    optimizer = OPTIMIZERS[hyper["optimizer"]](module.parameters(), **optimizer_args)
    criterion = CRITERIA[hyper.get("criterion", "cross_entropy")](**hyper.get("criterion_args", {}))
    schedule = hyper.get("lr_scheduler")
    scheduler = LR_SCHEDULERS[schedule["name"]](optimizer, **schedule["args"]) if schedule else None
    per_step = bool(schedule) and schedule.get("per") == "step"

    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    samples, losses, test_accuracy = len(train_targets), [], 0.0
    used = samples - samples % batch_size if hyper.get("drop_last") else samples
    for _ in range(epochs):
        module.train()
        order = torch.randperm(samples, generator=generator)
        for start in range(0, used, batch_size):
            batch = order[start : start + batch_size]
            optimizer.zero_grad(set_to_none=True)
            outputs = module(_transformed(train_inputs[batch], submodel))
            loss = criterion(outputs, train_targets[batch])
            loss.backward()
            optimizer.step()
            if scheduler and per_step:
                scheduler.step()
            losses.append(loss.item())
        if scheduler and not per_step:
            scheduler.step()
        test_accuracy = _accuracy(module, test_inputs, test_targets, submodel)

    state_dict = {key: tensor.detach().clone() for key, tensor in module.state_dict().items()}
    return VanillaResult(state_sha256(state_dict), losses, test_accuracy, state_dict)


def state_sha256(state_dict: dict[str, Tensor]) -> str:
    """Hash of weights: key, dtype, shape and raw little-endian bytes of each tensor, in sorted order of keys."""
    digest = hashlib.sha256()
    for key in sorted(state_dict):
        tensor = state_dict[key].detach().cpu().contiguous()
        digest.update(key.encode("utf-8"))
        digest.update(str(tensor.dtype).encode("utf-8"))
        digest.update(str(list(tensor.shape)).encode("utf-8"))
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _initial(submodel: dict[str, Any], folder: Path) -> nn.Module:
    file = Path(submodel["model"])
    if file.suffix == ".pt2":  # the eager network of the same seed: the exported one is what is being tested
        return initial_module(file.stem)
    build = runpy.run_path(str(ARCHITECTURES / f"{submodel['architecture']['name']}.py"))["build"]
    module: nn.Module = build(**submodel["architecture"].get("args", {}))
    module.load_state_dict(load_file(folder / file))
    return module


def _dataset(path: Path) -> tuple[Tensor, Tensor]:
    content = torch.load(path, weights_only=True)
    return content["inputs"], content["targets"]


def _transformed(inputs: Tensor, submodel: dict[str, Any]) -> Tensor:
    scale, mean, std = (submodel.get(key) for key in ("scale", "mean", "std"))
    if scale is None and mean is None and std is None:
        return inputs
    inputs = inputs.to(torch.float32)
    if scale is not None:
        inputs = inputs * scale
    if mean is not None:
        inputs = inputs - mean
    if std is not None:
        inputs = inputs / std
    return inputs


def _accuracy(module: nn.Module, inputs: Tensor, targets: Tensor, submodel: dict[str, Any]) -> float:
    batch_size = submodel["hyperparameters"]["batch_size"]
    module.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(targets), batch_size):
            part = slice(start, start + batch_size)
            predicted = module(_transformed(inputs[part].clone(), submodel)).argmax(1)
            right += int((predicted == targets[part]).sum())
    return right / len(targets)
