"""Converts data sets that cannot be mapped to safetensors. Equal samples and notes give equal bytes."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unifiednn_core.data import tables
from unifiednn_core.data.containers import container_of, found_container, read_parts
from unifiednn_core.data.datasets import as_targets
from unifiednn_core.data.opened import rows_per_block
from unifiednn_core.data.parts import Rows, check_room
from unifiednn_core.data.values import AS_STORED, DataNotes, ImportOptions, part_path
from unifiednn_core.formats import registry
from unifiednn_core.formats.tensor_files import ALIGNMENT_BYTES, raw, safetensors_header

TABLES = ("csv", "parquet")
CONVERTED = (*TABLES, "archive")
"""Containers that are converted unless a model format knows the file."""


def is_needed(path: Path, options: ImportOptions = AS_STORED) -> bool:
    """Whether the file holds a data set that cannot be mapped as it is; raises `BadInput` or `HostileFile`."""
    container = container_of(path)
    if container is None or (container in CONVERTED and registry.sniff(path) is not None):
        return False
    return options != AS_STORED or not found_container(path).mapped(path)


def convert(path: Path, target: Path, options: ImportOptions = AS_STORED) -> dict[str, Path]:
    """Write each data set of a file as safetensors, the first to `target`; returns where each part is.

    Raises `BadInput`, `HostileFile` or `OSError`.
    """
    container = container_of(path)
    if container in TABLES:
        _convert_table(tables.scan(path), target)
        return {"": target}
    with read_parts(path, options) as parts:
        check_room(path, parts, target.parent)
        paths = {name: part_path(target, name) if at else target for at, name in enumerate(parts)}
        for name, part in parts.items():
            notes = part.notes.model_copy(update={"origin": part.notes.origin or container or ""})
            write_rows(paths[name], part.like, part.samples, part.rows, notes)
    return paths


def _convert_table(table: tables.Table, target: Path) -> None:
    """Write a table block by block, so that it is never in memory as a whole."""
    blocks, targets = table.blocks(), as_targets(table.targets())
    left = np.empty((0, table.inputs), np.float32)

    def rows(name: str, start: int, end: int) -> Tensor:
        nonlocal left
        if name == "targets":
            return targets[start:end]
        while len(left) < end - start:
            left = np.concatenate([left, next(blocks)])
        found, left = left[: end - start], left[end - start :]
        return torch.from_numpy(found)

    like = {"inputs": torch.empty(table.rows, table.inputs, device="meta"), "targets": targets}
    write_rows(target, like, table.rows, rows, table.notes())


def write_rows(path: Path, like: Mapping[str, Tensor], samples: int, rows: Rows, notes: DataNotes) -> None:
    """Write `samples` samples from `rows`, with the types and shapes of the entries in `like`; raises `OSError`."""
    layout = {name: (entry.dtype, (samples, *entry.shape[1:])) for name, entry in like.items()}
    with path.open("wb") as file:
        file.write(safetensors_header(layout, notes.metadata(), ALIGNMENT_BYTES))
        for name, entry in like.items():
            step = rows_per_block(entry)
            for start in range(0, samples, step):
                file.write(raw(rows(name, start, min(samples, start + step)).contiguous()))
