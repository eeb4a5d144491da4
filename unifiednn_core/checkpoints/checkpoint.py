"""A checkpoint as a value: everything with which a sub-model goes on as if nothing had happened."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """State of one sub-model between two steps, in host copies that nobody writes to any more.

    `state` holds the parts below as trees of dicts, lists, tuples, tensors and plain values:

    - `model`: the submitted network's own `state_dict()`
    - `buffers`: those of its buffers that its `state_dict()` leaves out
    - `optimizer`: `state_dict()` of the optimizer
    - `lr_scheduler`: `state_dict()` of the LR scheduler, or None
    - `rng`: `cpu` (uint8 [5056]) and `cuda` (uint8 [16], or None), states of the default generators
    - `data`: `generator` (uint8, state of the data generator before or after the current permutation was drawn),
      `order` (int64 [samples], permutation of the current epoch, or None between epochs) and `cursor` (samples of it
      that are used)
    - `metrics`: `figures` (rows of the finished epochs) and `tally` (sums over the steps of the current one)
    """

    submodel: str
    step: int
    """Steps done since the start of the training."""
    epoch: int
    """Whole epochs done."""
    state: Mapping[str, Any]
    score: float | None = None
    """What "best" goes by: test accuracy, else minus the loss, of the last finished epoch; None before there is one."""
    recipe: Mapping[str, Any]
    """What the state belongs to, as plain values: the optimizer's, criterion's and LR scheduler's names and arguments,
    batch size, seed, samples of the training set, device type, torch version."""
