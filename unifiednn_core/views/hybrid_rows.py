"""Rows of a hybrid as values: its members as sub-models of one run, for the charts. Pure."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.hybrids import Resident
from unifiednn_core.store.schema import HybridRow
from unifiednn_core.store.telemetry import HybridHistory, StrataPoint
from unifiednn_core.views.hybrids import ListedHybrid
from unifiednn_core.views.memory import breakdown_of, with_gaps
from unifiednn_core.views.run_rows import run_view
from unifiednn_core.views.runs import RunView, Series, Slice, SubModelView


def shown_names(members: Sequence[Resident]) -> dict[str, str]:
    """Name by `RUN_ID/NAME`: the plain one where no other member has it."""
    counts = Counter(row.name for _, row in members)
    keys = {f"{run.id}/{row.name}": row.name for run, row in members}
    return {key: name if counts[name] == 1 else key for key, name in keys.items()}


def plain_reason(reason: str, names: Mapping[str, str]) -> str:
    """A policy's reason with the names that are shown."""
    for key, name in names.items():
        reason = reason.replace(key, name)
    return reason


def hybrid_view(
    hybrid: HybridRow, listed: ListedHybrid, members: Sequence[Resident], history: HybridHistory, now_s: float
) -> RunView:
    """A hybrid as a run of all its members. A sub-model that has left has no row; its turns are left out."""
    names = shown_names(members)
    keys = {(run.id, row.name): names[f"{run.id}/{row.name}"] for run, row in members}
    turns = [
        Slice(
            keys[turn.run_id, turn.submodel],
            turn.start_s,
            turn.end_s,
            turn.steps,
            plain_reason(turn.reason, names),
            turn.lane,
        )
        for turn in history.turns
        if (turn.run_id, turn.submodel) in keys
    ]
    points = with_gaps(history.memory, math.nan)
    return RunView(
        run_id=hybrid.id,
        name=f"Hybrid on {listed.device}",
        state=State.COMPLETED if hybrid.heartbeat_at_s is None else State.RUNNING,
        policy=listed.policy,
        policy_text=listed.policy,
        device=listed.device,
        threads=hybrid.threads,
        created_at_s=hybrid.launched_at_s or now_s,
        launched_at_s=hybrid.launched_at_s,
        started_at_s=hybrid.started_at_s,
        ended_at_s=hybrid.ended_at_s,
        cause=None,
        remedy=None,
        now_reason=listed.now_reason,
        submodels=tuple(_part(member, place, keys, now_s) for place, member in enumerate(members)),
        memory=Series(tuple(point[0] for point in points), tuple(point[1] for point in points)),
        memory_source=hybrid.memory_source,
        peak_memory_bytes=hybrid.peak_memory_bytes,
        breakdown=breakdown_of([_named(point, names) for point in history.strata]),
        schedule=tuple(turns),
        shared=hybrid.shared,
    )


def _part(member: Resident, place: int, keys: Mapping[tuple[str, str], str], now_s: float) -> SubModelView:
    [part] = run_view(member.run, [member.row], now_s).submodels
    return replace(part, name=keys[member.run.id, member.row.name], arrival=place, number=place)


def _named(point: StrataPoint, names: Mapping[str, str]) -> StrataPoint:
    """A breakdown with the names that are shown; that of a private hybrid has plain ones."""
    strata = {
        use: {names.get(key, key): size for key, size in sizes.items()} if isinstance(sizes, Mapping) else sizes
        for use, sizes in point.strata.items()
    }
    return point._replace(strata=strata)
