"""Writes untrained networks, each from its seed. Runs as a process of its own, with a list of files as JSON on stdin.

A network that the product builds by name becomes `.safetensors`, every other one an exported graph, `.pt2`.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from sample_models.architectures import build
from unifiednn_core.preflight.pack.exporting import exported
from unifiednn_core.preflight.pack.request import Example, ExampleInput


def write(
    path: Path, architecture: str, args: Mapping[str, Any], seed: int, sample: tuple[int, ...], dtype: str
) -> None:
    """Write one file, whole or not at all, and leave torch's RNG as it was.

    `sample` is the shape of one input, which an exported graph needs.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = build(architecture, args).train()
        temporary = path.with_name(f".{os.getpid()}.{path.name}")
        try:
            if path.suffix == ".pt2":
                torch.export.save(
                    exported(module, Example(inputs=(ExampleInput(shape=sample, dtype=dtype),)), architecture),
                    temporary,
                )
            else:
                save_file(module.state_dict(), temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


if __name__ == "__main__":
    for asked in json.load(sys.stdin):
        write(**asked | {"path": Path(asked["path"]), "sample": tuple(asked["sample"])})
