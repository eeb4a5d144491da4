"""What is left of an exercise: reads the store with plain SQL, and holds it against what was promised."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from tools.chaos.rows import SQLITE, NotOpenNow, document, is_sqlite, rows
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.events import Code

_ARGUMENTS = {"priority": "priority", "epochs": "epochs", "order": "names", "policy": "policy"}
"""Verbs that set something, and the argument that says to what."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What an uninterrupted training of the same length gave: hash of the weights, and the loss of each step."""

    state_sha256: str
    losses: Mapping[int, float | None]


@dataclass(frozen=True, slots=True)
class Window:
    """`steps` steps that end with `step`, trained by one attempt."""

    attempt: int
    step: int
    steps: int
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class Tiling:
    """How often the steps of a sub-model count."""

    twice: int
    missing: int


def readable(url: str) -> list[str]:
    """What is wrong with a store; nothing if it is whole and this program opens it."""
    said = ["ok"]
    try:
        if is_sqlite(url):
            with closing(sqlite3.connect(url.removeprefix(SQLITE))) as connection:
                said = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        Store(url).close()
    except (sqlite3.Error, SQLAlchemyError, NotOpenNow, UnifiedNNError, OSError) as error:
        return [f"{type(error).__name__}: {error}"]
    return [] if said == ["ok"] else said


def kept_windows(windows: Iterable[Window], begun_at: Mapping[int, int]) -> list[Window]:
    """Windows that count: no later attempt went on from before their end. `begun_at` has the attempts' first steps."""

    def void(window: Window) -> bool:
        return any(attempt > window.attempt and step < window.step for attempt, step in begun_at.items())

    return sorted((window for window in windows if not void(window)), key=lambda window: window.step)


def tiling(windows: Sequence[Window], total: int) -> Tiling:
    """Hold windows against the steps 1 to `total`; steps beyond count as twice."""
    counts = Counter(step for window in windows for step in range(window.step - window.steps + 1, window.step + 1))
    twice = sum(count - 1 for step, count in counts.items() if 1 <= step <= total)
    beyond = sum(count for step, count in counts.items() if not 1 <= step <= total)
    return Tiling(twice + beyond, sum(step not in counts for step in range(1, total + 1)))


def redone(windows: Iterable[Window], begun_at: Mapping[int, int]) -> list[int]:
    """Recorded steps that each attempt after the first trained again."""
    reached: dict[int, int] = {}
    for window in windows:
        reached[window.attempt] = max(window.step, reached.get(window.attempt, 0))
    lost, head = [], 0
    for attempt, step in sorted(begun_at.items()):
        lost.append(max(0, head - step))
        head = max(step, reached.get(attempt, 0))
    return lost[1:]


class StoreAudit:
    """Questions to a store about one run."""

    def __init__(self, url: str, run_id: str):
        self._url, self._run_id = url, run_id

    def states(self) -> dict[str | None, str]:
        """State of the run (under None) and of each sub-model."""
        run = self._rows("SELECT NULL, state FROM runs WHERE id = ?")
        return dict([*run, *self._rows("SELECT name, state FROM submodels WHERE run_id = ?")])

    def totals(self) -> dict[str, tuple[int, int, int, str | None]]:
        """Epochs asked for, steps in total, steps done and hash of the weights, by sub-model."""
        found = self._rows("SELECT name, epochs, steps_total, steps_done, state_sha256 FROM submodels WHERE run_id = ?")
        return {name: (epochs, total, done, sha256) for name, epochs, total, done, sha256 in found}

    def windows(self, submodel: str) -> list[Window]:
        """All rows of steps, void or not."""
        columns = "attempt, step, steps, loss"
        return [Window(*row) for row in self._of(submodel, f"SELECT {columns} FROM step_metrics")]

    def begun_at(self, submodel: str) -> dict[int, int]:
        """Step from which each attempt went on."""
        return dict(self._of(submodel, "SELECT attempt, from_step FROM attempts"))

    def kept_epochs(self, submodel: str) -> list[int]:
        """Epochs whose figures count, in order."""
        begun_at = self.begun_at(submodel)
        found = self._of(submodel, "SELECT attempt, step, epoch FROM epoch_metrics")
        return sorted(
            epoch
            for attempt, step, epoch in found
            if not any(later > attempt and from_step < step for later, from_step in begun_at.items())
        )

    def open_commands(self, acknowledged: Iterable[int]) -> list[str]:
        """Acknowledged commands that are not there, or never took effect."""
        found = self._rows("SELECT id, verb, applied_at_s IS NOT NULL FROM commands WHERE run_id = ?")
        known = {number: (verb, bool(applied)) for number, verb, applied in found}
        gone = [f"command {number} is gone" for number in acknowledged if number not in known]
        asked = set(acknowledged)
        waits = [
            f"command {n} ({verb}) never took effect"
            for n, (verb, applied) in known.items()
            if n in asked and not applied
        ]
        return gone + waits

    def applied_otherwise_than_once(self) -> list[str]:
        """Sub-models (or the run) whose history tells of another number of effects than there are applied commands."""
        applied = "SELECT submodel, count(*) FROM commands WHERE run_id = ? AND applied_at_s IS NOT NULL GROUP BY 1"
        told = "SELECT submodel, count(*) FROM events WHERE run_id = ? AND kind = 'applied' GROUP BY 1"
        commands, events = dict(self._rows(applied)), dict(self._rows(told))
        return [
            f"{name or 'run'}: {commands.get(name, 0)} commands, {events.get(name, 0)} effects"
            for name in commands.keys() | events.keys()
            if commands.get(name, 0) != events.get(name, 0)
        ]

    def values_not_as_asked(self) -> list[str]:
        """Priorities, epochs, order and policy that are not what the last command that took effect made them."""
        query = "SELECT verb, submodel, arguments, outcome FROM commands WHERE run_id = ? ORDER BY id"
        last: dict[tuple[str, str | None], object] = {}
        for verb, submodel, arguments, outcome in self._rows(query):
            if verb in _ARGUMENTS and outcome == Code.APPLIED:
                last[verb, submodel] = document(arguments)[_ARGUMENTS[verb]]
        found = self._rows("SELECT name, priority, epochs FROM submodels WHERE run_id = ? ORDER BY arrival")
        [(spec,)] = self._rows("SELECT spec FROM runs WHERE id = ?")
        now: dict[tuple[str, str | None], object] = {
            ("policy", None): document(spec)["policy"],
            ("order", None): [name for name, _, _ in found],
            **{("priority", name): priority for name, priority, _ in found},
            **{("epochs", name): epochs for name, _, epochs in found},
        }
        return [
            f"{verb} of {submodel or 'the run'} is {now.get((verb, submodel))}, asked for was {value}"
            for (verb, submodel), value in last.items()
            if now.get((verb, submodel)) != value
        ]

    def pauses_without_effect(self) -> list[str]:
        """Pauses that the history calls applied while what was to be paused was not.

        A pause that came too late, or that a later order undid, has another code.
        """
        kinds = "kind IN ('state', 'applied')"
        query = f"SELECT submodel, code, state, fields FROM events WHERE run_id = ? AND {kinds} ORDER BY id"
        states: dict[str | None, str] = {}
        wrong = []
        for submodel, code, state, fields in self._rows(query):
            if code == Code.ENTERED:
                states[submodel] = state
                continue
            applied = code == Code.APPLIED and document(fields)["verb"] == Verb.PAUSE
            if applied and states.get(submodel) != State.PAUSED:
                wrong.append(f"A pause of {submodel or 'the run'} was applied in state {states.get(submodel)}")
        return wrong

    def tells_of_damage(self, submodel: str, step: int) -> bool:
        """Whether the history speaks of a damaged checkpoint."""
        found = self._rows("SELECT fields FROM events WHERE run_id = ?")
        return any(f"checkpoint of {submodel} at step {step} is damaged" in str(fields) for (fields,) in found)

    def _of(self, submodel: str, query: str) -> list[tuple[Any, ...]]:
        return self._rows(f"{query} WHERE run_id = ? AND submodel = ?", submodel)

    def _rows(self, query: str, *more: str) -> list[tuple[Any, ...]]:
        return rows(self._url, query, self._run_id, *more)
