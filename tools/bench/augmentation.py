"""Test accuracy of a ResNet18 with and without augmentation, both as sub-models of one hybrid, on real images.

The recipe is the usual one for CIFAR-10: random crop with padding 4, horizontal flip, normalisation of each channel,
SGD with momentum and weight decay, cosine. Images stay uint8. One epoch is also trained by a plain loop.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tools.bench.data import folder_of
from tools.bench.two_people import opened
from tools.machine import ToolFailed
from unifiednn_core.data.batch import Batch
from unifiednn_core.data.transforms.table import build
from unifiednn_core.formats.architectures import registry
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.run import parse_run
from unifiednn_core.spec.transforms import TransformSpec
from unifiednn_core.store.schema import SubModelRow
from unifiednn_core.views.runs import SubModelView

EPOCHS, BATCH, WIDTH = 12, 128, 16
POLL_S = 0.5
RATE, MOMENTUM, DECAY, SCALE = 0.1, 0.9, 5e-4, 1 / 255
NORMALIZE = {"name": "normalize", "mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2616]}
RECIPES: dict[str, list[dict[str, Any]]] = {
    "plain": [NORMALIZE],
    "augmented": [{"name": "random_crop", "padding": 4}, {"name": "horizontal_flip"}, NORMALIZE],
}
ABOUT = (
    f"ResNet18 of width {WIDTH} on 12,000 images of CIFAR-10 with and without random crop and flip, both in one hybrid"
    f" for {EPOCHS} epochs."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One network after its last epoch."""

    recipe: str
    seed: int
    train_accuracy: float
    test_accuracy: float
    service_s: float
    same_bits: bool
    """Whether the first epoch has the bits of a plain loop."""


def measure(repeats: int) -> list[Trained]:
    """Train so many pairs, each with a seed of its own."""
    source = folder_of(None) / "cifar10_12k.npz"
    with tempfile.TemporaryDirectory(prefix="unifiednn-bench-") as name, opened() as service:
        folder = Path(name)
        with np.load(source) as arrays:
            for part in ("train", "test"):
                images = torch.from_numpy(arrays[f"{part}_inputs"]).movedim(-1, 1).contiguous()
                save_file(
                    {"inputs": images, "targets": torch.from_numpy(arrays[f"{part}_targets"]).long()},
                    folder / f"{part}.safetensors",
                )
        service.start_supervisor()
        return [one for seed in range(repeats) for one in _pair(service, folder, seed)]


def _pair(service: Service, folder: Path, seed: int) -> list[Trained]:
    torch.manual_seed(seed)
    network = registry.build("resnet", {"width": WIDTH})
    save_file(network.state_dict(), folder / "model.safetensors")
    short, whole = (_trained(service, folder, seed, epochs) for epochs in (1, EPOCHS))
    found = []
    for recipe in RECIPES:
        plain = _plain_epoch(folder, recipe, seed)
        row, last = whole[recipe]
        if last.train_accuracy is None or last.test_accuracy is None:
            raise ToolFailed(f"{recipe} has not ended: {row.cause}")
        found.append(
            Trained(
                recipe=recipe,
                seed=seed,
                train_accuracy=last.train_accuracy,
                test_accuracy=last.test_accuracy,
                service_s=row.service_s,
                same_bits=short[recipe][0].state_sha256 == plain,
            )
        )
    return found


def _trained(service: Service, folder: Path, seed: int, epochs: int) -> dict[str, tuple[SubModelRow, SubModelView]]:
    hyper = {
        "epochs": epochs,
        "batch_size": BATCH,
        "learning_rate": RATE,
        "seed": seed,
        "optimizer_args": {"momentum": MOMENTUM, "weight_decay": DECAY},
        "lr_scheduler": {"name": "cosine", "args": {"T_max": EPOCHS}},
    }
    submodels = [
        {
            "name": name,
            "model": "model.safetensors",
            "architecture": {"name": "resnet", "args": {"width": WIDTH}},
            "train_data": "train.safetensors",
            "test_data": "test.safetensors",
            "scale": SCALE,
            "transforms": transforms,
            "hyperparameters": hyper,
        }
        for name, transforms in RECIPES.items()
    ]
    spec = {"name": "augmentation", "device": "cpu", "threads": 1, "lanes": 2, "submodels": submodels}
    run_id = service.runs.submit(parse_run(spec), folder)
    while service.runs.observe(run_id).ended_at_s is None:
        time.sleep(POLL_S)
    rows = {row.name: row for row in service.store.runs.get(run_id)[1]}
    view = service.runs.observe(run_id)
    return {part.name: (rows[part.name], part) for part in view.submodels}


def _plain_epoch(folder: Path, recipe: str, seed: int) -> str:
    """Hash of the weights after one epoch of a plain loop."""
    torch.set_num_threads(1)
    network = registry.build("resnet", {"width": WIDTH})
    network.load_state_dict(load_file(folder / "model.safetensors"))
    data = load_file(folder / "train.safetensors")
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    transforms = build(TransformSpec.model_validate(one) for one in RECIPES[recipe])
    order = torch.randperm(len(data["targets"]), generator=torch.Generator().manual_seed(seed))
    torch.manual_seed(seed)
    for chosen in torch.split(order, BATCH):
        optimizer.zero_grad(set_to_none=True)
        batch = Batch({"inputs": data["inputs"][chosen].float() * SCALE}, data["targets"][chosen])
        for transform in transforms:
            batch = transform(batch, None)
        loss: Tensor = nn.functional.cross_entropy(network(batch.inputs["inputs"]), data["targets"][chosen])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return state_sha256(network.state_dict())


def described(found: Sequence[Trained]) -> dict[str, Any]:
    """Tables and figures."""
    by_seed = {seed: {one.recipe: one for one in found if one.seed == seed} for seed in {one.seed for one in found}}
    gains = [pair["augmented"].test_accuracy - pair["plain"].test_accuracy for pair in by_seed.values()]
    same = all(one.same_bits for one in found)
    low, high = f"{100 * min(gains):.1f}", f"{100 * max(gains):.1f}"
    points = f"{low} points (one seed)" if len(gains) == 1 else f"{low} to {high} points"
    rows = [
        (one.recipe, str(one.seed), f"{one.train_accuracy:.1%}", f"{one.test_accuracy:.1%}", f"{one.service_s:.0f} s")
        for one in found
    ]
    return {
        "about": ABOUT,
        "passed": same and min(gains) > 0,
        "thresholds": [],
        "notes": [
            f"Augmentation adds {points} of test accuracy.",
            "The first epoch has the bits of a plain loop." if same else "**The first epoch has other bits.**",
        ],
        "tables": [
            {
                "title": f"After {EPOCHS} epochs:",
                "rows": rows,
                "heads": ("recipe", "seed", "training accuracy", "test accuracy", "training time"),
            }
        ],
        "measured": [*map(asdict, found)],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(described(measure(repeats=int(sys.argv[1])))) + "\n")
