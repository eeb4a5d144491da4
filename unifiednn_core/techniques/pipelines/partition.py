"""PipeDream's optimizer: which consecutive layers make a stage, and how many machines each stage gets. No torch.

After Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training" (SOSP 2019), section 3.1. A
pipeline is as slow as its slowest stage, so the largest time of a stage is made as small as possible.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

_WEIGHTS_MOVED = 4
"""Gradients and weights, each there and back, for a parameter server or a ring among the replicas of a stage."""
_ACTIVATIONS_MOVED = 2
"""The activation forward, and its gradient backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What the profile says of one layer, for one batch."""

    time_s: float
    """Forward and backward."""
    activation_bytes: int
    """Of its output."""
    weight_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """What there is to train on."""

    count: int
    bytes_per_s: float = float("inf")
    """Between any two of them."""
    memory_bytes: int | None = None
    """Of each; None for no limit."""
    replicate: bool = True
    """Whether a stage may have several machines that share its batches; else the pipeline is straight."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Consecutive layers, `first` to `end` without `end`, on `replicas` machines."""

    first: int
    end: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Partition:
    """Stages in the order of the layers."""

    stages: tuple[StagePlan, ...]
    slowest_s: float
    """Time per batch of the slowest stage."""


def partition(layers: Sequence[Layer], machines: Machines) -> Partition | None:
    """Find the fastest partition on at most so many machines, of equally fast ones that on the fewest.

    None if the stages of no partition fit into the memory.
    """
    found = [one for one in partitions(layers, machines) if one is not None]
    return min(found, key=lambda one: one.slowest_s, default=None)


def partitions(layers: Sequence[Layer], machines: Machines) -> list[Partition | None]:
    """For exactly 1, 2, ... machines the fastest partition, None where there is none.

    From the last layer to the first: the best pipeline of the layers from `first` on `left` machines is a stage
    followed by the best pipeline of the rest. Time grows with the squares of layers and machines.
    """
    count = len(layers)
    stage_s = _StageTimes(layers, machines)
    best: list[list[Partition | None]] = [[None] * (machines.count + 1) for _ in range(count + 1)]
    best[count][0] = Partition((), 0.0)
    for first in reversed(range(count)):
        for left in range(1, machines.count + 1):
            for end in range(first + 1, count + 1):
                for replicas in range(1, left + 1) if machines.replicate else (1,):
                    rest = best[end][left - replicas]
                    if rest is None or not stage_s.fits(first, end, replicas, left):
                        continue
                    slowest_s = max(rest.slowest_s, stage_s(first, end, replicas))
                    known = best[first][left]
                    if known is None or slowest_s < known.slowest_s:
                        best[first][left] = Partition((StagePlan(first, end, replicas), *rest.stages), slowest_s)
    return best[0][1:]


class _StageTimes:
    """Time and memory of any stage, from sums over the layers before each."""

    def __init__(self, layers: Sequence[Layer], machines: Machines):
        self._layers, self._machines = layers, machines
        self._time_s = [0.0, *accumulate(one.time_s for one in layers)]
        self._weights = [0, *accumulate(one.weight_bytes for one in layers)]
        self._activations = [0, *accumulate(one.activation_bytes for one in layers)]

    def __call__(self, first: int, end: int, replicas: int) -> float:
        """Seconds per batch: computing with the exchange of gradients, or a transfer, whichever takes longer."""
        rate = self._machines.bytes_per_s * replicas
        weights = self._weights[end] - self._weights[first]
        exchange_s = _WEIGHTS_MOVED * (replicas - 1) * weights / rate
        computing_s = (self._time_s[end] - self._time_s[first] + exchange_s) / replicas
        into = self._layers[first - 1].activation_bytes if first else 0
        out = self._layers[end - 1].activation_bytes if end < len(self._layers) else 0
        return max(computing_s, _ACTIVATIONS_MOVED * into / rate, _ACTIVATIONS_MOVED * out / rate)

    def fits(self, first: int, end: int, replicas: int, left: int) -> bool:
        """Whether weights and activations fit, one version for each batch between its forward and its backward.

        `left` counts the machines of this stage and of all that follow.
        """
        limit = self._machines.memory_bytes
        weights = self._weights[end] - self._weights[first]
        activations = self._activations[end] - self._activations[first]
        return limit is None or (weights + activations) * -(-left // replicas) <= limit
