"""Findings on hyper-parameters that do not fit the data or the length of the training, from the tables of choices."""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from unifiednn_core.base.errors import Finding
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.preflight.trial import part_sizes
from unifiednn_core.spec.choices import CRITERIA, IGNORE_INDEX, LR_SCHEDULERS, OPTIMIZERS
from unifiednn_core.spec.run import Hyperparameters, LRSchedulerSpec, SubModelSpec

# A probability that counts as never.
NEGLIGIBLE = 1e-9
Severity = Literal["error", "warning"]


def hyper_findings(submodel: SubModelSpec, train: Dataset, test: Dataset | None) -> list[Finding]:
    """All findings that need no training."""
    hyper, place = submodel.hyperparameters, f"submodels.{submodel.name}"
    steps = hyper.steps_per_epoch(train.samples)
    found = list(_step_findings(hyper, train.samples, steps, f"{place}.hyperparameters"))
    if test is None:
        message = "Without test data the accuracy on unseen samples stays unknown."
        found.append(_finding("warning", "No test data", f"{place}.test_data", message, "Give test data."))
    for data, entry in ((train, "train_data"), (test, "test_data")):
        if data is not None:
            found += _target_findings(hyper, data.targets, f"{place}.{entry}")
            found += _useless_findings(hyper, data.targets, f"{place}.{entry}", evaluated=data is test)
    if hyper.lr_scheduler is not None and steps:
        place_lr = f"{place}.hyperparameters.lr_scheduler"
        found += _lr_findings(hyper, hyper.lr_scheduler, steps, place_lr, tested=test is not None)
    if OPTIMIZERS[hyper.optimizer].rate_once and (hyper.lr_scheduler is not None or hyper.warm_up is not None):
        message = f"{hyper.optimizer} takes the learning rate for its first step alone; later changes have no effect."
        remedy = "Leave LR scheduler and warm-up out, or choose another optimizer."
        found.append(_finding("warning", "Optimizer", f"{place}.hyperparameters.optimizer", message, remedy))
    found += _stopping_findings(hyper, f"{place}.hyperparameters.early_stopping", tested=test is not None)
    return found


def _step_findings(hyper: Hyperparameters, samples: int, steps: int, place: str) -> Iterator[Finding]:
    """Batches in a step, and steps in the training."""
    if not steps:
        message = f"The training data has {samples} samples, less than one batch of {hyper.batch_size}, and drop_last."
        remedy = 'Choose a smaller batch size, or set "drop_last" to false.'
        yield _finding("error", "No step to train", f"{place}.batch_size", message, remedy)
        return
    batches, total = hyper.batches_per_epoch(samples), steps * hyper.epochs
    if hyper.accumulation_steps > batches:
        message = f"An epoch has {batches} batches, so that a step never has {hyper.accumulation_steps} of them."
        remedy = f"Set accumulation_steps to {batches} or less."
        yield _finding("warning", "Batches in a step", f"{place}.accumulation_steps", message, remedy)
    if hyper.warm_up is not None and hyper.warm_up.steps >= total:
        message = f"The warm-up takes {hyper.warm_up.steps} steps, and the whole training has {total}."
        remedy = f"Give it fewer steps, such as {max(1, total // 10)}."
        yield _finding("warning", "Warm-up too long", f"{place}.warm_up.steps", message, remedy)
    uneven = sorted({"weight", IGNORE_INDEX} & hyper.criterion_args.keys())
    if uneven and hyper.ignored_label is not None and (hyper.batch_split > 1 or hyper.accumulation_steps > 1):
        message = f"With {uneven[0]} a mean over samples is weighted. Each part of a step is averaged by itself, "
        message += "so that the gradient is not exactly that of one large batch."
        remedy = "Use batch_split = 1 and accumulation_steps = 1 where that matters."
        yield _finding("warning", "Weights of classes", f"{place}.criterion_args.{uneven[0]}", message, remedy)


def _target_findings(hyper: Hyperparameters, targets: Tensor, place: str) -> Iterator[Finding]:
    """Target values that the criterion does not take; the dry run checks types and shapes."""
    takes = CRITERIA[hyper.criterion].targets
    if not targets.is_floating_point() or not targets.numel():
        return
    least, most = (float(bound) for bound in torch.aminmax(targets))
    said = f"{hyper.criterion} takes targets {{}}; these go from {least:g} to {most:g}."
    if takes == "shares" and not (least >= 0 and most <= 1):
        remedy = "Store 0 and 1, or choose another criterion."
        yield _finding("error", "Targets", place, said.format("from 0 to 1"), remedy)
    elif takes == "signs" and not bool((targets.abs() == 1).all()):
        remedy = "Store -1 for no and 1 for yes, or choose another criterion."
        yield _finding("error", "Targets", place, said.format("of -1 and 1 alone"), remedy)
    elif takes == "counts" and not least >= 0:
        remedy = "Store counts, or choose another criterion."
        yield _finding("warning", "Targets", place, said.format("from 0 on"), remedy)


def _useless_findings(hyper: Hyperparameters, targets: Tensor, place: str, *, evaluated: bool) -> Iterator[Finding]:
    """Samples without any target that counts, where one batch may hold them alone: its mean loss is 0 / 0."""
    ignored, weight = hyper.ignored_label, hyper.criterion_args.get("weight")
    if ignored is None or targets.is_floating_point():
        return
    counts, what = targets != ignored, f"{ignored} (ignore_index)"
    if weight is not None and 0 in weight:
        counts &= torch.tensor(weight)[targets.clamp(0, len(weight) - 1)] > 0
        what += " or of a class with weight 0"
    useful = counts.flatten(1).any(1) if targets.dim() > 1 else counts
    useless = len(useful) - int(useful.sum())
    if evaluated:  # in file order
        alone = not all(bool(batch.any()) for batch in torch.split(useful, hyper.batch_size))
    else:
        alone = _expected(hyper, len(useful), useless) > NEGLIGIBLE
    if alone:
        message = f"{useless} of {len(useful)} samples have no target that counts: all are {what}. "
        message += "A batch of such samples alone has no loss."
        yield _finding("error", "Samples without a target", place, message, "Leave these samples out of the data.")


def _expected(hyper: Hyperparameters, samples: int, useless: int) -> float:
    """Parts of batches in a whole training that are expected to be of useless samples alone."""
    parts = hyper.epochs * hyper.batches_per_epoch(samples) * hyper.batch_split
    smallest = min(part_sizes(hyper, samples), default=0)
    return parts * math.prod(max(0, useless - drawn) / (samples - drawn) for drawn in range(smallest))


def _lr_findings(
    hyper: Hyperparameters, asked: LRSchedulerSpec, steps: int, place: str, *, tested: bool
) -> Iterator[Finding]:
    """An LR scheduler against the length of the training; `steps` are those of an epoch."""
    choice, needed = LR_SCHEDULERS[asked.name], hyper.epochs * (steps if asked.per == "step" else 1)
    span, first = asked.args.get(choice.span), _least(asked.args.get(choice.first_change))
    failing = hyper.failing_after
    if failing is not None and failing[2] < needed:
        message = f"{choice.torch_class} ends with an error after {choice.span} = {span}; the training takes {needed}."
        yield _finding("error", "LR scheduler too short", f"{place}.args", message, f"Set {choice.span} to {needed}.")
    elif isinstance(span, int) and span < needed and choice.afterwards == "rises":
        message = f"With {choice.span} = {span} the learning rate rises again before the end, which is at {needed}."
        yield _finding("warning", "LR scheduler", f"{place}.args", message, f"Set {choice.span} to {needed}.")
    elif isinstance(span, int) and span > needed and choice.per in ("", asked.per):
        message = f"With {choice.span} = {span} the training ends before the schedule does, at {needed}."
        yield _finding("warning", "LR scheduler", f"{place}.args", message, f"Set {choice.span} to {needed}.")
    if choice.per not in ("", asked.per):
        meant = {"step": "after every batch", "epoch": "once per epoch"}
        message = f"{choice.torch_class} is meant to be stepped {meant[choice.per]}, but is stepped {meant[asked.per]}."
        yield _finding("warning", "LR scheduler", f"{place}.per", message, f'Set "per" to "{choice.per}".')
    if first is not None and first >= needed:
        message = (
            f"With {choice.first_change} = {first} the learning rate never changes: the training ends at {needed}."
        )
        yield _finding("warning", "LR scheduler", f"{place}.args", message, f"Give less than {needed}.")
    if choice.measured and not tested:
        message = f"Without test data {choice.torch_class} goes by the loss of the training."
        yield _finding("warning", "LR scheduler", f"{place}.name", message, "Give test data.")


def _stopping_findings(hyper: Hyperparameters, place: str, *, tested: bool) -> Iterator[Finding]:
    """Whether early stopping has its metric and can ever stop the training."""
    asked = hyper.early_stopping
    if asked is None:
        return
    if asked.metric != "train_loss" and not tested:
        message = f"Without test data {asked.metric.replace('_', ' ')} is not available."
        remedy = 'Give test data, or set the metric to "train_loss".'
        yield _finding("error", "Early stopping", f"{place}.metric", message, remedy)
    if asked.patience >= hyper.epochs:
        message = f"A patience of {asked.patience} epochs never ends a training of {hyper.epochs} early."
        remedy = "Give it less patience, or train for more epochs."
        yield _finding("warning", "Early stopping", f"{place}.patience", message, remedy)


def _least(value: object) -> int | None:
    if isinstance(value, list):
        return min(value, default=None)
    return value if isinstance(value, int) else None


def _finding(severity: Severity, title: str, field: str, message: str, remedy: str) -> Finding:
    return Finding(severity=severity, title=title, field=field, message=message, remedy=remedy)
