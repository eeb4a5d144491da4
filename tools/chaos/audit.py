"""What a drill left in the store, held against what was promised; not read through the code that it judges."""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple


class Command(NamedTuple):
    """What a person asked for; of the whole run without a sub-model."""

    run_id: str
    submodel: str | None
    verb: str
    value: int | None = None


class Part(NamedTuple):
    """A sub-model as the store has it."""

    network: str
    began: Mapping[int, int]
    """Step from which each attempt went on."""
    windows: Sequence[tuple[int, int, int]]
    """All that were recorded, void or not: attempt, last step, and number of steps."""
    state: str
    priority: int
    epochs: int
    steps_total: int
    steps_done: int
    state_sha256: str | None


class History(NamedTuple):
    """What the store tells of all runs."""

    runs: Mapping[str, str]
    """States, by id."""
    parts: Mapping[tuple[str, str], Part]
    """Sub-models, by run and name."""
    commands: Sequence[tuple[Command, str | None]]
    """In order, with the code of the event that answered each; None without an answer."""
    answers: Counter[tuple[str, str | None]]
    """Number of events that answer a command, by its target."""


def rows(database: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Answer one query to a store that others write meanwhile."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30.0)) as connection:
        return connection.execute(query, values).fetchall()


def read(database: Path) -> History:
    """Read everything that `findings` judges."""
    windows: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for run, name, *window in rows(database, "SELECT run_id, submodel, attempt, step, steps FROM step_metrics"):
        windows[run, name].append(tuple(window))
    began: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for run, name, attempt, from_step in rows(database, "SELECT run_id, submodel, attempt, from_step FROM attempts"):
        began[run, name][attempt] = from_step
    columns = "run_id, name, state, priority, epochs, steps_total, steps_done, state_sha256"
    found = rows(database, f"SELECT {columns} FROM submodels")
    parts = {
        (run, name): Part(name.partition("-")[0], began[run, name], windows[run, name], *values)
        for run, name, *values in found
    }
    asked = rows(database, "SELECT run_id, submodel, verb, arguments, outcome FROM commands ORDER BY id")
    commands = [(Command(*of, *json.loads(arguments).values()), outcome) for *of, arguments, outcome in asked]
    told = rows(database, "SELECT run_id, submodel FROM events WHERE kind = 'applied'")
    return History(dict(rows(database, "SELECT id, state FROM runs")), parts, commands, Counter(told))


def findings(history: History, asked: Iterable[Command], references: Mapping[tuple[str, int], str]) -> Iterator[str]:
    """All that is not as promised. `asked` was acknowledged; `references` has hashes of networks by their epochs."""
    yield from _of_commands(history, asked)
    yield from (f"run {id_} was left as {it}" for id_, it in history.runs.items() if it not in ("completed", "stopped"))
    stops = {(one.run_id, one.submodel): outcome for one, outcome in history.commands if one.verb == "stop"}
    for key, part in history.parts.items():
        wanted = "stopped" if stops.get(key) in ("applied", "done") else "completed"
        if part.state != wanted:
            yield f"{key} was left as {part.state}, not as {wanted}"
        yield from (f"{key}: {what}" for what in _of_steps(part))
        expected = references.get((part.network, part.epochs))
        if part.state == "completed" and part.state_sha256 != expected:
            yield f"{key} has weights {part.state_sha256} after {part.epochs} epochs, without faults {expected}"


def _of_commands(history: History, asked: Iterable[Command]) -> Iterator[str]:
    known = Counter(one for one, _ in history.commands)
    yield from (f"{count} acknowledged {one} is lost" for one, count in (Counter(asked) - known).items())
    yield from (f"{one} was never answered" for one, outcome in history.commands if outcome is None)
    answered = Counter((one.run_id, one.submodel) for one, outcome in history.commands if outcome is not None)
    for target in answered.keys() | history.answers.keys():
        if answered[target] != history.answers[target]:
            yield f"{target}: {answered[target]} commands were answered {history.answers[target]} times"
    applied = {one[:3]: one for one, outcome in history.commands if outcome == "applied" and one.value is not None}
    for one in applied.values():
        now = getattr(history.parts[one.run_id, one.submodel or ""], one.verb)
        if now != one.value:
            yield f"{one} took effect, but the value is {now}"


def _of_steps(part: Part) -> Iterator[str]:
    """Steps that do not count once. A window is void if a later attempt went on from before its end."""
    total = part.steps_total if part.state == "completed" else part.steps_done
    counts: Counter[int] = Counter()
    for attempt, end, steps in part.windows:
        if not any(later > attempt and from_step < end for later, from_step in part.began.items()):
            counts.update(range(end - steps + 1, end + 1))
    twice = sorted(step for step, count in counts.items() if count > 1 or not 1 <= step <= total)
    missing = [step for step in range(1, total + 1) if step not in counts]
    if twice:
        yield f"{len(twice)} steps count twice or lie beyond the end, the first is {twice[0]}"
    if missing:
        yield f"{len(missing)} of {total} steps are missing, the first is {missing[0]}"
