"""The contract of a policy: `decide(view) -> Decision`, a pure function, without torch and without state.

The engine asks when a quantum ends and when the set of runnable sub-models changes (one arrives, is paused, resumed,
stopped or edited), so a policy needs no event hooks.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol, get_args

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.trouble import log_error

QuantumKind = Literal["completion", "epochs", "steps", "seconds"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Quantum:
    """How long a sub-model may hold the device. Seconds are rounded up to a whole step."""

    kind: QuantumKind
    amount: float = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(QuantumKind):
            raise ValueError(f"a quantum is one of {', '.join(get_args(QuantumKind))}, not {self.kind!r}")
        if self.kind != "completion" and not self.amount > 0:
            raise ValueError(f"a quantum needs a positive number of {self.kind}, not {self.amount}")

    def __str__(self) -> str:
        return "to completion" if self.kind == "completion" else f"{self.amount:g} {self.kind}"


TO_COMPLETION = Quantum("completion")
PROBE = Quantum("steps", 3)
"""Quantum that measures the speed of a sub-model: one step to warm up, two that count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What a policy sees of one runnable sub-model."""

    name: str
    arrival: int
    """Place in the order of arrival, from 0."""
    in_line_since: int
    """Tick at which it last joined the line: on arrival, after its last quantum, or on resume."""
    priority: int
    """Lower goes first."""
    parameters: int
    epochs: int
    epochs_done: int
    steps_total: int
    steps_done: int
    seconds_per_step: float | None
    """Measured mean, without placement and evaluation; None before it is measured."""
    waiting_s: float
    """Time in line so far, pauses excluded."""
    service_s: float = 0.0
    """Time on the device so far, without the turn that lasts."""
    owner: str = ""
    tickets: float = 1.0
    """Share of its owner: one with 2 is due twice the service of one with 1. All its sub-models have the same."""
    owner_service_s: float = 0.0
    """Service that counts for its owner, over all sub-models, ended ones too (`scheduling.shares`)."""
    deadline_s: float | None = None
    """When it should have ended, on the clock of `View.now_s`; None if it has no deadline."""

    @property
    def left_s(self) -> float | None:
        """Time on the device until it ends, as measured; None before it is measured."""
        return None if self.seconds_per_step is None else (self.steps_total - self.steps_done) * self.seconds_per_step


@dataclass(frozen=True, slots=True)
class View:
    """All sub-models that could train now, in order of arrival; at least one."""

    jobs: tuple[JobView, ...]
    now_s: float
    at_work: tuple[str, ...] = ()
    """Those that hold a lane while the policy is asked; empty between two turns."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Which sub-model trains next, for how long, and why, as a sentence for the operator."""

    job: str
    quantum: Quantum
    reason: str


class Policy(Protocol):
    """A frozen dataclass of its parameters with one method."""

    name: ClassVar[str]
    """Its name in a spec."""
    summary: ClassVar[str]
    """One sentence for the policy card: what it does and when to use it."""

    def decide(self, view: View) -> Decision:
        """Choose among `view.jobs`."""
        ...


def next_in_line(jobs: tuple[JobView, ...]) -> JobView:
    """Job that has been in line longest; ties go to the earlier arrival."""
    return min(jobs, key=lambda job: (job.in_line_since, job.arrival))


def probe(view: View) -> Decision | None:
    """Try the first sub-model whose speed is not known; None if all are measured."""
    unmeasured = [job for job in view.jobs if job.seconds_per_step is None]
    if not unmeasured:
        return None
    name = min(unmeasured, key=lambda job: job.arrival).name
    return Decision(name, PROBE, f"{name} is not measured yet; {PROBE} show its speed.")


def require_turn(turn_s: float) -> None:
    """Raise `BadInput` for turns of a policy that are not above 0."""
    if not 0 < turn_s < math.inf:
        message = f"A turn cannot be {turn_s:g} s."
        raise BadInput.of("Turn", "policy.turn_s", message, "Give a number of seconds above 0.")


def decide_or_fall_back(policy: Policy, view: View) -> tuple[Decision, bool]:
    """Ask the policy; returns a decision that can be enacted, and whether the policy's own was refused.

    If the policy raises, or decides something impossible, the job that has been in line longest trains for one epoch
    instead, and the reason says why.
    """
    try:
        decision = policy.decide(view)
        problem = _problem_of(decision, view)
    except Exception as error:  # a defect of the policy is not the fault of any sub-model
        log_error(_log, "The policy failed.")
        problem = f"failed ({type(error).__name__}: {error})"
    if problem is None:
        return decision, False
    first = next_in_line(view.jobs).name
    return Decision(first, Quantum("epochs", 1), f"The policy {policy.name} {problem}; {first} goes instead."), True


def _problem_of(decision: object, view: View) -> str | None:
    """Why a decision cannot be enacted, as the end of a sentence about the policy; None if it can."""
    if not isinstance(decision, Decision):
        return f"returned {decision!r:.80}, which is not a Decision"
    given: tuple[object, object] = (decision.quantum, decision.reason)
    if not isinstance(given[0], Quantum) or not isinstance(given[1], str):
        return f"returned {decision!r:.80}, which lacks a quantum or a reason"
    if decision.job not in [job.name for job in view.jobs]:
        return f"named '{decision.job}', which cannot train now"
    return None


@dataclass(slots=True)
class Shares:
    """Seconds of service by owner, since this began to count."""

    _service_s: dict[str, float] = field(default_factory=dict)
    _in_line: frozenset[str] = frozenset()
    _least_s: float = 0.0
    """Lowest service per ticket when it was last asked for."""

    def charge(self, owner: str, seconds: float) -> None:
        """Count a turn of one of the owner's sub-models."""
        self._service_s[owner] = self._service_s.get(owner, 0.0) + seconds

    def of(self, tickets: Mapping[str, float]) -> Mapping[str, float]:
        """Seconds of service of the owners in line now, with the tickets of each."""
        stayed = [self._service_s.get(owner, 0.0) / tickets[owner] for owner in self._in_line & tickets.keys()]
        self._least_s = min(stayed, default=self._least_s)
        for owner in tickets.keys() - self._in_line:
            self._service_s[owner] = max(self._service_s.get(owner, 0.0), self._least_s * tickets[owner])
        self._in_line = frozenset(tickets)
        return self._service_s
