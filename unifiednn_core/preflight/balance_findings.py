"""Findings on samplers and balanced class weights that do not fit the training data."""

from collections.abc import Iterator
from typing import Literal

from unifiednn_core.data import balance
from unifiednn_core.data.datasets import Dataset, targets_in_blocks
from unifiednn_core.engine.data_order import data_order
from unifiednn_core.spec.run import SubModelSpec

_Found = Iterator[tuple[Literal["error", "warning"], str, str, str, str]]


def balance_findings(submodel: SubModelSpec, train: Dataset) -> _Found:
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
