"""Writes data sets as safetensors: those that cannot be mapped, and the training and test part of one that is split.

Equal samples and notes give equal bytes; so do equal file, share and seed of a split.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data import tables, tabular
from unifiednn_core.data.containers import container_of, found_container, open_data, read_parts
from unifiednn_core.data.datasets import TARGETS, Dataset, as_targets, read_dataset
from unifiednn_core.data.parts import Rows, aligned, check_room, mapped_anew, rows_per_block
from unifiednn_core.data.values import AS_STORED, DataNotes, ImportOptions, SplitPlan, part_path
from unifiednn_core.formats import registry
from unifiednn_core.formats.tensor_files import ALIGNMENT_BYTES, bad_file, raw, safetensors_header
from unifiednn_core.spec.columns import NO_TABLE_OPTIONS

TABLES = ("csv", "jsonl", "parquet")
CONVERTED = (*TABLES, "archive")
"""Containers that are converted unless a model format knows the file."""


def settled(path: Path, filename: str, options: ImportOptions) -> ImportOptions:
    """Say of a file that is no table whether it is read as plain text; raises `BadInput` if a wish does not apply."""
    wish, container = options.table, container_of(path)
    if wish.text or container in TABLES:
        return options
    known = container is not None or registry.sniff(path) is not None
    if not known and (wish.target is not None or wish.text_columns or wish.ignore or wish.header is not None):
        raise registry.unknown(path)  # these are choices about a table
    if not known and (wish != NO_TABLE_OPTIONS or filename.lower().endswith(tables.SUFFIXES)):
        return options.model_copy(update={"table": wish.model_copy(update={"text": True})})
    if wish != NO_TABLE_OPTIONS:
        message = "The file is neither a table nor a text, so nothing can be said about columns and tokens."
        raise BadInput.of("Not a table", filename, message, "Import it without these options.")
    return options


def is_needed(path: Path, options: ImportOptions = AS_STORED) -> bool:
    """Whether the file holds a data set that cannot be mapped as it is; raises `BadInput` or `HostileFile`."""
    if options.table.text:
        return True
    container = container_of(path)
    if container is None or (container in CONVERTED and registry.sniff(path) is not None):
        return False
    return options != AS_STORED or not found_container(path).mapped(path)


def convert(
    path: Path, target: Path, options: ImportOptions = AS_STORED, files: tabular.Files | None = None
) -> dict[str, Path]:
    """Write each data set of a file as safetensors, the first to `target`; returns where each part is.

    `files` finds a file of the library by its hash, if the options name one.

    Raises `BadInput`, `HostileFile` or `OSError`.
    """
    container = container_of(path)
    if options.table.text or container in TABLES:
        wish = options.table.model_copy(update={"size": options.size})
        tabular.convert_table(path, target, wish, files)
        return {"": target}
    with read_parts(path, options) as parts:
        check_room(path, parts, target.parent)
        paths = {name: part_path(target, name) if at else target for at, name in enumerate(parts)}
        for name, part in parts.items():
            notes = part.notes.model_copy(update={"origin": part.notes.origin or container or ""})
            write_rows(paths[name], part.like, part.samples, part.rows, notes)
    return paths


def write_rows(path: Path, like: Mapping[str, Tensor], samples: int, rows: Rows, notes: DataNotes) -> None:
    """Write `samples` samples from `rows`, with the types and shapes of the entries in `like`; raises `OSError`."""
    layout = {name: (entry.dtype, (samples, *entry.shape[1:])) for name, entry in like.items()}
    with path.open("wb") as file:
        file.write(safetensors_header(layout, notes.metadata(), ALIGNMENT_BYTES))
        for name, entry in like.items():
            step = rows_per_block(entry)
            for start in range(0, samples, step):
                file.write(raw(rows(name, start, min(samples, start + step)).contiguous()))


def split(path: Path, plan: SplitPlan, folder: Path) -> dict[str, Path]:
    """Write `train` and `test` into a folder, samples in order. Raises `BadInput`, `HostileFile` or `OSError`."""
    dataset, opened = read_dataset(path), open_data(path)
    like = {name: as_targets(one[:1]) if name == TARGETS else one for name, one in dataset.entries.items()}
    paths = {}
    for name, chosen in _places(path, dataset, plan).items():
        paths[name] = folder / name
        notes = dataset.notes.model_copy(update={"part": plan.part(name), "origin": ""})

        def rows(entry: str, start: int, end: int, chosen: Tensor = chosen) -> Tensor:
            here = chosen[start:end]
            first, last = int(here[0]), int(here[-1])
            found = aligned(mapped_anew(opened, entry)[first : last + 1])[here - first]
            return as_targets(found) if entry == TARGETS else found

        write_rows(paths[name], like, len(chosen), rows, notes)
    return paths


def _places(path: Path, dataset: Dataset, plan: SplitPlan) -> dict[str, Tensor]:
    """Indices of the samples of each part, ascending."""
    generator = torch.Generator().manual_seed(plan.seed)
    labels = dataset.targets
    if labels is not None and plan.by_class and labels.dim() == 1 and not labels.is_floating_point():
        labels = as_targets(labels)
        _, counts = torch.unique(labels, return_counts=True)
        groups = list(torch.split(torch.argsort(labels, stable=True), counts.tolist()))
    else:
        groups = [torch.arange(dataset.samples)]
    tested = []
    for group in groups:
        order = group[torch.randperm(len(group), generator=generator)]
        # each part of two or more samples gets at least one; a single sample goes to training
        count = min(max(1, int(plan.test_share * len(group) + 0.5)), len(group) - 1)
        tested.append(order[:count])
    is_test = torch.zeros(dataset.samples, dtype=torch.bool)
    is_test[torch.cat(tested)] = True
    if not is_test.any():
        message = f"None of {dataset.samples:,} samples is left for the test: single samples of a class go to training."
        remedy = "Give more samples, or do not split by class."
        raise bad_file(path, "Nothing to split", message, remedy)
    return {"train": (~is_test).nonzero().squeeze(1), "test": is_test.nonzero().squeeze(1)}
