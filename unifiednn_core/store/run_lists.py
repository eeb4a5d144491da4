"""One page of the list of runs: filtered, sorted and counted by the database."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, Select, String, cast, exists, func, or_, select, union
from sqlalchemy.orm import Session

from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run_query import RunChoices, RunQuery, SortKey
from unifiednn_core.store.database import Repository
from unifiednn_core.store.runs import PLACED, light_runs, with_light_parts
from unifiednn_core.store.schema import HYBRID, HybridRow, RunRow, SubModelRow, distinct, wholly_of

NEWEST, MOST_FAILED, MOST_EQUAL = 10, 50, 50
"""Most runs of each kind among the current ones."""
SEARCHED = 1000
"""The newest runs, in which a text is looked for: no index finds a part of a name."""
_OPEN = [state.value for state in State if state not in ENDED]
_BROKEN = [State.FAILED.value, State.INTERRUPTED.value]
_THERE = RunRow.removed_at_s.is_(None)

LightRun = tuple[Row[Any], list[Row[Any]]]


class RunRows(NamedTuple):
    """One page of light rows, as those of `Runs.listed`."""

    rows: list[LightRun]
    total: int
    """Runs that match."""
    page: int
    waiting: list[str]
    """Ids of all runs in the line, in its order."""
    arms: dict[str, str]
    """By fingerprint of a run of the page: which ended runs have it, as a key that changes with them."""
    searched: int | None = None
    """Number of the newest runs in which the text was looked for; None for all."""


class RunLists(Repository):
    """Reads pages of the list."""

    def page(self, query: RunQuery, person: str | None = None) -> RunRows:
        """One page, with a `person` only of runs in which this person has a part."""
        with self._database.read() as session:
            asked = _matching(query, person)
            older_s = None
            if query.text and not query.everywhere and person is None:  # a person's own runs are few
                times = select(RunRow.created_at_s).order_by(RunRow.created_at_s.desc())
                older_s = session.scalar(times.offset(SEARCHED).limit(1))
            if older_s is not None:
                asked = asked.where(RunRow.created_at_s > older_s)
            total = _count(session, asked, every=person is None and not query.filters)
            page = max(0, min(query.page, (total - 1) // query.rows))
            order = _order(query.sort, person)
            order = order.desc() if query.descending else order.asc()
            order = order if query.sort == "submitted" else order.nulls_last()  # that has an index, and is never NULL
            ordered = asked.order_by(order, RunRow.created_at_s.desc(), RunRow.id.desc())
            ids = session.scalars(ordered.limit(query.rows).offset(page * query.rows)).all()
            rows = {row.id: row for row in session.execute(light_runs().where(RunRow.id.in_(ids)))}
            found = [rows[run_id] for run_id in ids]
            prints = {row.fingerprint for row in found} - {""}
            ended = select(RunRow.fingerprint, RunRow.id).where(RunRow.fingerprint.in_(prints))
            if person is not None:  # the number of equal runs of others would tell that somebody has the same
                ended = ended.where(wholly_of(person))
            arms: dict[str, str] = {}
            for same in session.execute(ended.where(RunRow.ended_at_s.is_not(None), _THERE)):
                arms[same.fingerprint] = f"{arms.get(same.fingerprint, '')} {same.id}"
            searched = None if older_s is None else SEARCHED
            return RunRows(with_light_parts(session, found), total, page, _line(session), arms, searched)

    def current(self, failed_since_s: float, person: str | None = None) -> list[LightRun]:
        """Runs of today as light rows, the newest first: open ones, the newest ended ones, and failures since then.

        With the newest equals of each, from which a verdict can be had. With a `person` only those in which this person
        has a part. The cost does not grow with the number of runs of the past.
        """
        seen, newest_first = [_THERE, *_own(person)], (RunRow.created_at_s.desc(), RunRow.id.desc())
        broken = union(
            select(RunRow.id).where(RunRow.state.in_(_BROKEN), RunRow.ended_at_s >= failed_since_s),
            select(SubModelRow.run_id).where(
                SubModelRow.state == State.FAILED.value, SubModelRow.ended_at_s >= failed_since_s
            ),
        )
        with self._database.read() as session:
            ids = select(RunRow.id, RunRow.fingerprint).where(*seen)
            found = [
                *session.execute(ids.where(RunRow.state.in_(_OPEN))),
                *session.execute(ids.where(RunRow.state.not_in(_OPEN)).order_by(*newest_first).limit(NEWEST)),
            ]
            failed = ids.where(RunRow.ended_at_s >= failed_since_s, RunRow.id.in_(broken))
            found += session.execute(failed.order_by(*newest_first).limit(MOST_FAILED))
            prints = {row.fingerprint for row in found} - {""}
            equal = ids.where(RunRow.fingerprint.in_(prints), RunRow.state.not_in(_OPEN))
            found += session.execute(equal.order_by(*newest_first).limit(MOST_EQUAL))
            shown = light_runs().where(RunRow.id.in_({row.id for row in found}))
            return with_light_parts(session, session.execute(shown.order_by(*newest_first)).all())

    def hybrids(self, page: int, rows: int, person: str | None = None) -> RunRows:
        """One page of the hybrids, the newest first, among them the newest baselines of their fingerprints.

        The total is that of the hybrids. With a `person` only those in which this person has a part.
        """
        newest_first = RunRow.created_at_s.desc(), RunRow.id.desc()
        seen = select(RunRow.id, RunRow.fingerprint).where(_THERE, *_own(person))
        with self._database.read() as session:
            hybrids = seen.where(RunRow.mode == HYBRID)
            total = _count(session, hybrids.with_only_columns(RunRow.id))
            page = max(0, min(page, (total - 1) // rows))
            found = session.execute(hybrids.order_by(*newest_first).limit(rows).offset(page * rows)).all()
            prints = {row.fingerprint for row in found} - {""}
            baselines = seen.where(RunRow.fingerprint.in_(prints), RunRow.mode != HYBRID).order_by(*newest_first)
            ids = [*found, *session.execute(baselines.limit(rows * MOST_EQUAL))]
            shown = light_runs().where(RunRow.id.in_({row.id for row in ids})).order_by(*newest_first)
            return RunRows(with_light_parts(session, session.execute(shown).all()), total, page, _line(session), {})

    def choices(self, person: str | None = None) -> RunChoices:
        """Owners and devices of all runs that a person may see, and how many there are."""
        seen = _own(person)
        with self._database.read() as session:
            asked = select(RunRow.id).where(_THERE, *seen)
            living = asked.where(RunRow.state.in_(_OPEN))
            owners = [] if person is not None else distinct(session, SubModelRow.owner)
            return RunChoices(
                owners=tuple(owners),
                devices=tuple(sorted(_devices(session, seen))),
                total=_count(session, asked, every=person is None),
                living=_count(session, living),
            )


def _line(session: Session) -> list[str]:
    line = select(RunRow.id).where(RunRow.state == State.QUEUED.value, _THERE)
    return list(session.scalars(line.order_by(RunRow.line_at_s, RunRow.id)))


def _count(session: Session, asked: Select[Any], *, every: bool = False) -> int:
    """Number of runs that a query finds; whether it finds every run that is not being deleted."""
    found = select(func.count()).select_from(asked.subquery())
    if every:  # no run is read for that
        of_all = select(func.count()).select_from(RunRow)
        found = select(of_all.scalar_subquery() - of_all.where(~_THERE).scalar_subquery())
    return session.scalar(found) or 0


def _devices(session: Session, seen: Sequence[ColumnElement[bool]]) -> set[str]:
    """Where runs are or were placed; what was asked, of those that never were."""
    private = select(RunRow.device).join(HybridRow, HybridRow.id == RunRow.id).where(HybridRow.device.is_(None), _THERE)
    waiting = select(SubModelRow.run_id).where(SubModelRow.hybrid_id.is_(None))
    shared = select(RunRow.device).where(RunRow.shared.is_(True), RunRow.id.in_(waiting), PLACED.is_(None), _THERE)
    if seen:
        of_runs = select(SubModelRow.hybrid_id).join(RunRow, RunRow.id == SubModelRow.run_id).where(*seen)
        placed = list(session.scalars(select(HybridRow.device).where(HybridRow.id.in_(of_runs)).distinct()))
    else:
        placed = distinct(session, HybridRow.device)
    asked = [name for one in (private, shared) for name in session.scalars(one.where(*seen).distinct())]
    return set(filter(None, (*placed, *asked)))


def _device() -> ColumnElement[str]:
    return func.coalesce(HybridRow.device, PLACED, RunRow.device)


def _part(person: str | None) -> Any:
    """Query for sub-models of the run at hand; with a `person`, only this person's."""
    mine = SubModelRow.run_id == RunRow.id
    return exists().where(mine if person is None else mine & (SubModelRow.owner == person)).correlate(RunRow)


def _own(person: str | None) -> list[ColumnElement[bool]]:
    if person is None:
        return []
    return [RunRow.id.in_(select(SubModelRow.run_id).where(SubModelRow.owner == person))]


def _matching(query: RunQuery, person: str | None) -> Select[Any]:
    """Ids of the runs that fit, in no order."""
    asked = select(RunRow.id).outerjoin(HybridRow, HybridRow.id == RunRow.id).where(_THERE, *_own(person))
    if query.text:
        fields = [RunRow.name, RunRow.id] + ([RunRow.submitter] if person is None else [])
        named = [column.icontains(query.text, autoescape=True) for column in fields]
        part = _part(person).where(SubModelRow.name.icontains(query.text, autoescape=True))
        asked = asked.where(or_(*named, part))
    if query.states:
        asked = asked.where(RunRow.state.in_([state.value for state in query.states]))
    if query.owner is not None and person is None:
        asked = asked.where(or_(RunRow.submitter == query.owner, _part(query.owner)))
    if query.device:
        asked = asked.where(_device() == query.device)
    if query.since_s is not None:
        asked = asked.where(RunRow.created_at_s >= query.since_s)
    return asked


def _order(key: SortKey, person: str | None) -> ColumnElement[Any]:
    """What a list is sorted by. A person who sees only own work gets no order by figures of others."""
    mine = SubModelRow.run_id == RunRow.id
    own = mine if person is None else mine & (SubModelRow.owner == person)
    match key:
        case "name":
            return func.lower(RunRow.name)
        case "state":
            return cast(RunRow.state, String)
        case "owner" if person is None:
            return cast(RunRow.submitter, String)
        case "device":
            return _device()
        case "time":
            return RunRow.ended_at_s - func.coalesce(RunRow.launched_at_s, RunRow.created_at_s)
        case "accuracy":
            return select(func.max(SubModelRow.test_accuracy)).where(own).correlate(RunRow).scalar_subquery()
        case "memory" if person is None:
            return HybridRow.peak_memory_bytes.expression
        case _:
            return RunRow.created_at_s.expression
