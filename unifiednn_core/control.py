"""What can be asked of runs that exist, and how files are taken in for them. The service is the door to it."""

import copy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from unifiednn_core import submission
from unifiednn_core.clock import Clock
from unifiednn_core.errors import BadInput, Finding, NotFound
from unifiednn_core.forecast import Forecast, forecast, parts_of
from unifiednn_core.home import Home
from unifiednn_core.hyperparameters import at_learning_rate
from unifiednn_core.intake import client
from unifiednn_core.intake.report import CheckReport, FileReport
from unifiednn_core.lifecycle import ENDED, State
from unifiednn_core.memory.estimate import Part
from unifiednn_core.ownership import filename_for, owners_in, without_owners
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec import Hyperparameters, PolicySpec, RunSpec, SubModelSpec, parse_hyperparameters, parse_run
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.measured import Measured
from unifiednn_core.store.people import People
from unifiednn_core.store.schema import HYBRID, SubModelRow
from unifiednn_core.views.comparison import Mode

Told = Callable[[Sequence[Finding]], object]
"""Is given the warnings about what is to be submitted; what it raises keeps that from being done."""


class Control:
    """Orders to runs. Each is acknowledged when its call returns, and then survives whatever happens.

    All raise `NotFound` for what there is not, and `IllegalTransition` where the state does not allow it.
    """

    def __init__(self, home: Home, store: Store, clock: Clock):
        self.home = home
        self._store, self._clock = store, clock
        self._person, self._sees_all = "", True

    @property
    def clock(self) -> Clock:
        """The clock that everything is dated by."""
        return self._clock

    @property
    def people_store(self) -> People:
        """Roles, tokens and the ledger."""
        return self._store.people

    def acting_for(self, person: str, *, sees_all: bool) -> Self:
        """The same over the same store, for one person: what is handed in becomes this person's own.

        Who does not see all is told nothing that follows from what others have: no equal run, no measured memory.
        """
        other = copy.copy(self)
        other._person, other._sees_all = person, sees_all
        return other

    def pause(self, run_id: str, submodel: str | None = None) -> State:
        """Pause a run or one sub-model at its next step boundary; its device memory is freed."""
        return self._store.commands.issue(run_id, submodel, Verb.PAUSE)

    def resume(self, run_id: str, submodel: str | None = None) -> State:
        """Let a paused run or sub-model, or an interrupted run, go on where it was."""
        return self._store.commands.issue(run_id, submodel, Verb.RESUME)

    def save(self, run_id: str, submodel: str | None = None) -> State:
        """Write a checkpoint of a run's sub-models, or of one, now."""
        return self._store.commands.issue(run_id, submodel, Verb.SAVE)

    def stop(self, run_id: str, submodel: str | None = None) -> State:
        """End a run or one sub-model and keep what was learnt."""
        return self._store.commands.issue(run_id, submodel, Verb.STOP)

    def discard(self, run_id: str, submodel: str | None = None) -> State:
        """End a run or one sub-model and keep nothing of it: no model, no checkpoint."""
        return self._store.commands.issue(run_id, submodel, Verb.DISCARD)

    def retry(
        self,
        run_id: str,
        submodel: str,
        *,
        learning_rate: float | None = None,
        batch_split: int | None = None,
        from_start: bool = False,
    ) -> State:
        """Try a failed sub-model again, from its last checkpoint or its start, with what is given changed.

        Another learning rate scales those that its LR scheduler is given, too. Raises `BadInput` for a wrong value.
        """
        now = self._hyperparameters(run_id, submodel)
        changed: dict[str, Any] = {}
        if batch_split is not None:
            changed["batch_split"] = batch_split
        if learning_rate is not None:
            changed |= at_learning_rate(now, learning_rate)
        parse_hyperparameters(now.model_dump(mode="json") | changed)
        return self._store.commands.issue(
            run_id, submodel, Verb.RETRY, {"hyperparameters": changed, "from_start": from_start}
        )

    def set_priority(self, run_id: str, submodel: str, priority: int) -> State:
        """Change the priority of a sub-model; raises `BadInput` for a wrong value."""
        part = self._spec_of(run_id, submodel).model_dump(mode="json", exclude_none=True)
        parse_run({"submodels": [part | {"priority": priority}]})
        return self._store.commands.issue(run_id, submodel, Verb.PRIORITY, {"priority": priority})

    def set_epochs(self, run_id: str, submodel: str, epochs: int) -> State:
        """Change for how many epochs a sub-model trains; raises `BadInput` where it has begun more than that."""
        hyperparameters = self._hyperparameters(run_id, submodel)
        parse_hyperparameters(hyperparameters.model_dump(mode="json") | {"epochs": epochs})
        row = next(row for row in self._store.runs.get(run_id)[1] if row.name == submodel)
        begun = -(-row.steps_done // (row.steps_total // row.epochs))
        if epochs < begun:
            raise _wrong("Epochs", "epochs", f"{submodel} is in epoch {begun} already.", f"Give {begun} or more.")
        failing = hyperparameters.failing_after
        per_step = hyperparameters.lr_scheduler is not None and hyperparameters.lr_scheduler.per == "step"
        needed = epochs * (row.steps_total // row.epochs if per_step else 1)
        if failing is not None and needed > failing[2]:
            torch_class, argument, longest = failing
            message = f"{torch_class} ends with an error after {argument} = {longest}; {epochs} epochs take {needed}."
            raise _wrong("Epochs", "epochs", message, "Give fewer epochs, or start a new run from its checkpoint.")
        return self._store.commands.issue(run_id, submodel, Verb.EPOCHS, {"epochs": epochs})

    def reorder(self, run_id: str, names: Sequence[str]) -> State:
        """Put the sub-models of a run into another order; raises `BadInput` where one is missing or unknown."""
        known = [row.name for row in self._store.runs.get(run_id)[1]]
        if sorted(names) != sorted(known):
            raise _wrong("Order", "names", f"The order has to name each of {', '.join(known)} once.", "Name them all.")
        return self._store.commands.issue(run_id, None, Verb.ORDER, {"names": list(names)})

    def set_policy(self, run_id: str, policy: PolicySpec) -> State:
        """Let another policy decide from the next step on; raises `BadInput` for an unknown one."""
        policy_named(policy.name, policy.parameters)
        return self._store.commands.issue(run_id, None, Verb.POLICY, {"policy": policy.model_dump(mode="json")})

    def add_submodel(
        self, run_id: str, submodel: SubModelSpec, base: Path | None = None, *, told: Told | None = None
    ) -> State:
        """Let one more network join a run, where the policy admits it; raises `BadInput` with all findings.

        `told` is given the warnings before, and may raise to say no.
        """
        run, rows = self._store.runs.get(run_id)
        if submodel.name.lower() in {row.name.lower() for row in rows}:
            message = f"Two sub-models would be called '{submodel.name}'."
            raise _wrong("Name", f"submodels.{submodel.name}.name", message, "Give each its own name.")
        settings = {key: value for key, value in run.spec.items() if key != "submodels"}
        alone = RunSpec.model_validate({**settings, "submodels": [submodel.model_dump(mode="json")]})
        training = {row.name for row in rows if State(row.state) not in ENDED}
        others = [part for part in parts_of(run.prediction) if part.name in training]
        resolved, report, files, found = self._admit(alone, base or Path.cwd(), others=others, told=told)
        row = submission.submodel_row(run_id, 0, alone, report)
        row.owner = owners_in(resolved, self._store.library, self._person)[submodel.name]
        part = without_owners(resolved).submodels[0].model_dump(mode="json", exclude_none=True)
        state = self._store.commands.issue(run_id, None, Verb.ADD, {"submodel": part, "files": files}, row=row)
        if found is not None:
            self._store.runs.update(run_id, prediction=found.document)
        return state

    def checkpoint(self, run_id: str, submodel: str) -> Path:
        """The newest checkpoint of a sub-model, one file; raises `NotFound` where there is none."""
        self._row(run_id, submodel)
        kept = sorted(self.home.checkpoints(run_id, submodel).glob("step-*.safetensors"))
        if not kept:
            raise NotFound(f"Sub-model '{submodel}' of run '{run_id}' has no checkpoint yet.")
        return kept[-1]

    def check(self, spec: RunSpec, base: Path | None = None) -> CheckReport:
        """Look at everything that a spec names, in a process of its own; paths are relative to `base`."""
        report = client.check(spec, base or Path.cwd(), self.home)
        found = forecast(spec, report, self._measured)
        findings = (*submission.own_findings(spec), *report.findings, *(() if found is None else found.findings))
        prediction = None if found is None else found.prediction
        return report.model_copy(update={"findings": findings, "prediction": prediction})

    # -- inside

    def _admit(
        self, spec: RunSpec, base: Path, *, mode: Mode = HYBRID, others: Sequence[Part] = (), told: Told | None = None
    ) -> tuple[RunSpec, CheckReport, dict[str, dict[str, str]], Forecast | None]:
        """Take the files of a spec into the library; `others` are in the hybrid already that it joins.

        `told` is given the warnings before anything is queued. Returns the spec with files named by content, what was
        found, the names of each sub-model's files, and the memory that it will need.
        """
        findings = submission.own_findings(spec)
        read = client.check if findings else client.admit  # of a refused spec nothing is kept
        report = read(spec, base, self.home)
        errors = [finding for finding in (*findings, *report.findings) if finding.severity == "error"]
        if errors:
            raise BadInput(errors)
        found = forecast(spec, report, self._measured, mode=mode, others=others)
        if found is not None and found.findings:
            raise BadInput(found.findings)
        if told is not None:
            told(report.findings)  # warnings alone, as there are no errors
        for written, file in report.files.items():
            if file.report is not None and not written.startswith("sha256:"):
                self._remember(file.report, file.filename)
        references = {name: f"sha256:{file.sha256}" for name, file in report.files.items()}
        resolved = submission.with_files(spec, references)
        return resolved, report, self._filenames(resolved), found

    def _filenames(self, resolved: RunSpec) -> dict[str, dict[str, str]]:
        """What the files of each sub-model are called, as its owner knows them."""
        owners, names_by_owner = (
            owners_in(resolved, self._store.library, self._person),
            self._store.library.names_by_owner,
        )
        found: dict[str, dict[str, str]] = {}
        for part in resolved.submodels:
            start = None if part.start_from is None else part.start_from.file
            references = filter(None, (part.model, part.train_data, part.test_data, start))
            known = {reference: reference.removeprefix("sha256:") for reference in references}
            found[part.name] = {
                reference: filename_for(names_by_owner(sha256), owners[part.name], self._person, sha256)
                for reference, sha256 in known.items()
            }
        return found

    @property
    def _measured(self) -> Measured:
        return self._store.measured if self._sees_all else _NothingMeasured()

    def _remember(self, report: FileReport, filename: str) -> None:
        self._store.library.add_file(
            sha256=report.sha256,
            kind=report.kind,
            filename=filename,
            format=report.format,
            size_bytes=report.size_bytes,
            facts=dict(report.facts),
            owner=self._person,
        )

    def _row(self, run_id: str, submodel: str) -> SubModelRow:
        _, rows = self._store.runs.get(run_id)
        row = {row.name: row for row in rows}.get(submodel)
        if row is None:
            raise NotFound(f"Run '{run_id}' has no sub-model '{submodel}'. It has: {', '.join(r.name for r in rows)}.")
        return row

    def _spec_of(self, run_id: str, submodel: str) -> SubModelSpec:
        self._row(run_id, submodel)
        spec = RunSpec.model_validate(self._store.runs.get(run_id)[0].spec)
        return next(part for part in spec.submodels if part.name == submodel)

    def _hyperparameters(self, run_id: str, submodel: str) -> Hyperparameters:
        return self._spec_of(run_id, submodel).hyperparameters


class _NothingMeasured(Measured):
    """No memory of any run: what was measured tells that somebody trained the same."""

    def __init__(self) -> None:
        pass

    def recall(self, keys: Iterable[str]) -> dict[str, int]:
        """Nothing."""
        return {}


def _wrong(title: str, field: str, message: str, remedy: str) -> BadInput:
    return BadInput([Finding(title=title, field=field, message=message, remedy=remedy)])
