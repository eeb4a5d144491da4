"""Checks a whole spec against its files, before training."""

import hashlib
import json
import logging
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from pydantic import ValidationError

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.files import write_text
from unifiednn_core.base.paths import Home
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.start import check_start
from unifiednn_core.formats.base import Definition
from unifiednn_core.machine.budget import device_type
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.preflight.hyper_findings import hyper_findings
from unifiednn_core.preflight.inspection import Reader, attempt, sha256_of
from unifiednn_core.preflight.measure import measure
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.report import CheckedSubModel, CheckReport, ResolvedFile, SubModelReport
from unifiednn_core.preflight.trial import Trial, Tried, at_most_cpu
from unifiednn_core.spec.run import RunSpec, SubModelSpec

# Room for the weights in both formats, the zip of them, and one more copy while it is written.
COPIES_ON_DISK = 4
SPARE_BYTES = 64 * 1024**2
NAMED_PER_FINDING = 6
# Processor time for one sub-model; `process.CPU_LIMIT_EACH_S` has room for both.
DRY_RUN_CPU_S = 150.0
MEASURE_CPU_S = 100.0
# Raise it when a check finds other things than before.
CHECK_VERSION = 1
KEPT_CHECKS = 200
_BY_CONTENT = re.compile(r"sha256:([0-9a-f]{64})")


def check(spec: RunSpec, base: Path, home: Home, reader: Reader | None = None) -> CheckReport:
    """Read every file once and try every sub-model; paths are relative to `base`, `sha256:...` is a file of `home`.

    What was found of a sub-model without an error is kept in `home`: the same one on the same content is not tried
    again.
    """
    files = _Files(base, home, reader or Reader())
    findings: list[Finding] = []
    reports: dict[str, SubModelReport] = {}
    device = device_type(spec.device)
    for submodel in spec.submodels:
        found = _checked(submodel, files, device)
        findings += found.findings
        if found.report is not None:
            reports[submodel.name] = found.report
    findings += _check_disk(home, reports)
    return CheckReport(findings=tuple(findings), submodels=reports, files=files.resolved)


def _checked(submodel: SubModelSpec, files: "_Files", device: str) -> CheckedSubModel:
    """Check a sub-model, or find what an earlier check of the same one on files of the same content said."""
    start = submodel.start_from
    names = (submodel.model, submodel.train_data, submodel.test_data, None if start is None else start.file)
    try:
        hashes = [files.resolve(name).sha256 for name in names if name is not None]
    except BadInput:  # a file is missing
        return _check_submodel(submodel, files, device)
    document = [CHECK_VERSION, torch.__version__, device, submodel.model_dump(mode="json"), hashes]
    key = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    place = files.home.root / "checks" / f"{key}.json"
    with suppress(OSError, ValidationError):
        return CheckedSubModel.model_validate_json(place.read_bytes())
    found = _check_submodel(submodel, files, device)
    if not any(finding.severity == "error" for finding in found.findings):
        with suppress(OSError):
            place.parent.mkdir(exist_ok=True)
            write_text(place, found.model_dump_json())
            for path in sorted(place.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-KEPT_CHECKS]:
                path.unlink(missing_ok=True)
    return found


@dataclass
class _Files:
    """Files of a spec, each hashed and read once."""

    base: Path
    home: Home
    reader: Reader
    resolved: dict[str, ResolvedFile] = field(default_factory=dict)

    def resolve(self, written: str) -> ResolvedFile:
        """Find a file; raises `BadInput` for a missing one."""
        if written not in self.resolved:
            by_content = _BY_CONTENT.fullmatch(written)
            path = self.home.file(by_content.group(1)) if by_content else self.base / Path(written).expanduser()
            try:
                if not path.is_file():
                    raise FileNotFoundError(2, "there is no such file")
                self.resolved[written] = ResolvedFile(
                    path=path, sha256=sha256_of(path), size_bytes=path.stat().st_size, filename=Path(written).name
                )
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else "the name is not a path"
                message, remedy = f"'{written[:200]}' cannot be read: {reason}.", f"Paths are relative to {self.base}."
                raise BadInput.of("File not found", field=written, message=message, remedy=remedy) from None
        return self.resolved[written]

    def definition(self, submodel: SubModelSpec) -> Definition:
        """Read a model file; raises `BadInput` or `HostileFile`."""
        file = self.resolve(submodel.model)
        return self.reader.definition(file.path, file.sha256, submodel.architecture)

    def dataset(self, written: str) -> Dataset:
        """Read a data set; raises `BadInput` or `HostileFile`."""
        file = self.resolve(written)
        return self.reader.dataset(file.path, file.sha256)


def _check_submodel(submodel: SubModelSpec, files: _Files, device: str) -> CheckedSubModel:
    place = f"submodels.{submodel.name}"
    definition, wrong_model = attempt(lambda: files.definition(submodel), f"{place}.model")
    train, wrong_train = attempt(lambda: files.dataset(submodel.train_data), f"{place}.train_data")
    start_file = None if submodel.start_from is None else submodel.start_from.file
    start, wrong_start = attempt(lambda: files.resolve(start_file) if start_file else None, f"{place}.start_from.file")
    findings = [*wrong_model, *wrong_train]
    test, test_data = None, submodel.test_data
    if test_data is not None:
        test, wrong_test = attempt(lambda: files.dataset(test_data), f"{place}.test_data")
        findings += wrong_test
    if definition is None or train is None or (test is None and test_data is not None):
        return CheckedSubModel(findings=(*findings, *wrong_start))
    findings += _check_names(train, test, f"{place}.test_data")
    own = hyper_findings(submodel, train, test)
    findings += [finding for finding in own if finding.severity == "error"]
    memory, doubts = None, list[Finding]()
    if not findings:
        trial = Trial(submodel, definition, train, test)
        limit = at_most_cpu(DRY_RUN_CPU_S, trial, f"A training step of {trial.batch_size} samples")
        tried, wrong = attempt(lambda: limit(dry_run)(trial), f"{place}.model")
        findings += wrong
        if tried is not None:
            hashes = [files.resolve(name).sha256 for name in (submodel.train_data, submodel.test_data) if name]
            memory, unknown = _memory_of(trial, tried, device, hashes)
            findings += unknown
            doubts += tried.doubts
    findings += wrong_start
    if start is not None:
        misfits, unread = attempt(
            lambda: check_start(submodel, definition, train.samples, start.path), f"{place}.start_from.file"
        )
        findings += [*(misfits or ()), *unread]
    findings += [*doubts, *(finding for finding in own if finding.severity == "warning")]
    report = SubModelReport(
        name=submodel.name,
        format=definition.format,
        parameters=definition.parameters,
        weights_bytes=definition.weights_bytes,
        input_shape=definition.input_shape or tuple(train.inputs.shape[1:]),
        samples=train.samples,
        test_samples=None if test is None else test.samples,
        classes=train.classes,
        steps_per_epoch=submodel.hyperparameters.steps_per_epoch(train.samples),
        operators=definition.operators,
        memory=memory,
    )
    return CheckedSubModel(report=report, findings=tuple(findings))


def _memory_of(trial: Trial, tried: Tried, device: str, hashes: list[str]) -> tuple[MemoryNeed | None, list[Finding]]:
    """Memory that the sub-model needs. A run whose memory cannot be measured may start all the same."""
    try:
        with at_most_cpu(MEASURE_CPU_S, trial, "Counting the memory of a few training steps"):
            return measure(trial, tried, device, hashes), []
    except BadInput as error:  # it took too long
        message = error.findings[0].message
    except Exception as error:
        logging.getLogger(__name__).exception("The memory of %s could not be counted.", trial.spec.name)
        message = f"The memory of a training step could not be counted ({type(error).__name__})."
    remedy = "Watch the memory of the run: it starts without regard to what is free."
    title, field = "Memory not predicted", f"{trial.field}.model"
    return None, [Finding(severity="warning", title=title, field=field, message=message, remedy=remedy)]


def _check_names(train: Dataset, test: Dataset | None, place: str) -> list[Finding]:
    """Findings on class names or columns that differ between training and test data."""
    if test is None:
        return []
    for what, ours, theirs in (
        ("classes", train.notes.class_names, test.notes.class_names),
        ("columns", train.notes.columns, test.notes.columns),
    ):
        if ours and theirs and ours != theirs:
            message = f"The test data have the {what} {_some(theirs)}; the training data have {_some(ours)}."
            remedy = f"Give both the same {what}: split one file, or complete the smaller one."
            return [Finding(title=f"Other {what}", field=place, message=message, remedy=remedy)]
    return []


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:NAMED_PER_FINDING]) + (" …" if len(names) > NAMED_PER_FINDING else "")


def _check_disk(home: Home, reports: dict[str, SubModelReport]) -> list[Finding]:
    needed_bytes = COPIES_ON_DISK * sum(report.weights_bytes for report in reports.values()) + SPARE_BYTES
    existing = next(folder for folder in (home.root, *home.root.absolute().parents) if folder.exists())
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes >= needed_bytes:
        return []
    message = f"{free_bytes // 1024**2} MiB are free in {home.root}; the run needs {needed_bytes // 1024**2} MiB."
    remedy = "Make room, or set UNIFIEDNN_HOME to a larger disk."
    return [Finding(title="Disk nearly full", field="home", message=message, remedy=remedy)]
