"""Techniques tried on a network at the check: whether they work for it, and keep the bits where they say so."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unifiednn_core.base.errors import NotApplicable
from unifiednn_core.preflight.trial import Trial, Tried
from unifiednn_core.techniques.build import NONE, Techniques


def check_techniques(trial: Trial, tried: Tried) -> None:
    """Raise `BadInput` if a technique does not work for the network, or changes a bit although it is exact.

    The network and the default generator stay as they are.
    """
    if not tried.techniques.in_steps:
        return
    title, entry = "Technique does not work", "hyperparameters.techniques"
    try:
        with_them = _learned(trial, tried, tried.techniques)
    except NotApplicable as error:
        raise trial.refusal(title, entry, str(error), error.remedy) from None
    if not tried.techniques.exact or _same_bits(with_them, without := _learned(trial, tried, NONE)):
        return
    if _same_bits(without, _learned(trial, tried, NONE)):  # else it gives other bits each time, which says nothing
        message = "The techniques would change the bits of this network: it keeps something between two calls besides "
        message += "weights, buffers and random numbers."
        raise trial.refusal(title, entry, message, "Leave them out, or try each by itself.")


def has_same_bits(trial: Trial, other: Trial, tried: Tried) -> bool:
    """Whether a step of few samples has the same bits by the networks of two trials, or other ones each time."""
    ours = _learned(trial, tried, NONE)
    return _same_bits(ours, _learned(other, tried, NONE)) or not _same_bits(ours, _learned(trial, tried, NONE))


def _learned(trial: Trial, tried: Tried, techniques: Techniques) -> list[Tensor]:
    """Gradients, buffers and loss of a step of few samples, by the network as its file has it."""
    step = tried.step
    with torch.random.fork_rng(devices=[]):
        module = trial.definition.build()
        torch.manual_seed(trial.spec.hyperparameters.seed or 0)
        batch = step.prepare(trial.train.batch(slice(0, trial.batch_size)), training=True)
        with techniques.part(module, batch.tensors):
            loss = step.loss(tried.criterion, step.forward(module, batch), batch)
            loss.backward()  # type: ignore[no-untyped-call]
    gradients = [one.grad for one in module.parameters() if one.grad is not None]
    return [*gradients, *module.buffers(), loss.detach()]


def _same_bits(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    return len(ours) == len(theirs) and all(
        torch.equal(_bits(one), _bits(other)) for one, other in zip(ours, theirs, strict=True)
    )


def _bits(tensor: Tensor) -> Tensor:
    """Its bytes: NaN equals itself, and 0.0 is not -0.0."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
