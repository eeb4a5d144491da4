"""The tables. Times are UTC seconds (`_at_s`), durations seconds, sizes bytes; JSON columns hold plain values."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import JSON, BigInteger, ForeignKeyConstraint, Index
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SCHEMA_VERSION = 5
HYBRID: Final = "hybrid"


class Base(DeclarativeBase):
    """Base of all tables."""

    type_annotation_map = {dict[str, Any]: JSON, list[str]: JSON}  # noqa: RUF012  (SQLAlchemy's own idiom)

    def assign(self, columns: Mapping[str, Any]) -> None:
        """Set some columns."""
        for name, value in columns.items():
            setattr(self, name, value)


class SchemaRow(Base):
    """The one row that says which tables these are."""

    __tablename__ = "schema_version"
    version: Mapped[int] = mapped_column(primary_key=True)


class RunRow(Base):
    """One run."""

    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    submitter: Mapped[str] = mapped_column(default="")
    """Who submitted it; "" is a person at the machine itself."""
    state: Mapped[str] = mapped_column(index=True)
    device: Mapped[str]
    mode: Mapped[str] = mapped_column(default=HYBRID)
    """`hybrid`, or the kind of baseline: `concurrent` or `sequential`."""
    fingerprint: Mapped[str] = mapped_column(default="", index=True)
    """Runs of equal fingerprints train the same, on the same machine with the same versions: they can be compared."""
    spec: Mapped[dict[str, Any]]
    attempt: Mapped[int] = mapped_column(default=0)
    """Number of workers that trained it."""
    died_at: Mapped[str | None]
    """What the last worker that died was doing, as `NAME:DOING`."""
    recoveries: Mapped[int] = mapped_column(default=0)
    """How often it resumed by itself after a death."""
    deaths_there: Mapped[int] = mapped_column(default=0)
    """Workers in a row that died at this very mark."""
    deaths: Mapped[int] = mapped_column(default=0)
    """Workers in a row that died without a new checkpoint."""
    resume_at_s: Mapped[float | None]
    """UTC moment before which no worker is started for it: back-off after a death."""
    threads: Mapped[int | None]
    cause: Mapped[str | None]
    remedy: Mapped[str | None]
    created_at_s: Mapped[float]
    launched_at_s: Mapped[float | None]
    """When the first process of its first attempt was started; makespans count from here."""
    started_at_s: Mapped[float | None]
    ended_at_s: Mapped[float | None]
    cpu_s: Mapped[float | None]
    """CPU seconds, user and system, of all processes that trained."""
    gpu_s: Mapped[float | None]
    """Seconds of the GPU: NVML's utilisation over time."""
    energy_j: Mapped[float | None]
    waits_for: Mapped[str | None]
    """What it waits for before it can start, as people read it."""
    prediction: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Memory prediction from before the start."""
    memory_notes: Mapped[list[str]] = mapped_column(default=list)
    """Limits of the memory figures of this machine, as people read them."""
    now_submodel: Mapped[str | None]
    now_reason: Mapped[str | None]
    now_since_s: Mapped[float | None]
    """When its turn began, in seconds since the start of the run."""
    memory_source: Mapped[str | None]
    peak_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    environment: Mapped[dict[str, Any]] = mapped_column(default=dict)
    graph: Mapped[str] = mapped_column(default="")
    # Liveness of the worker: a heartbeat alone cannot tell a dead process from a busy one, a PID alone is reused.
    worker_pid: Mapped[int | None]
    worker_started_at_s: Mapped[float | None]
    worker_boot_id: Mapped[str | None]
    heartbeat_at_s: Mapped[float | None]
    claimer: Mapped[dict[str, Any] | None]
    """Who is starting a worker: columns of `WorkerIdentity`, until the worker is known."""


class SubModelRow(Base):
    """One sub-model of a run, with its latest figures."""

    __tablename__ = "submodels"
    __table_args__ = (ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),)
    run_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(default="")
    """Owner; only this person sees it, beside operators and viewers."""
    arrival: Mapped[int]
    """Place in line, from 0; a person can change it."""
    number: Mapped[int] = mapped_column(default=lambda context: context.get_current_parameters()["arrival"])
    """Place in which it came; its colour and sign go by it, and never change."""
    state: Mapped[str]
    priority: Mapped[int]
    attempt: Mapped[int] = mapped_column(default=0)
    model_format: Mapped[str]
    parameters: Mapped[int]
    epochs: Mapped[int]
    epochs_done: Mapped[int] = mapped_column(default=0)
    steps_total: Mapped[int]
    steps_done: Mapped[int] = mapped_column(default=0)
    service_s: Mapped[float] = mapped_column(default=0.0)
    paused_s: Mapped[float] = mapped_column(default=0.0)
    paused_since_s: Mapped[float | None]
    """UTC moment since which it, or its run, is paused."""
    joined_at_s: Mapped[float | None]
    """When it joined a run that was already submitted; None if it was submitted with the run."""
    ended_at_s: Mapped[float | None]
    train_loss: Mapped[float | None]
    train_accuracy: Mapped[float | None]
    test_loss: Mapped[float | None]
    test_accuracy: Mapped[float | None]
    peak_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    cpu_s: Mapped[float | None]
    memory_key: Mapped[str] = mapped_column(default="")
    """What measured memory of it is remembered by: graph, batch, optimizer, device, versions."""
    cause: Mapped[str | None]
    remedy: Mapped[str | None]
    checkpoint: Mapped[str | None]
    """Name of the newest checkpoint's file."""
    checkpoint_step: Mapped[int | None]
    checkpoint_bytes: Mapped[int | None] = mapped_column(BigInteger)
    checkpoint_at_s: Mapped[float | None]
    artifact: Mapped[str | None]
    artifact_bytes: Mapped[int | None] = mapped_column(BigInteger)
    artifact_at_s: Mapped[float | None]
    model_path: Mapped[str | None]
    state_sha256: Mapped[str | None]


class CommandRow(Base):
    """A command of a person; acknowledged once this row is committed, answered once `applied_at_s` is set."""

    __tablename__ = "commands"
    __table_args__ = (Index("commands_open", "run_id", "applied_at_s"),)
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
    """One line of a run's history."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    run_id: Mapped[str] = mapped_column(index=True)
    submodel: Mapped[str | None]
    at_s: Mapped[float]
    kind: Mapped[str]
    """Group of the code, as pages and documents show it."""
    code: Mapped[str]
    """What happened: `store.events.Code`, or `legacy`."""
    state: Mapped[str | None]
    """State entered, where the event is a transition."""
    fields: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Names, numbers and causes, by code; `views.event_text` makes the sentence."""


class AttemptRow(Base):
    """One uninterrupted stretch of work on one sub-model. What its earlier attempts did after `from_step` is void."""

    __tablename__ = "attempts"
    run_id: Mapped[str] = mapped_column(primary_key=True)
    submodel: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    from_step: Mapped[int]
    at_s: Mapped[float]


class StepRow(Base):
    """Loss of one step, or the mean over the `steps` steps that end with `step`."""

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
    """Figures of one whole epoch."""

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
    """Memory at one instant; `at_s` counts from the start of the run."""

    __tablename__ = "memory_samples"
    __table_args__ = (Index("memory_of_run", "run_id", "source", "at_s"),)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    run_id: Mapped[str]
    at_s: Mapped[float]
    source: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)


class StrataRow(Base):
    """Memory breakdown at one instant; `at_s` counts from the start of the run."""

    __tablename__ = "memory_strata"
    __table_args__ = (Index("strata_of_run", "run_id", "at_s"),)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    run_id: Mapped[str]
    at_s: Mapped[float]
    source: Mapped[str]
    """Of the total."""
    total_bytes: Mapped[int] = mapped_column(BigInteger)
    strata: Mapped[dict[str, Any]]
    """Bytes of `context`, `slack`, `data`, `others`; of `weights`, `gradients`, `optimizer`, `transient` by sub-model;
    figures of the card: `utilisation` (0 to 1), `power_w`. Unavailable figures are left out."""


class MeasuredMemoryRow(Base):
    """Memory that was measured once, to predict the next time."""

    __tablename__ = "measured_memory"
    key: Mapped[str] = mapped_column(primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    source: Mapped[str]
    times: Mapped[int]
    at_s: Mapped[float]


class SliceRow(Base):
    """One stretch in which one sub-model held the device; seconds count from the start of the run.

    `steps` are those that were done, whether or not a later attempt did them once more.
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
    """Steps that its attempt had done before it, those of earlier attempts that count included."""
    reason: Mapped[str]


RECORDED = (StepRow, EpochRow, SliceRow, MemoryRow, StrataRow, AttemptRow)
"""Tables of what a run recorded while it trained."""


class FileRow(Base):
    """A model or data file of the library; its bytes lie under their hash."""

    __tablename__ = "files"
    sha256: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    filename: Mapped[str]
    format: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at_s: Mapped[float]
    facts: Mapped[dict[str, Any]] = mapped_column(default=dict)


class FileOwnerRow(Base):
    """One of those to whom a file of the library belongs, under the name that this person gave it.

    The same bytes may belong to several people; none of them can tell.
    """

    __tablename__ = "file_owners"
    sha256: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(primary_key=True)
    filename: Mapped[str]
    created_at_s: Mapped[float]


class DraftRow(Base):
    """A run that is still being edited."""

    __tablename__ = "drafts"
    id: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(default="")
    document: Mapped[dict[str, Any]]
    changed_at_s: Mapped[float]
