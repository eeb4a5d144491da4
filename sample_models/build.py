"""Writes the sample networks, their data and the demo: `python -m sample_models.build [FOLDER]`.

Everything follows from fixed seeds. The networks are untrained. Files that are up to date are left alone.
"""

import hashlib
import io
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from unifiednn_core.formats.architectures import registry

HERE = Path(__file__).parent
DEMO = "demo.json"
DIGITS = HERE / "digits.npz"
"""README.md names the source and the licence."""
STAMP = ".stamp"
MAX_BATCH_SIZE = 4096


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample network: its file, its architecture and the seed of its initial weights."""

    file: str
    architecture: str
    args: Mapping[str, Any]
    seed: int


SAMPLES: Mapping[str, Sample] = {
    "lenet": Sample("lenet.pt2", "lenet", {"image_size": 8, "batch_norm": True}, seed=101),
    "resnet": Sample("resnet.safetensors", "resnet", {"blocks": [1, 1, 1, 1], "width": 16, "channels": 1}, seed=102),
    "transformer": Sample("transformer.pt2", "transformer", {"layers": 3}, seed=103),
}


def initial_module(name: str) -> nn.Module:
    """Make a sample network with its initial weights, in train mode on CPU; torch's RNG is left as it was."""
    sample = SAMPLES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(sample.seed)
        return registry.build(sample.architecture, sample.args)


def main(folder: Path = HERE) -> list[Path]:
    """Write every sample file and the demo into `folder`; return their paths.

    Raises:
        OSError: The folder cannot be written. Each file is then either whole or as it was before.

    """
    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[str, Callable[[], bytes]] = {
        "digits_train.pt": lambda: _dataset(*_digits("train")),
        "digits_test.pt": lambda: _dataset(*_digits("test")),
        **{sample.file: partial(_network, name) for name, sample in SAMPLES.items()},
    }
    if folder.resolve() != HERE.resolve():
        contents[DEMO] = (HERE / DEMO).read_bytes
    paths = [folder / file for file in contents]
    stamp = _stamp()
    if not _up_to_date(folder, paths, stamp):
        for path, content in zip(paths, contents.values(), strict=True):
            _write_atomically(path, content())
        _write_atomically(folder / STAMP, stamp)
    return paths


def _digits(part: str) -> tuple[Tensor, Tensor]:
    """The digits of `train` or `test`: inputs uint8 `[n, 1, 8, 8]` from 0 to 16, targets int64 `[n]`."""
    with np.load(DIGITS) as digits:
        inputs, targets = (torch.from_numpy(digits[f"{part}_{name}"]) for name in ("inputs", "targets"))
    return inputs.unsqueeze(1), targets.to(torch.int64)


def _dataset(inputs: Tensor, targets: Tensor) -> bytes:
    buffer = io.BytesIO()  # torch.save to a path would write the name of the file into its bytes
    torch.save({"inputs": inputs, "targets": targets}, buffer)
    return buffer.getvalue()


def _network(name: str) -> bytes:
    module = initial_module(name)
    if SAMPLES[name].file.endswith(".safetensors"):
        return safetensors.torch.save(module.state_dict())
    buffer = io.BytesIO()
    torch.export.save(_exported(module), buffer)
    return buffer.getvalue()


def _exported(module: nn.Module) -> torch.export.ExportedProgram:
    """Training graph with a free batch size, without the paths of this machine."""
    batch = torch.export.Dim("batch", min=2, max=MAX_BATCH_SIZE)
    images = torch.zeros(4, 1, 8, 8)
    program = torch.export.export(module.train(), (images,), dynamic_shapes=({0: batch},), strict=False)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    return program


def _write_atomically(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _up_to_date(folder: Path, paths: list[Path], stamp: bytes) -> bool:
    stamp_path = folder / STAMP
    return all(path.is_file() for path in [*paths, stamp_path]) and stamp_path.read_bytes() == stamp


def _stamp() -> bytes:
    """Versions and a hash of every source that the files follow from."""
    families = sorted({sample.architecture for sample in SAMPLES.values()})
    sources = [Path(__file__), HERE / DEMO, DIGITS, *map(registry.source_file, families)]
    sha256 = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    return f"torch {torch.__version__}, sources {sha256}\n".encode()


if __name__ == "__main__":
    for written in main(*map(Path, sys.argv[1:2])):
        print(written)
