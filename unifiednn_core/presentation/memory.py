"""Recorded memory as the values that are drawn: strata, marks, figures of the card. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Literal, NamedTuple

from unifiednn_core.memory import strata as parts
from unifiednn_core.store.schema import EventRow, SliceRow, StrataRow
from unifiednn_core.store.telemetry import CHECKPOINT, SEPARATED
from unifiednn_core.views.memory import KINDS, Kind, Layer, Mark, Strata
from unifiednn_core.views.runs import Series

# A sampler that costs more looks less often, and thinned rows lie further apart: what is usual is told by the rows
# around. Only a silence far longer than that is a gap.
_BESIDE = 8
_GAP_FACTOR = 3.0
_LEAST_GAP_S = 2.0
_MOST_SWITCHES = 200
_OF_STATE: dict[str, Literal["load", "pause", "end"]] = {
    "running": "load",
    "paused": "pause",
    "completed": "end",
    "stopped": "end",
    "failed": "end",
}


class _Instant(NamedTuple):
    at_s: float
    row: StrataRow | None
    """None in the middle of a gap."""


def strata_of(rows: Sequence[StrataRow]) -> Strata:
    """Strata over time, in the order of `KINDS`, with what no stratum explains on top.

    Where the strata of an instant come to more than its total, `memory.strata.fitted` says what gives way, and why.
    """
    if not rows:
        return Strata()
    instants = _with_gaps(rows)
    fitted = [None if row is None else parts.fitted(row.total_bytes, row.strata) for _, row in instants]
    totals = [None if row is None else row.total_bytes for _, row in instants]
    layers = [Layer(kind, name, sizes) for kind in KINDS for name, sizes in _layers(kind, fitted, totals)]
    return Strata(
        at_s=tuple(at_s for at_s, _ in instants),
        total_bytes=tuple(None if total is None else float(total) for total in totals),
        layers=tuple(layer for layer in layers if any(size for size in layer.size_bytes)),
        source=rows[-1].source,
    )


def series_of_card(rows: Sequence[StrataRow]) -> tuple[Series, Series]:
    """Utilisation (0 to 1) and power (W) of the GPU over seconds; empty where there is none."""
    return _series(rows, "utilisation"), _series(rows, "power_w")


def marks_of(slices: Sequence[SliceRow], events: Iterable[EventRow], started_at_s: float | None) -> tuple[Mark, ...]:
    """Moments that explain a change of memory, oldest first; `started_at_s` is when the run began (UTC)."""
    marks = _of_turns(slices)
    if started_at_s is not None:
        marks += [mark for event in events if (mark := _of_event(event, started_at_s)) is not None]
    return tuple(sorted(marks, key=lambda mark: mark.at_s))


def gaps(at_s: Sequence[float]) -> list[int]:
    """Places in ascending moments before which nothing was sampled for far longer than is usual around there."""
    steps = [after - before for before, after in pairwise(at_s)]
    found = []
    for place, step in enumerate(steps):
        before, after = steps[max(0, place - _BESIDE) : place], steps[place + 1 : place + 1 + _BESIDE]
        usual = max((median(beside) for beside in (before, after) if beside), default=step)
        if step > max(_LEAST_GAP_S, _GAP_FACTOR * usual):
            found.append(place + 1)
    return found


# -- inside


def _with_gaps(rows: Sequence[StrataRow]) -> list[_Instant]:
    """Rows by moment, with an instant of nothing in the middle of each gap."""
    breaks = set(gaps([row.at_s for row in rows]))
    instants = []
    for place, row in enumerate(rows):
        if place in breaks:
            instants.append(_Instant((rows[place - 1].at_s + row.at_s) / 2, None))
        instants.append(_Instant(row.at_s, row))
    return instants


def _layers(
    kind: Kind, fitted: Sequence[Mapping[str, Any] | None], totals: Sequence[int | None]
) -> list[tuple[str | None, tuple[float | None, ...]]]:
    """Layers of one kind: by sub-model in the order in which they come up, else a single one."""
    if kind == "unexplained":
        return [(None, tuple(map(_unexplained, fitted, totals)))]
    if kind in parts.SINGLE:
        return [(None, tuple(_size(strata, kind) for strata in fitted))]
    names = dict.fromkeys(name for strata in fitted if strata is not None for name in strata.get(kind, {}))
    return [(name, tuple(_size(strata, kind, name) for strata in fitted)) for name in names]


def _unexplained(strata: Mapping[str, Any] | None, total: int | None) -> float | None:
    return None if strata is None or total is None else float(total - parts.sum_of(dict(strata)))


def _size(strata: Mapping[str, Any] | None, kind: Kind, name: str | None = None) -> float | None:
    """Bytes of a layer: 0 where others of its kind have some and this one has none, None where nobody could tell."""
    if strata is None or kind not in strata:
        return None
    return float(strata[kind] if name is None else strata[kind].get(name, 0))


def _series(rows: Sequence[StrataRow], name: str) -> Series:
    known = [(row.at_s, float(row.strata[name])) for row in rows if name in row.strata]
    return Series(tuple(at_s for at_s, _ in known), tuple(value for _, value in known))


def _of_turns(slices: Sequence[SliceRow]) -> list[Mark]:
    """One sub-model takes over from another. Where they do so all the time, it explains nothing."""
    marks = [
        Mark(turn.start_s, "switch", turn.submodel, f"{turn.submodel} takes over from {last.submodel}.")
        for last, turn in pairwise(slices)
        if last.submodel != turn.submodel
    ]
    return marks if len(marks) <= _MOST_SWITCHES else []


def _of_event(event: EventRow, started_at_s: float) -> Mark | None:
    """Mark of a line of the history; None for those that change no memory."""
    name, at_s = event.submodel, event.at_s - started_at_s
    if name is None or at_s < 0:
        return None
    if event.kind == CHECKPOINT:
        return Mark(at_s, "checkpoint", name, event.message)
    if event.kind == SEPARATED:
        return Mark(at_s, "separation", name, event.message)
    if event.kind != "state":
        return None
    kind = _OF_STATE.get(event.message.removeprefix(f"{name} is ").partition(".")[0])
    return None if kind is None else Mark(at_s, kind, name, event.message)
