"""The tables. Times are UTC seconds (`_at_s`), durations seconds, sizes bytes; JSON columns hold plain values."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import JSON, ColumnElement, ForeignKeyConstraint, Index, func, select, text
from sqlalchemy.orm import DeclarativeBase, InstrumentedAttribute, Mapped, Session, mapped_column, relationship

SCHEMA_VERSION = 16
"""Version of the tables; a database of another one is refused."""
HYBRID: Final = "hybrid"


class Base(DeclarativeBase):
    """Base of all tables."""

    type_annotation_map = {  # noqa: RUF012  (SQLAlchemy's own idiom)
        dict[str, Any]: JSON,
        list[str]: JSON,
    }

    def assign(self, columns: Mapping[str, Any]) -> None:
        """Set some columns."""
        for name, value in columns.items():
            setattr(self, name, value)


class SchemaRow(Base):
    """Version of the tables; a single row."""

    __tablename__ = "schema_version"
    version: Mapped[int] = mapped_column(primary_key=True)


class HybridRow(Base):
    """A hybrid: one worker on one device. It trains the sub-models of one run, or those of many people's runs.

    A baseline has one, too: the process that runs its scripts holds the device like a worker.
    """

    __tablename__ = "hybrids"
    __table_args__ = (
        Index("hybrids_claimed", "id", sqlite_where=text("heartbeat_at_s IS NOT NULL")),
        Index("hybrids_going", "shared", "ended_at_s"),
        Index("hybrids_by_launch", "launched_at_s"),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    """Of a private one, the id of its run."""
    shared: Mapped[bool] = mapped_column(default=False)
    """Whether sub-models of several runs may be in it."""
    open: Mapped[bool] = mapped_column(default=False)
    """Whether newcomers may join it; only of a shared one."""
    mode: Mapped[str] = mapped_column(default=HYBRID)
    """`hybrid`, or the kind of baseline: `concurrent` or `sequential`."""
    device: Mapped[str | None] = mapped_column(index=True)
    """Name of the device on which it is placed; None before."""
    also: Mapped[list[str]] = mapped_column(default=list, server_default="[]")
    """Names of further devices that it holds."""
    device_kind: Mapped[str] = mapped_column(default="")
    threads: Mapped[int] = mapped_column(default=1)
    settings: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Fields of `spec.run.HybridSettings`."""
    prediction: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Memory prediction for its members."""
    attempt: Mapped[int] = mapped_column(default=0)
    """Number of workers so far."""
    died_at: Mapped[str | None]
    """What the last worker that died was doing, as text of `places`; None once its sub-model got past that place."""
    recoveries: Mapped[int] = mapped_column(default=0)
    """Number of automatic resumes after a worker died."""
    deaths_there: Mapped[int] = mapped_column(default=0)
    """Consecutive workers that died at this step."""
    deaths: Mapped[int] = mapped_column(default=0)
    """Consecutive workers that died without a new checkpoint."""
    resume_at_s: Mapped[float | None]
    """UTC time before which no worker starts: back-off after a death."""
    launched_at_s: Mapped[float | None]
    """Start of the process of the first attempt."""
    started_at_s: Mapped[float | None]
    """Zero of the seconds of its memory samples."""
    ended_at_s: Mapped[float | None]
    """When a shared one had nothing left to train."""
    cpu_s: Mapped[float | None]
    """CPU seconds, user and system, of all training processes."""
    gpu_s: Mapped[float | None]
    """GPU seconds: the integral of NVML's utilisation."""
    energy_j: Mapped[float | None]
    memory_source: Mapped[str | None]
    peak_memory_bytes: Mapped[int | None]
    memory_notes: Mapped[list[str]] = mapped_column(default=list)
    """Limits of this machine's memory figures, as shown text."""
    now_reason: Mapped[str | None]
    """Why the policy's choice trains now, or what a baseline does."""
    leaving: Mapped[str | None]
    """Why a private one is to free its device at the next step boundary, as shown text; None if it stays."""
    graph: Mapped[str] = mapped_column(default="")
    environment: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """What its results depend on, as the worker found it."""
    # Liveness of the worker: a heartbeat alone cannot tell a dead process from a busy one, a PID alone is reused.
    worker_pid: Mapped[int | None]
    worker_started_at_s: Mapped[float | None]
    worker_boot_id: Mapped[str | None]
    heartbeat_at_s: Mapped[float | None]
    claimer: Mapped[dict[str, Any] | None]
    """Process that is starting a worker: fields of `WorkerIdentity`, until the worker registers."""


class RunRow(Base):
    """A run: an accepted submission, which belongs to a person."""

    __tablename__ = "runs"
    __table_args__ = (
        Index("runs_by_state", "state", "ended_at_s"),
        Index("runs_removed", "id", sqlite_where=text("removed_at_s IS NOT NULL")),
        # Lists of runs are sorted, filtered and counted in here: rows of the table are long.
        Index(
            "runs_listed",
            "created_at_s",
            "id",
            "name",
            "submitter",
            "state",
            "mode",
            "launched_at_s",
            "ended_at_s",
            "removed_at_s",
        ),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    submitter: Mapped[str] = mapped_column(default="")
    """Id of the submitter; "" is the local operator."""
    state: Mapped[str]
    device: Mapped[str]
    """What was asked for; its hybrid says where it trains."""
    shared: Mapped[bool] = mapped_column(default=False)
    """Whether its sub-models are placed in shared hybrids. Otherwise its hybrid has its id."""
    mode: Mapped[str] = mapped_column(default=HYBRID)
    """`hybrid`, or the kind of baseline: `concurrent` or `sequential`."""
    fingerprint: Mapped[str] = mapped_column(default="", index=True)
    """Runs with equal fingerprints are comparable: equal training, machine and versions."""
    spec: Mapped[dict[str, Any]]
    threads: Mapped[int | None]
    cause: Mapped[str | None]
    remedy: Mapped[str | None]
    created_at_s: Mapped[float]
    line_at_s: Mapped[float] = mapped_column(default=lambda context: context.get_current_parameters()["created_at_s"])
    """Orders the line: the moment of its submission, until an operator moves runs, which exchange theirs."""
    launched_at_s: Mapped[float | None]
    """Start of the first process that trained it; makespans count from here."""
    started_at_s: Mapped[float | None]
    """Zero of the seconds of its turns."""
    ended_at_s: Mapped[float | None]
    waits_for: Mapped[str | None]
    """What it waits for before it can start, as shown text."""
    prediction: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Memory prediction from before the start."""
    environment: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Names of its files, and the machine that it was checked on."""
    removed_at_s: Mapped[float | None]
    """Since when it is being deleted: nobody sees it any more, its files and rows go next."""
    hybrid: Mapped[HybridRow | None] = relationship(
        primaryjoin="foreign(RunRow.id) == HybridRow.id", lazy="joined", uselist=False, viewonly=True
    )
    """The private hybrid; None for a run in shared ones."""


class SubModelRow(Base):
    """A sub-model of a run, with its latest figures."""

    __tablename__ = "submodels"
    __table_args__ = (
        ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
        Index("submodels_by_key", "memory_key", "ended_at_s"),
        Index("submodels_by_owner", "owner", "run_id", "artifact_bytes", "checkpoint_bytes"),
        Index("submodels_by_state", "state", "ended_at_s"),
        Index("submodels_exported", "artifact_at_s", "run_id", "owner", "artifact_bytes"),
        Index("submodels_saved", "checkpoint_at_s", "run_id", "owner", "checkpoint_bytes"),
    )
    run_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(default="")
    """Id of the owner. Other submitters cannot see the sub-model."""
    lenders: Mapped[list[str]] = mapped_column(default=list)
    """Other people whose files it uses; with the owner they decide who may share its process."""
    hybrid_id: Mapped[str | None] = mapped_column(index=True)
    """Hybrid in which it is placed, or was when it ended; None while it waits for a place."""
    device_kind: Mapped[str] = mapped_column(default="")
    """Kind of device of its last attempt; "" before the first."""
    placed_at_s: Mapped[float | None]
    """When it came to its hybrid from another one; None in its first."""
    leaving: Mapped[str | None]
    """Why it is to leave its hybrid at the next step boundary, as shown text; None if it stays."""
    arrival: Mapped[int]
    """Position in the order of the run, from 0; people can change it."""
    number: Mapped[int] = mapped_column(default=lambda context: context.get_current_parameters()["arrival"])
    """Original position; fixes its colour and symbol."""
    state: Mapped[str]
    priority: Mapped[int]
    deadline_s: Mapped[float | None]
    """Seconds after its submission by which it should have ended."""
    attempt: Mapped[int] = mapped_column(default=0)
    model_format: Mapped[str]
    parameters: Mapped[int]
    epochs: Mapped[int]
    epochs_done: Mapped[int] = mapped_column(default=0)
    steps_total: Mapped[int]
    steps_done: Mapped[int] = mapped_column(default=0)
    service_s: Mapped[float] = mapped_column(default=0.0)
    lane: Mapped[int | None]
    """Lane in which it is at work, 1 for the policy's choice; None between its turns."""
    turn_since_s: Mapped[float | None]
    """Start of its current turn, in seconds since the start of the run."""
    turn_reason: Mapped[str | None]
    paused_s: Mapped[float] = mapped_column(default=0.0)
    paused_since_s: Mapped[float | None]
    """UTC time since which it or its run is paused."""
    joined_at_s: Mapped[float | None]
    """When it joined a submitted run; None if it was submitted with the run."""
    ended_at_s: Mapped[float | None]
    train_loss: Mapped[float | None]
    train_accuracy: Mapped[float | None]
    test_loss: Mapped[float | None]
    test_accuracy: Mapped[float | None]
    not_learning: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """Why it seems not to learn: `sign` (`engine.not_learning.Sign`), the figures of the epoch, and those of a constant
    answer. None if it learns, or nobody knows yet."""
    peak_memory_bytes: Mapped[int | None]
    cpu_s: Mapped[float | None]
    step_s: Mapped[float | None]
    """Mean seconds of its steps alone, without the first one and evaluations, as the engine timed them."""
    memory_key: Mapped[str] = mapped_column(default="")
    """Key of its measured memory: graph, batch, optimizer, device, versions."""
    cause: Mapped[str | None]
    remedy: Mapped[str | None]
    checkpoint: Mapped[str | None]
    """File name of the newest checkpoint."""
    checkpoint_step: Mapped[int | None]
    checkpoint_bytes: Mapped[int | None]
    checkpoint_at_s: Mapped[float | None]
    artifact: Mapped[str | None]
    artifact_bytes: Mapped[int | None]
    artifact_at_s: Mapped[float | None]
    model_path: Mapped[str | None]
    """Of the trained model, in the folder of its run."""
    state_sha256: Mapped[str | None]
    certificate: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """Fields of `preflight.report.Certificate`; None before it is made."""
    certify_at_s: Mapped[float | None] = mapped_column(index=True)
    """When to make the certificate of its newest export, UTC seconds; None if nothing is left to do."""


class CommandRow(Base):
    """A command of a person: acknowledged by the commit of this row, answered when `applied_at_s` is set."""

    __tablename__ = "commands"
    __table_args__ = (
        Index("commands_open", "run_id", "applied_at_s"),
        Index("commands_waiting", "id", sqlite_where=text("applied_at_s IS NULL")),
    )
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    run_id: Mapped[str]
    submodel: Mapped[str | None]
    verb: Mapped[str]
    arguments: Mapped[dict[str, Any]] = mapped_column(default=dict)
    issued_at_s: Mapped[float]
    applied_at_s: Mapped[float | None]
    outcome: Mapped[str | None]
    """Code of the event that answered it: applied, declined, undone, obsolete or done."""


class EventRow(Base):
    """An event in the history of a run."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    run_id: Mapped[str] = mapped_column(index=True)
    submodel: Mapped[str | None]
    at_s: Mapped[float]
    kind: Mapped[str]
    """Group of the code on pages and in documents."""
    code: Mapped[str]
    """What happened: `store.events.Code`."""
    state: Mapped[str | None]
    """State entered, if the event is a transition."""
    fields: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Names, numbers and causes, by code; `views.event_text` makes the sentence."""


class AttemptRow(Base):
    """An uninterrupted period of work on a sub-model. Steps of earlier attempts after `from_step` are void."""

    __tablename__ = "attempts"
    run_id: Mapped[str] = mapped_column(primary_key=True)
    submodel: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    from_step: Mapped[int]
    at_s: Mapped[float]
    hybrid_id: Mapped[str] = mapped_column(default="", index=True)
    device: Mapped[str] = mapped_column(default="")
    device_kind: Mapped[str] = mapped_column(default="")


class StepRow(Base):
    """Loss of a step, or the mean over the `steps` steps that end with `step`."""

    __tablename__ = "step_metrics"
    run_id: Mapped[str] = mapped_column(primary_key=True)
    submodel: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    steps: Mapped[int]
    epoch: Mapped[float]
    loss: Mapped[float | None]
    accuracy: Mapped[float | None]


class EpochRow(Base):
    """Figures of a complete epoch."""

    __tablename__ = "epoch_metrics"
    run_id: Mapped[str] = mapped_column(primary_key=True)
    submodel: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    epoch: Mapped[int] = mapped_column(primary_key=True)
    step: Mapped[int]
    learning_rate: Mapped[float | None]
    train_loss: Mapped[float | None]
    train_accuracy: Mapped[float | None]
    test_loss: Mapped[float | None]
    test_accuracy: Mapped[float | None]


class MemoryRow(Base):
    """A memory sample; `at_s` counts from the start of the hybrid."""

    __tablename__ = "memory_samples"
    __table_args__ = (Index("memory_of_hybrid", "hybrid_id", "source", "at_s"),)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    hybrid_id: Mapped[str]
    at_s: Mapped[float]
    source: Mapped[str]
    size_bytes: Mapped[int]


class StrataRow(Base):
    """A memory breakdown; `at_s` counts from the start of the hybrid."""

    __tablename__ = "memory_strata"
    __table_args__ = (Index("strata_of_hybrid", "hybrid_id", "at_s"),)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    hybrid_id: Mapped[str]
    at_s: Mapped[float]
    source: Mapped[str]
    """Source of the total."""
    total_bytes: Mapped[int]
    strata: Mapped[dict[str, Any]]
    """Bytes of `context`, `slack`, `data`, `others`; of `weights`, `gradients`, `optimizer`, `transient` by key;
    figures of the card: `utilisation` (0 to 1), `power_w`. Unavailable figures are left out."""


class MeasuredMemoryRow(Base):
    """Memory measured in earlier runs, for predictions."""

    __tablename__ = "measured_memory"
    key: Mapped[str] = mapped_column(primary_key=True)
    size_bytes: Mapped[int]


class SliceRow(Base):
    """A turn of a sub-model on the device; seconds count from the start of the run.

    `steps` includes steps that a later attempt repeated.
    """

    __tablename__ = "slices"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    run_id: Mapped[str] = mapped_column(index=True)
    submodel: Mapped[str]
    attempt: Mapped[int]
    start_s: Mapped[float]
    end_s: Mapped[float]
    steps: Mapped[int]
    from_step: Mapped[int] = mapped_column(default=0)
    """Step count of the sub-model at the start of the turn."""
    reason: Mapped[str]
    lane: Mapped[int] = mapped_column(default=1)
    """1 for the policy's choice, more for its company."""


RECORDED = (StepRow, EpochRow, SliceRow, AttemptRow)
"""Tables that a run fills while it trains."""
SAMPLED = (MemoryRow, StrataRow)
"""Tables that a hybrid fills while it trains."""


class FileRow(Base):
    """A model or data file of the library; the file itself is stored under its hash."""

    __tablename__ = "files"
    sha256: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    filename: Mapped[str]
    format: Mapped[str]
    size_bytes: Mapped[int]
    created_at_s: Mapped[float]
    facts: Mapped[dict[str, Any]] = mapped_column(default=dict)
    removed_at_s: Mapped[float | None]
    """Since when it is being deleted: nobody sees it any more, the file and its rows go next."""


class FileUseRow(Base):
    """A file of the library that a sub-model of a run names, by the entry that names it."""

    __tablename__ = "file_uses"
    sha256: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(primary_key=True, index=True)
    submodel: Mapped[str] = mapped_column(primary_key=True)
    entry: Mapped[str] = mapped_column(primary_key=True)


class FileOwnerRow(Base):
    """An owner of a file of the library, and this person's name for it.

    The same bytes may belong to several people, who do not learn of each other.
    """

    __tablename__ = "file_owners"
    sha256: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(primary_key=True)
    filename: Mapped[str]
    created_at_s: Mapped[float]
    origin: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Run and sub-model that it was taken from, if it was not uploaded: fields of `views.library.Origin`."""


class DraftRow(Base):
    """An unfinished run on the Build page."""

    __tablename__ = "drafts"
    __table_args__ = (Index("drafts_unfinished", "owner", sqlite_where=text("run_id IS NULL")),)
    id: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(default="")
    document: Mapped[dict[str, Any]]
    changed_at_s: Mapped[float]
    run_id: Mapped[str | None]
    """The run that it became; then its document is empty."""


def wholly_of(person: str) -> ColumnElement[bool]:
    """Whether one person submitted the run at hand and owns all of it."""
    of_others = select(SubModelRow.name).where(SubModelRow.run_id == RunRow.id, SubModelRow.owner != person)
    return (RunRow.submitter == person) & ~of_others.correlate(RunRow).exists()


def distinct(session: Session, column: InstrumentedAttribute[Any]) -> list[Any]:
    """All values of an indexed column but NULL, in order: one look into the index for each, however many rows have it.

    SQLite does not skip equal entries of an index by itself.
    """
    found = select(func.min(column).label("value")).cte("found", recursive=True)
    following = select(func.min(column)).where(column > found.c.value).scalar_subquery()
    found = found.union_all(select(following).where(found.c.value.is_not(None)))
    return [value for value in session.scalars(select(found.c.value)) if value is not None]
