"""Holds a whole spec against its files: everything that can be known before training is found here."""

import logging
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from unifiednn_core.errors import BadInput, Finding
from unifiednn_core.home import Home
from unifiednn_core.intake import datasets, registry
from unifiednn_core.intake.base import Definition
from unifiednn_core.intake.datasets import Dataset
from unifiednn_core.intake.dry_run import dry_run
from unifiednn_core.intake.hyper_findings import hyper_findings
from unifiednn_core.intake.inspection import attempt, sha256_of
from unifiednn_core.intake.need import measure
from unifiednn_core.intake.report import CheckReport, ResolvedFile, SubModelReport
from unifiednn_core.intake.start import check_start
from unifiednn_core.intake.trial import Trial, Tried
from unifiednn_core.memory.budget import device_type
from unifiednn_core.memory.need import MemoryNeed
from unifiednn_core.spec import RunSpec, SubModelSpec

# Room for the weights in both formats, the zip of them, and one more copy while it is written.
COPIES_ON_DISK = 4
SPARE_BYTES = 64 * 1024**2
NAMED_PER_FINDING = 6
_BY_CONTENT = re.compile(r"sha256:([0-9a-f]{64})")


def check(spec: RunSpec, base: Path, home: Home) -> CheckReport:
    """Read every file once and try every sub-model; paths are relative to `base`, `sha256:...` lies in `home`."""
    files = _Files(base, home)
    findings: list[Finding] = []
    reports: dict[str, SubModelReport] = {}
    for submodel in spec.submodels:
        report, found = _check_submodel(submodel, files, device_type(spec.device))
        findings += found
        if report is not None:
            reports[submodel.name] = report
    findings += _check_disk(home, reports)
    return CheckReport(findings=tuple(findings), submodels=reports, files=files.resolved)


@dataclass
class _Files:
    """Files of a spec; each data set is read once, however many sub-models name it."""

    base: Path
    home: Home
    resolved: dict[str, ResolvedFile] = field(default_factory=dict)
    _datasets: dict[str, tuple[Dataset | None, tuple[Finding, ...]]] = field(default_factory=dict)

    def resolve(self, written: str) -> ResolvedFile:
        """Find a file; raises `BadInput` where there is none."""
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
                raise BadInput.of(
                    "File not found",
                    field=written,
                    message=f"'{written[:200]}' cannot be read: {reason}.",
                    remedy=f"Paths are relative to {self.base}.",
                ) from None
        return self.resolved[written]

    def start(self, submodel: SubModelSpec) -> ResolvedFile | None:
        """Find the file that the training begins at, if one is named; raises `BadInput`."""
        return None if submodel.start_from is None else self.resolve(submodel.start_from.file)

    def definition(self, submodel: SubModelSpec) -> Definition:
        """Read a model file; raises `BadInput` or `HostileFile`."""
        file = self.resolve(submodel.model)
        model_format = registry.sniff(file.path)
        if model_format is None:
            raise registry.unknown(file.path)
        return model_format.read(file.path, submodel.architecture)

    def dataset(self, written: str, place: str) -> tuple[Dataset | None, tuple[Finding, ...]]:
        """Read a data set; mistakes become findings at `place`."""
        file, findings = attempt(lambda: self.resolve(written), place)
        if file is None:
            return None, findings
        if file.sha256 not in self._datasets:
            self._datasets[file.sha256] = attempt(lambda: datasets.read_dataset(file.path), place)
        dataset, findings = self._datasets[file.sha256]
        return dataset, tuple(finding.model_copy(update={"field": place}) for finding in findings)


def _check_submodel(submodel: SubModelSpec, files: _Files, device: str) -> tuple[SubModelReport | None, list[Finding]]:
    place = f"submodels.{submodel.name}"
    definition, wrong_model = attempt(lambda: files.definition(submodel), f"{place}.model")
    train, wrong_train = files.dataset(submodel.train_data, f"{place}.train_data")
    start, wrong_start = attempt(lambda: files.start(submodel), f"{place}.start_from.file")
    findings = [*wrong_model, *wrong_train]
    test = None
    if submodel.test_data is not None:
        test, wrong_test = files.dataset(submodel.test_data, f"{place}.test_data")
        findings += wrong_test
    if definition is None or train is None or (test is None and submodel.test_data is not None):
        return None, [*findings, *wrong_start]
    findings += _check_names(train, test, f"{place}.test_data")
    steps_per_epoch = submodel.hyperparameters.steps_per_epoch(train.samples)
    own = hyper_findings(submodel, train, test)
    findings += [finding for finding in own if finding.severity == "error"]
    memory, doubts = None, list[Finding]()
    if not findings:
        trial = Trial(submodel, definition, train, test)
        tried, wrong = attempt(lambda: dry_run(trial), f"{place}.model")
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
        steps_per_epoch=steps_per_epoch,
        operators=definition.operators,
        memory=memory,
    )
    return report, findings


def _memory_of(trial: Trial, tried: Tried, device: str, hashes: list[str]) -> tuple[MemoryNeed | None, list[Finding]]:
    """Memory that the sub-model needs; where a few more steps cannot be counted, the run is not kept from training."""
    try:
        return measure(trial, tried, device, hashes), []
    except Exception as error:
        logging.getLogger(__name__).exception("The memory of %s could not be counted.", trial.spec.name)
        finding = Finding(
            severity="warning",
            title="Memory not predicted",
            field=f"{trial.field}.model",
            message=f"How much memory a step takes could not be counted ({type(error).__name__}).",
            remedy="Watch the memory of the run: it starts without regard to what is free.",
        )
        return None, [finding]


def _check_names(train: Dataset, test: Dataset | None, place: str) -> list[Finding]:
    """Findings on class names or columns that differ, so that equal numbers mean different things."""
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
    free_mib, needed_mib = free_bytes // 1024**2, needed_bytes // 1024**2
    if free_bytes >= needed_bytes:
        return []
    return [
        Finding(
            title="Disk nearly full",
            field="home",
            message=f"{free_mib} MiB are free in {home.root}; the run needs {needed_mib} MiB.",
            remedy="Make room, or set UNIFIEDNN_HOME to a larger disk.",
        )
    ]
