"""The order in which an epoch takes the samples: a permutation, or what the sampler of the spec draws."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from unifiednn_core.data import balance
from unifiednn_core.data.datasets import DataSource, in_blocks, targets_in_blocks
from unifiednn_core.spec.run import Hyperparameters

DataOrder = Callable[[Generator], Tensor]
"""Draws the samples of one epoch on the CPU, int64 [samples]; batches are consecutive slices."""


def data_order(hyperparameters: Hyperparameters, data: DataSource) -> DataOrder:
    """Make the order of a training set. Raises `ValueError` for data that the sampler does not take."""
    asked, samples = hyperparameters.sampler, data.samples
    if asked is None:
        return lambda generator: torch.randperm(samples, generator=generator)
    if asked.name == "balanced":
        if (targets := targets_in_blocks(data)) is None:
            raise ValueError("there are no targets")
        weights = balance.sample_weights(targets)
        return lambda generator: torch.multinomial(weights, samples, replacement=True, generator=generator)
    lengths = balance.lengths(in_blocks(data, asked.input or next(iter(data.inputs))), asked.pad)
    window = asked.window * hyperparameters.batch_size

    def by_length(generator: Generator) -> Tensor:
        windows = torch.split(torch.randperm(samples, generator=generator), window)
        return torch.cat([part[lengths[part].argsort(stable=True)] for part in windows])

    return by_length
