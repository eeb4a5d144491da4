"""Sub-models without files, for benches that drive an engine themselves."""

import contextlib
import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.resident_data import HOST, ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition, count_parameters, size_bytes
from unifiednn_core.spec.run import SubModelSpec

SEED = 7
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_KEPT_BYTES = {_M_MMAP_THRESHOLD: 32 * 2**20, _M_TRIM_THRESHOLD: 64 * 2**20}


def made(build: Callable[[], nn.Module], data: Dataset, asked: Mapping[str, Mapping[str, Any]]) -> list[SubModel]:
    """Make sub-models that share a network, its first weights and the data; `asked` are hyper-parameters by name."""

    def seeded() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return build()

    module, resident, parts = seeded(), ResidentData(HOST), []
    count, weights_bytes = count_parameters(module), size_bytes(module.state_dict())
    definition = Definition(
        format="bench", path=Path("bench"), build=seeded, parameters=count, weights_bytes=weights_bytes
    )
    for name, given in asked.items():
        document = {"name": name, "model": "bench", "train_data": "bench", "hyperparameters": {**given, "seed": SEED}}
        train = resident.hold("bench", lambda: data)
        spec = SubModelSpec.model_validate(document)
        parts.append(SubModel(spec, definition, seed=SEED, train=train, test=None, device=HOST))
    return parts


def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next step, for the rest of this process.

    Otherwise it gives some of it back to the kernel and takes it again, now after this step and now after that one,
    which costs either loop up to 30 %.
    """
    with contextlib.suppress(OSError, AttributeError):  # a C library that is not glibc
        for parameter, size in _KEPT_BYTES.items():
            ctypes.CDLL(None).mallopt(parameter, size)
