"""Turns a spec into rows of a new run: checks and imports files, forecasts memory, finds owners."""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from unifiednn_core.base.clock import Clock, stamp
from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.paths import SHARED_RUN, Home
from unifiednn_core.compare.arms import as_baseline, is_whole
from unifiednn_core.compare.fingerprint import asked_sha256, fingerprint, machine
from unifiednn_core.machine.budget import slot
from unifiednn_core.machine.devices import devices_known, threads_of
from unifiednn_core.machine.gpu import gpu_count
from unifiednn_core.preflight import client, deadlines
from unifiednn_core.preflight.estimate import Part
from unifiednn_core.preflight.fixed_nodes import with_nodes
from unifiednn_core.preflight.forecast import Forecast, forecast, memory_key, with_fixed_nodes
from unifiednn_core.preflight.kept_check import check_once, checked_before, existing
from unifiednn_core.preflight.report import CheckReport, ResolvedFile, Tell, untold
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.scheduling.simulator import SimulatedJob
from unifiednn_core.service.forecasts import Forecasts
from unifiednn_core.service.importing import FileImporter
from unifiednn_core.service.ownership import filename_for, lenders_in, owners_in, references, without_owners
from unifiednn_core.service.reading import RunReader
from unifiednn_core.service.rehearsals import FORECAST
from unifiednn_core.service.roles import Actor
from unifiednn_core.service.shared_spec import shared_findings
from unifiednn_core.spec.devices import SERVER, host_of, matching, type_named
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import BASELINES, Mode, RunSpec, SubModelSpec
from unifiednn_core.spec.sharing import Party
from unifiednn_core.spec.sweep import told_once
from unifiednn_core.store import Store
from unifiednn_core.store.schema import HYBRID, RunRow, SubModelRow

OnWarnings = Callable[[Sequence[Finding]], object]
"""Called with the warnings before submission; raise to cancel."""
MOST_NAMED = 20
"""Devices that a finding names."""
_BY_CONTENT = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Admitted:
    """A spec that passed its check, with its files in the library."""

    spec: RunSpec
    """Files named by content, owners left out."""
    report: CheckReport
    owners: Mapping[str, str]
    """Owner by sub-model."""
    lenders: Mapping[str, Sequence[Party]]
    """Other people whose files it uses, by sub-model."""
    filenames: dict[str, dict[str, str]]
    """By sub-model: the owner's name for each file, by its reference."""
    forecast: Forecast | None


class Submissions:
    """Prepares what one person submits. Nothing is queued here."""

    def __init__(self, home: Home, store: Store, clock: Clock, actor: Actor, importer: FileImporter, reader: RunReader):
        self._home, self._store, self._clock, self._actor = home, store, clock, actor
        self._importer, self._reader = importer, reader
        # Memory measured in other people's runs would reveal to a submitter that they trained the same network.
        self._measured = None if actor.sees_only_own else store.measured

    def check(self, spec: RunSpec, base: Path, on_progress: Tell = untold) -> CheckReport:
        """Check everything that a spec names; paths are relative to `base`.

        Raises `BadInput` for files of others, and for people who may not share a process.
        """
        if at_once := self._found_at_once(spec, base):
            return CheckReport(findings=at_once)
        spec = self._with_allowed_files(spec, base)
        self._people_of(spec)
        return self._judged(spec, self._checked(spec, base, on_progress))

    def _found_at_once(self, spec: RunSpec, base: Path) -> tuple[Finding, ...]:
        """Errors that cost nothing to find, as no file is opened: of the spec itself, and files that are not there."""
        findings = [*own_findings(spec), *shared_findings(spec, self._actor)]
        for part in spec.submodels if self._actor.here else ():
            for entry, name in references(part):
                if _BY_CONTENT.fullmatch(name):  # another host may have it
                    continue
                try:
                    existing(name, base, self._home)
                except BadInput as error:
                    field = f"submodels.{part.name}.{entry}"
                    findings += [finding.model_copy(update={"field": field}) for finding in error.findings]
        return told_once(findings, spec.submodels)

    def checked(self, spec: RunSpec) -> CheckReport | None:
        """The report of `check` if an equal one is kept and still holds, and this person may ask for it; else None."""
        try:
            if not self._is_local and self._about_files(spec):
                return None
            self._people_of(spec)
        except BadInput:
            return None
        report = checked_before(spec, self._home, self._here(spec))
        return None if report is None else self._judged(spec, report)

    def _checked(self, spec: RunSpec, base: Path, on_progress: Tell) -> CheckReport:
        here, now_s = self._here(spec), self._clock.utc_s()
        return check_once(spec, self._home, here, now_s, lambda: client.check(spec, base, self._home, on_progress))

    def _here(self, spec: RunSpec) -> dict[str, object]:
        """The machine; and the person, if another one's check would reveal that they have the same network."""
        return {**machine(slot(spec.device)), "person": self._actor.id if self._actor.sees_only_own else ""}

    @property
    def _is_local(self) -> bool:
        """Whether this person may name any file of the machine."""
        return self._actor.here and not self._actor.id

    def _judged(self, spec: RunSpec, report: CheckReport) -> CheckReport:
        """A report with all that changes by itself: measured memory and speeds, devices, rights."""
        report = with_fixed_nodes(spec, report, self._measured)
        spec = with_nodes(spec, report)
        found = forecast(spec, report, self._measured)
        late = self._deadline_findings(spec, report)
        own = (*own_findings(spec), *shared_findings(spec, self._actor))
        findings = (*own, *report.findings, *(found.findings if found else ()), *late)
        return report.model_copy(update={"findings": findings, "prediction": found and found.prediction})

    def admit(
        self,
        spec: RunSpec,
        base: Path,
        mode: Mode = HYBRID,
        on_warnings: OnWarnings | None = None,
        *,
        on_progress: Tell = untold,
        others: Sequence[Part] = (),
        beside: Sequence[Party] = (),
        training: Sequence[SimulatedJob] = (),
    ) -> Admitted:
        """Check a spec and import its files; raises `BadInput` with all findings.

        `others` are the sub-models of the hybrid that it joins, `beside` are their people, `training` those of them
        whose speed is measured.
        """
        if at_once := self._found_at_once(spec, base):
            raise BadInput(at_once)
        spec = self._with_allowed_files(spec, base)
        owners, lenders = self._people_of(spec, beside)
        report = with_fixed_nodes(spec, self._checked(spec, base, on_progress), self._measured, others)
        spec = with_nodes(spec, report)
        errors = [finding for finding in report.findings if finding.severity == "error"]
        if errors:
            raise BadInput(errors)
        found = forecast(spec, report, self._measured, mode=mode, others=others)
        if found is not None and found.findings:
            raise BadInput(found.findings)
        late = self._deadline_findings(spec, report, training) if mode == HYBRID else ()
        if any(finding.severity == "error" for finding in late):
            raise BadInput([finding for finding in late if finding.severity == "error"])
        if on_warnings is not None:
            on_warnings((*report.findings, *late))  # only warnings are left
        resolved = self.imported(spec, base, report.files)  # last, so that nothing of a refused spec is kept
        resolved = with_loading(resolved, report)
        return Admitted(without_owners(resolved), report, owners, lenders, self._filenames(resolved, owners), found)

    def rows(
        self,
        spec: RunSpec,
        base: Path,
        mode: Mode = HYBRID,
        on_warnings: OnWarnings | None = None,
        on_progress: Tell = untold,
    ) -> tuple[RunRow, list[SubModelRow]]:
        """Rows of a new run; raises `BadInput` with all findings."""
        if mode != HYBRID and any(part.split is not None for part in spec.submodels):
            return self.baseline(*self.rows(spec, base, HYBRID, on_warnings, on_progress), mode)
        admitted = self.admit(spec, base, mode, on_warnings, on_progress=on_progress)
        resolved, found = admitted.spec, admitted.forecast
        shared, device = spec.hybrid == "shared" and mode == HYBRID, slot(spec.device)
        threads = (None if shared else spec.threads) or threads_of(spec.device)
        facts = {"files": admitted.filenames, "asked_sha256": asked_sha256(resolved), "measured_on": machine(device)}
        made = Forecasts(self._store, self._clock, self._actor).to_keep(resolved, admitted.report)
        if made is not None and mode == HYBRID:
            facts[FORECAST] = made.document
        run = RunRow(
            id=f"{SHARED_RUN if shared else ''}{self._new_id()}",
            shared=shared,
            name=spec.name,
            submitter=self._actor.id,
            state=State.QUEUED.value,
            device=spec.device,
            mode=mode,
            fingerprint=fingerprint(resolved, device, threads),
            spec=resolved.model_dump(mode="json", exclude_none=True),
            threads=threads,
            prediction={} if found is None else found.document,
            created_at_s=self._clock.utc_s(),
            environment=facts,
        )
        return run, [submodel_row(run.id, place, spec, admitted) for place in range(len(spec.submodels))]

    def baseline(self, run: RunRow, rows: Sequence[SubModelRow], mode: Mode) -> tuple[RunRow, list[SubModelRow]]:
        """Rows of a new baseline of a run, which trains split networks in one piece."""
        baseline, parts = as_baseline(run, rows, mode, run_id=self._new_id(), now_s=self._clock.utc_s())
        baseline.submitter = self._actor.id
        if run.hybrid is not None and run.hybrid.device and any(host_of(one.name) != SERVER for one in devices_known()):
            baseline.device = f"{host_of(run.hybrid.device)}/{type_named(run.hybrid.device)}"  # figures of one machine
        owners = {row.name: row.owner for row in rows}
        for part in parts:
            part.owner = owners[part.name]
        return baseline, parts

    def usable_baseline(self, run: RunRow, mode: Mode) -> str | None:
        """Id of the newest equal baseline that completed, trains or waits."""
        equal = self._reader.equal_to(run)
        return next((other.id for other, parts in equal if other.mode == mode and is_whole(other, parts)), None)

    def _deadline_findings(
        self, spec: RunSpec, report: CheckReport, training: Sequence[SimulatedJob] = ()
    ) -> tuple[Finding, ...]:
        """Whether deadlines hold, as far as speeds were measured; a submitter's own trainings count for them alone."""
        if not training and all(part.deadline_s is None for part in spec.submodels):
            return ()
        keys = {part.name: memory_key(spec, part, report) for part in spec.submodels if part.name in report.submodels}
        known = self._store.runs.speeds(keys.values(), self._actor.id if self._actor.sees_only_own else None)
        speeds = {name: known[key] for name, key in keys.items() if key in known}
        return deadlines.findings(spec, report, speeds, training)

    def _people_of(self, spec: RunSpec, beside: Sequence[Party] = ()) -> tuple[dict[str, str], dict[str, list[Party]]]:
        """Owner and lenders of each sub-model; raises `BadInput` if they may not share a process, also with `beside`.

        Called before the check, which tries all sub-models of a spec in one process.
        """
        owners = owners_in(spec, self._store.library, self._actor.id)
        lenders = lenders_in(spec, self._store.library, owners, self._actor.id)
        own = [Party(owners[name], f"submodels.{name}.owner") for name in owners]
        self._store.people.sharing_rule().require([*beside, *own, *(one for lent in lenders.values() for one in lent)])
        return owners, lenders

    # -- files

    def _with_allowed_files(self, spec: RunSpec, base: Path) -> RunSpec:
        """Check that this person may name the files of a spec, and import those named by path; raises `BadInput`.

        A hash of someone else's file gets the same answer as an unknown one. Only people at the machine may name
        paths.
        """
        if self._is_local:
            return spec
        findings = self._about_files(spec)
        if findings:
            raise BadInput(findings)
        return self.imported(spec, base)

    def _about_files(self, spec: RunSpec) -> list[Finding]:
        """Findings about files that this person may not name, and owners."""
        own = self._importer.references()
        findings: list[Finding] = []
        for part in spec.submodels:
            for entry, reference in references(part):
                field = f"submodels.{part.name}.{entry}"
                by_content = _BY_CONTENT.fullmatch(reference) is not None
                if by_content and self._actor.sees_only_own and reference not in own:
                    message = f"Your library has no file '{reference}'."
                    findings.append(_not_found(field, message, "Upload it, or choose another one."))
                elif not by_content and not self._actor.here:
                    message = "People who sign in cannot name paths on the server."
                    findings.append(_not_found(field, message, "Upload the file, and name it by its content: sha256:…"))
            if part.owner not in (None, self._actor.id) and self._actor.sees_only_own:
                field, message = f"submodels.{part.name}.owner", "Only an operator can name another owner."
                remedy = "Leave the owner out; what you submit is yours."
                findings.append(Finding(title="Owner", field=field, message=message, remedy=remedy))
        return findings

    def imported(
        self, spec: RunSpec, base: Path, checked: Mapping[str, ResolvedFile] = MappingProxyType({})
    ) -> RunSpec:
        """The spec with all files named by content; those named by path are imported.

        Raises `BadInput`, also for a file that changed since it was `checked`.
        """
        found: dict[str, str] = {}
        for reference in sorted({reference for part in spec.submodels for _, reference in references(part)}):
            path = base / Path(reference).expanduser()
            sha256 = checked[reference].sha256 if reference in checked else None
            if _BY_CONTENT.fullmatch(reference):
                found[reference] = reference
            elif path.is_file():
                found[reference] = f"sha256:{self._importer.import_path(path, sha256=sha256).sha256}"
            else:
                raise BadInput([_not_found(reference, f"There is no {path}.", f"Paths are relative to {base}.")])
        return with_files(spec, found)

    def _filenames(self, resolved: RunSpec, owners: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """By sub-model: the owner's name for each file, by its reference."""

        def name(reference: str, owner: str) -> str:
            sha256 = reference.removeprefix("sha256:")
            return filename_for(self._store.library.names_by_owner(sha256), owner, self._actor.id, sha256)

        parts = resolved.submodels
        return {part.name: {file: name(file, owners[part.name]) for _, file in references(part)} for part in parts}

    def _new_id(self) -> str:
        return f"{stamp(self._clock.utc_s())}-{secrets.token_hex(3)}"


def own_findings(spec: RunSpec) -> tuple[Finding, ...]:
    """Findings that need no file: an unknown policy or device."""
    findings: list[Finding] = []
    try:
        policy_named(spec.policy.name, spec.policy.parameters)
    except BadInput as error:
        findings += error.findings
    devices = devices_known()
    if not devices:
        message, remedy = "No device is offered now.", "Let the server offer some of its own: UNIFIEDNN_DEVICES=cpu"
        findings.append(Finding(title="No such device", field="device", message=message, remedy=remedy))
    elif not matching(spec.device, devices):
        several = any(host_of(device.name) != SERVER for device in devices)
        have = "No host has a device" if several else "This machine has no device"
        there = "There are" if several else "It has"
        message = f"{have} '{spec.device}'. {there} {', '.join(one.text for one in devices[:MOST_NAMED])}"
        message += f" and {len(devices) - MOST_NAMED} more." if len(devices) > MOST_NAMED else "."
        remedy = 'Choose "auto", the name of one of them, or words of its model.'
        if spec.device.lower().startswith("cuda") and gpu_count():
            remedy += " GPUs need the CUDA build of torch."
        findings.append(Finding(title="No such device", field="device", message=message, remedy=remedy))
    return tuple(findings)


def require_baseline(mode: str) -> None:
    """Raise `BadInput` for a mode that is not a kind of baseline."""
    if mode not in BASELINES:
        message, remedy = f"'{mode}' is not a kind of baseline.", f"Choose {', '.join(BASELINES)}."
        raise BadInput.of("Baseline", "mode", message, remedy)


def with_files(spec: RunSpec, names: Mapping[str, str]) -> RunSpec:
    """Spec with its files named by `names`."""

    def renamed(part: SubModelSpec) -> SubModelSpec:
        files: dict[str, object] = {entry: names[name] for entry, name in references(part)}
        if start := files.pop("start_from.file", None):
            files["start_from"] = part.start_from and part.start_from.model_copy(update={"file": start})
        return part.model_copy(update=files)

    return spec.model_copy(update={"submodels": tuple(map(renamed, spec.submodels))})


def with_loading(spec: RunSpec, report: CheckReport) -> RunSpec:
    """Spec in which `auto` is decided, so that the worker loads data as the check counted them."""

    def decided(part: SubModelSpec) -> SubModelSpec:
        return part.model_copy(update={"loading": "streamed" if report.submodels[part.name].streamed else "resident"})

    return spec.model_copy(update={"submodels": tuple(map(decided, spec.submodels))})


def submodel_row(run_id: str, place: int, spec: RunSpec, admitted: Admitted) -> SubModelRow:
    """Row of the sub-model at index `place` of the spec."""
    submodel = with_nodes(spec, admitted.report).submodels[place]
    facts = admitted.report.submodels[submodel.name]
    epochs = submodel.hyperparameters.epochs
    return SubModelRow(
        run_id=run_id,
        name=submodel.name,
        owner=admitted.owners[submodel.name],
        lenders=[lender.person for lender in admitted.lenders[submodel.name]],
        arrival=place,
        state=State.QUEUED.value,
        priority=submodel.priority,
        deadline_s=submodel.deadline_s,
        model_format=facts.format,
        parameters=facts.parameters,
        epochs=epochs,
        steps_total=facts.steps_per_epoch * epochs,
        memory_key=memory_key(spec, submodel, admitted.report),
    )


def _not_found(field: str, message: str, remedy: str) -> Finding:
    return Finding(title="File not found", field=field, message=message, remedy=remedy)
