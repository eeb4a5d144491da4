"""The history of a run as lines that people filter: its events, and what its workers wrote. Pure."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Literal, NamedTuple, get_args

from unifiednn_core.base.visible import visible
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.events import Code
from unifiednn_core.views.runs import EventView

Level = Literal["info", "warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)
_OF_KIND: dict[str, Level] = {
    "error": "error",
    "defect": "error",
    "warning": "warning",
    "refused": "warning",
    "recovery": "warning",
}
_BEGINS = re.compile(r"^(\[\w+\]: )?Traceback \(most recent call last\)")
_GOES_ON = re.compile(r"^(\s|$|The above exception|During handling)")
_ERROR = re.compile(r"\b(error|critical|fatal|exception|killed)\b|Error\b", re.IGNORECASE)
_WARNING = re.compile(r"warn", re.IGNORECASE)
_NAMED = 2
"""How many names a folded line tells."""


class LogLine(NamedTuple):
    """One line of a worker, or one event."""

    text: str
    level: Level = "info"
    who: tuple[str, ...] = ()
    """Sub-models that it is about; none for the run."""
    at_s: float | None = None
    """UTC seconds; a worker's lines have no time."""
    title: str = ""
    """Kind of an event."""


class WorkerLog(NamedTuple):
    """The newest part of what the workers of a run wrote."""

    lines: tuple[LogLine, ...] = ()
    is_cut: bool = False
    """Whether older lines are left out."""
    withheld: str = ""
    """Why this person may not read it; then there are no lines."""


def worker_lines(text: str, names: Iterable[str]) -> tuple[LogLine, ...]:
    """Lines of a worker's log, with their level and the sub-models that they name; a traceback is one error."""
    known = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})(?![\w-])")
    found: list[LogLine] = []
    for block in _blocks(visible(text, "\t\n").splitlines()):
        whole = "\n".join(block)
        who = tuple(dict.fromkeys(known.findall(whole)))
        level: Level = "error" if len(block) > 1 or _ERROR.search(whole) else "info"
        if level == "info" and _WARNING.search(whole):
            level = "warning"
        found += [LogLine(line, level, who) for line in block]
    return tuple(found)


def event_lines(events: Sequence[EventView]) -> tuple[LogLine, ...]:
    """Events as lines, oldest first; sub-models that entered the same state one after another are one line."""
    found: list[LogLine] = []
    for (title, level, state), group in groupby(events, _kind):
        several = list(group)
        if state is None or len({event.submodel for event in several}) < _NAMED:
            found += [LogLine(one.message, level, _who(one.submodel), one.at_s, title) for one in several]
        else:
            names = tuple(dict.fromkeys(str(event.submodel) for event in several))
            found.append(LogLine(f"{_list(names)} are {state}.", level, names, several[-1].at_s, title))
    return tuple(found)


def chosen(
    lines: Iterable[LogLine], words: str = "", least: Level = "info", who: str | None = None
) -> tuple[LogLine, ...]:
    """Lines that hold all words, in any case, are of a level or a worse one, and are about a sub-model."""
    wanted = words.casefold().split()
    return tuple(
        line
        for line in lines
        if LEVELS.index(line.level) >= LEVELS.index(least)
        and (who is None or who in line.who)
        and all(word in f"{line.title} {' '.join(line.who)} {line.text}".casefold() for word in wanted)
    )


def _kind(event: EventView) -> tuple[str, Level, State | None]:
    """What events that are folded have in common; a state only if nothing but the name is told."""
    plain = event.code == Code.ENTERED and event.submodel is not None and "cause" not in event.fields
    return event.kind, _OF_KIND.get(event.kind, "info"), event.state if plain else None


def _who(submodel: str | None) -> tuple[str, ...]:
    return () if submodel is None else (submodel,)


def _list(names: Sequence[str]) -> str:
    if len(names) <= _NAMED + 1:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"


def _blocks(lines: Sequence[str]) -> list[list[str]]:
    """Lines, those of a traceback together: from its head to the first line that is not indented."""
    blocks: list[list[str]] = []
    inside = False
    for line in lines:
        if _BEGINS.match(line):
            if inside:  # after "During handling of the above exception"
                blocks[-1].append(line)
            else:
                blocks.append([line])
            inside = True
        elif inside:
            blocks[-1].append(line)
            inside = bool(_GOES_ON.match(line))
        else:
            blocks.append([line])
    return blocks
