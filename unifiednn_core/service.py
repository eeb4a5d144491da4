"""The only door for pages and command line: check, submit, start, pause, stop, observe, download."""

import secrets
from collections.abc import Sequence
from pathlib import Path

from unifiednn_core import samples, submission
from unifiednn_core.architectures import registry as architectures
from unifiednn_core.baselines.arms import as_baseline, is_whole
from unifiednn_core.baselines.fingerprint import asked_sha256, fingerprint, machine
from unifiednn_core.clock import Clock, RealClock
from unifiednn_core.control import Told
from unifiednn_core.converting import Converting
from unifiednn_core.durable import copy_into
from unifiednn_core.errors import BadInput, NotFound
from unifiednn_core.home import Home
from unifiednn_core.intake import client
from unifiednn_core.intake.report import CheckReport, FileReport
from unifiednn_core.lifecycle import State
from unifiednn_core.ownership import owners_in, without_owners
from unifiednn_core.presentation import runs as present
from unifiednn_core.presentation.files import trained_view
from unifiednn_core.runtime.launchers import Launcher, LocalLauncher
from unifiednn_core.runtime.supervisor import Supervisor, default_threads
from unifiednn_core.scheduling.registry import PolicyCard, describe
from unifiednn_core.spec import RunSpec
from unifiednn_core.splitting import Splitting
from unifiednn_core.store import Store
from unifiednn_core.store.schema import HYBRID, RunRow, SubModelRow
from unifiednn_core.store.workers import DEATHS_LIMIT
from unifiednn_core.taking_in import KINDS
from unifiednn_core.views.comparison import BASELINES, Mode
from unifiednn_core.views.runs import TrainedView

__all__ = ["KINDS", "CheckReport", "FileReport", "PolicyCard", "Service"]


class Service(Converting, Splitting):
    """Everything that a person can ask for. Safe to share between threads."""

    def __init__(
        self,
        home: Home,
        store: Store,
        launcher: Launcher,
        clock: Clock,
        *,
        deaths_limit: int = DEATHS_LIMIT,
    ):
        super().__init__(home, store, clock)
        self._supervisor = Supervisor(store, launcher, clock, deaths_limit=deaths_limit)

    @classmethod
    def open(cls, home: Home | None = None) -> "Service":
        """Open a home (by default the one that the environment names)."""
        home, clock = (home or Home.default()).create(), RealClock()
        return cls(home, Store.open(home, clock), LocalLauncher(home), clock)

    def start_supervisor(self) -> None:
        """Begin to start queued runs and to notice dead workers; safe to call again."""
        self._supervisor.start()

    @property
    def supervisor_alive(self) -> bool:
        """Whether queued runs are being started."""
        return self._supervisor.alive

    def close(self) -> None:
        """Stop watching and let go of the store. Training goes on."""
        self._supervisor.stop()
        self._store.close()

    # -- what may be asked for

    def policies(self) -> tuple[PolicyCard, ...]:
        """All policies with their parameters."""
        return describe()

    def architectures(self) -> tuple[str, ...]:
        """Networks that files of bare weights can name."""
        return architectures.names()

    def architecture_defaults(self, name: str) -> dict[str, object]:
        """Arguments of an architecture with their defaults; raises `BadInput` for an unknown name."""
        return {parameter.name: parameter.default for parameter in architectures.parameters_of(name)}

    def inspect(self, path: Path) -> FileReport:
        """Say what a file is; it is opened in a process of its own."""
        return client.inspect(path, path.name)

    # -- files

    def prepare_samples(self) -> RunSpec:
        """Return the demo, ready to submit; its files are written where they are missing. Raises `SamplesFailed`."""
        return samples.demo()

    # -- drafts

    def save_draft(self, document: dict[str, object], draft_id: str | None = None) -> str:
        """Keep a run that is still being put together; returns the draft's id."""
        draft_id = draft_id or secrets.token_hex(4)
        if not self._sees_all:
            try:
                self.draft(draft_id)
            except NotFound:  # of somebody else, perhaps, which must neither be told nor written over
                draft_id = secrets.token_hex(4)
        self._store.library.save_draft(draft_id, document, self._person)
        return draft_id

    def draft(self, draft_id: str) -> dict[str, object]:
        """Document of a draft; raises `NotFound`."""
        return self._store.library.draft(draft_id, None if self._sees_all else self._person)

    def delete_draft(self, draft_id: str) -> None:
        """Forget a draft."""
        self._store.library.delete_draft(draft_id, None if self._sees_all else self._person)

    # -- runs

    def submit(
        self,
        spec: RunSpec,
        base: Path | None = None,
        *,
        baselines: Sequence[Mode] = (),
        baselines_first: bool = False,
        told: Told | None = None,
    ) -> str:
        """Check a spec, keep its files, and queue it; returns the run's id. Raises `BadInput` with all findings.

        Warnings keep nothing from being queued; `told` is given them before, and may raise to say no.

        With `baselines`, those are queued too, before or after it; an equal one that there is already is kept instead.
        """
        for mode in baselines:
            _require_baseline(mode)
        run, rows = self._rows_of(spec, base or Path.cwd(), HYBRID, told)
        if not baselines_first:
            self._store.runs.add(run, rows)
        for mode in baselines:
            if self._usable_baseline(run, mode) is None:
                self._store.runs.add(*self._baseline(run, rows, mode))
        if baselines_first:
            run.created_at_s = self._clock.utc_s()  # the device is given in this order
            self._store.runs.add(run, rows)
        return run.id

    def submit_arm(self, spec: RunSpec, base: Path, mode: Mode) -> str:
        """Queue one arm of a comparison, always a fresh one; returns its id. Raises `BadInput` with all findings."""
        run, rows = self._rows_of(spec, base, mode)
        self._store.runs.add(run, rows)
        return run.id

    def start_baseline(self, run_id: str, mode: Mode, *, fresh: bool = False) -> str:
        """Queue a baseline of a run; returns its id. It waits for the same device, so that no arm disturbs another.

        An equal one that is finished, trains or waits is taken instead, unless it is to be `fresh`. Raises `NotFound`,
        and `BadInput` where the run was changed while it trained.
        """
        _require_baseline(mode)
        run, rows = self._store.runs.get(run_id)
        if fingerprint(RunSpec.model_validate(run.spec), run.device, run.threads or 1) != run.fingerprint:
            raise BadInput.of(
                "Changed since",
                field=run_id,
                message="This run, the machine or a version was changed after it was submitted.",
                remedy="Submit it again, and run the baseline of that run.",
            )
        found = None if fresh else self._usable_baseline(run, mode)
        if found is None:
            baseline, parts = self._baseline(run, rows, mode)
            found = baseline.id
            self._store.runs.add(baseline, parts)
        return found

    # -- trained models

    def trained(self) -> tuple[TrainedView, ...]:
        """Separated models that can be downloaded, the newest first."""
        views = [
            trained_view(run, part)
            for run, parts in self._store.runs.all()
            for part in parts
            if part.artifact is not None
        ]
        return tuple(sorted(views, key=lambda view: view.created_at_s, reverse=True))

    def artifact(self, run_id: str, submodel: str) -> Path:
        """The zip of a separated model; raises `NotFound` where there is none yet."""
        _, parts = self._store.runs.get(run_id)
        names = {part.name: part.artifact for part in parts}
        artifact = names.get(submodel)
        if artifact is None:
            raise NotFound(f"Run '{run_id}' has no separated model '{submodel}' yet. It appears when that one is done.")
        return self.home.run(run_id) / "models" / artifact

    def download(self, run_id: str, submodel: str, folder: Path) -> Path:
        """Copy the zip of a separated model into a folder, whole or not at all; raises `NotFound`, `OSError`."""
        return copy_into(self.artifact(run_id, submodel), folder)

    def download_checkpoint(self, run_id: str, submodel: str, folder: Path) -> Path:
        """Copy a sub-model's newest checkpoint into a folder, whole or not at all; raises `NotFound`, `OSError`."""
        while True:
            newest = self.checkpoint(run_id, submodel)
            try:
                return copy_into(newest, folder, f"{run_id}-{submodel}-{newest.name}")
            except FileNotFoundError:
                if newest.exists():  # it is the folder that is not there
                    raise  # else a newer one took its place while it was being copied

    # -- inside

    def _rows_of(
        self, spec: RunSpec, base: Path, mode: Mode, told: Told | None = None
    ) -> tuple[RunRow, list[SubModelRow]]:
        """Rows of a run that is admitted; raises `BadInput` with all findings."""
        resolved, report, files, found = self._admit(spec, base, mode=mode, told=told)
        owners, resolved = owners_in(resolved, self._store.library, self._person), without_owners(resolved)
        threads, slot = spec.threads or default_threads(), submission.slot(spec.device)
        run = RunRow(
            id=self._new_id(),
            name=spec.name,
            submitter=self._person,
            state=State.QUEUED.value,
            device=slot,
            mode=mode,
            fingerprint=fingerprint(resolved, slot, threads),
            spec=resolved.model_dump(mode="json", exclude_none=True),
            threads=threads,
            prediction={} if found is None else found.document,
            created_at_s=self._clock.utc_s(),
            environment={"files": files, "asked_sha256": asked_sha256(resolved), "measured_on": machine(slot)},
        )
        rows = [submission.submodel_row(run.id, place, spec, report) for place in range(len(spec.submodels))]
        for row in rows:
            row.owner = owners[row.name]
        return run, rows

    def _usable_baseline(self, run: RunRow, mode: Mode) -> str | None:
        """Id of an equal baseline that is finished, trains or waits, the newest."""
        for other, parts in self._equals(run):
            if other.mode == mode and is_whole(other, parts):
                return other.id
        return None

    def _baseline(self, run: RunRow, rows: Sequence[SubModelRow], mode: Mode) -> tuple[RunRow, list[SubModelRow]]:
        baseline, parts = as_baseline(run, rows, mode, run_id=self._new_id(), now_s=self._clock.utc_s())
        baseline.submitter = self._person
        for part, row in zip(parts, rows, strict=True):
            part.owner = row.owner
        return baseline, parts

    def _new_id(self) -> str:
        return f"{present.stamp(self._clock.utc_s())}-{secrets.token_hex(2)}"


def _require_baseline(mode: str) -> None:
    if mode not in BASELINES:
        valid = " or ".join(BASELINES)
        raise BadInput.of(
            "Baseline", field="mode", message=f"'{mode}' is no kind of baseline.", remedy=f"Take {valid}."
        )
