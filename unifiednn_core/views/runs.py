"""Runs as frozen values, ready to be drawn. Times are UTC seconds (`_at_s`), durations seconds (`_s`), memory bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from unifiednn_core.data.values import DataPreview, preview_of
from unifiednn_core.preflight.prediction import Prediction
from unifiednn_core.preflight.report import Certificate, OracleReport
from unifiednn_core.spec.devices import CUDA, type_named
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.spec.run import Mode
from unifiednn_core.views.estimates import Estimate, KeptForecast, shown_progress
from unifiednn_core.views.memory import Mark, MemoryBreakdown
from unifiednn_core.views.techniques import Nodes, Used

SHOWN_TURNS = 2000
"""Most turns of a view: the latest."""
SHOWN_EPOCHS = 1000
"""About as many epochs of a sub-model are in a view of the latest turns; a chart is narrower."""


@dataclass(frozen=True, slots=True)
class Series:
    """One curve: equally long x and y."""

    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()


class Slice(NamedTuple):
    """One stretch in which one sub-model held the device. Seconds count from the start of the run.

    `steps` leaves out steps that a later attempt trained again. A baseline's first slice, the start of its process, has
    none.
    """

    submodel: str
    start_s: float
    end_s: float
    steps: int
    reason: str
    lane: int = 1
    """1 for the policy's choice, more for its company."""
    running: bool = False
    """Whether it still lasts; then it ends now."""
    turns: int = 1
    """More than 1 if a chart gathers several; `reason` is that of the last."""
    share: float = 1.0
    """Part of the stretch in which the sub-model held the device; below 1 only if a chart gathers turns."""


class Stay(NamedTuple):
    """A stretch of the training of a sub-model on one device: one attempt."""

    submodel: str
    device: str
    kind: str
    """Device kind; bits are only reproducible on the same kind."""
    from_s: float
    """When it began, UTC seconds."""


class LinePlace(NamedTuple):
    """Place of a sub-model in the line of its hybrid, as the policy decides now."""

    place: int
    """Of its next turn, from 1; those that hold the device come first."""
    of: int
    """How many are in line, with those that hold the device."""
    is_next: bool
    reason: str
    """Of the policy, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubModelView:
    """One sub-model of a run."""

    name: str
    arrival: int
    """Place in the order of arrival, from 0; people can change it."""
    number: int
    """Place in which it was submitted; decides its colour and letter."""
    state: State
    priority: int
    model_format: str
    parameters: int
    epochs: int
    epochs_done: int
    steps_total: int
    steps_done: int
    holds_device: bool
    wait_s: float
    service_s: float
    turnaround_s: float | None
    deadline_s: float | None = None
    """Seconds after its submission by which it should have ended."""
    due_in_s: float | None = None
    """Until its deadline, below 0 after it; None without one and once it has ended."""
    deadline: Literal["met", "missed", "holds", "late"] | None = None
    """How its deadline stands: it holds or will be missed, as far as speeds are measured; None if nobody knows."""
    ends_in_s: Estimate | None = None
    """When it ends, if nobody else comes; None once it has ended, and where nothing is known."""
    line: LinePlace | None = None
    """Its next turn, if it waits for one in a hybrid of its own run that trains."""
    ended_at_s: float | None = None
    paused_s: float = 0.0
    attempt: int = 1
    """1 for the first; one more after each interruption or retry."""
    cpu_s: float | None = None
    train_loss: float | None = None
    train_accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    not_learning: Mapping[str, Any] | None = None
    """What shows that it does not learn, as in its row; None if it learns, or nobody knows yet."""
    peak_memory_bytes: int | None = None
    """What `peak_source` says."""
    cause: str | None = None
    remedy: str | None = None
    artifact: str | None = None
    """Name of the zip to download, once it is written and verified."""
    artifact_bytes: int | None = None
    certificate: Certificate | None = None
    """What its file was compared with; None before that is known, and in lists."""
    certify_at_s: float | None = None
    """When its certificate is due, which is not made yet."""
    state_sha256: str | None = None
    actions: frozenset[Event] = frozenset()
    """Actions that its state allows now."""
    checkpoint_step: int | None = None
    """Step of the newest checkpoint; it can be downloaded."""
    checkpoint_bytes: int | None = None
    checkpoint_at_s: float | None = None
    learning_rate: float | None = None
    """Initial value; an LR scheduler changes it from there."""
    batch_size: int | None = None
    batch_split: int = 1
    """Parts of a batch, or its virtual nodes."""
    techniques: tuple[Used, ...] = ()
    """Ways in which it trains in less memory; empty in lists of runs."""
    nodes: Nodes | None = None
    """Its virtual nodes; None without any, and in lists of runs."""
    redone_steps: int = 0
    """Void steps: lost with a worker, or trained again after a retry. They count nowhere."""
    # Curves over epochs trained (a fraction inside an epoch); filled by `observe`, empty in lists of runs.
    loss: Series = Series()
    test_loss_curve: Series = Series()
    accuracy: Series = Series()
    test_accuracy_curve: Series = Series()
    learning_rates: Series = Series()
    """Learning rate of the last step of each epoch."""
    lost_loss: tuple[Series, ...] = ()
    """Curves of void steps, one for each attempt that has some."""
    lost_accuracy: tuple[Series, ...] = ()

    @property
    def progress(self) -> float:
        """Share of its steps that are done, 0 to 1; below 1 until it has ended."""
        return shown_progress(self.steps_done, self.steps_total, ended=self.state in ENDED)

    @property
    def in_doubt(self) -> bool:
        """Whether it has results that cannot be trusted; cause and remedy say why."""
        return self.state in (State.COMPLETED, State.STOPPED) and self.remedy is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """One line of a run's history."""

    at_s: float
    submodel: str | None
    kind: str
    message: str
    """The sentence that `event_text` makes of the other fields."""
    code: str = ""
    """`store.events.Code`."""
    state: State | None = None
    """State entered, if the event is a transition."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Names, numbers and causes, by code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandView:
    """A command that has not taken effect yet."""

    submodel: str | None
    text: str
    """Text for people: "priority 3 for lenet"."""
    issued_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run with everything that a page draws."""

    run_id: str
    name: str
    state: State
    policy: str
    policy_text: str
    """Policy with its parameters, as text for people."""
    device: str
    mode: Mode = "hybrid"
    fingerprint: str = ""
    """Runs with equal fingerprints can be compared."""
    threads: int | None
    created_at_s: float
    launched_at_s: float | None = None
    started_at_s: float | None
    ended_at_s: float | None
    cause: str | None
    remedy: str | None
    now_reason: str | None
    """Why the policy chose the sub-model that trains now."""
    submodels: tuple[SubModelView, ...]
    actions: frozenset[Event] = frozenset()
    attempt: int = 0
    """Workers so far: 0 before the first, one more after each pause or death."""
    recoveries: int = 0
    """Automatic restarts after its worker died."""
    checkpoint_text: str = ""
    """How often a checkpoint is written: "every 30 s"."""
    recovery: str = "auto"
    """After its worker dies it restarts by itself ("auto") or waits for a person ("ask")."""
    waiting_commands: tuple[CommandView, ...] = ()
    memory_source: str | None = None
    peak_memory_bytes: int | None = None
    heartbeat_age_s: float | None = None
    elapsed_s: float | None = None
    """Since the launch of the first process; the makespan once the run has ended."""
    makespan_s: float | None = None
    """Launch of the first process to the last model delivered; None until all sub-models have ended."""
    queue_position: int | None = None
    """1 is next; None when not queued."""
    shared: bool = False
    """Whether its sub-models train in hybrids with those of other runs."""
    starts_in_s: Estimate | None = None
    """Estimate until it begins, if nobody else comes; None once it has begun, and where nothing is known."""
    ends_in_s: Estimate | None = None
    """Estimate until the last of its sub-models ends."""
    stays: tuple[Stay, ...] = ()
    """Where it trained, oldest first."""
    memory: Series = Series()
    breakdown: MemoryBreakdown = field(default_factory=MemoryBreakdown)
    marks: tuple[Mark, ...] = ()
    utilisation: Series = Series()
    """Of the GPU, 0 to 1, over seconds since the start."""
    power_w: Series = Series()
    memory_notes: tuple[str, ...] = ()
    """Limits of the memory figures on this machine."""
    prediction: Prediction | None = None
    forecast: KeptForecast | None = None
    """When its sub-models were to end, as simulated at its submission or its last change."""
    waits_for: str | None = None
    """Resource that it waits for before it can start, mostly memory."""
    cpu_s: float | None = None
    gpu_s: float | None = None
    energy_j: float | None = None
    processes: dict[str, dict[str, float]] = field(default_factory=dict)
    """Of a baseline, by sub-model: threads of its process, and `loader_s` and `loader_cpu_s` once it has ended."""
    oracle: dict[str, OracleReport] = field(default_factory=dict)
    """Of a baseline, by sub-model: whether torch itself reads the same network."""
    start: str | None = None
    """How the first worker of a hybrid started: `warm`, forked from a template, or `cold`."""
    pages: dict[str, int] = field(default_factory=dict)
    """Peaks on the host: `anonymous_bytes`, and `file_bytes`, which others may share; empty before its end."""
    others_share: float | None = None
    """Share of all processors, 0 to 1, that other work used while it trained; None before its end."""
    allocator: str | None = None
    """Of the worker; None for a baseline."""
    lanes: int | None = None
    """How many sub-models of a hybrid may step at once, each with `threads`; None before its start."""
    schedule: tuple[Slice, ...] = ()
    events: tuple[EventView, ...] = ()
    spec: dict[str, object] = field(default_factory=dict)

    @property
    def start_s(self) -> float | None:
        """Seconds from the launch of a hybrid to its first step; None before."""
        return self.launch_offset_s if self.start is not None and self.started_at_s is not None else None

    @property
    def launch_offset_s(self) -> float:
        """Seconds between the launch of the first process and the start of the run, from which slices count."""
        if self.launched_at_s is None or self.started_at_s is None:
            return 0.0
        return max(0.0, self.started_at_s - self.launched_at_s)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of device on which one of its sub-models trained, if it is more than one kind."""
        for part in self.submodels:
            kinds = tuple(dict.fromkeys(stay.kind for stay in self.stays if stay.submodel == part.name and stay.kind))
            if len(kinds) > 1:
                return kinds
        return ()

    @property
    def progress(self) -> float:
        """Share of all steps that are done, 0 to 1; below 1 until the run has ended."""
        done, total = (sum(getattr(part, steps) for part in self.submodels) for steps in ("steps_done", "steps_total"))
        return shown_progress(done, total, ended=self.state in ENDED)


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
    """Of a model: parameters, input_shape, input_dtype, operators; `inputs` and `outputs` if there are several.
    Of data: samples, input_shape, input_dtype, classes; `inputs` if there are several."""

    @property
    def preview(self) -> DataPreview | None:
        """Preview of a data set; None for other files."""
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


def peak_source(view: RunView) -> str:
    """What the peak memory of each sub-model counts: its own tensors in a hybrid, its whole process in a baseline."""
    if view.mode == "hybrid":
        return "own weights, gradients, optimizer state and the largest step measured alone"
    return "torch allocated" if type_named(view.device) == CUDA else "process PSS"
