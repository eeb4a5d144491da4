"""Company: which sub-models step beside the one that the policy has chosen, and whether that pays. Pure.

The policy's choice always trains. Others join it in further lanes of the same process if nothing speaks against it
(`obstacle`), and leave again if their common progress, as measured, does not pay (`Rates`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from unifiednn_core.base.units import memory_text

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


LEAST_GAIN = 1.15
"""Progress in company must be that of as many sub-models alone, one after another."""
MOST_DELAY = 1.25
"""A step in company with a lower priority may take this many times as long as alone."""
TRIAL_STEPS, TRIAL_S = 20, 0.3
"""Company is judged once each member has taken so many steps or seconds in it."""
LEAST_STEPS = 3
REST_S = 60.0
"""Those that were parted are not tried again for so long."""
MARGIN = 0.15
"""Share of the largest working set that company may add to it, if no other margin is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRoom:
    """What the memory prediction of a run allows; empty without one."""

    working_bytes: Mapping[str, int] = field(default_factory=dict)
    """Gradients and temporary memory of a step, by sub-model."""
    weights_bytes: Mapping[str, int] = field(default_factory=dict)
    optimizer_bytes: Mapping[str, int] = field(default_factory=dict)
    falls: Mapping[str, tuple[Fall, ...]] = field(default_factory=dict)
    """Where the steps of a sub-model come down from their peak."""
    company_bytes: int | None = None
    """What company may add to the largest working set."""
    tensors_bytes: int | None = None
    """Predicted peak without the context and the data sets."""
    spare_bytes: int | None = None
    """What the device or the spec's limit has beyond the predicted peak."""

    def limit_bytes(self, names: Iterable[str], held_bytes: int) -> int:
        """Bytes that working sets at work together may have: they may neither grow much nor exceed the prediction.

        `names` are the sub-models that have not ended; weights and optimizer states take `held_bytes`.
        """
        forecasts = [self.working_bytes[name] for name in names if name in self.working_bytes]
        limit_bytes = working_limit(forecasts, self.company_bytes)
        return limit_bytes if self.tensors_bytes is None else min(limit_bytes, self.tensors_bytes - held_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What company depends on, of one sub-model."""

    name: str
    priority: int
    """Lower goes first."""
    working_bytes: int | None
    """Gradients and temporary memory of its steps, and what its first step brings for good; None if unknown."""
    shares_randomness: bool
    """Whether its steps draw from the default generators, of which there is one of each."""
    hurries: bool = False
    """Whether nobody may delay it, because it has a deadline."""
    falls: tuple[Fall, ...] = ()
    """Where its steps come down from their peak; empty where that is not known."""


def working_limit(working_bytes: Iterable[int], margin_bytes: int | None) -> int:
    """Bytes that working sets at work together may have: the largest single one, and a margin."""
    largest = max(working_bytes, default=0)
    return largest + (int(MARGIN * largest) if margin_bytes is None else margin_bytes)


def obstacle(candidate: Member, at_work: Collection[Member], limit_bytes: int) -> str | None:
    """Why a sub-model cannot join those at work, as a sentence; None if it can."""
    if candidate.shares_randomness and (drawing := [other.name for other in at_work if other.shares_randomness]):
        return f"{candidate.name} and {drawing[0]} draw from one random number generator."
    together = [member.working_bytes for member in (candidate, *at_work)]
    known = [size for size in together if size is not None]
    if len(known) < len(together):
        return f"The memory of the steps of {candidate.name} or its company is not known yet."
    if sum(known) > limit_bytes and climbing([candidate, *at_work], limit_bytes) is None:
        return f"Their steps would need {memory_text(sum(known))} at once, more than {memory_text(limit_bytes)}."
    return None


def climbing(members: Sequence[Member], limit_bytes: int) -> dict[str, Fall] | None:
    """For two members whose peaks do not fit together: the place in each step until which it must hold the peak lock.

    None if the peaks fit, or if interleaving the steps under the limit is impossible or does not pay.
    """
    sizes = [member.working_bytes for member in members]
    if len(members) != 2 or sizes[0] is None or sizes[1] is None or sizes[0] + sizes[1] <= limit_bytes:
        return None
    found = in_turn(Climb(sizes[0], members[0].falls), Climb(sizes[1], members[1].falls), limit_bytes, LEAST_GAIN)
    return None if found is None else dict(zip((member.name for member in members), found, strict=True))


@dataclass(slots=True)
class Took:
    """What stretches of steps took together."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds of the thread that steps."""
    waited_s: float = 0.0
    """Seconds runnable but waiting for a core, because other programs computed."""
    steps: int = 0

    def add(self, other: "Took") -> None:
        """Add a stretch."""
        self.seconds += other.seconds
        self.cpu_s += other.cpu_s
        self.waited_s += other.waited_s
        self.steps += other.steps

    @property
    def own_s(self) -> float:
        """Seconds per step on cores that nobody else wants."""
        return max(self.cpu_s, self.seconds - self.waited_s) / self.steps

    @property
    def tried(self) -> bool:
        """Whether it is long enough to judge by."""
        return self.steps >= LEAST_STEPS and (self.steps >= TRIAL_STEPS or self.seconds >= TRIAL_S)


@dataclass(slots=True)
class Rates:
    """Durations of steps, alone and in company; says which company pays, and which rests.

    Time in which other programs had the cores does not count: it would be lost alone, too. The CPU time of the stepping
    thread stands in for the duration alone until that is measured: on a CPU, a step alone takes as long as it computes.
    With `cpu_tells` = False (a GPU computes elsewhere) it does not. With `own_cores` = False lanes compete for cores
    with each other, so a wait for one is no excuse.
    """

    cpu_tells: bool = True
    own_cores: bool = True
    _alone: dict[str, Took] = field(default_factory=dict)
    _together: dict[tuple[str, frozenset[str]], Took] = field(default_factory=dict)
    """By sub-model and the group at work, itself included."""
    _rests_until_s: dict[frozenset[str], float] = field(default_factory=dict)

    def add(self, name: str, group: frozenset[str], took: Took) -> None:
        """Add a stretch of steps of a sub-model while `group`, itself included, was at work."""
        if not self.own_cores:
            took.waited_s = 0.0
        if len(group) == 1:
            self._alone.setdefault(name, Took()).add(took)
        else:
            self._together.setdefault((name, group), Took()).add(took)

    def seconds_per_step(self, name: str) -> float | None:
        """Mean duration of a step of a sub-model alone; None if unknown."""
        alone = self._alone.get(name)
        return self._computed_s(name) if alone is None else alone.seconds / alone.steps

    def gain(self, group: frozenset[str]) -> float | None:
        """Progress of a group at work, in sub-models alone: 2.0 if two are as fast as alone. None before the trial."""
        shares = [self._speed(name, group) for name in group]
        return None if None in shares else sum(share for share in shares if share is not None)

    def objection(self, group: frozenset[str], first: Member, newest: Member) -> str | None:
        """Why the newest member of a group has to leave, as a sentence; None if it pays or is not known yet."""
        return self._too_slow(group, newest) or self.delay(group, first, newest)

    def _too_slow(self, group: frozenset[str], newest: Member) -> str | None:
        gain, before = self.gain(group), self.gain(group - {newest.name}) or 1.0
        if gain is not None and gain < before * LEAST_GAIN:
            return f"{_listed(group)} part: together they make only {gain:.2f} times the progress of one alone."
        return None

    def delay(self, group: frozenset[str], first: Member, newest: Member) -> str | None:
        """Why those who may not delay the first one have to leave, as a sentence; None if they do not delay it."""
        speed = self._speed(first.name, group)  # known long before the gain if the newest takes long steps
        if speed is None or speed * MOST_DELAY >= 1.0 or not (newest.priority > first.priority or first.hurries):
            return None
        return f"{_listed(group)} part: a step of {first.name}, which goes first, takes {1 / speed:.2f} times as long."

    def rest(self, group: frozenset[str], now_s: float) -> None:
        """Part a group: forget what was measured, and do not try it again for a while."""
        self._rests_until_s[group] = now_s + REST_S
        self._together = {key: took for key, took in self._together.items() if key[1] != group}

    def rests(self, group: frozenset[str], now_s: float) -> bool:
        """Whether a group, or a part of it, was parted a short while ago."""
        return any(now_s < until_s and parted <= group for parted, until_s in self._rests_until_s.items())

    @property
    def any_rests(self) -> bool:
        """Whether any group was parted so far."""
        return bool(self._rests_until_s)

    def forget(self, name: str) -> None:
        """Forget a sub-model that has ended."""
        self._alone.pop(name, None)
        self._together = {key: took for key, took in self._together.items() if name not in key[1]}
        self._rests_until_s = {group: until_s for group, until_s in self._rests_until_s.items() if name not in group}

    def _speed(self, name: str, group: frozenset[str]) -> float | None:
        """Speed of a sub-model in a group, as a share of its speed alone; None before the trial."""
        if len(group) == 1:
            return 1.0
        measured, company = self._alone.get(name), self._together.get((name, group))
        alone_s = self._computed_s(name) if measured is None else measured.own_s
        if alone_s is None or company is None or not company.tried:
            return None
        return alone_s / company.own_s if company.own_s > 0 else 1.0

    def _computed_s(self, name: str) -> float | None:
        """CPU seconds per step of a sub-model in any company."""
        found = [took for (one, _), took in self._together.items() if one == name]
        found += [self._alone[name]] if name in self._alone else []
        steps = sum(took.steps for took in found)
        return sum(took.cpu_s for took in found) / steps if steps and self.cpu_tells else None


def _listed(names: Iterable[str]) -> str:
    *most, last = sorted(names)
    return f"{', '.join(most)} and {last}" if most else last
