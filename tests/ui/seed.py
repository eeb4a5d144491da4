"""A real service over a seeded store, for the tests of the pages.

Views of `fake_views` are written as rows and telemetry, and the pages read them back through the service. Only the
intake process is replaced, by reports that a test may change, and nothing is launched.
"""

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, SupportsIndex

import pytest
from sqlalchemy import delete, insert, inspect, select, update

from tests.ui.fake_arms import FINGERPRINT
from tests.ui.fake_views import STEPS_PER_EPOCH, demo_spec, ended, failed, interrupted, library, mid_flight, queued
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import Finding, IntakeFailed
from unifiednn_core.base.paths import Home
from unifiednn_core.base.units import MIB
from unifiednn_core.compare import verdict
from unifiednn_core.compare.fingerprint import asked_sha256, fingerprint
from unifiednn_core.preflight import client
from unifiednn_core.preflight.forecast import Forecast
from unifiednn_core.preflight.prediction import MemoryNeed, Prediction
from unifiednn_core.preflight.report import (
    CheckProgress,
    CheckReport,
    FileReport,
    PlacementReport,
    ResolvedFile,
    SubModelReport,
    Tell,
    WithoutTechniques,
)
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.service import samples, submission
from unifiednn_core.service.facade import Service
from unifiednn_core.service.server_folders import FOLDERS_VARIABLE
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import Mode, RunSpec, SubModelSpec
from unifiednn_core.store import Store
from unifiednn_core.store.schema import (
    HYBRID,
    AttemptRow,
    CommandRow,
    DraftRow,
    EpochRow,
    EventRow,
    FileOwnerRow,
    FileRow,
    HybridRow,
    MemoryRow,
    RunRow,
    SliceRow,
    StepRow,
    StrataRow,
    SubModelRow,
)
from unifiednn_core.techniques.placement.plan import PlacementPlan, PlannedDevice, PlannedTask
from unifiednn_core.views.comparison import Comparison
from unifiednn_core.views.library import ServerFile
from unifiednn_core.views.runs import EventView, FileView, RunView, SubModelView

_OF_HYBRIDS = (MemoryRow, StrataRow)
_TABLES = (AttemptRow, CommandRow, EpochRow, EventRow, *_OF_HYBRIDS, SliceRow, StepRow, SubModelRow, HybridRow, RunRow)
_RELATIVE = ("launched_at_s", "heartbeat_at_s")
_PER_SUBMODEL = ("weights", "gradients", "optimizer", "transient")
RESUMED_STEPS = 5
_SEEDED: list[bytes] = []
"""The database as each service begins, once this process has written one: to copy it takes a tenth of the time."""


class NoLauncher:
    """Starts nothing."""

    def close(self) -> None:
        """Nothing to close."""


class Seeded:
    """The service of a page test: its four parts are real; everything else sets up or reads the store."""

    def __init__(self, home: Home, monkeypatch: pytest.MonkeyPatch):
        self.findings: tuple[Finding, ...] = ()
        """What each check finds."""
        self.predicted: Prediction | None = None
        """What each check predicts."""
        self.failing: IntakeFailed | None = None
        """Raised in place of reading a file, and in the middle of a check."""
        self.import_options: object = None
        """What the last import asked for."""
        self.compared: Comparison | None = None
        """What runs of its fingerprint compare as, in place of their figures."""
        self.supervisor_alive = True
        clock = self.clock = Clock()
        if _SEEDED:
            home.create().database.write_bytes(_SEEDED[0])
        self.store, self.home = Store.open(home, clock), home
        self._held: set[str] = set()
        self._seeded: list[RunView] = []
        self._asked_before = 0
        if _SEEDED:
            self._take_up(_first_runs())
        else:
            self.held, self.listed = library(), _first_runs()
            _SEEDED.append(_content(self.store, home))
        supervisor = Supervisor(self.store, NoLauncher(), clock)  # type: ignore[arg-type]
        service = Service(home, self.store, supervisor, clock)
        self.close = service.close
        self.queue, self.devices, self.logs = service.queue, service.devices, service.logs
        self.health, self.supervisor = service.health, supervisor
        self.notifications, self.monitoring = service.notifications, service.monitoring
        self.retention = service.retention
        self.runs, self.library, self.comparisons, self.people = (
            service.runs,
            service.library,
            service.comparisons,
            service.people,
        )
        self._folder, self._monkeypatch = home.root / "folder" / "models", monkeypatch
        monkeypatch.setattr(client, "inspect", self._inspect)
        monkeypatch.setattr(client, "check", self._check)
        monkeypatch.setattr(samples, "demo", lambda home: demo_spec())
        monkeypatch.setattr(submission, "forecast", self._forecast)
        compare = verdict.compare
        monkeypatch.setattr(verdict, "compare", lambda *given: self.compared or compare(*given))

    def start_supervisor(self) -> None:
        """Nothing is started."""

    # -- runs

    @property
    def listed(self) -> "_Written":
        """The runs as they were seeded; a change of the list is written to the store."""
        return _Written(self._seeded, self._write_runs)

    @listed.setter
    def listed(self, views: Iterable[RunView]) -> None:
        self._write_runs(list(views))

    @property
    def done(self) -> list[tuple[object, ...]]:
        """Commands since the seeding, as (verb, run, sub-model, what came with it), and baselines that were started."""
        with self.store._database.read() as session:
            commands = list(session.scalars(select(CommandRow).order_by(CommandRow.id)))[self._asked_before :]
        allowed = [line for line in self.store.people.audit_log(1000)[::-1] if line.outcome == "allowed"]
        baselines = [("baseline", *line.subject.split()) for line in allowed if line.action == "start_baseline"]
        return [*map(_asked, commands), *baselines]

    @property
    def submitted_ids(self) -> list[str]:
        """Hybrids that were submitted since the seeding, the oldest first."""
        known = {view.run_id for view in self._seeded}
        return [run.id for run, _ in self.store.runs.listed()[::-1] if run.id not in known and run.mode == HYBRID]

    @property
    def submitted(self) -> list[RunSpec]:
        """Their specs."""
        return [RunSpec.model_validate(self.store.runs.get(run_id)[0].spec) for run_id in self.submitted_ids]

    @property
    def plans(self) -> list[tuple[tuple[Mode, ...], bool]]:
        """Baselines that were queued with each of them, and whether they run first."""
        found = []
        for run_id in self.submitted_ids:
            run, _ = self.store.runs.get(run_id)
            others = [
                other for other, _ in self.store.runs.with_fingerprint(run.fingerprint)[::-1] if other.mode != HYBRID
            ]
            first = any(other.created_at_s < run.created_at_s for other in others)
            found.append((tuple(other.mode for other in others), first))
        return found

    def _write_runs(self, views: list[RunView]) -> None:
        old, self._seeded = self._seeded, views
        kept = [view for view in old if view in views]
        changed = [view for view in views if view not in kept]
        replaced = {view.run_id for view in (*old, *changed) if view not in kept}
        with self.store._database.write() as session:
            for table in _TABLES:
                session.execute(delete(table).where(getattr(table, _key_of(table)).in_(replaced)))
            for view in changed:
                session.add_all([_run_row(view), _hybrid_row(view)])
                session.flush()
                session.add_all(_submodel_row(view, part) for part in view.submodels)
                for table, rows in _telemetry(view):
                    if rows:
                        session.execute(insert(table), [{_key_of(table): view.run_id, **row} for row in rows])
        self._asked_before = sum(len(view.waiting_commands) for view in views)
        self._touch_files(changed)

    def _take_up(self, views: list[RunView]) -> None:
        """Know runs and files that a copied database holds; what is so many seconds ago is told anew."""
        self._seeded, self._held = views, {file.sha256 for file in library()}
        self._asked_before = sum(len(view.waiting_commands) for view in views)
        with self.store._database.write() as session:
            for view in views:
                for row in (_run_row(view), _hybrid_row(view)):
                    times = {name: getattr(row, name) for name in _RELATIVE if hasattr(row, name)}
                    session.execute(update(type(row)).where(type(row).id == view.run_id).values(times))
        self._touch_files(views)

    def _touch_files(self, views: list[RunView]) -> None:
        for view in views:
            for part in view.submodels:
                _touch(self.home.run(view.run_id) / "models" / f"{part.artifact}", there=part.artifact is not None)
                name = f"step-{part.checkpoint_step}.safetensors"
                _touch(self.home.checkpoints(view.run_id, part.name) / name, there=part.checkpoint_step is not None)

    # -- files and drafts

    @property
    def held(self) -> "_Written":
        """Files of the library, in the order in which pages list those that were seeded, then newer ones."""
        files = self.library.files()
        newer = [file for file in files if file.sha256 not in self._held]
        return _Written([*(file for file in files if file.sha256 in self._held), *newer[::-1]], self._write_files)

    @held.setter
    def held(self, files: Iterable[FileView]) -> None:
        self._write_files(list(files))

    def _write_files(self, files: list[FileView]) -> None:
        self._held = {file.sha256 for file in files}
        with self.store._database.write() as session:
            session.execute(delete(FileOwnerRow))
            session.execute(delete(FileRow))
            for place, file in enumerate(files):
                session.add(FileRow(**asdict(replace(file, created_at_s=file.created_at_s - place))))
                session.add(FileOwnerRow(sha256=file.sha256, owner="", filename=file.filename, created_at_s=0.0))

    @property
    def drafts(self) -> "_Told":
        """Documents of all drafts, without the names of their files; a change is written to the store."""
        save = self.store.library.save_draft
        with self.store._database.read() as session:
            rows = {row.id: dict(row.document) for row in session.scalars(select(DraftRow)) if row.run_id is None}
        documents = {}
        for draft_id, document in rows.items():
            document.pop("filenames", None)
            documents[draft_id] = _Told(document, lambda _, whole, draft_id=draft_id: save(draft_id, dict(whole)))
        return _Told(documents, lambda draft_id, whole: save(draft_id, dict(whole[draft_id])))

    @property
    def on_server(self) -> tuple[ServerFile, ...]:
        """Files in the folders of the server."""
        return self.library.server_files()

    @on_server.setter
    def on_server(self, files: Sequence[ServerFile]) -> None:
        for file in files:
            _touch(self._folder.parent / file.shown, there=True, size_bytes=file.size_bytes)
        self._monkeypatch.setenv(FOLDERS_VARIABLE, str(self._folder))

    def upload(self, filename: str, content: bytes, kinds: Sequence[str]) -> str:
        """Send a whole file as the browser does; returns the id of the upload, which waits to be imported."""

        async def chunks() -> AsyncIterator[bytes]:
            yield content

        upload_id = self.library.begin_upload(filename, len(content), kinds=kinds).upload_id
        asyncio.run(self.library.append_upload(upload_id, 0, chunks()))
        return upload_id

    # -- in place of the intake process

    def _inspect(self, path: Path, filename: str, *, convert_to: Path | None = None, **asked: object) -> FileReport:
        self.import_options = asked.get("options")
        if self.failing is not None:
            raise self.failing
        content = path.read_bytes()
        refusal = Finding(title="Not a model", field=filename, message="This is no model.", remedy="Export it again.")
        kind = {"pt2": "model", "safetensors": "checkpoint"}.get(filename.rpartition(".")[2], "data")
        return FileReport(
            kind=kind,
            format="pt2",
            sha256=hashlib.sha256(content).hexdigest(),
            size_bytes=len(content),
            findings=(refusal,) if content == b"broken" else (),
        )

    def _check(self, spec: RunSpec, base: Path, home: Home, tell: Tell) -> CheckReport:
        tell(CheckProgress(text="Trying a step of <b>one</b>", place=2, total=3))
        if self.failing is not None:
            raise self.failing
        references = [
            name
            for part in spec.submodels
            for name in (part.model, part.train_data, part.test_data, part.start_from and part.start_from.file)
            if name is not None
        ]
        return CheckReport(
            findings=self.findings,
            files={
                name: ResolvedFile(path=base, sha256=name.removeprefix("sha256:"), size_bytes=1, filename="file")
                for name in references
            },
            submodels={
                part.name: SubModelReport(
                    name=part.name,
                    format="pt2",
                    parameters=9_326,
                    weights_bytes=37_304,
                    input_shape=(1, 8, 8),
                    samples=1_437,
                    test_samples=360,
                    classes=10,
                    steps_per_epoch=STEPS_PER_EPOCH,
                    **(WITH_TECHNIQUES if part.hyperparameters.techniques else {}),
                    placement=None if part.placement is None else PLACED,
                )
                for part in spec.submodels
            },
        )

    def _forecast(self, *given: object, **more: object) -> Forecast | None:
        return None if self.predicted is None else Forecast(self.predicted, ())


_PLAIN = MemoryNeed(
    weights_bytes=1, gradients_bytes=1, optimizer_bytes=0, transient_bytes=100 * MIB, data={}, batch_size=1
)
WITH_TECHNIQUES: Any = {
    "memory": _PLAIN.model_copy(update={"transient_bytes": 59 * MIB}),
    "without_techniques": WithoutTechniques(memory=_PLAIN, without_one={}),
}
"""What the check measures of a sub-model with techniques."""
PLACED = PlacementReport(
    runs=[[0, 2], [1, 3]],
    plan=PlacementPlan(
        2.0,
        2.0,
        1.5,
        2.0,
        9 * MIB,
        tuple(
            PlannedDevice(300 * MIB, peak * MIB, 50 * MIB, 1.0, (PlannedTask("conv", False, 0.0, 1.0, peak * MIB),))
            for peak in (200, 250)
        ),
    ),
)
"""Where the check places a sub-model with several devices."""


class _Written(list[Any]):
    """A list whose changes are written to the store."""

    def __init__(self, values: Iterable[Any], write: Any):
        super().__init__(values)
        self._write = write

    def __setitem__(self, key: SupportsIndex | slice, value: Any) -> None:
        super().__setitem__(key, value)
        self._write(list(self))

    def insert(self, place: SupportsIndex, value: Any) -> None:
        self[int(place) : int(place)] = [value]

    def clear(self) -> None:
        self[:] = []

    def extend(self, values: Iterable[Any]) -> None:
        self[len(self) :] = values


class _Told(dict[str, Any]):
    """A dictionary that hands on each entry that is set, and itself."""

    def __init__(self, entries: dict[str, Any], write: Any):
        super().__init__(entries)
        self._write = write

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self._write(key, self)


def _first_runs() -> list[RunView]:
    return [mid_flight(), queued(), ended(), failed(), interrupted()]


def _content(store: Store, home: Home) -> bytes:
    """The database as one file."""
    with store._database._engine.connect() as connection:
        connection.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[attr-defined]
    return home.database.read_bytes()


def _asked(row: CommandRow) -> tuple[object, ...]:
    given = row.arguments
    match row.verb:
        case "priority" | "epochs" | "devices":
            more: tuple[object, ...] = (given[row.verb],)
        case "deadline":
            more = (given["deadline_s"],)
        case "order":
            more = (given["names"],)
        case "policy":
            more = (given["policy"],)
        case "add":
            more = (SubModelSpec.model_validate(given["submodel"]),)
        case "retry":
            more = (given["hyperparameters"] | ({"from_start": True} if given["from_start"] else {}),)
        case _:
            more = ()
    return (row.verb, row.run_id, row.submodel, *more)


def _key_of(table: type) -> str:
    """Column of a table that holds the id of a run, or of its private hybrid, which is the same."""
    return "id" if table in (RunRow, HybridRow) else "hybrid_id" if table in _OF_HYBRIDS else "run_id"


def _spec(view: RunView) -> dict[str, Any]:
    """Spec of a view, with one entry for each of its sub-models."""
    demo = demo_spec().model_dump(mode="json", exclude_none=True)
    known = {part["name"]: part for part in demo["submodels"]}
    own = {part["name"]: part for part in view.spec.get("submodels", ())}
    parts = [
        {**known.get(part.name, demo["submodels"][0]), **own.get(part.name, {}), "name": part.name}
        for part in view.submodels
    ]
    spec = {**view.spec, "submodels": parts, "recovery": view.recovery}
    seconds = view.checkpoint_text.removeprefix("every ").removesuffix(" s")
    return spec | ({"checkpoint": {"every_s": int(seconds)}} if seconds.isdigit() else {})


def _row(kind: type, view: Any, **columns: Any) -> Any:
    """A row with what a view says of its columns, but for these."""
    said = {column.key for column in inspect(kind).columns} & {field.name for field in fields(view)}
    return kind(**{name: getattr(view, name) for name in said} | columns)


def _run_row(view: RunView) -> RunRow:
    now_s, spec = time.time(), _spec(view)
    asked = None if view.fingerprint != FINGERPRINT else RunSpec.model_validate(spec)
    launched_at_s = view.launched_at_s
    if launched_at_s is None and view.elapsed_s is not None:
        launched_at_s = (view.ended_at_s or now_s) - view.elapsed_s
    return _row(
        RunRow,
        view,
        id=view.run_id,
        state=view.state.value,
        fingerprint=view.fingerprint if asked is None else fingerprint(asked, view.device, view.threads or 1),
        spec=spec,
        launched_at_s=launched_at_s,
        prediction={} if view.prediction is None else asdict(view.prediction),
        environment={"files": {}, "asked_sha256": asked and asked_sha256(asked), "measured_on": {}},
    )


def _hybrid_row(view: RunView) -> HybridRow:
    return _row(
        HybridRow,
        view,
        id=view.run_id,
        device=view.device if view.attempt else None,
        threads=view.threads or 1,
        prediction={},
        memory_notes=list(view.memory_notes),
        heartbeat_at_s=None if view.heartbeat_age_s is None else time.time() - view.heartbeat_age_s,
    )


def _submodel_row(view: RunView, part: SubModelView) -> SubModelRow:
    ended_at_s = part.ended_at_s or view.ended_at_s or view.created_at_s
    return _row(
        SubModelRow,
        part,
        run_id=view.run_id,
        hybrid_id=view.run_id,
        state=part.state.value,
        lane=1 if part.holds_device else None,
        attempt=1 if part.steps_done else 0,
        ended_at_s=ended_at_s if State(part.state) in ENDED else None,
        certificate=None if part.certificate is None else part.certificate.model_dump(mode="json"),
        checkpoint=None if part.checkpoint_step is None else f"step-{part.checkpoint_step}.safetensors",
        artifact_at_s=view.created_at_s if part.artifact else None,
    )


def _of(view: Any, *names: str, **more: Any) -> dict[str, Any]:
    """These entries of a view, and more."""
    return {name: getattr(view, name) for name in names} | more


def _telemetry(view: RunView) -> Iterator[tuple[type, list[dict[str, Any]]]]:
    for part in view.submodels:
        losses, accuracies = (dict(zip(one.x, one.y, strict=True)) for one in (part.loss, part.accuracy))
        points = [(x, losses.get(x), accuracies.get(x)) for x in sorted({*losses, *accuracies})]
        own = {"submodel": part.name, "attempt": 1}
        yield StepRow, _steps(part, points)
        if part.redone_steps:
            first = own | {"from_step": 0, "at_s": view.created_at_s}
            yield AttemptRow, [first, first | {"attempt": 2, "from_step": len(points) - RESUMED_STEPS}]
        curve, other = part.test_loss_curve, part.test_accuracy_curve
        tested = dict(zip(other.x, other.y, strict=True))
        epochs = [
            {"epoch": int(x), "step": int(x) * STEPS_PER_EPOCH, "test_loss": y, "test_accuracy": tested.get(x)}
            for x, y in zip(curve.x, curve.y, strict=True)
        ]
        yield EpochRow, [own | epoch for epoch in epochs]
    turns = (_of(turn, "submodel", "start_s", "end_s", "steps", "reason") for turn in view.schedule)
    yield SliceRow, [turn | {"attempt": 1, "from_step": 0} for turn in turns]
    source = view.memory_source
    memory = zip(view.memory.x, view.memory.y, strict=True)
    yield MemoryRow, [{"at_s": x, "source": source, "size_bytes": int(y)} for x, y in memory if source]
    yield StrataRow, _strata(view)
    told = [
        _of(event, "submodel", "at_s", "kind", "state", code=event.code or "legacy", fields=_said(event))
        for event in view.events
    ]
    loaded = [
        _of(mark, "submodel", at_s=(view.started_at_s or 0.0) + mark.at_s) for mark in view.marks if mark.kind == "load"
    ]
    entered = {"kind": "state", "code": "entered", "state": "running", "fields": {}}
    yield EventRow, [*told, *(mark | entered for mark in loaded)]
    asked = [(one, *one.text.split()) for one in view.waiting_commands]
    yield (
        CommandRow,
        [_of(one, "submodel", "issued_at_s", verb=verb, arguments={verb: int(value)}) for one, verb, value in asked],
    )


def _said(event: EventView) -> dict[str, Any]:
    return dict(event.fields) or {"text": event.message}


def _steps(part: SubModelView, points: Sequence[tuple[float, float | None, float | None]]) -> list[dict[str, Any]]:
    """Steps that count; where some were lost, the last few were trained by a second attempt, over the lost ones."""
    kept = len(points) - RESUMED_STEPS if part.redone_steps else len(points)
    rows = [
        {"submodel": part.name, "step": step, "steps": 1, "epoch": x, "loss": loss, "accuracy": accuracy}
        | {"attempt": 1 if step <= kept else 2}
        for step, (x, loss, accuracy) in enumerate(points, start=1)
    ]
    lost = [
        {**rows[0], "attempt": 1, "step": kept + at, "epoch": points[kept - 1][0] + at / STEPS_PER_EPOCH}
        for at in range(1, part.redone_steps + 1)
    ]
    return [*rows, *lost]


def _strata(view: RunView) -> list[dict[str, Any]]:
    shown, rows = view.breakdown, []
    for place, at_s in enumerate(shown.at_s):
        total, strata = shown.total_bytes[place], {}
        for layer in shown.layers:
            size = layer.size_bytes[place]
            if layer.kind in _PER_SUBMODEL and size is not None:
                strata.setdefault(layer.kind, {})[layer.submodel] = int(size)
            elif size is not None:
                strata[layer.kind] = int(size)
        strata.pop("unexplained", None)
        if total is not None:
            rows.append({"at_s": at_s, "source": shown.source, "total_bytes": int(total), "strata": strata})
    card = {"utilisation": view.utilisation, "power_w": view.power_w}
    for at_s in sorted({x for series in card.values() for x in series.x}):
        known = {name: dict(zip(series.x, series.y, strict=True)).get(at_s) for name, series in card.items()}
        strata = {name: value for name, value in known.items() if value is not None}
        rows.append({"at_s": at_s, "source": "process PSS", "total_bytes": 1, "strata": strata})
    return rows


def _touch(path: Path, *, there: bool, size_bytes: int = 22) -> None:
    if there:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random("/".join(path.parts[-2:])).randbytes(size_bytes))
