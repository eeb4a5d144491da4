"""Comparisons of hybrids with their baselines, for one person."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.compare import verdict
from unifiednn_core.compare.fingerprint import asked_sha256, fingerprint
from unifiednn_core.machine.budget import slot
from unifiednn_core.machine.devices import devices_known
from unifiednn_core.service.permissions import Guard, Own, permission
from unifiednn_core.service.reading import RunReader
from unifiednn_core.service.recent import Recent
from unifiednn_core.service.roles import Role
from unifiednn_core.service.submission import Submissions, require_baseline
from unifiednn_core.spec.devices import SERVER, host_of
from unifiednn_core.spec.run import Mode, RunSpec
from unifiednn_core.store import Store
from unifiednn_core.store.schema import HYBRID, RunRow
from unifiednn_core.views.comparison import Comparison, comparison_document
from unifiednn_core.views.report import html
from unifiednn_core.views.report.charts import plotly_js
from unifiednn_core.views.run_rows import metrics_csv, run_view
from unifiednn_core.views.runs import RunView
from unifiednn_core.views.side_by_side import FEWEST, MOST, Side, labels, merged
from unifiednn_core.views.side_by_side import document as selected_document

VERSIONS_S = 15.0
"""Age of what is known of the machine and of installed versions."""


class ComparisonService:
    """Starts and compares the arms of comparisons. All methods raise `NotFound` for an unknown run."""

    def __init__(
        self, guard: Guard, store: Store, clock: Clock, reader: RunReader, submissions: Submissions, recent: Recent
    ):
        self.guard = guard
        self._store, self._clock = store, clock
        self._reader, self._submissions, self._recent = reader, submissions, recent

    @permission(Role.SUBMITTER, about="{mode} {spec.name}")
    def submit_arm(self, spec: RunSpec, base: Path, mode: Mode) -> str:
        """Queue a new arm of a comparison; returns its id. Raises `BadInput` with all findings."""
        run, rows = self._submissions.rows(spec, base, mode)
        self._store.runs.add((run, rows))
        return run.id

    @permission(Role.SUBMITTER, Own.RUN, about="{mode}")
    def start_baseline(self, run_id: str, mode: Mode, *, fresh: bool = False) -> str:
        """Queue a baseline of a run; returns its id. It waits for the same device, so arms never disturb each other.

        An equal baseline that completed, trains or waits is used instead, unless `fresh`. Raises `BadInput` if the
        run was changed after its submission.
        """
        require_baseline(mode)
        run, rows = self._store.runs.get(run_id)
        if (reason := _why_no_baseline(run)) is not None:
            raise BadInput.of("No baseline", run_id, reason, "Submit it again, and run the baseline of that run.")
        found = None if fresh else self._submissions.usable_baseline(run, mode)
        if found is None:
            baseline, parts = self._submissions.baseline(run, rows, mode)
            found = baseline.id
            self._store.runs.add((baseline, parts))
        return found

    @permission(Role.VIEWER, Own.SHARE, audited=False)
    def why_no_baseline(self, run_id: str) -> str | None:
        """Sentence that says why a run can have no new baseline; None if it can. Versions are read again in a while."""
        return self._recent.within(
            VERSIONS_S, ("baseline", run_id), lambda: _why_no_baseline(self._store.runs.get(run_id)[0])
        )

    @permission(Role.VIEWER, Own.SHARE, audited=False)
    def comparable(self, run_id: str, *, within_s: float = 0.0) -> tuple[RunView, ...]:
        """Runs of the same fingerprint, this one included, the newest first, without curves; at most so old."""
        return self._reader.comparable(run_id, within_s)

    @permission(Role.VIEWER, Own.RUN, audited=False)
    def comparison(self, run_id: str) -> Comparison:
        """A hybrid against its baselines; for a baseline, the newest hybrid of the same fingerprint.

        Raises `NotFound` if no such hybrid exists.
        """
        return self._comparison(run_id)

    @permission(Role.SUBMITTER, Own.RUN)
    def comparison_document(self, run_id: str) -> dict[str, object]:
        """The document that `unifiednn compare --json` prints."""
        found = self._comparison(run_id)
        last = [arm.run_ids[-1] for arm in (found.hybrid, *found.baselines.values())]
        documents: dict[str, Any] = {name: self._reader.document(name) for name in last}
        return comparison_document(found, documents)

    @permission(Role.SUBMITTER, Own.RUN)
    def report(self, run_id: str) -> str:
        """The comparison of a run as one HTML page that needs no network."""
        found = self._comparison(run_id)
        arms = (found.hybrid, *found.baselines.values())
        views = {arm.mode: self._reader.view(arm.run_ids[-1], None, None) for arm in arms}
        return html.render(found, views, plotly_js().read_text(encoding="utf-8"))

    @permission(Role.VIEWER, audited=False)
    def side_by_side(self, refs: Sequence[str]) -> tuple[Side, ...]:
        """Two to six of `RUN` and `RUN/SUBMODEL`, with their curves.

        Raises `BadInput` for fewer, more or the same twice, `NotFound` for one that the person has no part in.
        """
        refs = list(refs)
        if not FEWEST <= len(refs) <= MOST or len(set(refs)) < len(refs):
            message = f"Choose {FEWEST} to {MOST} different runs or sub-models; there are {len(set(refs))}."
            raise BadInput.of("Side by side", "runs", message, "Add or remove some.")
        pairs = [(ref.partition("/")[0], ref.partition("/")[2] or None) for ref in refs]
        views = [self._side_view(run_id, part) for run_id, part in pairs]
        named = [(view.run_id, view.name, part) for view, (_, part) in zip(views, pairs, strict=True)]
        found = zip(refs, labels(named), views, pairs, strict=True)
        return tuple(
            Side(ref=ref, label=label, view=view, alone=part is not None, machine=self._machine(run_id))
            for ref, label, view, (run_id, part) in found
        )

    @permission(Role.SUBMITTER, about="{refs}")
    def side_by_side_document(self, refs: Sequence[str]) -> dict[str, object]:
        """`side_by_side` as JSON, without curves."""
        return selected_document(self.side_by_side(refs))

    @permission(Role.SUBMITTER, about="{refs}")
    def side_by_side_csv(self, refs: Sequence[str]) -> str:
        """Every point of every curve, as CSV text; the column `submodel` begins with the label of its side."""
        return metrics_csv(merged(self.side_by_side(refs)))

    @permission(Role.SUBMITTER, about="{refs}")
    def side_by_side_report(self, refs: Sequence[str]) -> str:
        """`side_by_side` as one HTML page that needs no network."""
        return html.render_selection(self.side_by_side(refs), plotly_js().read_text(encoding="utf-8"))

    def _side_view(self, run_id: str, part: str | None) -> RunView:
        self.guard.require_part(run_id, part)
        view = self._reader.view(run_id)
        if part is None:
            return view
        own = tuple(one for one in view.submodels if one.name == part)
        if not own:
            known = ", ".join(one.name for one in view.submodels)
            raise NotFound(f"Run '{run_id}' has no sub-model '{part}'. It has: {known}.")
        return replace(view, submodels=own)

    def _machine(self, run_id: str) -> Mapping[str, object]:
        measured_on: Mapping[str, object] = self._store.runs.get(run_id)[0].environment.get("measured_on", {})
        return measured_on

    def _comparison(self, run_id: str) -> Comparison:
        run, _ = self._store.runs.get(run_id)
        peers = self._reader.equal_to(run)
        attempts = self._store.telemetry.attempts(other.id for other, _ in peers)
        now_s = self._clock.utc_s()
        views = {other.id: run_view(other, parts, now_s, attempts=attempts[other.id]) for other, parts in peers}
        if self.guard.actor.sees_only_own:  # the load of a run of one's own is the work of others
            views = {name: replace(view, others_share=None) for name, view in views.items()}
        of = views[run_id] if run.mode == HYBRID else next((v for v in views.values() if v.mode == HYBRID), None)
        if of is None:
            raise NotFound(f"Run '{run_id}' is a baseline without a hybrid. Train the same spec as a hybrid.")
        steered = {other.id for other, _ in peers if self._steered(other)}
        measured_on = next(other for other, _ in peers if other.id == of.run_id).environment.get("measured_on", {})
        return verdict.compare(list(views.values())[::-1], of, lambda view: view.run_id in steered, measured_on)

    def _steered(self, run: RunRow) -> bool:
        """Whether people changed a run after its submission, or gave it commands that cost time."""
        asked = run.environment.get("asked_sha256")
        return asked != asked_sha256(RunSpec.model_validate(run.spec)) or self._store.commands.steered(run.id)


def _why_no_baseline(run: RunRow) -> str | None:
    spec = RunSpec.model_validate(run.spec)
    if any(host_of(one.name) != SERVER for one in devices_known()):  # hosts come and go, and the baseline follows it
        same = asked_sha256(spec) == run.environment.get("asked_sha256")
    else:
        same = fingerprint(spec, slot(run.device), run.threads or 1) == run.fingerprint
    return None if same else "This run, the machine or a version changed after the run was submitted."
