"""Public kit for authors of techniques: `check_technique` tests one against the contract in `techniques.build`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unifiednn_core.spec.techniques import Technique
from unifiednn_core.techniques.build import NONE, Techniques, built
from unifiednn_core.techniques.live_bytes import LiveBytes


@dataclass(frozen=True, slots=True)
class Taken:
    """What one step of a network left behind."""

    gradients: tuple[Tensor, ...]
    buffers: tuple[Tensor, ...]
    loss: Tensor
    random: Tensor
    """State of the default generator."""
    saved_bytes: int
    """Alive between forward and backward, without weights, buffers and the batch."""
    peak_bytes: int
    """Most alive at once, without these."""

    def same_bits(self, other: "Taken") -> bool:
        """Whether a training goes on in the same way."""
        ours, theirs = ((*one.gradients, *one.buffers, one.loss, one.random) for one in (self, other))
        return all(torch.equal(_bits(one), _bits(two)) for one, two in zip(ours, theirs, strict=True))


def take_step(
    network: nn.Module, inputs: Tensor, targets: Tensor, techniques: Techniques = NONE, *, seed: int = 0
) -> Taken:
    """Do forward and backward of a batch for a classifier, with cross entropy; changes its buffers."""
    live = LiveBytes()
    live.track([*network.parameters(), *network.buffers(), inputs, targets])
    before = live.current_bytes
    network.zero_grad(set_to_none=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with live, techniques.part(network, (inputs, targets)):
            loss = nn.functional.cross_entropy(network(inputs), targets)
            saved_bytes = live.current_bytes - before
            loss.backward()  # type: ignore[no-untyped-call]
        random = torch.get_rng_state()
    gradients = tuple(one.grad for one in network.parameters() if one.grad is not None)
    buffers = tuple(one.clone() for one in network.buffers())
    return Taken(gradients, buffers, loss.detach(), random, saved_bytes, max(live.timeline) - before)


Example = Callable[[], tuple[nn.Module, Tensor, Tensor]]
"""Makes a network, inputs and targets; each time the same."""


def check_technique(asked: Technique, examples: Sequence[Example]) -> None:
    """Take steps with and without a technique; raises `AssertionError` with the first promise that it breaks."""
    _require(bool(asked.title) and asked.summary.endswith("."), "it has a title, and a summary of sentences")
    _require(bool(asked.paper), "it says where the idea is from")
    for example in examples:
        alone, other = (take_step(*example(), techniques) for techniques in (NONE, built([asked])))
        again = take_step(*example(), built([asked]))
        _require(again.same_bits(other), "equal steps have equal bits")
        _require(torch.equal(alone.random, other.random), "it draws no random numbers from the default generator")
        if asked.exact:
            _require(alone.same_bits(other), "an exact technique leaves the same bits")


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)


def _require(kept: bool, promise: str) -> None:
    if not kept:
        raise AssertionError(f"Broken promise: {promise}.")
