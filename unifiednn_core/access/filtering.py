"""A run as one person may see it: what others have in it is neither shown, nor named, nor counted. Pure.

Of a hybrid that an operator arranged of several people's networks, one of them sees a run of his own sub-models alone:
their curves, events, turns, memory of their own, their part of the spec. What tells of the whole is withheld: total
memory and time, place in the queue, prediction, the policy's reasons, other people's orders, the fingerprint. What he
does see by necessity is that his sub-models wait.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from unifiednn_core.lifecycle import ENDED, State
from unifiednn_core.views.memory import Layer, Mark, Strata
from unifiednn_core.views.runs import EventView, RunView, Series, Slice, SubModelView

TURN = "It is the turn of {name}."
ROOM = "room on the device"
STOPPED_WORKER = "The process that trained it ended; its last checkpoint is kept."
WITHHELD = "withheld"
ENDED_AS_A_WHOLE = "The run that it is in could not go on."
ASK_AN_OPERATOR = "Ask an operator: others have a part in this run."
# Orders to a run and what became of it go by the whole of it; those of a sub-model go by that one.
_TELLING_EVENTS = frozenset({"state", "checkpoint", "separated", "warning", "error", "refused", "command", "applied",
                             "recovery"})  # fmt: skip
_ENDS = (State.FAILED, State.INTERRUPTED, State.STOPPED)
_TOTALS: dict[str, Any] = {
    "fingerprint": "",
    "memory_source": None,
    "peak_memory_bytes": None,
    "heartbeat_age_s": None,
    "queue_position": None,
    "memory": Series(),
    "utilisation": Series(),
    "power_w": Series(),
    "memory_notes": (),
    "prediction": None,
    "cpu_s": None,
    "gpu_s": None,
    "energy_j": None,
    "attempt": 0,
    "recoveries": 0,
    "actions": frozenset(),
}


def share_of(view: RunView, names: frozenset[str], visible_files: frozenset[str]) -> RunView:
    """The view of somebody whose sub-models are `names`; files that are not among `visible_files` are not named."""
    others = frozenset(part.name for part in view.submodels) - names
    telling = _telling(view, others)
    own = [part for part in view.submodels if part.name in names]
    parts = tuple(_own_part(part, place, telling) for place, part in enumerate(own))
    ended = all(part.state in ENDED for part in parts)
    ended_at_s = max((part.ended_at_s for part in parts if part.ended_at_s is not None), default=None)
    holder = next((part.name for part in parts if part.holds_device), None)
    cause, remedy = _cause(view, parts)
    return replace(
        view,
        **_TOTALS,
        state=_end_of(parts) if ended else view.state,
        submodels=parts,
        ended_at_s=ended_at_s if ended else None,
        elapsed_s=_until(view, ended_at_s) if ended else view.elapsed_s,
        cause=cause,
        remedy=remedy,
        now_reason=None if holder is None else TURN.format(name=holder),
        waits_for=None if view.waits_for is None else ROOM,
        waiting_commands=tuple(command for command in view.waiting_commands if command.submodel in names),
        strata=_own_strata(view.strata, names),
        marks=tuple(mark for mark in view.marks if _own_mark(mark, names)),
        schedule=tuple(_own_turn(turn) for turn in view.schedule if turn.submodel in names),
        events=tuple(_own_events(view.events, names, telling)),
        spec=_own_spec(view.spec, names, visible_files),
    )


def own_run(view: RunView, visible_files: frozenset[str]) -> RunView:
    """The view of somebody whose run it is as a whole: only what tells of other runs is withheld."""
    layers = tuple(layer for layer in view.strata.layers if layer.kind != "others")
    names = frozenset(part.name for part in view.submodels)
    return replace(
        view,
        queue_position=None,
        waits_for=None if view.waits_for is None else ROOM,
        strata=view.strata if layers == view.strata.layers else _of_layers(view.strata, layers),
        memory_notes=(),
        events=tuple(event for event in view.events if event.kind != "waiting"),
        spec=_own_spec(view.spec, names, visible_files),
    )


def graph_of(dot: str, names: frozenset[str]) -> str:
    """Graph of the hybrid with the clusters of `names` alone, numbered anew."""
    clusters = dict(re.findall(r'subgraph cluster_(\d+) \{ label="([^"]*)"', dot))
    kept = {number: str(place) for place, number in enumerate(n for n in clusters if clusters[n] in names)}
    lines = []
    inside: str | None = None
    for line in dot.splitlines():
        begins = re.match(r"  subgraph cluster_(\d+) ", line)
        inside = begins.group(1) if begins else inside
        edge = re.match(r"  (?:input -> )?m(\d+)_", line)
        number = inside or (edge.group(1) if edge else None)
        if number is None or number in kept:
            lines.append(re.sub(r"\b(cluster_|m)(\d+)(?=[_ ])", lambda found: _renumbered(found, kept), line))
        if line == "  }":
            inside = None
    return "\n".join(lines)


def without_files(view: RunView) -> RunView:
    """The view of somebody who sees no files, and can ask nothing of a run."""
    parts = tuple(
        replace(
            part, artifact=None, artifact_bytes=None, checkpoint_step=None, checkpoint_bytes=None, actions=frozenset()
        )
        for part in view.submodels
    )
    names = frozenset(part.name for part in parts)
    return replace(view, submodels=parts, actions=frozenset(), spec=_own_spec(view.spec, names, frozenset()))


def _cause(view: RunView, parts: Sequence[SubModelView]) -> tuple[str | None, str | None]:
    """Why it stands still, as far as that is about one's own sub-models."""
    failed = [part.name for part in parts if part.state is State.FAILED]
    if view.state is State.INTERRUPTED:
        return STOPPED_WORKER, "An operator resumes it."
    return (f"{', '.join(failed)} failed.", "Its own cause and remedy are beside it.") if failed else (None, None)


def _end_of(parts: Sequence[SubModelView]) -> State:
    states = {part.state for part in parts}
    return next((state for state in _ENDS if state in states), State.COMPLETED)


def _until(view: RunView, ended_at_s: float | None) -> float | None:
    if view.started_at_s is None or ended_at_s is None:
        return view.elapsed_s
    return max(0.0, ended_at_s - view.started_at_s)


def _own_strata(strata: Strata, names: frozenset[str]) -> Strata:
    """Layers of one's own sub-models alone: neither a total, nor what lies between."""
    return _of_layers(strata, tuple(layer for layer in strata.layers if layer.submodel in names))


def _of_layers(strata: Strata, layers: tuple[Layer, ...]) -> Strata:
    """Strata of these layers, with their sum as the total."""
    if not layers:
        return Strata()
    sizes = zip(*(layer.size_bytes for layer in layers), strict=True)
    totals = tuple(None if None in instant else sum(filter(None, instant)) for instant in sizes)
    return Strata(at_s=strata.at_s, total_bytes=totals, layers=layers, source=strata.source)


def _own_mark(mark: Mark, names: frozenset[str]) -> bool:
    """A switch tells from whom."""
    return mark.submodel in names and mark.kind != "switch"


def _own_turn(turn: Slice) -> Slice:
    return replace(turn, reason=TURN.format(name=turn.submodel))


def _telling(view: RunView, others: frozenset[str]) -> re.Pattern[str]:
    """What no sentence may hold: names of others, and why the run as a whole failed, which may name their files."""
    named = [rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in others]
    return re.compile("|".join([*named, *([re.escape(view.cause)] if view.cause else [])]) or r"(?!)")


def _own_part(part: SubModelView, place: int, telling: re.Pattern[str]) -> SubModelView:
    """A sub-model of one's own, counted among one's own; its memory is measured of the whole process."""
    shown = replace(part, arrival=place, number=place, peak_memory_bytes=None)
    if telling.search(f"{part.cause} {part.remedy}"):
        return replace(shown, cause=ENDED_AS_A_WHOLE, remedy=ASK_AN_OPERATOR)
    return shown


def _own_events(events: Iterable[EventView], names: frozenset[str], telling: re.Pattern[str]) -> Iterable[EventView]:
    for event in events:
        if event.submodel in names and event.kind in _TELLING_EVENTS and not telling.search(event.message):
            yield event


def _own_spec(spec: dict[str, object], names: frozenset[str], visible_files: frozenset[str]) -> dict[str, object]:
    listed: Any = spec.get("submodels", ())
    parts = [_with_own_files(part, visible_files) for part in listed if part["name"] in names]
    return {**spec, "submodels": parts}


def _with_own_files(part: dict[str, Any], visible_files: frozenset[str]) -> dict[str, Any]:
    def shown(reference: str) -> str:
        return reference if reference in visible_files else WITHHELD

    files = {key: shown(part[key]) for key in ("model", "train_data", "test_data") if part.get(key)}
    start = (
        {"start_from": {**part["start_from"], "file": shown(part["start_from"]["file"])}}
        if part.get("start_from")
        else {}
    )
    return {**part, **files, **start}


def _renumbered(found: re.Match[str], kept: dict[str, str]) -> str:
    return found.group(1) + kept.get(found.group(2), found.group(2))
