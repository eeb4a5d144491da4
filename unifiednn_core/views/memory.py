"""What pages get to see of memory: strata over time, marks, and what was predicted. Sizes are bytes."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["context", "slack", "data", "weights", "gradients", "optimizer", "transient", "others", "unexplained"]
KINDS: tuple[Kind, ...] = (
    "context",
    "slack",
    "data",
    "weights",
    "gradients",
    "optimizer",
    "transient",
    "others",
    "unexplained",
)
"""From the bottom of the chart to its top."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One stratum over time: of a sub-model where it belongs to one. None is a figure that could not be had."""

    kind: Kind
    submodel: str | None
    size_bytes: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Strata:
    """What memory was used for; all tuples are as long as `at_s`. A gap in sampling is an instant of None."""

    at_s: tuple[float, ...] = ()
    """Seconds since the start of the run."""
    total_bytes: tuple[float | None, ...] = ()
    layers: tuple[Layer, ...] = ()
    """In the order of `KINDS`; layers that were never above 0 are not there."""
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment that explains a change of memory."""

    at_s: float
    kind: Literal["load", "switch", "pause", "checkpoint", "separation", "end"]
    submodel: str | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubModelPrediction:
    """Memory that one sub-model was predicted to need."""

    name: str
    weights_bytes: int
    """Parameters and buffers."""
    gradients_bytes: int
    optimizer_bytes: int
    transient_bytes: int
    """Most that a step needs for a while, beside all others."""
    data_bytes: int
    measured: bool
    """Whether the transient part was measured in an earlier run of the same graph, and not estimated."""
    paper_bytes: int
    """Equation 1 of the paper: all of this sub-model, and the context."""

    @property
    def peak_bytes(self) -> int:
        """Most that it needs by itself while it trains, without the context."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.transient_bytes + self.data_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Memory that a run was predicted to need, before its start."""

    peak_bytes: int
    """Of the hybrid under its policy, with the context."""
    context_bytes: int
    paper_bytes: int
    """Equation 2 of the paper: the largest equation 1 of all; it forgets weights that stay resident."""
    by_policy: dict[str, int]
    """Peak of the same hybrid under each policy."""
    submodels: tuple[SubModelPrediction, ...]
    budget_bytes: int | None = None
    """Most that the device, or the limit of the spec, gives this run; None where it is not known."""
    budget_text: str = ""
    """What the budget is, as people read it: "of cuda:0", "memory_limit_bytes of the spec"."""
