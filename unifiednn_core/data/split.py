"""Splits a data set into a training and a test part. Equal file, share and seed give equal bytes."""

from pathlib import Path

import torch
from torch import Tensor

from unifiednn_core.data.containers import open_data
from unifiednn_core.data.conversion import write_rows
from unifiednn_core.data.datasets import TARGETS, Dataset, as_targets, read_dataset
from unifiednn_core.data.opened import aligned, mapped_anew
from unifiednn_core.data.values import SplitPlan
from unifiednn_core.formats.tensor_files import bad_file


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
