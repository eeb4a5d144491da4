"""Memory of a run as values to be drawn, and those values from the rows of the store. Sizes are bytes. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from unifiednn_core.machine import breakdown as parts
from unifiednn_core.store.schema import EventRow
from unifiednn_core.store.telemetry import SlicePoint, StrataPoint
from unifiednn_core.views.event_text import event_text

Kind = Literal["context", "slack", "data", "weights", "gradients", "optimizer", "transient", "others", "unexplained"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""From the bottom of the chart to its top."""


MarkKind = Literal["load", "switch", "pause", "checkpoint", "separation", "end"]


@dataclass(frozen=True, slots=True)
class MemoryLayer:
    """Memory of one kind over time, of one sub-model or of none. A size of None is not available."""

    kind: Kind
    submodel: str | None
    size_bytes: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class MemoryBreakdown:
    """Memory by use; all tuples are as long as `at_s`. A gap in sampling is an instant of None."""

    at_s: tuple[float, ...] = ()
    """Seconds since the start of the run."""
    total_bytes: tuple[float | None, ...] = ()
    layers: tuple[MemoryLayer, ...] = ()
    """In the order of `KINDS`, without those that were never above 0."""
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment that explains a change of memory; in a chart also several of one kind that are close together."""

    at_s: float
    kind: MarkKind
    submodel: str | None
    text: str
    count: int = 1


# Costly samplers sample less often and old rows are thinned, so a gap is far longer than the distances around it.
_AROUND = 8
_GAP_FACTOR = 3.0
_LEAST_GAP_S = 2.0
_MOST_SWITCHES = 200
_OF_KIND: dict[str, MarkKind] = {"checkpoint": "checkpoint", "separated": "separation"}
_OF_STATE: dict[str, MarkKind] = {
    "running": "load",
    "paused": "pause",
    "completed": "end",
    "stopped": "end",
    "failed": "end",
}
Value = TypeVar("Value")


def breakdown_of(rows: Sequence[StrataPoint]) -> MemoryBreakdown:
    """Memory by use over time, in the order of `KINDS`, with the unexplained rest on top.

    The parts of a row are together at most its total: the sampler fitted them.
    """
    if not rows:
        return MemoryBreakdown()
    instants = with_gaps([(row.at_s, row) for row in rows], None)
    known = [None if row is None else row.strata for _, row in instants]
    totals = tuple([None if row is None else float(row.total_bytes) for _, row in instants])
    layers = [MemoryLayer(kind, name, sizes) for kind in KINDS for name, sizes in _layers(kind, known)]
    rest = np.array(totals, dtype=float)
    for layer in layers:
        rest -= np.nan_to_num(np.array(layer.size_bytes, dtype=float))
    unexplained = [None if size != size else max(0.0, size) for size in rest.tolist()]
    layers.append(MemoryLayer("unexplained", None, tuple(unexplained)))
    return MemoryBreakdown(
        at_s=tuple([at_s for at_s, _ in instants]),
        total_bytes=totals,
        layers=tuple(layer for layer in layers if any(layer.size_bytes)),
        source=rows[-1].source,
    )


def marks_of(slices: Sequence[SlicePoint], events: Iterable[EventRow], started_at_s: float | None) -> tuple[Mark, ...]:
    """Moments that explain a change of memory, oldest first; `started_at_s` is when the run began (UTC)."""
    marks = _of_turns(slices)
    if started_at_s is not None:
        marks += [mark for event in events if (mark := _of_event(event, started_at_s)) is not None]
    return tuple(sorted(marks, key=lambda mark: mark.at_s))


def gaps(at_s: Sequence[float]) -> list[int]:
    """Indices of the moments that follow a gap: a silence far longer than the usual distance around it."""
    steps = [after - before for before, after in pairwise(at_s)]
    found = []
    for place in [place for place, step in enumerate(steps) if step > _LEAST_GAP_S]:
        before, after = steps[max(0, place - _AROUND) : place], steps[place + 1 : place + 1 + _AROUND]
        usual = max((median(side) for side in (before, after) if side), default=steps[place])
        if steps[place] > _GAP_FACTOR * usual:
            found.append(place + 1)
    return found


def with_gaps(points: Sequence[tuple[float, Value]], missing: Value) -> list[tuple[float, Value]]:
    """Points over seconds, with `missing` in the middle of each gap."""
    filled = list(points)
    for place in reversed(gaps([at_s for at_s, _ in points])):
        filled.insert(place, ((points[place - 1][0] + points[place][0]) / 2, missing))
    return filled


def _layers(kind: Kind, known: Sequence[Mapping[str, Any] | None]) -> list[tuple[str | None, tuple[float | None, ...]]]:
    """Layers of one kind: one for each sub-model in order of appearance, or a single one.

    Sizes are 0 if only others of the kind have some, None if the kind was not measured.
    """
    of_kind = [None if strata is None else strata.get(kind) for strata in known]
    if kind in parts.SINGLE:
        return [(None, tuple(of_kind))]
    names = dict.fromkeys(name for sizes in of_kind if sizes for name in sizes)
    return [(name, tuple([None if sizes is None else sizes.get(name, 0) for sizes in of_kind])) for name in names]


def _of_turns(slices: Sequence[SlicePoint]) -> list[Mark]:
    """One sub-model takes over from another; none if that happens too often to explain anything."""
    chosen = [turn for turn in slices if turn.lane == 1]
    switches = [(last, turn) for last, turn in pairwise(chosen) if last.submodel != turn.submodel]
    if len(switches) > _MOST_SWITCHES:
        return []
    return [
        Mark(turn.start_s, "switch", turn.submodel, f"{turn.submodel} takes over from {last.submodel}.")
        for last, turn in switches
    ]


def _of_event(event: EventRow, started_at_s: float) -> Mark | None:
    """Mark of an event; None for one that changes no memory."""
    name, at_s = event.submodel, event.at_s - started_at_s
    if name is None or at_s < 0:
        return None
    kind = _OF_KIND.get(event.kind) if event.state is None else _OF_STATE.get(event.state)
    return None if kind is None else Mark(at_s, kind, name, event_text(event))
