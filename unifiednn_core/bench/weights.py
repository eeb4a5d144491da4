"""Writes untrained weights of named architectures, each from its seed. Called as a process of its own, with a list of
what to write as JSON on stdin.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from unifiednn_core.architectures import registry


def write(path: Path, architecture: str, args: Mapping[str, Any], seed: int) -> None:
    """Write one file, whole or not at all; torch's RNG is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = registry.build(architecture, args)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        save_file(module.state_dict(), temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


if __name__ == "__main__":
    for asked in json.load(sys.stdin):
        write(Path(asked["path"]), asked["architecture"], asked["args"], asked["seed"])
