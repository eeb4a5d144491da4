"""The only door for pages and command line: check, submit, start, pause, stop, observe, download."""

import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from unifiednn_core import submission
from unifiednn_core.architectures import registry as architectures
from unifiednn_core.baselines.arms import as_baseline, is_whole
from unifiednn_core.baselines.fingerprint import asked_sha256, fingerprint, machine
from unifiednn_core.clock import Clock, RealClock
from unifiednn_core.comparison_views import BASELINES, Mode
from unifiednn_core.durable import copy_into
from unifiednn_core.errors import BadInput, NotFound, SamplesFailed
from unifiednn_core.home import Home
from unifiednn_core.intake import client
from unifiednn_core.intake.report import CheckReport, FileReport
from unifiednn_core.lifecycle import State
from unifiednn_core.observing import Observing
from unifiednn_core.presentation import runs as present
from unifiednn_core.runtime.launchers import Launcher, LocalLauncher
from unifiednn_core.runtime.supervisor import Supervisor, default_threads
from unifiednn_core.scheduling.registry import PolicyCard, describe
from unifiednn_core.spec import RunSpec, load_run
from unifiednn_core.store import Store
from unifiednn_core.store.schema import HYBRID, RunRow, SubModelRow
from unifiednn_core.store.workers import DEATHS_LIMIT
from unifiednn_core.views import FileView, TrainedView

__all__ = ["CheckReport", "FileReport", "PolicyCard", "Service"]

SAMPLES = Path(__file__).parent.parent / "sample_models"
SAMPLES_PATIENCE_S = 300


class Service(Observing):
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

    def import_file(
        self, filename: str, chunks: Iterable[bytes], kinds: Sequence[str] = ("model", "weights", "data", "checkpoint")
    ) -> FileView:
        """Take an uploaded file of one of `kinds` into the library; raises `BadInput`, and then nothing is kept."""
        waiting = self.home.quarantine / secrets.token_hex(8)
        try:
            with waiting.open("wb") as file:
                file.writelines(chunks)
            return self._take_in(waiting, Path(filename).name, kinds)
        except OSError as error:
            raise BadInput.of(
                "File not stored",
                field=filename,
                message=f"The file could not be written: {error.strerror}.",
                remedy=f"{shutil.disk_usage(self.home.root).free // 1024**2} MiB are free in the home folder.",
            ) from None
        finally:
            waiting.unlink(missing_ok=True)

    def files(self) -> tuple[FileView, ...]:
        """Models and data sets of the library, the newest first."""
        return tuple(present.file_view(row) for row in self._store.library.files())

    def prepare_samples(self) -> RunSpec:
        """Return the demo, ready to submit; its files are written where they are missing. Raises `SamplesFailed`."""
        spec = load_run(SAMPLES / "demo.json")
        named = {name for part in spec.submodels for name in (part.model, part.train_data, part.test_data) if name}
        if not all((SAMPLES / name).is_file() for name in named):
            _build_samples()
        return submission.with_files(spec, {name: str(SAMPLES / name) for name in named})

    # -- drafts

    def save_draft(self, document: dict[str, object], draft_id: str | None = None) -> str:
        """Keep a run that is still being put together; returns the draft's id."""
        draft_id = draft_id or secrets.token_hex(4)
        self._store.library.save_draft(draft_id, document)
        return draft_id

    def draft(self, draft_id: str) -> dict[str, object]:
        """Document of a draft; raises `NotFound`."""
        return self._store.library.draft(draft_id)

    def delete_draft(self, draft_id: str) -> None:
        """Forget a draft."""
        self._store.library.delete_draft(draft_id)

    # -- runs

    def submit(
        self,
        spec: RunSpec,
        base: Path | None = None,
        *,
        baselines: Sequence[Mode] = (),
        baselines_first: bool = False,
    ) -> str:
        """Check a spec, keep its files, and queue it; returns the run's id. Raises `BadInput` with all findings.

        With `baselines`, those are queued too, before or after it; an equal one that there is already is kept instead.
        """
        for mode in baselines:
            _require_baseline(mode)
        run, rows = self._rows_of(spec, base or Path.cwd(), HYBRID)
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
            present.trained_view(run, part)
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

    def _take_in(self, path: Path, filename: str, kinds: Sequence[str]) -> FileView:
        report = client.inspect(path, filename)
        errors = [finding for finding in report.findings if finding.severity == "error"]
        if errors:
            raise BadInput(errors)
        if report.kind not in kinds:
            raise BadInput.of(
                "Another kind of file",
                field=filename,
                message=f"This file holds {report.kind}; {' or '.join(kinds)} is wanted here.",
                remedy="Data sets hold exactly the entries 'inputs' and 'targets'.",
            )
        place = self.home.file(report.sha256)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
        self._remember(report, filename)
        return next(view for view in self.files() if view.sha256 == report.sha256)

    def _rows_of(self, spec: RunSpec, base: Path, mode: Mode) -> tuple[RunRow, list[SubModelRow]]:
        """Rows of a run that is admitted; raises `BadInput` with all findings."""
        resolved, report, files, found = self._admit(spec, base, mode=mode)
        threads, slot = spec.threads or default_threads(), submission.slot(spec.device)
        run = RunRow(
            id=self._new_id(),
            name=spec.name,
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
        return run, [submission.submodel_row(run.id, place, spec, report) for place in range(len(spec.submodels))]

    def _usable_baseline(self, run: RunRow, mode: Mode) -> str | None:
        """Id of an equal baseline that is finished, trains or waits, the newest."""
        for other, parts in self._equals(run):
            if other.mode == mode and is_whole(other, parts):
                return other.id
        return None

    def _baseline(self, run: RunRow, rows: Sequence[SubModelRow], mode: Mode) -> tuple[RunRow, list[SubModelRow]]:
        return as_baseline(run, rows, mode, run_id=self._new_id(), now_s=self._clock.utc_s())

    def _new_id(self) -> str:
        return f"{present.stamp(self._clock.utc_s())}-{secrets.token_hex(2)}"


def _build_samples() -> None:
    command = [sys.executable, "-m", "sample_models.build"]
    try:
        subprocess.run(command, cwd=SAMPLES.parent, check=True, capture_output=True, timeout=SAMPLES_PATIENCE_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise SamplesFailed(f"The sample models could not be written ({error}). Run: make samples") from error


def _require_baseline(mode: str) -> None:
    if mode not in BASELINES:
        valid = " or ".join(BASELINES)
        raise BadInput.of(
            "Baseline", field="mode", message=f"'{mode}' is no kind of baseline.", remedy=f"Take {valid}."
        )
