"""One data set parted into one to train on and one to test with: equal file, share and seed give equal bytes."""

from pathlib import Path

import torch
from torch import Tensor

from unifiednn_core.errors import BadInput
from unifiednn_core.intake.data_writing import write_rows
from unifiednn_core.intake.datasets import Dataset, as_targets, open_data, read_dataset
from unifiednn_core.intake.opened import Opened, aligned, mapped_anew
from unifiednn_core.views.data import SplitPlan


def split(path: Path, plan: SplitPlan, folder: Path) -> dict[str, Path]:
    """Write the two parts, `train` and `test`, into a folder; samples keep their order.

    Raises `BadInput`, `HostileFile` or `OSError`.
    """
    dataset, opened = read_dataset(path), open_data(path)
    places = _places(path, dataset, plan)
    paths = {}
    for name, chosen in places.items():
        paths[name] = folder / name
        notes = dataset.notes.model_copy(update={"part": plan.part(name)})
        like = {"inputs": dataset.inputs, "targets": dataset.targets}

        def rows(entry: str, start: int, end: int, chosen: Tensor = chosen) -> Tensor:
            return _rows(opened, entry, chosen[start:end])

        write_rows(paths[name], like, len(chosen), rows, notes)
    return paths


def _rows(opened: Opened, entry: str, chosen: Tensor) -> Tensor:
    """Chosen samples of an entry, through a mapping of their own."""
    first, last = int(chosen[0]), int(chosen[-1])
    found = aligned(mapped_anew(opened, entry)[first : last + 1])[chosen - first]
    return as_targets(found) if entry == "targets" else found


def _places(path: Path, dataset: Dataset, plan: SplitPlan) -> dict[str, Tensor]:
    """Samples of each part, ascending."""
    generator = torch.Generator().manual_seed(plan.seed)
    labels = dataset.targets
    if plan.by_class and labels.dim() == 1 and not labels.is_floating_point():
        _, counts = torch.unique(labels, return_counts=True)
        groups = list(torch.split(torch.argsort(labels, stable=True), counts.tolist()))
    else:
        groups = [torch.arange(dataset.samples)]
    tested = []
    for group in groups:
        order = group[torch.randperm(len(group), generator=generator)]
        # of two samples and more, each part gets at least one; a single one is trained on
        count = min(max(1, int(plan.test_share * len(group) + 0.5)), len(group) - 1)
        tested.append(order[:count])
    is_test = torch.zeros(dataset.samples, dtype=torch.bool)
    is_test[torch.cat(tested)] = True
    if not is_test.any():
        message = f"No sample of {dataset.samples:,} is left to test with: a single one of a class is trained on."
        remedy = "Give more samples, or part them without regard to classes."
        raise BadInput.of("Nothing to part", field=path.name, message=message, remedy=remedy)
    return {"train": (~is_test).nonzero().squeeze(1), "test": is_test.nonzero().squeeze(1)}
