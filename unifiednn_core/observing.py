"""What people can see of runs, alone and against each other. The service is the door to it."""

from collections.abc import Sequence

from unifiednn_core.baselines import verdict
from unifiednn_core.baselines.fingerprint import asked_sha256
from unifiednn_core.control import Control
from unifiednn_core.errors import NotFound
from unifiednn_core.lifecycle import State
from unifiednn_core.ownership import RunOwners
from unifiednn_core.presentation import runs as present
from unifiednn_core.presentation.comparison import comparison_document
from unifiednn_core.report import html, plotly_js
from unifiednn_core.spec import RunSpec
from unifiednn_core.store.schema import HYBRID, RunRow, SubModelRow
from unifiednn_core.views.comparison import Comparison
from unifiednn_core.views.runs import RunView

SHOWN_SLICES = 2000


class Observing(Control):
    """Runs as values to be shown. All raise `NotFound` for a run that there is not."""

    def runs(self) -> tuple[RunView, ...]:
        """All runs, the newest first, without curves."""
        rows = self._store.runs.all()
        return tuple(present.run_view(run, parts, self._clock.utc_s(), rows) for run, parts in rows)

    def observe(self, run_id: str) -> RunView:
        """One run with its curves, latest slices, memory and events."""
        return self._view(run_id, last_slices=SHOWN_SLICES)

    def document(self, run_id: str) -> dict[str, object]:
        """The document that `unifiednn train --json` prints."""
        paths = {part.name: part.model_path for part in self._store.runs.get(run_id)[1]}
        return present.document(self._view(run_id, last_slices=None), paths)

    def spec_document(self, run_id: str) -> dict[str, object]:
        """The spec of a run, with files named by content."""
        return self._store.runs.get(run_id)[0].spec

    def graph_dot(self, run_id: str) -> str:
        """The hybrid graph as DOT text; empty until the worker has merged the networks."""
        return self._store.runs.get(run_id)[0].graph

    def comparable(self, run_id: str) -> tuple[RunView, ...]:
        """Runs of equal fingerprint, this one among them, the newest first, without curves."""
        run, _ = self._store.runs.get(run_id)
        now_s = self._clock.utc_s()
        return tuple(present.run_view(other, parts, now_s, []) for other, parts in self._equals(run))

    def comparison(self, run_id: str) -> Comparison:
        """A hybrid against its baselines; that of a baseline is the one of the newest hybrid of equal fingerprint.

        Raises `NotFound` where there is no such run, or no such hybrid.
        """
        run, _ = self._store.runs.get(run_id)
        peers = self._equals(run)
        views = {other.id: present.run_view(other, parts, self._clock.utc_s(), []) for other, parts in peers}
        of = views[run_id] if run.mode == HYBRID else next((v for v in views.values() if v.mode == HYBRID), None)
        if of is None:
            raise NotFound(f"Run '{run_id}' is a baseline of no hybrid that is here. Train the same spec as a hybrid.")
        steered = {other.id for other, _ in peers if self._steered(other)}
        measured_on = next(other for other, _ in peers if other.id == of.run_id).environment.get("measured_on", {})
        return verdict.compare(list(views.values())[::-1], of, lambda view: view.run_id in steered, measured_on)

    def comparison_document(self, run_id: str) -> dict[str, object]:
        """The document that `unifiednn compare --json` prints."""
        found = self.comparison(run_id)
        last = [arm.run_ids[-1] for arm in (found.hybrid, *found.baselines.values())]
        return comparison_document(found, {name: self.document(name) for name in last})

    def report(self, run_id: str) -> str:
        """The comparison of a run as one HTML page that needs no network."""
        found = self.comparison(run_id)
        arms = (found.hybrid, *found.baselines.values())
        return html.render(found, {arm.mode: self._view(arm.run_ids[-1], None) for arm in arms}, plotly_js.source())

    def owners(self) -> dict[str, RunOwners]:
        """Who handed in each run, and whose its sub-models are."""
        return {run.id: _owners_of(run, parts) for run, parts in self._store.runs.all()}

    def owners_of(self, run_id: str) -> RunOwners:
        """Who handed a run in, and whose its sub-models are."""
        return _owners_of(*self._store.runs.get(run_id))

    # -- inside

    def _view(self, run_id: str, last_slices: int | None) -> RunView:
        run, parts = self._store.runs.get(run_id)
        history = self._store.telemetry.history(run_id, run.memory_source, last_slices=last_slices)
        waiting = self._store.runs.all() if run.state == State.QUEUED.value else []
        commands = self._store.commands.open(run_id)
        return present.run_view(run, parts, self._clock.utc_s(), waiting, history, commands)

    def _equals(self, run: RunRow) -> list[tuple[RunRow, list[SubModelRow]]]:
        """Runs of equal fingerprint, the newest first; an empty fingerprint equals itself alone."""
        everyone = self._store.runs.all()
        return [
            (other, parts)
            for other, parts in everyone
            if other.id == run.id or (run.fingerprint and other.fingerprint == run.fingerprint)
            if self._sees_all or _owners_of(other, parts).wholly_of(self._person)
        ]

    def _steered(self, run: RunRow) -> bool:
        """Whether people changed a run after it was submitted, or had it do more than train."""
        asked = run.environment.get("asked_sha256")
        return asked != asked_sha256(RunSpec.model_validate(run.spec)) or self._store.commands.steered(run.id)


def _owners_of(run: RunRow, parts: Sequence[SubModelRow]) -> RunOwners:
    return RunOwners(run.submitter, {part.name: part.owner for part in parts})
