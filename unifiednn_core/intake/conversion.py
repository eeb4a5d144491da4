"""Tables, zips of images and compressed arrays become `.safetensors` once: all that follows maps one container."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unifiednn_core.intake import npz, registry, tables
from unifiednn_core.intake.data_writing import write_dataset, write_rows
from unifiednn_core.intake.datasets import as_targets, container_of, read_dataset

TABLES = ("csv", "parquet")
CONVERTED = (*TABLES, "images")


def is_needed(path: Path) -> bool:
    """Whether the file holds a data set that cannot be mapped as it is; raises `HostileFile`."""
    container = container_of(path)
    if container == "npz":
        return npz.is_compressed(path)
    return container in CONVERTED and registry.sniff(path) is None


def convert(path: Path, target: Path) -> None:
    """Write the data set of a file as safetensors; raises `BadInput`, `HostileFile` or `OSError`."""
    if container_of(path) in TABLES:
        _convert_table(tables.scan(path), target)
        return
    dataset = read_dataset(path)
    origin = dataset.notes.origin or container_of(path) or ""
    write_dataset(target, dataset, dataset.notes.model_copy(update={"origin": origin}))


def _convert_table(table: tables.Table, target: Path) -> None:
    """Write a table while it is read: some rows of it are in memory at a time."""
    columns, blocks = table.columns, table.inputs()
    targets = as_targets(columns.targets())
    held = np.empty((0, columns.inputs), np.float32)

    def rows(name: str, start: int, end: int) -> Tensor:
        nonlocal held
        if name == "targets":
            return targets[start:end]
        parts = [held]
        while sum(map(len, parts)) < end - start:
            parts.append(next(blocks))
        whole = np.concatenate(parts)
        held = whole[end - start :]
        return torch.from_numpy(whole[: end - start])

    like = {"inputs": torch.empty(columns.rows, columns.inputs, device="meta"), "targets": targets}
    write_rows(target, like, columns.rows, rows, columns.notes())
