"""What an operator looks for first: failures and doubts that nobody has seen, and who holds a device. Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import Mode
from unifiednn_core.views.estimates import Estimate, latest, shown_progress
from unifiednn_core.views.hybrids import ListedHybrid
from unifiednn_core.views.not_learning import finding, sentence
from unifiednn_core.views.runs import RunView

SHOWN_S = 3 * 86_400.0
"""An older failure is found in the list of runs alone."""
MOST_NAMES = 3
MEASURED = Path(__file__).with_name("measured.json")
_LOSS = re.compile(r"The loss of .* is (-?nan|-?inf) at or before step (\d+)\.", re.DOTALL)
_VALUES = {"nan": "NaN", "-nan": "NaN", "inf": "infinite", "-inf": "infinite"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A sub-model that failed or does not learn, or a run that failed without one."""

    run_id: str
    run_name: str
    name: str
    """Of the sub-model, or of the run."""
    sentence: str
    """What happened to it."""
    cause: str
    """In full."""
    at_s: float
    is_new: bool
    """Whether this person has not looked at it."""
    failed: bool = True
    """Whether it has ended so; one that does not learn goes on."""


def failures(runs: Iterable[RunView], seen: Mapping[str, tuple[float, bool]], now_s: float) -> tuple[Failure, ...]:
    """Failures of the last days, the newest first, without those that this person dismissed.

    `seen` says, by run, when the person last saw its failures, and whether they were dismissed then. What fails after
    that is new again.
    """
    found: list[Failure] = []
    for run in runs:
        seen_at_s, dismissed = seen.get(run.run_id, (-1.0, False))
        found += [one for one in _of_run(run, seen_at_s) if one.is_new or not dismissed]
    return tuple(sorted((one for one in found if now_s - one.at_s <= SHOWN_S), key=lambda one: -one.at_s))


def _of_run(run: RunView, seen_at_s: float) -> list[Failure]:
    failed = [part for part in run.submodels if part.state is State.FAILED]
    named = [(part.name, part.cause, part.ended_at_s, part.steps_done) for part in failed]
    if not named and run.state in (State.FAILED, State.INTERRUPTED):
        named = [(run.name, run.cause, run.ended_at_s, 0)]
    found = []
    for name, cause, ended_at_s, step in named:
        at_s = ended_at_s or run.ended_at_s or run.created_at_s
        found.append(
            Failure(
                run_id=run.run_id,
                run_name=run.name,
                name=name,
                sentence=failure_text(name, cause, step),
                cause=cause or "",
                at_s=at_s,
                is_new=at_s > seen_at_s,
            )
        )
    return found + [
        Failure(
            run_id=run.run_id,
            run_name=run.name,
            name=part.name,
            sentence=sentence(part.name, doubt),
            cause=finding(part.name, doubt).remedy,
            at_s=doubt["since_s"],
            is_new=doubt["since_s"] > seen_at_s,
            failed=False,
        )
        for part in run.submodels
        if (doubt := part.not_learning) is not None and part.state is not State.FAILED
    ]


def failure_text(name: str, cause: str | None, step: int) -> str:
    """What happened in one line: "explodes failed at step 2: its loss is NaN"."""
    loss = _LOSS.match(cause or "")
    if loss is not None:
        return f"{name} failed at step {loss[2]}: its loss is {_VALUES[loss[1]]}"
    why = (cause or "no cause is known").split("\n")[0].split(". ")[0].rstrip(".")
    if step:
        return f"{name} failed at step {step:,}: {why}"
    return f"{name} failed: {why}"


def why_failed(run: RunView) -> str:
    """Why a run in a list failed, in one line; empty for one that did not."""
    found = [one for one in _of_run(run, 0.0) if one.failed]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{found[0].sentence}{more}" if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A hybrid against a baseline of equal training."""

    run_id: str
    mode: Mode
    networks: int
    hybrid_bytes: int
    baseline_bytes: int
    hybrid_s: float | None = None
    """Makespans; None where one is unknown."""
    baseline_s: float | None = None
    source: str = ""
    """File that the figures come from; empty for runs of this installation."""


def ends_of(hybrid: ListedHybrid) -> Estimate | None:
    """When the last of its members ends; None if one of them is unknown."""
    ends = [member.ends_in_s for member in hybrid.members]
    known = [end for end in ends if end is not None]
    return latest(known) if len(known) == len(ends) else None


def holder_text(hybrid: ListedHybrid, until: str | None) -> str:
    """Who holds a device: "cpu trains demo, until about 14:32"; `until` is that moment, None if nobody knows."""
    names = list(dict.fromkeys(member.run_name for member in hybrid.members))
    if not names:
        return f"{hybrid.device} is about to be free."
    who = ", ".join(names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        who += f" and {len(names) - MOST_NAMES} more"
    if until is None:
        return f"{hybrid.device} trains {who}; its end is not known yet."
    return f"{hybrid.device} trains {who}, until {until}."


def progress_of(hybrid: ListedHybrid) -> float:
    """Share of the steps of its members that are done, 0 to 1."""
    done = sum(member.steps_done for member in hybrid.members)
    return shown_progress(done, sum(member.steps_total for member in hybrid.members), ended=False)


def shipped_saving() -> Saving:
    """A measured saving that comes with the program, for a server that has none of its own."""
    document = json.loads(MEASURED.read_text(encoding="utf-8"))
    return Saving(run_id="", **document)
