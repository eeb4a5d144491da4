"""Runs as one person sees them: views of stored rows, without the work of others."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home
from unifiednn_core.service.filtering import as_seen_by
from unifiednn_core.service.line import Line
from unifiednn_core.service.ownership import owners_of
from unifiednn_core.service.recent import Recent
from unifiednn_core.service.roles import Actor
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run_query import RunChoices, RunQuery
from unifiednn_core.store import Store
from unifiednn_core.store.run_lists import RunRows
from unifiednn_core.store.schema import RunRow, SubModelRow
from unifiednn_core.views import run_rows as present
from unifiednn_core.views.attention import SHOWN_S
from unifiednn_core.views.run_lines import HybridLines, RunLine, RunLines
from unifiednn_core.views.runs import SHOWN_EPOCHS, SHOWN_TURNS, RunView

Rows = tuple[RunRow, list[SubModelRow]]


class RunReader:
    """Reads runs for one person. Methods raise `NotFound` for an unknown run."""

    def __init__(
        self,
        home: Home,
        store: Store,
        clock: Clock,
        actor: Actor,
        own_files: Callable[[], frozenset[str]],
        line: Line,
        recent: Recent,
    ):
        self._home, self._store, self._clock = home, store, clock
        self._actor, self._own_files = actor, own_files
        self._line, self._recent = line, recent

    def all(self, within_s: float = 0.0) -> tuple[RunView, ...]:
        """Runs that this person has a part in, the newest first, without curves; at most `within_s` old."""
        listed = self._recent.within(within_s, "runs", self._store.runs.listed)
        if self._actor.sees_only_own:
            listed = [(run, parts) for run, parts in listed if any(part.owner == self._actor.id for part in parts)]
        return self._seen(listed, present.listed_views(listed, self._clock.utc_s()))

    def current(self, within_s: float = 0.0) -> tuple[RunView, ...]:
        """Those that are open, ended last, or failed in the last days, with some equals; at most `within_s` old."""
        person, now_s = self._actor.id if self._actor.sees_only_own else None, self._clock.utc_s()
        listed = self._recent.within(
            within_s, ("current", person), lambda: self._store.run_lists.current(now_s - SHOWN_S, person)
        )
        return self._seen(listed, present.listed_views(listed, now_s))

    def page(self, query: RunQuery) -> RunLines:
        """One page of the runs that this person has a part in."""
        person = self._actor.id if self._actor.sees_only_own else None
        found = self._store.run_lists.page(query, person)
        views = self._views_of(found)
        lines = tuple(
            RunLine(
                run=view,
                owners=tuple(dict.fromkeys(part.owner for part in parts)) if person is None else (person,),
                arms=found.arms.get(view.fingerprint, ""),
            )
            for view, (_, parts) in zip(views, found.rows, strict=True)
        )
        return RunLines(lines=lines, total=found.total, page=found.page, searched=found.searched)

    def _views_of(self, found: RunRows) -> tuple[RunView, ...]:
        places = {run_id: place for place, run_id in enumerate(found.waiting, start=1)}
        return self._seen(found.rows, present.listed_views(found.rows, self._clock.utc_s(), places))

    def hybrids(self, page: int, rows: int) -> HybridLines:
        """One page of the hybrids that this person has a part in, with their baselines."""
        person = self._actor.id if self._actor.sees_only_own else None
        found = self._store.run_lists.hybrids(page, rows, person)
        return HybridLines(runs=self._views_of(found), total=found.total, page=found.page)

    def choices(self) -> RunChoices:
        """What the filters of the list can choose."""
        return self._store.run_lists.choices(self._actor.id if self._actor.sees_only_own else None)

    def view(
        self,
        run_id: str,
        last_slices: int | None = SHOWN_TURNS,
        most_epochs: int | None = SHOWN_EPOCHS,
        within_s: float = 0.0,
    ) -> RunView:
        """One run with its curves, events and newest slices, at most so old; None takes all slices or epochs."""
        key = ("run", run_id, last_slices, most_epochs)
        rows, view = self._recent.within(within_s, key, lambda: self._view(run_id, last_slices, most_epochs))
        return self._seen([rows], [view])[0]

    def _view(self, run_id: str, last_slices: int | None, most_epochs: int | None) -> tuple[Rows, RunView]:
        """The rows of a run and its view, as one who may see everything sees it."""
        run, parts = self._store.runs.get(run_id)
        source = None if run.hybrid is None else run.hybrid.memory_source
        history = self._store.telemetry.history(run_id, source, last_slices=last_slices, most_epochs=most_epochs)
        commands = self._store.commands.open(run_id)
        attempts, now_s = self._store.telemetry.attempts([run_id])[run_id], self._clock.utc_s()
        view = present.run_view(run, parts, now_s, history=history, commands=commands, attempts=attempts)
        if run.state == State.QUEUED.value:
            view = replace(view, queue_position=self._store.runs.queued_before(run) + 1)
        if view.state not in ENDED:
            outlook = self._line.now()
            starts_in_s, ends_in_s = outlook.of(f"{run_id}/{part.name}" for part in parts if not part.ended_at_s)
            begun = view.launched_at_s is not None
            parts_seen = tuple(
                part if part.state in ENDED else replace(part, ends_in_s=outlook.ends_in_s.get(f"{run_id}/{part.name}"))
                for part in view.submodels
            )
            view = replace(view, starts_in_s=None if begun else starts_in_s, ends_in_s=ends_in_s, submodels=parts_seen)
            if view.waits_for is None and view.state is State.QUEUED:  # nobody has written it down yet
                waits = (outlook.waits.get(f"{run_id}/{part.name}") for part in parts)
                view = replace(view, waits_for=next(filter(None, waits), None))
        return (run, parts), view

    def document(self, run_id: str) -> dict[str, Any]:
        """The document of `unifiednn train --json`, with paths of the server only for people at the machine."""
        parts = self._store.runs.get(run_id)[1] if self._actor.here else ()
        paths = {part.name: str(self._home.run(run_id) / part.model_path) for part in parts if part.model_path}
        return present.document(self.view(run_id, last_slices=None), paths)

    def comparable(self, run_id: str, within_s: float = 0.0) -> tuple[RunView, ...]:
        """Runs of the same fingerprint as views, without curves and places in the queue; at most so old."""

        def ask() -> list[tuple[Rows, RunView]]:
            found, now_s = self._store.runs.get(run_id), self._clock.utc_s()
            return [(rows, present.run_view(*rows, now_s)) for rows in self._equal_to(found[0]) or [found]]

        found = self._recent.within(within_s, ("comparable", run_id), ask)
        shown = [(rows, view) for rows, view in found if self._may_compare(rows)]
        shown = shown or [(rows, view) for rows, view in found if view.run_id == run_id]
        return self._seen([rows for rows, _ in shown], [view for _, view in shown])

    def equal_to(self, run: RunRow) -> list[Rows]:
        """Runs of the same fingerprint, the newest first; a run without a fingerprint equals only itself.

        A submitter gets only runs that are wholly their own.
        """
        return [rows for rows in self._equal_to(run) if self._may_compare(rows)]

    def _equal_to(self, run: RunRow) -> list[Rows]:
        runs, mark = self._store.runs, run.fingerprint
        return runs.with_fingerprint(mark) if mark else [runs.get(run.id)]

    def _may_compare(self, rows: Rows) -> bool:
        return not self._actor.sees_only_own or owners_of(*rows).wholly_of(self._actor.id)

    def _seen(self, rows: Sequence[tuple[Any, Sequence[Any]]], views: Sequence[RunView]) -> tuple[RunView, ...]:
        """The views of these rows, reduced to what the person may see."""
        if self._actor.sees_files and not self._actor.sees_only_own:
            return tuple(views)
        own_files = self._own_files() if self._actor.sees_only_own else frozenset()
        return tuple(
            as_seen_by(self._actor, view, owners_of(*row), own_files) for row, view in zip(rows, views, strict=True)
        )
