"""Multilayer perceptron: fully connected layers with ReLU between them."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

MOST_LAYERS = 200


def build(inputs: int = 64, hidden: Sequence[int] = (128,), dropout: float = 0.0, classes: int = 10) -> nn.Module:
    """Make a classifier of `[batch, ...]` into scores `[batch, classes]`. Raises `ValueError` for a bad argument.

    Args:
        inputs: Numbers in one sample, in any shape (64 for an 8x8 image).
        hidden: Width of each hidden layer; empty for a linear classifier.
        dropout: Probability with which each hidden activation is set to zero in training.
        classes: Number of classes.
    """
    if min(inputs, *hidden, classes) < 1:
        raise ValueError("inputs, every width in hidden, and classes must be at least 1")
    if len(hidden) > MOST_LAYERS:
        raise ValueError(f"hidden must name at most {MOST_LAYERS} layers")
    if not 0 <= dropout < 1:
        raise ValueError("dropout must be at least 0 and below 1")
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise((inputs, *hidden)):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU(), nn.Dropout(dropout)]
    layers.append(nn.Linear((inputs, *hidden)[-1], classes))
    return nn.Sequential(*layers)
