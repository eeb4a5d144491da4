"""Rows of the table of routes that concern runs and comparisons. Specs name files by their content: `sha256:...`."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.preflight.report import CheckReport
from unifiednn_core.scheduling.registry import PolicyCard, policy_named
from unifiednn_core.service.facade import Service
from unifiednn_core.service.forecasts import RunChange
from unifiednn_core.service.shared_spec import as_shared
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import BASELINES, Baseline, PolicySpec, RunSpec, parse_run
from unifiednn_core.spec.run_query import RunQuery
from unifiednn_core.views.forecast import Counterfactual
from unifiednn_core.views.hybrids import LineEntry
from unifiednn_core.views.run_rows import summary
from unifiednn_core.views.runs import RunView
from unifiednn_core.web.action import RUN, SUBMODEL, Document, Given, Page, Routes, StateNow

HERE = Path("/")
"""Folder of relative paths; nobody can name paths by a route."""
Told = dict[str, str]
"""A `StateNow` without its null fields."""
Warned = tuple[Finding, ...]


class NewRun(Given):
    """A run to train."""

    spec: Document
    """As in a spec file; files are named by content, `sha256:...`."""
    policy: str | PolicySpec | None = None
    """Instead of the one in the spec."""
    baselines: tuple[Baseline, ...] = ()
    """Baselines to queue with it; an equal one that exists is kept instead."""


class NewSubmission(Given):
    """One network for hybrids shared with others."""

    network: Document
    """The fields of a sub-model, or a spec with `submodels`."""
    device: str | None = None


class NewBaseline(Given):
    """A spec to train with plain PyTorch."""

    spec: Document
    mode: Baseline


class NewComparison(Given):
    """A spec to train as a hybrid and with plain PyTorch."""

    spec: Document
    policy: str | PolicySpec | None = None
    fresh: bool = False
    """Train baselines again even if equal ones exist."""


class BaselineOfRun(Given):
    """A baseline of a run that exists."""

    mode: Baseline
    fresh: bool = False


class CheckedSpec(Given):
    """A spec to check."""

    spec: Document


class OfSubModel(Given):
    """One sub-model, or the whole run without it."""

    submodel: str | None = None


class RetryChanges(Given):
    """How a failed sub-model is retried."""

    submodel: str
    learning_rate: float | None = None
    batch_split: int | None = None
    from_start: bool = False


class RunChanges(Given):
    """Changes of a run; what is left out stays."""

    policy: str | PolicySpec | None = None
    order: tuple[str, ...] | None = None
    """Names of all its sub-models."""
    moves: Literal["same", "any"] | None = None


class ForeseenChange(Given):
    """A change of a run that is only foreseen."""

    policy: str | PolicySpec | None = None
    priorities: dict[str, int] | None = None
    """By sub-model."""
    epochs: dict[str, int] | None = None
    order: tuple[str, ...] | None = None


class SubModelChanges(Given):
    """Changes of a sub-model; what is left out stays."""

    priority: int | None = None
    epochs: int | None = None
    deadline_s: Annotated[float, Field(ge=0)] | None = None
    """Seconds after its submission; 0 removes it."""
    devices: int | None = None
    """Logical devices that compute its virtual nodes."""


class Submitted(Given):
    """A run that was accepted."""

    run_id: str
    line: tuple[LineEntry, ...] = ()
    """Its entries in the line, with their places."""
    warnings: Warned = ()
    """Findings that did not prevent it."""


class Compared(Given):
    """The arms of a comparison that was queued."""

    run_id: str
    """The hybrid."""
    baselines: dict[str, str]
    """Run by kind of baseline."""
    refused: dict[str, str] = Field(default_factory=dict)
    """Why, by kind of baseline that could not be queued."""


class DeletedRun(Given):
    """A run that is gone."""

    run_id: str


class RunProgress(Given):
    """A run and its sub-models without curves, to look at often."""

    run: Document
    """As in the list of runs."""
    waits_for: str | None
    cause: str | None
    remedy: str | None
    submodels: dict[str, Document]
    """By name: status, epochs, steps, cause, remedy, artifact."""


def _submit(service: Service, spec: RunSpec, baselines: tuple[Baseline, ...] = ()) -> Submitted:
    warnings: list[Finding] = []
    run_id = service.runs.submit(spec, HERE, baselines=baselines, on_warnings=warnings.extend)
    line = tuple(entry for entry in service.queue.line() if entry.run_id == run_id)
    return Submitted(run_id=run_id, line=line, warnings=tuple(warnings))


def _with_policy(spec: RunSpec, policy: str | PolicySpec | None) -> RunSpec:
    return spec if policy is None else spec.model_copy(update={"policy": _policy(policy)})


def _policy(given: str | PolicySpec) -> PolicySpec:
    return PolicySpec(name=given) if isinstance(given, str) else given


def _told(run_id: str, submodel: str | None, state: State) -> Told:
    return {"run_id": run_id, **({} if submodel is None else {"submodel": submodel}), "status": state.value}


def _some_change(state: State | None, names: str) -> State:
    if state is None:
        raise BadInput.of("Changes", "body", "No change was given.", f"Give {names}.")
    return state


def _parts(view: RunView) -> list[Document]:
    names = ("name", "epochs_done", "epochs", "steps_done", "steps_total", "cause", "remedy", "artifact")
    return [{"status": part.state.value, **{name: getattr(part, name) for name in names}} for part in view.submodels]


RUNS = Routes()


def _order(action: str, about: str, command: str = "") -> None:
    """Add the route that gives a run or one sub-model an order, by the name of the action."""

    def does(service: Service, run: str, given: OfSubModel) -> Told:
        return _told(run, given.submodel, getattr(service.runs, action)(run, given.submodel))

    does.__doc__ = about
    RUNS.add("POST", f"{RUN}/{action}", action, command=command or action, result=StateNow)(does)


@RUNS.add("GET", "/runs", "listing", command="runs")
def listed(service: Service, given: Page) -> list[Document]:
    """List the newest runs."""
    return [summary(line.run) for line in service.runs.listing(RunQuery(rows=given.limit)).lines]


@RUNS.add("POST", "/runs", "submit", command="train", status=201, once=True)
def submit(service: Service, given: NewRun) -> Submitted:
    """Submit a run."""
    return _submit(service, _with_policy(parse_run(given.spec), given.policy), given.baselines)


@RUNS.add("POST", "/submissions", "submit", command="submit", status=201, once=True)
def submit_network(service: Service, given: NewSubmission) -> Submitted:
    """Submit one network for hybrids shared with others."""
    return _submit(service, as_shared(given.network, "network", given.device))


@RUNS.add("POST", "/check", "check", command="check")
def check(service: Service, given: CheckedSpec) -> CheckReport:
    """Check a spec and its files, without training."""
    return service.runs.check(parse_run(given.spec), HERE)


@RUNS.add("POST", "/simulate", "forecast", command="simulate")
def simulate(service: Service, given: CheckedSpec) -> list[Document]:
    """What every policy would do with a spec, its own policy first."""
    return [one.document for one in service.runs.forecast(parse_run(given.spec))]


@RUNS.add("POST", "/baselines", "submit_arm", command="baseline", status=201, once=True)
def new_baseline(service: Service, given: NewBaseline) -> Submitted:
    """Train a spec with plain PyTorch."""
    return Submitted(run_id=service.comparisons.submit_arm(parse_run(given.spec), HERE, given.mode))


@RUNS.add("POST", "/comparisons", "submit", "start_baseline", command="compare", status=201, once=True)
def compare(service: Service, given: NewComparison) -> Compared:
    """Train a spec as a hybrid and with plain PyTorch."""
    spec = _with_policy(parse_run(given.spec), given.policy)
    run_id = service.runs.submit(spec, HERE, baselines=() if given.fresh else BASELINES)
    queued: dict[str, str] = {}
    refused: dict[str, str] = {}
    for mode in BASELINES:
        try:
            queued[mode] = service.comparisons.start_baseline(run_id, mode, fresh=given.fresh)
        except BadInput as error:  # the hybrid is queued: a repeated request must not queue it again
            refused[mode] = str(error)
    return Compared(run_id=run_id, baselines=queued, refused=refused)


RUNS.get(RUN, "Results of a run; each look is in the audit log.", "runs.document")


@RUNS.add("GET", f"{RUN}/progress", "observe")
def progress(service: Service, run: str) -> RunProgress:
    """States and progress of a run, to look at often."""
    view = service.runs.observe(run)
    return RunProgress(
        run=summary(view),
        waits_for=view.waits_for,
        cause=view.cause,
        remedy=view.remedy,
        submodels={part["name"]: part for part in _parts(view)},
    )


RUNS.get(f"{RUN}/spec", "Spec of a run, with files named by content.", "runs.spec_document")
RUNS.get(f"{RUN}/comparison", "A run compared with its baselines.", "comparisons.comparison_document")


@RUNS.add("POST", f"{RUN}/baselines", "start_baseline", status=201, once=True)
def baseline_of(service: Service, run: str, given: BaselineOfRun) -> Submitted:
    """Queue a baseline of a run."""
    return Submitted(run_id=service.comparisons.start_baseline(run, given.mode, fresh=given.fresh))


_order("pause", "Pause a run or one sub-model at the next step.")
_order("resume", "Continue a run or one sub-model.")
_order("save", "Write a checkpoint of a run or one sub-model now.")
_order("stop", "End a run or one sub-model, and keep its progress.")
_order("discard", "End a run or one sub-model, and keep nothing.", command="stop")


@RUNS.add("POST", f"{RUN}/retry", "retry", command="retry", result=StateNow)
def retry(service: Service, run: str, given: RetryChanges) -> Told:
    """Retry a failed sub-model."""
    changes = given.model_dump(exclude={"submodel"})
    return _told(run, given.submodel, service.runs.retry(run, given.submodel, **changes))


@RUNS.add("POST", f"{RUN}/forecast", "forecast_change")
def forecast(service: Service, run: str, given: ForeseenChange) -> Counterfactual:
    """When sub-models would end without and with a change."""
    policy = None if given.policy is None else _policy(given.policy)
    asked = RunChange(
        policy=policy, priorities=given.priorities or {}, epochs=given.epochs or {}, order=given.order or ()
    )
    return service.runs.forecast_change(run, asked)


@RUNS.add("PATCH", RUN, "set_policy", "reorder", "set_moves", command="edit", result=StateNow)
def change_run(service: Service, run: str, given: RunChanges) -> Told:
    """Change policy, order or devices of a run."""
    state: State | None = None
    policy = None if given.policy is None else _policy(given.policy)
    if policy is not None:
        policy_named(policy.name, policy.parameters)  # nothing is changed if one change cannot be
    if given.order is not None:  # refuses a wrong order, so it is the first
        state = service.runs.reorder(run, given.order)
    if policy is not None:
        state = service.runs.set_policy(run, policy)
    if given.moves is not None:
        state = service.runs.set_moves(run, given.moves)
    return _told(run, None, _some_change(state, "policy, order or moves"))


@RUNS.add(
    "PATCH", SUBMODEL, "set_priority", "set_epochs", "set_deadline", "set_devices", command="edit", result=StateNow
)
def change_submodel(service: Service, run: str, submodel: str, given: SubModelChanges) -> Told:
    """Change priority, epochs, deadline or logical devices of a sub-model."""
    state: State | None = None
    if given.epochs is not None:
        state = service.runs.set_epochs(run, submodel, given.epochs)
    if given.devices is not None:
        state = service.runs.set_devices(run, submodel, given.devices)
    if given.priority is not None:
        state = service.runs.set_priority(run, submodel, given.priority)
    if given.deadline_s is not None:
        state = service.runs.set_deadline(run, submodel, given.deadline_s or None)
    return _told(run, submodel, _some_change(state, "priority, epochs, deadline_s or devices"))


@RUNS.add("POST", f"{RUN}/submodels", "add_submodel", command="add", status=201, result=list[StateNow])
def add(service: Service, run: str, given: CheckedSpec) -> list[Told]:
    """Add the sub-models of a spec to a run."""
    asked = parse_run(given.spec)
    if len(asked.submodels) > 1:
        errors = [found for found in service.runs.check(asked, HERE).findings if found.severity == "error"]
        if errors:
            raise BadInput(errors)
    return [_told(run, part.name, service.runs.add_submodel(run, part, HERE)) for part in asked.seeded()]


@RUNS.add("DELETE", RUN, "delete_run")
def delete(service: Service, run: str) -> DeletedRun:
    """Delete a run that has ended, with its models and figures."""
    service.runs.delete_run(run)
    return DeletedRun(run_id=run)


RUNS.get("/policies", "List the policies and their parameters.", "runs.policies", tuple[PolicyCard, ...], "policies")
RUNS.file("/files/models/{run}/{submodel}", "Zip of a trained model.", "artifact", command="download")
RUNS.file(
    "/files/models/{run}",
    "Zips of all trained models of a run, as one zip.",
    "finished",
    "artifact",
    command="download",
)
RUNS.file(
    "/files/tensorboard/{run}.zip", "Event files for TensorBoard, as one zip.", "tensorboard_zip", command="export"
)
RUNS.file("/files/metrics/{run}.csv", "Every point of every curve of a run.", "metrics_csv")
RUNS.file("/files/logs/{run}.txt", "Events of a run, and the newest lines of its workers.", "log_text")
RUNS.file("/files/reports/{run}.html", "A comparison as one page that needs no network.", "report")
RUNS.file(
    "/files/checkpoints/{run}/{submodel}", "Newest checkpoint of a sub-model.", "checkpoint", command="checkpoint"
)
