"""PipeDream's 1F1B schedule: what each stage does, in what order, and with which version of its weights. No torch.

After the SOSP 2019 paper, sections 3.2 and 3.3. A stage first takes as many batches forward as there are stages after
it, its warm-up; then a batch forward and a batch backward in turns; at the end what is left backward. Each backward is
followed by an update, which makes a new version of the weights of that stage.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class StageWork:
    """One batch through one stage, forward or backward. Numbers start at 0."""

    tick: int
    """Works of one tick may run at once, on devices of their own."""
    stage: int
    batch: int
    kind: Kind
    version: int
    """Updates of the stage before the weights that it uses."""


def warm_ups(replicas: Sequence[int]) -> tuple[int, ...]:
    """Batches that each stage takes forward before its first backward, from the number of machines of each stage."""
    machines = sum(replicas)
    return tuple((machines - 1 - sum(replicas[:stage])) // count for stage, count in enumerate(replicas))


def version_of(batch: int, warm_up: int) -> int:
    """Version with which a stage takes a batch forward and backward."""
    return max(0, batch - warm_up)


def order(warm_up: int, batches: int) -> Iterator[tuple[Kind, int]]:
    """What a stage does with so many batches, one after another."""
    ahead = min(warm_up, batches)
    yield from (("forward", batch) for batch in range(ahead))
    for batch in range(ahead, batches):
        yield "forward", batch
        yield "backward", batch - ahead
    yield from (("backward", batch) for batch in range(batches - ahead, batches))


def schedule(stages: int, batches: int) -> Iterator[StageWork]:
    """The works of a straight pipeline, in an order in which one device can do them all.

    Each work takes one tick and starts as early as the stages beside it allow: forward after the stage before it,
    backward after the stage behind it.
    """
    ahead = warm_ups([1] * stages)
    orders = [order(one, batches) for one in ahead]
    waiting = [next(one, None) for one in orders]
    forward, backward = [0] * stages, [0] * stages  # batches done; each stage takes them in turn
    tick = 0
    while any(waiting):
        ready = [(stage, *one) for stage, one in enumerate(waiting) if one and _may_run(stage, *one, forward, backward)]
        for stage, kind, batch in ready:
            yield StageWork(tick, stage, batch, kind, version_of(batch, ahead[stage]))
        for stage, kind, _ in ready:
            (forward if kind == "forward" else backward)[stage] += 1
            waiting[stage] = next(orders[stage], None)
        tick += 1


def _may_run(stage: int, kind: Kind, batch: int, forward: Sequence[int], backward: Sequence[int]) -> bool:
    if kind == "forward":
        return stage == 0 or forward[stage - 1] > batch
    return stage == len(backward) - 1 or backward[stage + 1] > batch
