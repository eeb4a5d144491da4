"""Reads the journal of an exercise: what struck, what was killed, and how long each recovery took. Pure."""

from collections.abc import Sequence

from unifiednn_core.drill.journal import Entry
from unifiednn_core.drill.outcome import KILLS, Outcome
from unifiednn_core.drill.plan import Exercise

TOGETHER_S = 0.25
GRACEFUL = 128 + 15
ANY_MOMENT = "any moment: "
_NAMES = {"worker": "worker", "server": "server", "commands": "process that asks"}


def tally(entries: Sequence[Entry], exercise: Exercise) -> Outcome:
    """Count what a journal tells, up to the end of the exercise."""
    outcome = Outcome()
    over = next((place for place, entry in enumerate(entries) if entry.what == "over"), len(entries))
    entries = entries[:over]
    _count_faults(outcome, entries)
    _count_deaths(outcome, entries, exercise)
    _time_recoveries(outcome, entries)
    outcome.acknowledged = sum(entry.what == "asked" for entry in entries)
    outcome.refused = sum(entry.what == "refused" for entry in entries)
    outcome.clock_jumps = sum(entry.what == "jumped" for entry in entries)
    return outcome


def _count_faults(outcome: Outcome, entries: Sequence[Entry]) -> None:
    """Faults that kill nobody; one that lasts for several passings is one."""
    struck = {(entry.pid, entry.point, entry.action) for entry in entries if entry.what == "struck"}
    outcome.struck.update((point, action) for _, point, action in struck if action not in KILLS)


def _count_deaths(outcome: Outcome, entries: Sequence[Entry], exercise: Exercise) -> None:
    struck = {entry.pid: entry for entry in entries if entry.what == "struck" and entry.action in KILLS}
    shot = {entry.pid: entry for entry in entries if entry.what == "shot"}
    locked = {(entry.pid, 1) for entry in entries if entry.what == "struck" and entry.action == "locked"}
    """Who cannot take a run up, because the store is locked, ends and leaves it to the next."""
    fresh = {entry.pid for entry in entries if entry.what == "started" and entry.fresh}
    for entry in entries:
        if entry.what != "ended" or entry.role == "check" or entry.code == 0:
            continue
        if entry.pid in struck and entry.code in (-9, -15, GRACEFUL):
            outcome.struck[struck[entry.pid].point, struck[entry.pid].action] += 1
        elif entry.pid in shot and entry.code == -9:
            whom = _shot_with(entry.pid, shot)
            if whom is not None:
                outcome.struck[ANY_MOMENT + whom, "sigkill"] += 1
        elif (
            entry.pid in fresh and (fault := exercise.rounds[entry.number].fault) and entry.code in (-9, -15, GRACEFUL)
        ):
            outcome.struck[fault.point, fault.action] += 1
        elif (entry.pid, entry.code) not in locked:
            outcome.unplanned_deaths += 1
            outcome.problems.append(f"{entry.role} {entry.pid} of round {entry.number} ended with code {entry.code}")


def _shot_with(pid: int, shot: dict[int, Entry]) -> str | None:
    """Who was killed; a worker and a server at once are one kill, counted with the worker."""
    own = shot[pid]
    others = {"worker": "server", "server": "worker"}
    together = any(
        other.role == others.get(own.role) and abs(other.at_s - own.at_s) < TOGETHER_S for other in shot.values()
    )
    if together:
        return "worker and server" if own.role == "worker" else None
    return _NAMES.get(own.role, own.role)


def _time_recoveries(outcome: Outcome, entries: Sequence[Entry]) -> None:
    """From a worker's death to the first step of the next. Not timed: a next one that died before, or a pause."""
    died_at_s: float | None = None
    fresh = False
    for entry in entries:
        if entry.what == "ended" and entry.role == "worker":
            died_at_s = entry.at_s if entry.code else None
        elif entry.what == "started" and entry.role == "worker":
            fresh = entry.fresh
        elif entry.what == "paused":
            died_at_s = None
        elif entry.what == "stepped" and died_at_s is not None:
            (outcome.fresh_recovery_s if fresh else outcome.recovery_s).append(entry.at_s - died_at_s)
            died_at_s = None
