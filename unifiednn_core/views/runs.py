"""What pages and the command line get to see: frozen values, ready to be drawn. Times are UTC seconds (`_at_s`),
durations seconds (`_s`), memory bytes.
"""

from dataclasses import dataclass, field

from unifiednn_core.lifecycle import Event, State
from unifiednn_core.views.comparison import Mode
from unifiednn_core.views.data import DataPreview, preview_of
from unifiednn_core.views.memory import Mark, Prediction, Strata


@dataclass(frozen=True, slots=True)
class Series:
    """One curve: equally long x and y."""

    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One stretch in which one sub-model held the device. Seconds count from the start of the run.

    `steps` are those that count: what a later attempt did once more is not among them.
    """

    submodel: str
    start_s: float
    end_s: float
    steps: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubModelView:
    """One sub-model of a run."""

    name: str
    arrival: int
    """Place in line, from 0; a person can change it."""
    number: int
    """Place in which it came; its colour and sign go by it."""
    state: State
    priority: int
    model_format: str
    parameters: int
    epochs: int
    epochs_done: int
    steps_total: int
    steps_done: int
    holds_device: bool
    """Whether it trains at this moment."""
    wait_s: float
    service_s: float
    turnaround_s: float | None
    ended_at_s: float | None = None
    paused_s: float = 0.0
    attempt: int = 1
    """1 is the first stretch of work on it; more where it was interrupted or retried."""
    cpu_s: float | None = None
    train_loss: float | None = None
    train_accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    peak_memory_bytes: int | None = None
    cause: str | None = None
    remedy: str | None = None
    artifact: str | None = None
    """Name of the zip to download, once it is written and verified."""
    artifact_bytes: int | None = None
    state_sha256: str | None = None
    actions: frozenset[Event] = frozenset()
    """What a person can do to it now."""
    checkpoint_step: int | None = None
    """Step of the newest checkpoint; it can be downloaded."""
    checkpoint_bytes: int | None = None
    checkpoint_at_s: float | None = None
    learning_rate: float | None = None
    """As asked for; a schedule moves it from there."""
    batch_size: int | None = None
    batch_split: int = 1
    redone_steps: int = 0
    """Steps that are void, because they were lost with a worker or a retry began before them; none counts anywhere."""
    # Curves over epochs trained (a fraction inside an epoch); filled by `observe`, empty in lists of runs.
    loss: Series = Series()
    test_loss_curve: Series = Series()
    accuracy: Series = Series()
    test_accuracy_curve: Series = Series()
    lost_loss: tuple[Series, ...] = ()
    """Curves of the steps that were lost, one for each attempt that ended so."""
    lost_accuracy: tuple[Series, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """One line of a run's history."""

    at_s: float
    submodel: str | None
    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandView:
    """Something that was asked for and has not taken effect yet."""

    submodel: str | None
    text: str
    """As people read it: "priority 3 for lenet"."""
    issued_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run with everything that a page draws."""

    run_id: str
    name: str
    state: State
    policy: str
    policy_text: str
    """Policy with its parameters, as the operator reads it."""
    device: str
    mode: Mode = "hybrid"
    """How it trains: as a hybrid, or as a baseline of that kind."""
    fingerprint: str = ""
    """Equal for runs that can be compared."""
    threads: int | None
    created_at_s: float
    launched_at_s: float | None = None
    started_at_s: float | None
    ended_at_s: float | None
    cause: str | None
    remedy: str | None
    now_reason: str | None
    """Why the sub-model that trains now was chosen."""
    submodels: tuple[SubModelView, ...]
    actions: frozenset[Event] = frozenset()
    """What a person can do to the run now."""
    attempt: int = 0
    """1 is the first worker, 2 the one after a first pause or death; 0 before there was one."""
    recoveries: int = 0
    """How often it went on by itself after its worker had died."""
    checkpoint_text: str = ""
    """How often progress is kept: "every 30 s"."""
    recovery: str = "auto"
    """Whether it goes on by itself after a death ("auto"), or waits for a person ("ask")."""
    waiting_commands: tuple[CommandView, ...] = ()
    memory_source: str | None = None
    peak_memory_bytes: int | None = None
    heartbeat_age_s: float | None = None
    elapsed_s: float | None = None
    """Since the first start; frozen at the end."""
    queue_position: int | None = None
    """1 is next; None when not queued."""
    memory: Series = Series()
    strata: Strata = field(default_factory=Strata)
    marks: tuple[Mark, ...] = ()
    utilisation: Series = Series()
    """Of the GPU, 0 to 1, over seconds since the start."""
    power_w: Series = Series()
    memory_notes: tuple[str, ...] = ()
    """What the memory figures of this machine cannot tell."""
    prediction: Prediction | None = None
    waits_for: str | None = None
    """What has to be free before it can start: memory, mostly."""
    cpu_s: float | None = None
    gpu_s: float | None = None
    energy_j: float | None = None
    schedule: tuple[Slice, ...] = ()
    events: tuple[EventView, ...] = ()
    spec: dict[str, object] = field(default_factory=dict)

    @property
    def progress(self) -> float:
        """Share of all steps that are done, 0 to 1."""
        total = sum(submodel.steps_total for submodel in self.submodels)
        return sum(submodel.steps_done for submodel in self.submodels) / total if total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileView:
    """A model or data file in the library."""

    sha256: str
    kind: str
    """model, data or weights (weights need an architecture)."""
    filename: str
    format: str
    size_bytes: int
    created_at_s: float
    facts: dict[str, object] = field(default_factory=dict)
    """Of a model: parameters, input_shape, input_dtype, operators.
    Of data: samples, input_shape, input_dtype, classes."""

    @property
    def preview(self) -> DataPreview | None:
        """What a data set is like; None of anything else, and of one that was taken in long ago."""
        return preview_of(self.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedView:
    """A separated model that can be downloaded."""

    run_id: str
    run_name: str
    submodel: str
    filename: str
    size_bytes: int
    state_sha256: str
    test_accuracy: float | None
    created_at_s: float
