"""Checks a whole spec against its files, before training."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.files import file_sha256
from unifiednn_core.base.paths import Home
from unifiednn_core.base.units import abbreviated
from unifiednn_core.data.containers import found_container
from unifiednn_core.data.datasets import Dataset, read_dataset
from unifiednn_core.engine import kinds
from unifiednn_core.engine.binding import part_of
from unifiednn_core.engine.start import check_start
from unifiednn_core.formats import registry
from unifiednn_core.formats.base import Definition
from unifiednn_core.machine.budget import budget_of, device_type, slot
from unifiednn_core.preflight import technique_check
from unifiednn_core.preflight.dry_run import dry_run, try_numbers
from unifiednn_core.preflight.fixed_nodes import budget_findings
from unifiednn_core.preflight.hyper_findings import hyper_findings, precision_findings
from unifiednn_core.preflight.inspection import attempt, placed
from unifiednn_core.preflight.kept_check import CHECK_VERSION, disk_findings, existing, files_of, kept, reading
from unifiednn_core.preflight.measure import measure, part_times, timed
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.report import (
    CheckedSubModel,
    CheckProgress,
    CheckReport,
    PlacementReport,
    ResolvedFile,
    SubModelReport,
    Tell,
    WithoutTechniques,
    untold,
)
from unifiednn_core.preflight.technique_check import check_placement, check_techniques, need_of_each, placement_doubts
from unifiednn_core.preflight.trial import TORCH_ERRORS, OutOfTime, Trial, Tried, at_most_cpu
from unifiednn_core.spec.run import RunSpec, SubModelSpec
from unifiednn_core.spec.sweep import told_once

NAMED_PER_FINDING = 6
# Processor time for one sub-model; what takes longer is left out, and the sub-model is admitted all the same.
DRY_RUN_CPU_S = 150.0
MEASURE_CPU_S = 100.0
TIMING_CPU_S = 10.0
PART_CPU_S = 10.0  # for each logical device
# Share of the memory that data sets may take before they are streamed.
DATA_SHARE = 0.5
Result = TypeVar("Result")
_Say = Callable[[str], object]
"""Called with what is done next with a sub-model."""
_FLOAT_BYTES = 4


def check(spec: RunSpec, base: Path, home: Home, tell: Tell = untold) -> CheckReport:
    """Read every file once and try every sub-model; paths are relative to `base`, `sha256:...` is a file of `home`.

    `tell` hears what is done next. `home` keeps the reports of sub-models without errors: equal ones on equal content
    are not tried again.
    """
    files, most_bytes = _Files(base, home), _most_data_bytes(spec)
    device = device_type(spec.device)
    asked = spec.submodels

    def say_of(place: int) -> _Say:
        return lambda doing: tell(CheckProgress(text=f"{doing} {asked[place].name}", place=place + 1, total=len(asked)))

    checked = [_checked(one, files, device, most_bytes, say_of(place)) for place, one in enumerate(asked)]
    reports = {one.report.name: one.report for one in checked if one.report is not None}
    findings = [finding for one in checked for finding in one.findings]
    findings += disk_findings(home, reports)
    return CheckReport(findings=told_once(findings, spec.submodels), submodels=reports, files=files.resolved)


def _most_data_bytes(spec: RunSpec) -> float:
    """Bytes of data sets from which on `"loading": "auto"` streams them."""
    limits = [size for size in (spec.memory_limit_bytes, budget_of(slot(spec.device)).total_bytes) if size is not None]
    return DATA_SHARE * min(limits, default=math.inf)


def _checked(submodel: SubModelSpec, files: "_Files", device: str, most_bytes: float, say: _Say) -> CheckedSubModel:
    """Check a sub-model, or return the kept report of an equal one on files of equal content."""
    say("Reading the files of")
    try:
        hashes = [files.resolve(name).sha256 for name in files_of(submodel)]
    except BadInput:  # a file is missing
        return _check_submodel(submodel, files, device, most_bytes, say)
    document = [
        CHECK_VERSION,
        device,
        most_bytes,
        kinds.expected_kind(device).text,
        submodel.model_dump(mode="json"),
        hashes,
    ]
    return kept(
        files.home.checks,
        document,
        CheckedSubModel,
        lambda: _check_submodel(submodel, files, device, most_bytes, say),
        lambda found: not any(finding.severity == "error" for finding in found.findings),
    )


@dataclass
class _Files:
    """Files of a spec; each content is read once."""

    base: Path
    home: Home
    resolved: dict[str, ResolvedFile] = field(default_factory=dict)
    definitions: dict[tuple[str, str], Definition] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)

    def resolve(self, written: str) -> ResolvedFile:
        """Find a file; raises `BadInput` if it is missing."""
        if written not in self.resolved:
            path = existing(written, self.base, self.home)
            with reading(written, self.base):
                self.resolved[written] = ResolvedFile(
                    path=path, sha256=file_sha256(path), size_bytes=path.stat().st_size, filename=Path(written).name
                )
        return self.resolved[written]

    def definition(self, submodel: SubModelSpec) -> Definition:
        """Read a model file; raises `BadInput` or `HostileFile`."""
        file, architecture = self.resolve(submodel.model), submodel.architecture
        key = (file.sha256, "" if architecture is None else architecture.model_dump_json())
        if key not in self.definitions:
            self.definitions[key] = registry.format_of(file.path).read(file.path, architecture)
        return self.definitions[key]

    def dataset(self, written: str) -> Dataset:
        """Read a data set; raises `BadInput` or `HostileFile`."""
        file = self.resolve(written)
        if file.sha256 not in self.datasets:
            self.datasets[file.sha256] = read_dataset(file.path)
        return self.datasets[file.sha256]


def _check_submodel(
    submodel: SubModelSpec, files: _Files, device: str, most_bytes: float, say: _Say
) -> CheckedSubModel:
    findings: list[Finding] = []

    def tried(entry: str, action: Callable[[], Result]) -> Result | None:
        result, wrong = attempt(action, f"submodels.{submodel.name}.{entry}")
        findings.extend(wrong)
        return result

    definition = tried("model", lambda: files.definition(submodel))
    train = tried("train_data", lambda: files.dataset(submodel.train_data))
    if definition is not None and train is not None:
        whole, data = definition, train
        definition = tried("split", lambda: part_of(submodel, whole, data))
    test, start = None, None if submodel.start_from is None else submodel.start_from.file
    if (test_data := submodel.test_data) is not None:
        test = tried("test_data", lambda: files.dataset(test_data))
    if definition is None or train is None or findings:
        if start is not None:
            tried("start_from.file", lambda: files.resolve(start))
        return CheckedSubModel(findings=tuple(findings))
    on_file = [placed(finding, f"submodels.{submodel.name}.model") for finding in definition.doubts]
    findings += _check_names(train, test, f"submodels.{submodel.name}.test_data")
    on_hyper = hyper_findings(submodel, train, test)
    findings += [finding for finding in on_hyper if finding.severity == "error"]
    findings += precision_findings(submodel, device)
    step_s, evaluation_s, part_times_s, least_part = 0.0, 0.0, tuple[dict[int, float], ...](), 1
    memory, doubts, on_start, begun = None, tuple[Finding, ...](), tuple[Finding, ...](), definition
    without: WithoutTechniques | None = None
    in_one_piece: MemoryNeed | None = None
    placement: PlacementReport | None = None
    if start is not None:
        samples, place = train.samples, f"submodels.{submodel.name}.start_from.file"
        found, on_start = attempt(
            lambda: check_start(submodel, definition, samples, files.resolve(start).path, device), place
        )
        on_start, begun = found or (on_start, definition)
        on_start = tuple(placed(finding, place) for finding in on_start)
    sizes_bytes = [data.resident_bytes for data in (train, test) if data is not None]
    streamed = submodel.loading == "streamed" or (submodel.loading == "auto" and sum(sizes_bytes) > most_bytes)
    unmapped = _unmapped(submodel, files) if streamed else []
    streamed = streamed and not unmapped
    if not findings:
        trial = Trial(submodel, begun, train, test)
        say("Trying a step of")
        done = tried("model", lambda: _tried(trial, device))
        if isinstance(done, Finding):
            findings.append(done)
        elif (
            done is not None
            and (on_devices := tried("placement", partial(check_placement, trial, done, device))) is not None
        ):
            trial, placement = on_devices
            findings += placement_doubts(trial, placement)
            say("Measuring the memory of")
            hashes = [files.resolve(name).sha256 for name in (submodel.train_data, test_data) if name]
            memory, unknown = _memory_of(trial, done, device, hashes, streamed=streamed)
            findings += unknown
            if memory is not None:
                findings += budget_findings(submodel, memory, train.samples, definition.min_batch, device)
            in_one_piece = memory if submodel.joins else None
            memory = memory and split_need(memory, submodel, definition, trial)
            memory = memory and need_of_each(memory, trial, placement, device)
            doubts = done.doubts
            if device == "cpu" and memory is not None:
                say("Timing a step of")
                step_s, evaluation_s = _timed(trial, done)
                part_times_s = measured_times(trial, done)
            if submodel.hyperparameters.techniques and memory is not None:
                say("Measuring the techniques of")
                without = _without_techniques(trial, done, device, hashes, streamed=streamed)
                in_one_piece = without.memory if without and in_one_piece else in_one_piece
                without = without if submodel.epochs else None  # one that is joined as it is takes no step
                findings += technique_check.useless(trial, memory, without)
            least_part = least_part_of(trial, done)
    findings += [
        *unmapped,
        *on_file,
        *on_start,
        *doubts,
        *(finding for finding in on_hyper if finding.severity == "warning"),
    ]
    report = SubModelReport(
        name=submodel.name,
        format=definition.format,
        parameters=definition.parameters,
        weights_bytes=definition.weights_bytes,
        input_shape=definition.inputs[0].shape or tuple(train.first.shape[1:]),
        samples=train.samples,
        test_samples=None if test is None else test.samples,
        classes=train.classes,
        steps_per_epoch=submodel.hyperparameters.steps_per_epoch(train.samples),
        operators=definition.operators,
        memory=memory,
        streamed=streamed,
        seconds_per_step=step_s + evaluation_s or None,
        evaluation_share=evaluation_s / (step_s + evaluation_s) if evaluation_s else 0.0,
        least_part=least_part,
        part_times_s=part_times_s,
        whole=in_one_piece,
        placement=placement,
        without_techniques=without,
    )
    return CheckedSubModel(report=report, findings=tuple(findings))


def _unmapped(submodel: SubModelSpec, files: _Files) -> list[Finding]:
    """A warning for each data set whose samples do not lie in their file row by row, so that none can be streamed."""
    names = {"train_data": submodel.train_data, "test_data": submodel.test_data}
    return [
        Finding(
            severity="warning",
            title="Not streamed",
            field=f"submodels.{submodel.name}.{entry}",
            message="The samples do not lie in this file one after the other, so they cannot be streamed; "
            "all data of this sub-model are held in memory.",
            remedy="Import the file again, which stores its samples in order, or save it so.",
        )
        for entry, name in names.items()
        if name is not None and not found_container(path := files.resolve(name).path).mapped(path)
    ]


def _tried(trial: Trial, device: str) -> Tried | Finding:
    """The dry run, or a warning: the worker tries a network that is too slow here, and contains its failure.

    It cannot contain a label or an id that is out of range on a GPU: raises `BadInput` unless those could be checked.
    """
    try:
        with at_most_cpu(DRY_RUN_CPU_S):
            done = dry_run(trial)
            check_techniques(trial, done)
            return done
    except OutOfTime:
        if device == "cuda":
            _check_numbers(trial)
        message = f"No training step could be tried within {DRY_RUN_CPU_S:g} s of processor time; nothing wrong was "
        message += "found until then. The sub-model starts without a prediction of its memory."
        remedy = "Watch its first steps: a mistake that shows there ends this sub-model alone."
        return trial.warning("Not tried", "model", message, remedy)


def _check_numbers(trial: Trial) -> None:
    try:
        with at_most_cpu(DRY_RUN_CPU_S):
            try_numbers(trial)
    except OutOfTime:
        message = f"Not even one batch of {replace(trial, slow=True).batch_size} could be computed within "
        message += f"{DRY_RUN_CPU_S:g} s of processor time, so its labels and ids are unchecked. On a GPU one that is "
        message += "out of range ends all trainings of the process."
        remedy = "Train it on the CPU, or give a smaller network or smaller samples."
        raise trial.refusal("Not tried", "model", message, remedy) from None


def _memory_of(
    trial: Trial, tried: Tried, device: str, hashes: list[str], *, streamed: bool
) -> tuple[MemoryNeed | None, list[Finding]]:
    """Memory need of the sub-model, or a warning: a run of unknown need may start all the same."""
    try:
        with at_most_cpu(MEASURE_CPU_S):
            return measure(trial, tried, device, hashes, streamed=streamed), []
    except OutOfTime:
        message = (
            f"The memory of '{trial.spec.name}' could not be counted within {MEASURE_CPU_S:g} s of processor time."
        )
    except Exception as error:
        logging.getLogger(__name__).exception("The memory of %s could not be counted.", trial.spec.name)
        message = f"The memory of a training step could not be counted ({type(error).__name__})."
    remedy = "Watch the memory of the run: it starts without regard to free memory."
    return None, [trial.warning("Memory not predicted", "model", message, remedy)]


def _timed(trial: Trial, tried: Tried) -> tuple[float, float]:
    """Seconds per step and of its share of the evaluations; 0 if that takes too long or fails: the run measures it."""
    return _if_cheap(TIMING_CPU_S, lambda: timed(trial, tried), "The steps of %s could not be timed.", trial) or (
        0.0,
        0.0,
    )


def _if_cheap(cpu_s: float, action: Callable[[], Result], failure: str, trial: Trial) -> Result | None:
    """What `action` finds out; None if it takes too long, or fails, which is logged and changes no verdict."""
    try:
        with at_most_cpu(cpu_s):
            return action()
    except OutOfTime:
        return None
    except Exception:
        logging.getLogger(__name__).exception(failure, trial.spec.name)
        return None


def _without_techniques(
    trial: Trial, tried: Tried, device: str, hashes: list[str], *, streamed: bool
) -> WithoutTechniques | None:
    """What a step needs without techniques; None if that takes too long or fails, which changes no verdict."""

    def measured(trial: Trial, tried: Tried) -> MemoryNeed:
        return measure(trial, tried, device, hashes, streamed=streamed)

    failure = "The techniques of %s could not be measured."
    found = _if_cheap(MEASURE_CPU_S, lambda: technique_check.without(trial, tried, measured), failure, trial)
    if device != "cpu" or found is None:
        return found
    return found.model_copy(update={"seconds_per_step": sum(_timed(*technique_check.left_out(trial, tried))) or None})


def _check_names(train: Dataset, test: Dataset | None, place: str) -> list[Finding]:
    """A finding if class names or columns differ between training and test data."""
    if test is None:
        return []
    classes = ("classes", train.notes.class_names, test.notes.class_names)
    for what, ours, theirs in (classes, ("columns", train.notes.columns, test.notes.columns)):
        if ours and theirs and ours != theirs:
            here, there = abbreviated(ours, NAMED_PER_FINDING), abbreviated(theirs, NAMED_PER_FINDING)
            message = f"The test data have the {what} {there}; the training data have {here}."
            remedy = f"Give both the same {what}: split one file, or complete the smaller one."
            return [Finding(title=f"Other {what}", field=place, message=message, remedy=remedy)]
    plan, other = train.notes.plan, test.notes.plan
    if plan is not None and other is not None and (columns := plan.otherwise(other)):
        named = abbreviated(columns, NAMED_PER_FINDING)
        message = f"The test data became numbers in another way than the training data: column {named}."
        remedy = "Import the test file as the training file was read: unifiednn import TEST --like TRAINING."
        return [Finding(title="Other columns", field=place, message=message, remedy=remedy)]
    return []


def measured_times(trial: Trial, tried: Tried) -> tuple[dict[int, float], ...]:
    """Times by the samples of a part, for each logical device, if shares are to be measured; else none."""
    nodes = trial.spec.hyperparameters.nodes
    if nodes is None or nodes.shares != "measured":
        return ()
    try:
        with at_most_cpu(nodes.devices * PART_CPU_S):
            return tuple(part_times(trial, tried) for _ in range(nodes.devices))
    except OutOfTime:
        return ()


def least_part_of(trial: Trial, tried: Tried) -> int:
    """Samples that a part needs, as far as virtual nodes are left open. It trains the network further, so be the last.

    Batch normalisation of one value has no variance: some layers refuse it, others make NaN of it.
    """
    nodes = trial.spec.hyperparameters.nodes
    if nodes is None or not nodes.is_open or trial.definition.min_batch > 1:
        return trial.definition.min_batch
    try:
        with at_most_cpu(PART_CPU_S), torch.no_grad(), torch.random.fork_rng(devices=[]):
            batch = tried.step.prepare(trial.train.batch(torch.arange(1)), training=True)
            tried.step.forward(tried.module.train(), batch)
    except (OutOfTime, *TORCH_ERRORS):
        return 2
    return 2 if any(bool(one.isnan().any()) for one in tried.module.buffers() if one.is_floating_point()) else 1


def split_need(need: MemoryNeed, spec: SubModelSpec, definition: Definition, trial: Trial) -> MemoryNeed:
    """The need of a sub-model, measured as if it trained on codes; that of one without a split stays the same."""
    if spec.split is None:
        return need
    if spec.joins and not spec.split.recovery_epochs:  # it is evaluated once
        least = need.evaluation or dict.fromkeys(need.whole, 0)
        changes = {"whole": least, "parts": least, "gradients_bytes": 0, "optimizer_bytes": 0}
        return need.model_copy(update=changes).changed()
    part = definition.part
    if spec.split.labels == "codes" or part is None or part.begins is None:
        return need
    of_sample = _FLOAT_BYTES * math.prod(part.begins.shape)
    sets = [one for one in (trial.train, trial.test) if one is not None]
    stored = {f"{spec.name}:{place}": data.samples * of_sample for place, data in enumerate(sets)}
    return need.model_copy(update={"data": need.data | stored})
