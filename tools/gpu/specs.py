"""Specs for a GPU: `python -m tools.gpu.specs long`, or `... trio DATA OUT [--device DEVICE]`."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from unifiednn_core.formats.architectures import registry

DEMO = Path(__file__).resolve().parents[2] / "sample_models" / "demo.json"
RESNET = {"classes": 10, "imagenet_stem": False}
TRIO: tuple[tuple[str, dict[str, Any], str, int, float, int], ...] = (
    ("lenet", {"batch_norm": True}, "mnist", 256, 0.01, 20),
    ("resnet18", RESNET, "cifar", 128, 0.001, 10),
    ("resnet34", RESNET, "cifar", 128, 0.001, 10),
)
"""The paper's first trio at full size: network, arguments, data, batch size, learning rate, epochs (few)."""


def long_demo() -> dict[str, Any]:
    """The demo with four times the epochs and one lane, for a profiler."""
    spec: dict[str, Any] = json.loads(DEMO.read_text(encoding="utf-8")) | {"name": "long", "lanes": 1}
    for submodel in spec["submodels"]:
        hyper = submodel["hyperparameters"]
        hyper["epochs"] *= 4
        if hyper.get("lr_scheduler", {}).get("name") == "one_cycle":  # its length is that of the demo
            del hyper["lr_scheduler"]
    return spec


def trio(data: Path, to: Path, device: str) -> None:
    """Write exact.json and fast.json with their models and data into a folder."""
    for name, file in (("mnist", "mnist.npz"), ("cifar", "cifar10_12k.npz")):
        with np.load(data / file, allow_pickle=False) as known:
            for part in ("train", "test"):
                images = known[f"{part}_inputs"]
                images = images[:, None] if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))
                np.savez(to / f"{name}_{part}.npz", inputs=images, targets=known[f"{part}_targets"].astype(np.int64))
    submodels = []
    for number, (name, arguments, known_as, batch_size, rate, epochs) in enumerate(TRIO, start=1):
        torch.manual_seed(0)
        save_file(registry.build(name, arguments).state_dict(), to / f"{name}.safetensors")
        hyper = {"epochs": epochs, "batch_size": batch_size, "optimizer": "sgd", "learning_rate": rate, "seed": number}
        submodels.append(
            {
                "name": name,
                "model": f"{name}.safetensors",
                "architecture": {"name": name, "args": arguments},
                "train_data": f"{known_as}_train.npz",
                "test_data": f"{known_as}_test.npz",
                "scale": 1 / 255,
                "priority": number,
                "hyperparameters": hyper,
            }
        )
    for profile in ("exact", "fast"):
        spec = {"name": f"trio-{profile}", "seed": 0, "device": device, "profile": profile, "submodels": submodels}
        text = json.dumps(spec | {"policy": {"name": "priority"}}, indent=1)
        (to / f"{profile}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.gpu.specs", description=__doc__)
    parser.add_argument("name", choices=("long", "trio"))
    parser.add_argument("data", type=Path, nargs="?", default=Path(), help="of `trio`: folder with the data")
    parser.add_argument("to", type=Path, nargs="?", default=Path(), help="of `trio`: where to write")
    parser.add_argument("--device", default="cuda")
    asked = parser.parse_args()
    if asked.name == "long":
        json.dump(long_demo(), sys.stdout, indent=1)
    else:
        trio(asked.data, asked.to, asked.device)
