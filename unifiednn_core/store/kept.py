"""What runs keep and what they use: trained models, checkpoints, and files of the library. Read only.

There may be tens of thousands, so pages ask for some of them, and for counts.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, case, func, or_, select
from sqlalchemy.orm import aliased

from unifiednn_core.spec.run_query import MOST_COUNTED, KeptQuery
from unifiednn_core.store.database import Repository
from unifiednn_core.store.removals import NEEDS
from unifiednn_core.store.schema import HYBRID, FileRow, FileUseRow, RunRow, SubModelRow

_RUN = aliased(RunRow)
_REMOVED = select(RunRow.id).where(RunRow.removed_at_s.is_not(None))
_SHOWN = (
    SubModelRow.run_id,
    RunRow.name.label("run_name"),
    SubModelRow.name,
    SubModelRow.number,
    SubModelRow.state,
    SubModelRow.test_accuracy,
    SubModelRow.state_sha256,
    SubModelRow.artifact,
    SubModelRow.artifact_bytes,
    SubModelRow.artifact_at_s,
    SubModelRow.checkpoint,
    SubModelRow.checkpoint_step,
    SubModelRow.checkpoint_bytes,
    SubModelRow.checkpoint_at_s,
    SubModelRow.certificate,
)


class KeptRows(NamedTuple):
    """What a query found."""

    rows: Sequence[Row[Any]]
    total: int
    """How many match; `MOST_COUNTED` for as many or more."""
    size_bytes: int | None
    """Of all that match; None if not all were counted."""


class Holdings(Repository):
    """Reads what runs keep and use."""

    def of_runs(self, query: KeptQuery, owner: str | None = None) -> KeptRows:
        """What runs keep, with an `owner` only of their sub-models."""
        part = SubModelRow
        model = query.what == "model"
        at_s = part.artifact_at_s if model else part.checkpoint_at_s
        size = part.artifact_bytes if model else part.checkpoint_bytes
        asked = [at_s.is_not(None), _is_shown(part.run_id), *([] if owner is None else [part.owner == owner])]
        found, counted = select(*_SHOWN).join(RunRow, RunRow.id == part.run_id), select(size.label("size_bytes"))
        if query.text:
            counted = counted.join(RunRow, RunRow.id == part.run_id)
            columns = (part.name, RunRow.name, RunRow.id)
            asked.append(or_(*(column.icontains(query.text, autoescape=True) for column in columns)))
        order = _order(query.sort, at_s, size)
        order = order.desc() if query.descending else order.asc()
        with self._database.read() as session:
            some = counted.where(*asked).limit(MOST_COUNTED).subquery()
            sums = select(func.count(), func.sum(some.c.size_bytes)).select_from(some)
            total, size_bytes = session.execute(sums).one() if query.counted else (0, 0)
            rows = session.execute(found.where(*asked).order_by(order, part.run_id, part.name).limit(query.rows))
            return KeptRows(rows.all(), total, None if total == MOST_COUNTED else int(size_bytes or 0))

    def use_counts(self, owner: str | None, most: int) -> dict[str, int]:
        """How many runs use each file, counted up to `most`; with an `owner` only by this person's sub-models."""
        users = select(FileUseRow.run_id).where(FileUseRow.sha256 == FileRow.sha256, _is_shown(FileUseRow.run_id))
        some = _of(owner, users).distinct().limit(most).correlate(FileRow).subquery()
        asked = select(FileRow.sha256, select(func.count()).select_from(some).scalar_subquery())
        return {row[0]: row[1] for row in self._all(asked)}

    def uses(self, sha256: str, owner: str | None, most: int) -> Sequence[Row[Any]]:
        """Uses of a file: those of runs that need it, then the newest.

        Rows have `run_id`, `run_name`, `submodel`, `entry` and the `state` of the run.
        """
        use, run_name = FileUseRow, RunRow.name.label("run_name")
        asked = select(use.run_id, run_name, use.submodel, use.entry, RunRow.state)
        asked = asked.join(RunRow, RunRow.id == FileUseRow.run_id)
        asked = asked.where(FileUseRow.sha256 == sha256, RunRow.removed_at_s.is_(None), RunRow.mode == HYBRID)
        needed_first = case((RunRow.state.in_(NEEDS), 0), else_=1)
        asked = _of(owner, asked).order_by(needed_first, RunRow.created_at_s.desc(), FileUseRow.submodel)
        with self._database.read() as session:
            rows: Sequence[Row[Any]] = session.execute(asked.limit(most)).all()
            return rows

    def used_by(self, text: str, owner: str | None) -> frozenset[str]:
        """Files that runs or sub-models use whose name has this part."""
        asked = select(FileUseRow.sha256).join(RunRow, RunRow.id == FileUseRow.run_id)
        asked = asked.where(RunRow.removed_at_s.is_(None), RunRow.mode == HYBRID)
        named = [column.icontains(text, autoescape=True) for column in (RunRow.name, FileUseRow.submodel)]
        return frozenset(self._rows(_of(owner, asked.where(or_(*named))).distinct()))


def _is_shown(run_id: Any) -> ColumnElement[bool]:
    """Whether it is the id of a hybrid: baselines use what their hybrid uses, and keep nothing of their own."""
    # Not a list of all others: it would be made anew for each question.
    hybrid = select(_RUN.id).where(_RUN.id == run_id, _RUN.mode == HYBRID).exists()
    shown: ColumnElement[bool] = hybrid & run_id.not_in(_REMOVED)
    return shown


def _of(owner: str | None, asked: Any) -> Any:
    if owner is None:
        return asked
    part = (SubModelRow.run_id == FileUseRow.run_id) & (SubModelRow.name == FileUseRow.submodel)
    return asked.where(select(SubModelRow.name).where(part, SubModelRow.owner == owner).exists())


def _order(sort: str, at_s: Any, size: Any) -> ColumnElement[Any]:
    orders: dict[str, Any] = {
        "name": func.lower(SubModelRow.name),
        "run": func.lower(RunRow.name),
        "state": SubModelRow.state,
        "step": func.coalesce(SubModelRow.checkpoint_step, 0),
        "size": func.coalesce(size, 0),
        "accuracy": func.coalesce(SubModelRow.test_accuracy, -1.0),
        "added": at_s,
    }
    found: ColumnElement[Any] = orders[sort]
    return found
