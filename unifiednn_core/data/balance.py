"""What samplers and class weights need to know of a data set: how many samples each class has, and how long each is."""

from collections.abc import Callable, Iterable

import torch
from torch import Generator, Tensor

from unifiednn_core.data.datasets import DataSource, in_blocks, targets_in_blocks
from unifiednn_core.spec.run import Hyperparameters

MOST_WEIGHTED = 2**24
"""Most samples that `torch.multinomial` draws from."""
DataOrder = Callable[[Generator], Tensor]
"""Draws the samples of one epoch on the CPU, int64 [samples]; batches are consecutive slices."""


def class_weights(targets: Iterable[Tensor], ignored: int | None) -> list[float]:
    """Weight of each class, so that all count alike: labels / (classes * labels of the class); targets in blocks.

    Raises `ValueError` if a class up to the largest has no label; labels that are `ignored` do not count.
    """
    counts = class_counts(targets, ignored)
    if 0 in counts:
        raise ValueError(f"class {counts.index(0)} has no sample among the {len(counts)} classes up to the largest")
    return [sum(counts) / (len(counts) * count) for count in counts]


def class_counts(targets: Iterable[Tensor], ignored: int | None) -> list[int]:
    """Labels of each class up to the largest, without those that are `ignored`; targets in blocks.

    Raises `ValueError` unless the targets are class numbers.
    """
    found = torch.zeros(0, dtype=torch.int64)
    for block in targets:
        labels = block[block != ignored].reshape(-1) if ignored is not None else block.reshape(-1)
        if labels.is_floating_point() or (len(labels) and int(labels.min()) < 0):
            raise ValueError("the targets are not class numbers from 0 on")
        more = torch.bincount(labels.cpu(), minlength=len(found))
        more[: len(found)] += found
        found = more
    counts: list[int] = found.tolist()
    if not counts:
        raise ValueError("the targets are not class numbers from 0 on")
    return counts


def sample_weights(blocks: Iterable[Tensor]) -> Tensor:
    """1 / samples of its class for each sample, float64 [samples] on the host; targets in blocks.

    Raises `ValueError` unless each sample has one class number.
    """
    labels = torch.cat([block.cpu() for block in blocks if block.dim() == 1] or [torch.zeros(0)])
    if labels.is_floating_point() or int(labels.min()) < 0:
        raise ValueError("the targets are not one class number, from 0 on, for each sample")
    return torch.bincount(labels).double().clamp(min=1.0).reciprocal()[labels]


def lengths(blocks: Iterable[Tensor], pad: int) -> Tensor:
    """Place of the last id that is not `pad`, from 1, for each sample: int64 [samples] on the host; 0 if all are.

    Raises `ValueError` unless the samples, which come in blocks, are rows of whole numbers.
    """

    def of(rows: Tensor) -> Tensor:
        if rows.is_floating_point() or rows.dim() != 2:
            raise ValueError("the samples are not rows of whole numbers")
        return ((rows != pad) * torch.arange(1, rows.shape[1] + 1, device=rows.device)).amax(1).cpu()

    return torch.cat([of(rows) for rows in blocks])


def data_order(hyperparameters: Hyperparameters, data: DataSource) -> DataOrder:
    """Make the order of a training set. Raises `ValueError` for data that the sampler does not take."""
    asked, samples = hyperparameters.sampler, data.samples
    if asked is None:
        return lambda generator: torch.randperm(samples, generator=generator)
    if asked.name == "balanced":
        if (targets := targets_in_blocks(data)) is None:
            raise ValueError("there are no targets")
        weights = sample_weights(targets)
        return lambda generator: torch.multinomial(weights, samples, replacement=True, generator=generator)
    sizes = lengths(in_blocks(data, asked.input or next(iter(data.inputs))), asked.pad)
    window = asked.window * hyperparameters.batch_size

    def by_length(generator: Generator) -> Tensor:
        windows = torch.split(torch.randperm(samples, generator=generator), window)
        return torch.cat([part[sizes[part].argsort(stable=True)] for part in windows])

    return by_length
