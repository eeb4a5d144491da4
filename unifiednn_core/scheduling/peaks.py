"""Steps at once in less memory than the sum of their peaks: one climbs to its peak while another comes down. Pure.

The idea of Zico (USENIX ATC 2021). The memory of a step rises in forward and falls in backward. Steps of two sub-models
drift against each other, so a shift of their starts promises nothing. A promise is: only one of them at a time is
between the start of its step and the `Fall` after its peak. Then at no moment do both need more than the peak of one
and what the other needs after its fall, however the steps drift.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

POINTS = 32


class Fall(NamedTuple):
    """A place in backward behind the peak of a step."""

    parameter: str
    """Where this parameter has its gradient."""
    bytes: int
    """What the step needs at most from here on, with the gradients."""
    share: float
    """Part of the step that is over then, 0 to 1."""


class Climb(NamedTuple):
    """What a sub-model needs of memory for a step."""

    peak_bytes: int
    falls: tuple[Fall, ...]
    """In the order of a step; each needs less than those before it."""


def coarse(curve: Sequence[int], points: int = POINTS) -> tuple[int, ...]:
    """The curve of a step at a few points; each is the most of its stretch, so that nothing is hidden."""
    count = min(points, len(curve))
    ends = [round((at + 1) * len(curve) / count) for at in range(count)]
    return tuple(max(curve[start:end]) for start, end in zip([0, *ends], ends, strict=False))


def falls_of(curve: Sequence[int], places: Sequence[tuple[str, int]]) -> tuple[Fall, ...]:
    """Falls of a step: `places` are parameters and the points of the curve after which each has its gradient."""
    left = list(accumulate(reversed(curve), max))[::-1]  # the most from each point on
    found: list[Fall] = []
    for parameter, at in places:
        size = left[at] if at < len(left) else 0
        if size < (found[-1].bytes if found else max(curve, default=0)):
            found.append(Fall(parameter, size, at / len(curve)))
    return tuple(found)


def in_turn(one: Climb, other: Climb, limit_bytes: int, least_gain: float = 1.0) -> tuple[Fall, Fall] | None:
    """The earliest falls with which two that climb in turn stay under a limit; None if they cannot, or should not.

    They should not where the two climbs take so much of their steps that the progress of both together, in sub-models
    alone, is below `least_gain` at best.
    """
    falls = _first(one, limit_bytes - other.peak_bytes), _first(other, limit_bytes - one.peak_bytes)
    if falls[0] is None or falls[1] is None or 2 / slowdown(falls[0].share, falls[1].share) < least_gain:
        return None
    return falls[0], falls[1]


def slowdown(one: float, other: float) -> float:
    """How many times as long two equally long steps take if these shares of them exclude each other."""
    return max(1.0, one + other)


def _first(climb: Climb, most_bytes: int) -> Fall | None:
    return next((fall for fall in climb.falls if fall.bytes <= most_bytes), None)
