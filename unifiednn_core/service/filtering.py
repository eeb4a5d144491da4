"""A run as one person may see it, without any trace of other people's work. Pure.

In a hybrid of several people, a submitter sees only their own sub-models: curves, events, turns, memory, and their part
of the spec. Figures of the whole run are withheld: total memory and time, place in the queue, prediction, the policy's
reasons, other people's commands, the fingerprint. It stays visible that their sub-models wait.

A run in shared hybrids is wholly its owner's, so little is in it that belongs to others: the policy's reasons, the
hybrid's id, what steps together with its sub-models, and the memory of the whole process.
"""

import re
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any

from unifiednn_core.base.paths import SHARED_HYBRID, SHARED_RUN
from unifiednn_core.service.ownership import RunOwners
from unifiednn_core.service.roles import Actor
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.sharing import PERMISSION
from unifiednn_core.store.events import Code
from unifiednn_core.views.memory import MemoryBreakdown, MemoryLayer
from unifiednn_core.views.runs import EventView, RunView, Series, SubModelView

TURN = "It is the turn of {name}."
ROOM = "room on the device"
STOPPED_WORKER = "The process that trained it ended; its last checkpoint is kept."
WITHHELD = "withheld"
ENDED_AS_A_WHOLE = "Its run could not continue."
ASK_AN_OPERATOR = "Ask an operator: others have a part in this run."
# Not the policy's reasons, which compare sub-models.
_SHOWN_CODES = frozenset(Code) - {Code.REFUSED, Code.ILLEGAL_MOVE, Code.UNRECORDED}
_OF_COMPANY = frozenset({Code.GANGED})
"""Equal networks step together: it would tell that somebody has one."""
_STRANGERS = re.compile(rf"\b[{SHARED_RUN}{SHARED_HYBRID}]\d{{8}}-\d{{6}}-[0-9a-f]+(/[\w-]+)?")
_ENDS = (State.FAILED, State.INTERRUPTED, State.STOPPED)
_FIGURES = ("peak_memory_bytes", "heartbeat_age_s", "queue_position", "prediction", "cpu_s", "gpu_s", "energy_j")
_FILES = ("model", "train_data", "test_data")
_TOTALS: dict[str, Any] = {
    **dict.fromkeys(("memory_source", *_FIGURES)),
    **dict.fromkeys(("memory", "utilisation", "power_w"), Series()),
    **{"fingerprint": "", "memory_notes": (), "attempt": 0, "recoveries": 0, "processes": {}, "oracle": {}},
    **{"pages": {}, "allocator": None, "lanes": None, "start": None, "others_share": None},
    **dict.fromkeys(("starts_in_s", "ends_in_s", "forecast")),
    "actions": frozenset(),
}


def as_seen_by(actor: Actor, view: RunView, owners: RunOwners, own_files: frozenset[str]) -> RunView:
    """A run as `actor` may see it; `own_files` are the files that this person owns, as `sha256:...`."""
    if not actor.sees_files:
        return without_files(view)
    if not actor.sees_only_own:
        return view
    if owners.wholly_of(actor.id):
        return own_run(view, own_files)
    return share_of(view, owners.names_of(actor.id), own_files)


def share_of(view: RunView, names: frozenset[str], visible_files: frozenset[str]) -> RunView:
    """The view of the owner of the sub-models `names`; other files than `visible_files` are withheld."""
    own = [part for part in view.submodels if part.name in names]
    parts = tuple(_own_part(part, place, view.cause) for place, part in enumerate(own))
    ended = all(part.state in ENDED for part in parts)
    ended_at_s = max((part.ended_at_s for part in parts if part.ended_at_s is not None), default=None)
    holder = next((part.name for part in parts if part.holds_device), None)
    cause, remedy = _cause(view, parts)
    states = {part.state for part in parts}
    seen = replace(
        view,
        **_TOTALS,
        state=next((state for state in _ENDS if state in states), State.COMPLETED) if ended else view.state,
        submodels=parts,
        ended_at_s=ended_at_s if ended else None,
        elapsed_s=_until(view.started_at_s, ended_at_s) if ended else view.elapsed_s,
        makespan_s=_until(view.launched_at_s, ended_at_s) if ended else view.makespan_s,
        cause=cause,
        remedy=remedy,
        now_reason=None if holder is None else TURN.format(name=holder),
        waits_for=_wait(view.waits_for),
        waiting_commands=tuple(command for command in view.waiting_commands if command.submodel in names),
        breakdown=_of_layers(view.breakdown, [layer for layer in view.breakdown.layers if layer.submodel in names]),
        # a switch also names the other sub-model
        marks=tuple(mark for mark in view.marks if mark.submodel in names and mark.kind != "switch"),
        schedule=tuple(
            turn._replace(reason=TURN.format(name=turn.submodel)) for turn in view.schedule if turn.submodel in names
        ),
        stays=tuple(stay for stay in view.stays if stay.submodel in names),
        events=_own_events(view, names),
        spec=_own_spec(view.spec, names, visible_files),
    )
    return _without_company(seen) if view.shared else seen


def own_run(view: RunView, visible_files: frozenset[str]) -> RunView:
    """The view of the owner of the whole run: only facts about other runs are withheld."""
    layers = [layer for layer in view.breakdown.layers if layer.kind != "others"]
    whole = len(layers) == len(view.breakdown.layers)
    breakdown = view.breakdown if whole else _of_layers(view.breakdown, layers)
    spec = _own_spec(view.spec, {part.name for part in view.submodels}, visible_files)
    waits_for = _wait(view.waits_for, otherwise=view.waits_for or "")
    seen = replace(view, waits_for=waits_for, breakdown=breakdown, memory_notes=(), others_share=None, spec=spec)
    return _without_company(seen) if view.shared else seen


def _without_company(view: RunView) -> RunView:
    """The view of a run in shared hybrids, without a trace of who else is in them."""

    def own(text: str | None) -> str | None:
        return None if text is None else _without_hybrids(view.run_id, text)

    parts = tuple(replace(part, cause=own(part.cause), remedy=own(part.remedy)) for part in view.submodels)
    holder = next((part.name for part in parts if part.holds_device), None)
    return replace(
        view,
        submodels=parts,
        cause=own(view.cause),
        remedy=own(view.remedy),
        now_reason=None if holder is None else TURN.format(name=holder),
        schedule=tuple(turn._replace(reason=TURN.format(name=turn.submodel)) for turn in view.schedule),
        events=tuple(
            replace(
                event,
                message=own(event.message) or "",
                fields={name: own(value) if isinstance(value, str) else value for name, value in event.fields.items()},
            )
            for event in view.events
            if event.code in _SHOWN_CODES - _OF_COMPANY
        ),
    )


def _without_hybrids(run_id: str, text: str) -> str:
    """A sentence without the id of a shared hybrid, and without others in it."""
    plain = text.replace(f"{run_id}/", "")
    return _STRANGERS.sub(lambda found: run_id if found.group() == run_id else "another one", plain)


def without_files(view: RunView) -> RunView:
    """The view of a person without access to files and commands."""
    files: dict[str, Any] = dict.fromkeys(
        ("artifact", "artifact_bytes", "certificate", "certify_at_s", "checkpoint_step", "checkpoint_bytes")
    )
    parts = tuple(replace(part, **files, actions=frozenset()) for part in view.submodels)
    spec = _own_spec(view.spec, {part.name for part in parts}, frozenset())
    waits_for = _wait(view.waits_for, otherwise=view.waits_for or "")
    return replace(view, submodels=parts, actions=frozenset(), waits_for=waits_for, spec=spec)


def _cause(view: RunView, parts: Sequence[SubModelView]) -> tuple[str | None, str | None]:
    """Cause and remedy of the run, as far as they concern these sub-models."""
    failed = [part.name for part in parts if part.state is State.FAILED]
    if view.state is State.INTERRUPTED:
        return STOPPED_WORKER, "An operator resumes it."
    return (f"{', '.join(failed)} failed.", "Its own cause and remedy are shown with it.") if failed else (None, None)


def _wait(waits_for: str | None, otherwise: str = ROOM) -> str | None:
    """What a run waits for, without the names of people; figures of memory become `otherwise`."""
    return PERMISSION if waits_for and waits_for.startswith(PERMISSION) else waits_for and otherwise


def _until(begun_at_s: float | None, ended_at_s: float | None) -> float | None:
    return None if begun_at_s is None or ended_at_s is None else max(0.0, ended_at_s - begun_at_s)


def _of_layers(breakdown: MemoryBreakdown, layers: Sequence[MemoryLayer]) -> MemoryBreakdown:
    """Breakdown of these layers, with their sum as the total."""
    if not layers:
        return MemoryBreakdown()
    sizes = zip(*(layer.size_bytes for layer in layers), strict=True)
    totals = tuple(None if None in instant else sum(filter(None, instant)) for instant in sizes)
    return MemoryBreakdown(at_s=breakdown.at_s, total_bytes=totals, layers=tuple(layers), source=breakdown.source)


def _own_part(part: SubModelView, place: int, run_cause: str | None) -> SubModelView:
    """An own sub-model, numbered among the own ones."""
    shown = replace(part, arrival=place, number=place, ends_in_s=None, line=None)
    if part.deadline in ("holds", "late"):  # that depends on the work of others
        shown = replace(shown, deadline=None)
    if part.cause is not None and part.cause == run_cause:  # the cause of the run may name others
        return replace(shown, cause=ENDED_AS_A_WHOLE, remedy=ASK_AN_OPERATOR)
    return shown


def _own_events(view: RunView, names: frozenset[str]) -> tuple[EventView, ...]:
    """Events about only the person's own sub-models."""
    causes = {view.cause, *(event.fields.get("cause") for event in view.events if event.submodel is None)} - {None}
    own = [event for event in view.events if event.submodel in names and event.code in _SHOWN_CODES]
    return tuple(event for event in own if event.fields.get("cause") not in causes)


def _own_spec(spec: dict[str, object], names: Set[str], visible_files: Set[str]) -> dict[str, object]:
    """The part of a spec about the sub-models `names`, with other files than `visible_files` withheld."""

    def shown(reference: str) -> str:
        return reference if reference in visible_files else WITHHELD

    listed: Any = spec.get("submodels", ())
    parts: list[dict[str, Any]] = []
    for part in listed:
        if part["name"] in names:
            files: dict[str, Any] = {key: shown(part[key]) for key in _FILES if part.get(key)}
            if start := part.get("start_from"):
                files["start_from"] = {**start, "file": shown(start["file"])}
            parts.append(part | files)
    return {**spec, "submodels": parts}
