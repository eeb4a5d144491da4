"""What samplers and class weights need to know of a data set: how many samples each class has, and how long each is."""

import torch
from torch import Tensor

MOST_WEIGHTED = 2**24
"""Most samples that `torch.multinomial` draws from."""
_ROWS = 65_536


def class_weights(targets: Tensor, ignored: int | None) -> list[float]:
    """Weight of each class, so that all count alike: labels / (classes * labels of the class).

    Raises `ValueError` if a class up to the largest has no label; labels that are `ignored` do not count.
    """
    labels = targets[targets != ignored].reshape(-1) if ignored is not None else targets.reshape(-1)
    if labels.is_floating_point() or not len(labels) or int(labels.min()) < 0:
        raise ValueError("the targets are not class numbers from 0 on")
    counts: list[int] = torch.bincount(labels.cpu()).tolist()
    if 0 in counts:
        raise ValueError(f"class {counts.index(0)} has no sample among the {len(counts)} classes up to the largest")
    return [len(labels) / (len(counts) * count) for count in counts]


def sample_weights(targets: Tensor) -> Tensor:
    """1 / samples of its class for each sample, float64 [samples] on the host.

    Raises `ValueError` unless each sample has one class number.
    """
    if targets.is_floating_point() or targets.dim() != 1 or int(targets.min()) < 0:
        raise ValueError("the targets are not one class number, from 0 on, for each sample")
    labels = targets.cpu()
    return torch.bincount(labels).double().clamp(min=1.0).reciprocal()[labels]


def lengths(ids: Tensor, pad: int) -> Tensor:
    """Place of the last id that is not `pad`, from 1, for each sample: int64 [samples] on the host; 0 if all are.

    Raises `ValueError` unless the samples are rows of whole numbers.
    """
    if ids.is_floating_point() or ids.dim() != 2:
        raise ValueError("the samples are not rows of whole numbers")
    places = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    return torch.cat([((rows != pad) * places).amax(1).cpu() for rows in torch.split(ids, _ROWS)])
