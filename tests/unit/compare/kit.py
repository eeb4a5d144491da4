"""Jobs of plain scripts over a tiny network that is written out as source and weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from unifiednn_core.compare.job import ScriptJob

SOURCE = """
from torch import nn

def build(width=5):
    return nn.Sequential(nn.Flatten(), nn.Linear(6, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 3))
"""
SAMPLES = 11
MEANING = {"scale": None, "mean": None, "std": None, "transforms": [], "targets": "stored", "classes": "second"}


def data(samples: int = SAMPLES, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "inputs": torch.randint(0, 256, (samples, 2, 3), generator=generator).to(torch.uint8),
        "targets": torch.randint(0, 3, (samples,), generator=generator),
    }


def job_in(folder: Path, **changes: Any) -> ScriptJob:
    """A job whose files lie in `folder`."""
    source, weights, train, test = (folder / name for name in ("architecture.py", "weights", "train", "test"))
    source.write_text(SOURCE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(5, 3)
        )
    save_file(network.state_dict(), weights)
    torch.save(data(), train)
    torch.save(data(5, seed=1), test)
    return replace(
        ScriptJob(
            name="tiny",
            device="cpu",
            threads=1,
            seed=7,
            epochs=2,
            batch_size=4,
            batch_split=1,
            drop_last=False,
            model=str(weights),
            model_format="safetensors",
            architecture_source=str(source),
            architecture_args={},
            train_data=str(train),
            test_data=str(test),
            meaning=MEANING | {"scale": 1 / 255},
            optimizer="SGD",
            optimizer_args={"lr": 0.1, "momentum": 0.9},
            criterion="CrossEntropyLoss",
            criterion_args={},
            scores_classes=True,
            lr_scheduler=None,
            lr_scheduler_args={},
            start_from=None,
            take="weights",
            report_every_steps=1,
            weights=str(folder / "trained.safetensors"),
            parent_pid=None,
        ),
        **changes,
    )
