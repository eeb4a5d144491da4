"""Compares what an exercise on a cluster left behind with what was promised."""

import time
from collections.abc import Iterator, Sequence

from tools.chaos.cluster import logs, trace
from tools.chaos.cluster.audit import (
    backward_checkpoints,
    double_claims,
    lost_checkpoints,
    orphaned,
    two_workers,
    unsaved_s,
)
from tools.chaos.judge import ANY_MOMENT, GRACEFUL, KILLS, Outcome, time_recoveries
from tools.chaos.pool_plan import BY_NAME
from tools.chaos.pool_roles import REFUSED
from tools.chaos.rows import rows
from tools.chaos.scene import JournalEntry, Scene
from unifiednn_core.store.blobs import MARK

PLACES = {
    "worker": ("worker", "sigkill"),
    "agent": ("agent", "sigkill"),
    "host": ("host: agent and workers", "sigkill"),
    "people": ("process that asks", "sigkill"),
    "connection": ("connection, by its server", "sigterm"),
    "database": ("database server", "sigkill"),
}
"""Strikes that kill: where, and as what they count."""
WITHIN_S = 20.0
"""A process that cannot go on without the store ends by itself so long after a fault between them, at the latest."""


def tally(entries: Sequence[JournalEntry]) -> Outcome:
    """Count what a journal tells, up to the end of the exercise."""
    outcome = Outcome(exercises=1)
    over = next((place for place, entry in enumerate(entries) if entry.what == "over"), len(entries))
    entries = entries[:over]
    for entry in entries:
        if entry.what != "fault":
            continue
        if entry.action in PLACES:
            place, action = PLACES[entry.action]
            outcome.struck[ANY_MOMENT + place, action] += 1
        else:
            outcome.lasting[entry.action] += 1
    struck = {entry.pid: entry for entry in entries if entry.what == "struck"}
    outcome.struck.update({(one.point, one.action) for one in struck.values() if one.action not in KILLS})
    _count_deaths(outcome, entries, {pid: one for pid, one in struck.items() if one.action in KILLS})
    time_recoveries(outcome, entries)
    outcome.acknowledged = sum(entry.what == "asked" for entry in entries)
    outcome.refused = sum(entry.what == "refused" for entry in entries)
    return outcome


def _count_deaths(outcome: Outcome, entries: Sequence[JournalEntry], struck: dict[int, JournalEntry]) -> None:
    shot = {entry.pid for entry in entries if entry.what == "shot" and entry.action == "sigkill"}
    for entry in entries:
        if entry.what != "ended" or entry.role == "check" or entry.code == 0:
            continue
        if entry.pid in struck and entry.code in (-9, -15, GRACEFUL):
            outcome.struck[struck[entry.pid].point, struck[entry.pid].action] += 1
        elif entry.pid in shot and entry.code == -9:
            continue  # counted with its strike
        elif entry.pid in struck or _gave_up(entry, entries):
            outcome.gave_up += 1
        else:
            outcome.unplanned_deaths += 1
            outcome.problems.append(f"{entry.role} {entry.pid} on host {entry.host} ended with code {entry.code}")


FENCED, FAILED = 5, 1
"""How a worker ends that has lost its hybrid, and one that came too late for it or could not reach the store."""


def _gave_up(ended: JournalEntry, entries: Sequence[JournalEntry]) -> bool:
    """Whether a process ended by itself as it should: its hybrid or its store was lost not long before."""
    if ended.role == "worker" and ended.code == FENCED:
        return True
    return ended.code in (FAILED, REFUSED) and any(
        0.0 <= ended.at_s - one.at_s <= WITHIN_S
        for one in entries
        if one.what == "fault" or (one.what == "struck" and one.action in KILLS)
    )


def judge_history(outcome: Outcome, scene: Scene, entries: Sequence[JournalEntry]) -> None:
    """Hold what the store wrote down about claims, checkpoints and steps against what must be."""
    claims, marks = trace.claims(scene.url), trace.marks(scene.url)
    may_start_anew = {run_id for run_id, name in rows(scene.url, "SELECT id, name FROM runs") if BY_NAME[name].diverges}
    of_steady = [mark for mark in marks if mark.run_id not in may_start_anew]
    double = [*double_claims(claims), *two_workers(claims)]
    lost = [*lost_checkpoints(of_steady), *backward_checkpoints(of_steady)]
    late = trace.late_writes(scene.url)
    outcome.claims += sum(claim.held for claim in claims)
    outcome.double_claims += len(double)
    outcome.lost_checkpoints += len(lost)
    outcome.late_writes += len(late)
    outcome.unsaved_s += unsaved_s(marks, list(_deaths(scene, entries)))
    strange = logs.unexpected(scene.folder)
    files = [str(one.relative_to(scene.blobs)) for one in scene.blobs.rglob("*") if one.is_file()]
    known = {MARK, *(key for (key,) in rows(scene.url, "SELECT key FROM blobs"))}
    orphans = orphaned(files, known)
    outcome.left_over += len(orphans)
    outcome.problems += orphans
    outcome.strange_errors += sum(strange.values())
    outcome.problems += [
        *double,
        *lost,
        *late,
        *(f"{name} in the logs, {count} times" for name, count in strange.items()),
    ]


def _deaths(scene: Scene, entries: Sequence[JournalEntry]) -> Iterator[tuple[str, str, float]]:
    """Run, sub-model and moment of each death of a worker that trained it then."""
    utc_s = time.time() - time.monotonic()
    query = "SELECT run_id, submodel, at_s, hybrid_id FROM attempts ORDER BY at_s"
    attempts = rows(scene.url, query)
    ended_at_s = {
        (run_id, name): at_s for run_id, name, at_s in rows(scene.url, "SELECT run_id, name, ended_at_s FROM submodels")
    }
    for entry in entries:
        if entry.what != "ended" or entry.role != "worker" or entry.code == 0:
            continue
        died_at_s, trained = entry.at_s + utc_s, dict[tuple[str, str], str]()
        for run_id, submodel, at_s, hybrid_id in attempts:
            if at_s < died_at_s:
                trained[run_id, submodel] = hybrid_id
        for (run_id, submodel), hybrid_id in trained.items():
            ended_s = ended_at_s.get((run_id, submodel))
            if hybrid_id == entry.run_id and (ended_s is None or ended_s > died_at_s):
                yield run_id, submodel, died_at_s
