"""Findings on hyper-parameters that do not fit the data or the length of the training, from the tables of choices."""

import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput, Finding, Fix
from unifiednn_core.data import balance
from unifiednn_core.data.balance import data_order
from unifiednn_core.data.batch import Batch
from unifiednn_core.data.datasets import INPUTS, TARGETS, Dataset, in_blocks, targets_in_blocks
from unifiednn_core.data.preview import look_like_pixels
from unifiednn_core.data.transforms.table import build
from unifiednn_core.data.values import BYTE, FEWEST_PIXELS, pixel_divisor
from unifiednn_core.engine.step import UNSCALED, Scaling
from unifiednn_core.preflight.trial import part_sizes
from unifiednn_core.spec.choices import CRITERIA, IGNORE_INDEX, LR_SCHEDULES, OPTIMIZERS
from unifiednn_core.spec.hyperparameters import LRStage
from unifiednn_core.spec.run import Hyperparameters, LRSchedulerSpec, SubModelSpec

# A probability that counts as never.
NEGLIGIBLE = 1e-9
# Inputs beyond this deserve a warning, if they are typically beyond `LARGE_TYPICAL`: a few outliers do not.
LARGE_PIXEL, LARGE_INPUT, LARGE_TYPICAL = 10.0, 1000.0, 3.0
# Inputs that scaling squeezed tenfold, into less than this, deserve one too.
SMALL_SPREAD = 0.1
# Numbers that are looked at.
MOST_SEEN = 2**22
SPLIT = Fix(label="Split 80/20", value=0.2, verb="split")
# Share of the first weights in an average that is worth a warning.
MOST_KEPT = 0.1
Found = Iterator[tuple[Literal["error", "warning"], str, str, str, str]]
"""Severity, title, entry, message, remedy."""


def hyper_findings(submodel: SubModelSpec, train: Dataset, test: Dataset | None) -> list[Finding]:
    """All findings that need no training."""
    place = f"submodels.{submodel.name}"
    found = [
        Finding(
            severity=severity,
            title=title,
            field=f"{place}.{entry}",
            message=message,
            remedy=remedy,
            fix=SPLIT if entry == "test_data" and test is None else None,
        )
        for severity, title, entry, message, remedy in chain(
            _found(submodel.hyperparameters, train, test), balance_findings(submodel, train)
        )
    ]
    return [*found, *_on_inputs(submodel, train)]


def _on_inputs(submodel: SubModelSpec, train: Dataset) -> list[Finding]:
    """A warning for inputs that scaling makes tiny or leaves large: nearly all networks need about -1 to 1.

    Integers without a scale are ids, or the dry run refuses them.
    """
    scaling = Scaling(submodel.scale, submodel.mean, submodel.std)
    if len(train.inputs) > 1 or (scaling == UNSCALED and not train.first.is_floating_point()):
        return []
    stored = train.first[: max(1, MOST_SEEN * train.samples // train.first.numel())].float()
    batch, normalised = Batch({INPUTS: scaling(stored)}, None), False
    for one in submodel.transforms:
        if one.name == "normalize":
            [normalize], normalised = build([one.model_copy(update={"input": None})]), True
            with suppress(BadInput):  # the dry run tells
                batch = normalize(batch, None)
    seen = batch.inputs[INPUTS]
    (least, most), (low, high) = ([float(bound) for bound in torch.aminmax(one)] for one in (stored, seen))
    pixels, typical = look_like_pixels(train.first) or _are_bytes(stored, least, most), seen.square().mean().sqrt()
    if high - low < min(SMALL_SPREAD, (most - least) / 10):
        title, message = "Scaled twice", f"The inputs go from {least:g} to {most:g}, scaled from {low:g} to {high:g}. "
        message += "Networks mostly learn nothing from such small numbers; the scale is one for other data."
        remedy = "Correct scale, mean and std."
    elif max(-low, high) > (LARGE_PIXEL if pixels else LARGE_INPUT) and typical > LARGE_TYPICAL:
        title, message = "Large inputs", f"The inputs go from {low:g} to {high:g}. "
        message += "Networks mostly learn badly from such large numbers."
        remedy = "Set scale, mean and std, or add the transform normalize"
        remedy += "." if pixels else ", which takes a mean and a std for each column or channel."
    else:
        return []
    fix, alone = None, submodel.mean is None and submodel.std is None and not normalised
    if alone and least >= 0 and (most <= 1 or (pixels and most <= BYTE)):
        divisor = pixel_divisor(most) if most > 1 else 1
        fix = Fix(label=f"Use 1/{divisor:g}" if divisor > 1 else "Use 1", value=1 / divisor)
        remedy = f"Set scale to {fix.label.removeprefix('Use ')}."
    place = f"submodels.{submodel.name}.scale"
    return [Finding(severity="warning", title=title, field=place, message=message, remedy=remedy, fix=fix)]


def _are_bytes(inputs: Tensor, least: float, most: float) -> bool:
    """Whether each sample has many numbers, all whole and as large as bytes: flattened images, say."""
    as_large = least >= 0 and BYTE / 2 < most <= BYTE
    return as_large and inputs[0].numel() >= FEWEST_PIXELS and bool((inputs % 1 == 0).all())


def precision_findings(submodel: SubModelSpec, device: str) -> list[Finding]:
    """An error for a precision that the device does not have."""
    if submodel.hyperparameters.precision != "float16" or device == "cuda":
        return []
    place = f"submodels.{submodel.name}.hyperparameters.precision"
    message = "float16 is for GPUs; this run trains on a CPU."
    return [Finding(title="Precision", field=place, message=message, remedy="Choose bfloat16 or float32, or a GPU.")]


def _found(hyper: Hyperparameters, train: Dataset, test: Dataset | None) -> Found:
    steps = hyper.steps_per_epoch(train.samples)
    yield from _on_steps(hyper, train.samples, steps)
    if test is None:
        message = "Without test data the accuracy on unseen samples stays unknown."
        yield "warning", "No test data", "test_data", message, "Give test data."
    yield from _on_targets(hyper, train, "train_data")
    if test is not None:
        yield from _on_targets(hyper, test, "test_data")
    if hyper.lr_scheduler is not None and steps:
        yield from _on_lr_scheduler(hyper, hyper.lr_scheduler, steps, tested=test is not None)
    if OPTIMIZERS[hyper.optimizer].rate_once and (hyper.lr_scheduler is not None or hyper.warm_up is not None):
        message = f"{hyper.optimizer} uses the learning rate of its first step only; later changes have no effect."
        remedy = "Remove LR scheduler and warm-up, or choose another optimizer."
        yield "warning", "Optimizer", "hyperparameters.optimizer", message, remedy
    stopping, place = hyper.early_stopping, "hyperparameters.early_stopping"
    if stopping is not None and stopping.metric != "train_loss" and test is None:
        message = f"Without test data {stopping.metric.replace('_', ' ')} is not available."
        remedy = 'Give test data, or choose the metric "train_loss".'
        yield "error", "Early stopping", f"{place}.metric", message, remedy
    if stopping is not None and stopping.patience >= hyper.epochs:
        message = f"A patience of {stopping.patience} epochs never ends a training of {hyper.epochs} early."
        yield "warning", "Early stopping", f"{place}.patience", message, "Use less patience, or train for more epochs."


def _on_steps(hyper: Hyperparameters, samples: int, steps: int) -> Found:
    """Batches in a step, and steps in the training."""
    if not steps:
        message = f"The training data has {samples} samples, less than one batch of {hyper.batch_size}, and drop_last."
        remedy = 'Choose a smaller batch size, or set "drop_last" to false.'
        yield "error", "No step to train", "hyperparameters.batch_size", message, remedy
        return
    batches, total = hyper.batches_per_epoch(samples), steps * hyper.epochs
    if hyper.accumulation_steps > batches:
        message = f"An epoch has {batches} batches, so a step never has {hyper.accumulation_steps} of them."
        remedy = f"Set accumulation_steps to {batches} or less."
        yield "warning", "Batches in a step", "hyperparameters.accumulation_steps", message, remedy
    if hyper.warm_up is not None and hyper.warm_up.steps >= total:
        message = f"The warm-up takes {hyper.warm_up.steps} steps, and the whole training has {total}."
        remedy = f"Give it fewer steps, such as {max(1, total // 10)}."
        yield "warning", "Warm-up too long", "hyperparameters.warm_up.steps", message, remedy
    if hyper.ema is not None and (kept := hyper.ema.decay ** (total - 1)) > MOST_KEPT:
        message = f"After all {total} steps the average is still {kept:.0%} the weights after the first step."
        remedy = f"Choose a smaller decay, such as {1 - min(0.5, 10 / total):g}, or train for longer."
        yield "warning", "Average of the weights", "hyperparameters.ema.decay", message, remedy
    given = hyper.criterion_args.keys() | ({"weight"} if hyper.class_weights is not None else set())
    uneven = sorted({"weight", IGNORE_INDEX} & given)
    if uneven and hyper.ignored_label is not None and (len(hyper.shares) > 1 or hyper.accumulation_steps > 1):
        message = f"With {uneven[0]} the loss is a weighted mean. Each part of a step is averaged by itself, "
        message += "so the gradient is not exactly that of one large batch."
        remedy = "Use one part and accumulation_steps = 1 if that matters."
        yield "warning", "Weights of classes", f"hyperparameters.criterion_args.{uneven[0]}", message, remedy


def _on_targets(hyper: Hyperparameters, data: Dataset, entry: str) -> Found:
    """Real targets that the criterion does not take, and batches in which no class number counts.

    The mean loss of such a batch is 0 / 0. The dry run checks types and shapes.
    """
    if data.targets is None:
        return
    if not data.targets.is_floating_point():
        yield from _on_useless(hyper, data, entry)
    elif data.targets.numel():
        least, most = (float(bound) for bound in torch.aminmax(data.targets))
        takes, said = CRITERIA[hyper.criterion].targets, f"{hyper.criterion} takes targets"
        these = f"; these go from {least:g} to {most:g}."
        if takes == "shares" and not (least >= 0 and most <= 1):
            yield "error", "Targets", entry, f"{said} from 0 to 1{these}", "Store 0 and 1, or choose another criterion."
        elif takes == "signs" and not all(bool((block.abs() == 1).all()) for block in in_blocks(data, TARGETS)):
            remedy = "Store -1 for no and 1 for yes, or choose another criterion."
            yield "error", "Targets", entry, f"{said} only -1 and 1{these}", remedy
        elif takes == "counts" and not least >= 0:
            yield "warning", "Targets", entry, f"{said} from 0 on{these}", "Store counts, or choose another criterion."


def _on_useless(hyper: Hyperparameters, data: Dataset, entry: str) -> Found:
    ignored, weight = hyper.ignored_label, hyper.criterion_args.get("weight")
    if ignored is None:
        return
    what, weightless = f"{ignored} (ignore_index)", isinstance(weight, list) and 0 in weight
    if weightless:
        what += " or of a class with weight 0"

    def useful_in(targets: Tensor) -> Tensor:
        counts = targets != ignored
        if weightless:
            each = torch.tensor(weight)
            counts &= each[targets.clamp(0, len(each) - 1)] > 0
        return counts.flatten(1).any(1) if targets.dim() > 1 else counts

    useful = torch.cat([useful_in(block) for block in in_blocks(data, TARGETS)])
    samples, useless = len(useful), len(useful) - int(useful.sum())
    if entry == "test_data":  # in file order
        only_useless = not all(bool(batch.any()) for batch in torch.split(useful, hyper.batch_size))
    else:  # expected number of parts of batches, in the whole training, that have only useless samples
        parts = hyper.epochs * hyper.batches_per_epoch(samples) * len(hyper.shares)
        drawn = range(min(part_sizes(hyper, samples), default=0))
        only_useless = parts * math.prod(max(0, useless - before) / (samples - before) for before in drawn) > NEGLIGIBLE
    if only_useless:
        message = f"{useless} of {samples} samples have no target that counts: all are {what}. "
        message += "A batch of only such samples has no loss."
        yield "error", "Samples without a target", entry, message, "Remove these samples from the data."


def _on_lr_scheduler(hyper: Hyperparameters, asked: LRSchedulerSpec, steps: int, *, tested: bool) -> Found:
    """The LR scheduler against the length of the training; `steps` are those of an epoch."""
    whole, place = hyper.epochs * (steps if asked.per == "step" else 1), "hyperparameters.lr_scheduler"
    for index, (stage, begin, end) in enumerate(asked.stages):
        if begin >= whole:
            message = f"The LR scheduler that begins at {begin} has no effect: training ends at {whole}."
            yield "warning", "LR scheduler", f"{place}.milestones", message, f"Give milestones below {whole}."
            return
        own = f"{place}.of.{index}" if stage is not asked else place
        yield from _on_stage(hyper, asked, stage, min(whole, whole if end is None else end) - begin, own)
    if LR_SCHEDULES[asked.name].measured and not tested:
        message = f"Without test data {LR_SCHEDULES[asked.name].torch_class} uses the training loss."
        yield "warning", "LR scheduler", f"{place}.name", message, "Give test data."
    replaced = [group.learning_rate for group in hyper.parameter_groups if group.learning_rate is not None]
    if replaced and {"max_lr", "base_lr"} & asked.args.keys():
        message = f"{LR_SCHEDULES[asked.name].torch_class} replaces the learning rates of all parameter groups."
        remedy = "Choose another LR scheduler, or give the groups no learning rate."
        yield "warning", "LR scheduler", "hyperparameters.parameter_groups", message, remedy


def _on_stage(
    hyper: Hyperparameters, asked: LRSchedulerSpec, stage: LRSchedulerSpec | LRStage, needed: int, place: str
) -> Found:
    """One LR scheduler against the `needed` epochs or steps that it gets."""
    choice = LR_SCHEDULES[stage.name]
    span, first, failing = stage.args.get(choice.span), stage.args.get(choice.first_change), hyper.failing_after
    title, remedy = "LR scheduler", f"Set {choice.span} to {needed}."
    if failing is not None and failing[2] < needed:
        message = f"{choice.torch_class} ends with an error after {choice.span} = {span}; the training takes {needed}."
        yield "error", "LR scheduler too short", f"{place}.args", message, remedy
    elif isinstance(span, int) and span < needed and choice.afterwards == "rises":
        message = f"With {choice.span} = {span} the learning rate rises again before the end, which is at {needed}."
        yield "warning", title, f"{place}.args", message, remedy
    elif isinstance(span, int) and span > needed and choice.per in ("", asked.per):
        message = f"With {choice.span} = {span} the training ends before the schedule does, at {needed}."
        yield "warning", title, f"{place}.args", message, remedy
    if choice.per not in ("", asked.per):
        meant = {"step": "after every batch", "epoch": "once per epoch"}
        message = f"{choice.torch_class} is meant to be stepped {meant[choice.per]}, but is stepped {meant[asked.per]}."
        yield "warning", title, "hyperparameters.lr_scheduler.per", message, f'Set "per" to "{choice.per}".'
    earliest = min(first, default=None) if isinstance(first, list) else first
    if isinstance(earliest, int) and earliest >= needed:
        message = f"With {choice.first_change} = {earliest} the learning rate never changes: training ends at {needed}."
        yield "warning", title, f"{place}.args", message, f"Give less than {needed}."


def balance_findings(submodel: SubModelSpec, train: Dataset) -> Found:
    """Severity, title, entry, message and remedy of each."""
    hyper, sampler = submodel.hyperparameters, submodel.hyperparameters.sampler
    if hyper.class_weights is not None:
        place, remedy = "hyperparameters.class_weights", "Give criterion_args.weight, one number for each class."
        targets = targets_in_blocks(train)
        if targets is None or submodel.targets != "stored":
            yield "error", "Class weights", place, "The data hold no class numbers to balance.", remedy
        else:
            try:
                balance.class_weights(targets, hyper.ignored_label)
            except ValueError as error:
                yield "error", "Class weights", place, f"The classes cannot be balanced: {error}.", remedy
    if sampler is None:
        return
    place, remedy = "hyperparameters.sampler", "Leave the sampler out, or give data that it takes."
    if sampler.name == "balanced" and train.samples > balance.MOST_WEIGHTED:
        message = f"torch draws from at most {balance.MOST_WEIGHTED} weighted samples; these are {train.samples}."
        yield "error", "Sampler", place, message, 'Use "class_weights": "balanced" instead.'
    elif sampler.input is not None and sampler.input not in train.inputs:
        message = f"The data have no input '{sampler.input}'; they have {', '.join(train.inputs)}."
        yield "error", "Sampler", f"{place}.input", message, "Name one of these."
    else:
        try:
            data_order(hyper, train)
        except ValueError as error:
            message = f"The sampler '{sampler.name}' does not take these data: {error}."
            yield "error", "Sampler", f"{place}.name", message, remedy
    batches = hyper.batches_per_epoch(train.samples)
    if sampler.name == "by_length" and sampler.window == 1 and batches > 1:
        message = "Sorted within single batches, every batch has the samples that it has without a sampler."
        yield "warning", "Sampler", f"{place}.window", message, "Give a larger window, such as 50."
