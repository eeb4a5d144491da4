"""Runs of one person: submit, control, observe, download."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.base.files import copy_into
from unifiednn_core.base.paths import Home
from unifiednn_core.base.units import memory_text
from unifiednn_core.machine.disk import size_of
from unifiednn_core.preflight.deadlines import POLICY as DEADLINES
from unifiednn_core.preflight.deadlines import jobs_of, require_change
from unifiednn_core.preflight.forecast import parts_of
from unifiednn_core.preflight.report import CheckReport, Tell, untold
from unifiednn_core.runtime import removal
from unifiednn_core.scheduling.registry import PolicyCard, describe, policy_named
from unifiednn_core.service.forecasts import Forecasts, RunChange, require_few
from unifiednn_core.service.ownership import owners_of
from unifiednn_core.service.permissions import Guard, Own, permission
from unifiednn_core.service.reading import RunReader
from unifiednn_core.service.roles import Role
from unifiednn_core.service.submission import OnWarnings, Submissions, require_baseline, submodel_row
from unifiednn_core.spec.hyperparameters import Hyperparameters, at_learning_rate, with_nodes
from unifiednn_core.spec.lifecycle import ENDED, Event, State, submodel_actions
from unifiednn_core.spec.run import Mode, PolicySpec, RunSpec, SubModelSpec, parse_hyperparameters, parse_run
from unifiednn_core.spec.run_query import PAGE_ROWS, KeptQuery, RunChoices, RunQuery
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb, require_new_name
from unifiednn_core.store.people import parties_of
from unifiednn_core.store.schema import SubModelRow
from unifiednn_core.views.forecast import Counterfactual, PolicyForecast
from unifiednn_core.views.graph import graph_dot
from unifiednn_core.views.run_lines import DeletionView, HybridLines, RunLines
from unifiednn_core.views.run_rows import metrics_csv, trained_view
from unifiednn_core.views.runs import RunView, TrainedView

QUEUE_STEP_S = 0.001
"""Difference in time between runs of one submission, because the queue is ordered by time."""


class RunService:
    """Submits, controls and observes runs. A command is durable once its call returns.

    All methods raise `NotFound` for an unknown run or sub-model; commands raise `IllegalTransition` if the state
    does not allow them.
    """

    def __init__(
        self, guard: Guard, home: Home, store: Store, clock: Clock, reader: RunReader, submissions: Submissions
    ):
        self.guard = guard
        self._home, self._store, self._clock = home, store, clock
        self._reader, self._submissions = reader, submissions
        self._forecasts = Forecasts(store, clock, guard.actor)

    # -- submit

    @permission(Role.VIEWER, audited=False)
    def policies(self) -> tuple[PolicyCard, ...]:
        """All policies with their parameters."""
        return describe()

    @permission(Role.SUBMITTER, audited=False)
    def check(self, spec: RunSpec, base: Path | None = None, *, on_progress: Tell = untold) -> CheckReport:
        """Check everything that a spec names, in the intake process; paths are relative to `base`.

        `on_progress` hears what the check does next, in the thread of the caller.
        """
        return self._submissions.check(spec, base or Path.cwd(), on_progress)

    @permission(Role.SUBMITTER, audited=False)
    def checked(self, spec: RunSpec) -> CheckReport | None:
        """The report that `check` would give, if an equal spec was checked and that still holds; else None."""
        return self._submissions.checked(spec)

    @permission(Role.SUBMITTER, audited=False)
    def forecast(self, spec: RunSpec, report: CheckReport | None = None) -> tuple[PolicyForecast, ...]:
        """What every policy would do with a spec, its own policy first.

        Raises `BadInput` for an unknown policy, and for more sub-models than a forecast takes.

        `report` is that of its check, by default the one that is kept. Without one times are relative.
        """
        require_few(spec)
        return self._forecasts.of_spec(spec, report or self._submissions.checked(spec))

    @permission(Role.SUBMITTER, Own.RUN, audited=False)
    def forecast_change(self, run_id: str, change: RunChange) -> Counterfactual:
        """When each sub-model would end without and with a change; empty for a run in shared hybrids.

        Raises `BadInput` for an unknown policy.
        """
        return self._forecasts.change(run_id, change)

    @permission(Role.SUBMITTER, about="{spec.name}")
    def submit(
        self,
        spec: RunSpec,
        base: Path | None = None,
        *,
        baselines: Sequence[Mode] = (),
        baselines_first: bool = False,
        on_warnings: OnWarnings | None = None,
        on_progress: Tell = untold,
    ) -> str:
        """Check a spec, keep its files, and queue it; returns the run's id. Raises `BadInput` with all findings.

        `baselines` are queued with it, before or after it; an equal one that exists is kept instead. `on_progress` is
        as for `check`.
        """
        for mode in baselines:
            require_baseline(mode)
        run, rows = self._submissions.rows(spec, base or Path.cwd(), on_warnings=on_warnings, on_progress=on_progress)
        missing = [mode for mode in baselines if self._submissions.usable_baseline(run, mode) is None]
        arms = [self._submissions.baseline(run, rows, mode) for mode in missing]
        queued = [*arms, (run, rows)] if baselines_first else [(run, rows), *arms]
        for place, (one, _) in enumerate(queued):
            one.created_at_s = self._clock.utc_s() + place * QUEUE_STEP_S
        self._store.runs.add(*queued)
        return run.id

    @permission(Role.SUBMITTER, Own.RUN, about="{submodel.name}")
    def add_submodel(
        self, run_id: str, submodel: SubModelSpec, base: Path | None = None, *, on_warnings: OnWarnings | None = None
    ) -> State:
        """Add a network to a run; raises `BadInput` with all findings."""
        run, rows = self._store.runs.get(run_id)
        require_new_name(submodel.name, [row.name for row in rows])
        changed = {"device": run.device, "submodels": [submodel.model_dump(mode="json")]}
        alone = RunSpec.model_validate(run.spec | changed)
        training = {row.name for row in rows if State(row.state) not in ENDED}
        others = [part for part in parts_of(run.prediction) if part.name in training]
        measured = jobs_of(run, rows, self._clock.utc_s())
        admitted = self._submissions.admit(
            alone,
            base or Path.cwd(),
            on_warnings=on_warnings,
            others=others,
            beside=parties_of(run, rows),
            training=measured,
        )
        [part] = admitted.spec.submodels
        arguments = {"submodel": part.model_dump(mode="json", exclude_none=True), "files": admitted.filenames}
        row = submodel_row(run_id, 0, alone, admitted)
        if admitted.forecast is not None:  # before the worker reads it with the newcomer
            self._store.runs.update(run_id, prediction=admitted.forecast.document)
        state = self._store.commands.issue(run_id, None, Verb.ADD, arguments, row=row)
        step_s = admitted.report.submodels[part.name].seconds_per_step
        self._forecasts.renew(run_id, timed={row.memory_key: step_s} if step_s else {})
        return state

    # -- control

    @permission(Role.SUBMITTER, Own.PART)
    def pause(self, run_id: str, submodel: str | None = None) -> State:
        """Pause a run or one sub-model at its next step boundary; its device memory is freed."""
        return self._store.commands.issue(run_id, submodel, Verb.PAUSE)

    @permission(Role.SUBMITTER, Own.PART)
    def resume(self, run_id: str, submodel: str | None = None) -> State:
        """Continue a paused run or sub-model, or an interrupted run."""
        return self._store.commands.issue(run_id, submodel, Verb.RESUME)

    @permission(Role.SUBMITTER, Own.PART)
    def save(self, run_id: str, submodel: str | None = None) -> State:
        """Write a checkpoint of a run's sub-models, or of one, now, and verify the data sets that they train on."""
        run, rows = self._store.runs.get(run_id)
        if run.shared and submodel is None:  # they may be in several hybrids
            names = [row.name for row in rows if Event.SAVE in submodel_actions(State(run.state), State(row.state))]
            for name in names or [rows[0].name]:  # which says why it cannot be saved now
                self._store.commands.issue(run_id, name, Verb.SAVE)
            return State(run.state)
        return self._store.commands.issue(run_id, submodel, Verb.SAVE)

    @permission(Role.SUBMITTER, Own.PART)
    def stop(self, run_id: str, submodel: str | None = None) -> State:
        """End a run or one sub-model and keep its progress."""
        return self._store.commands.issue(run_id, submodel, Verb.STOP)

    @permission(Role.SUBMITTER, Own.PART)
    def discard(self, run_id: str, submodel: str | None = None) -> State:
        """End a run or one sub-model and keep nothing: no model, no checkpoint."""
        return self._store.commands.issue(run_id, submodel, Verb.DISCARD)

    @permission(Role.SUBMITTER, Own.PART)
    def retry(
        self,
        run_id: str,
        submodel: str,
        *,
        learning_rate: float | None = None,
        batch_split: int | None = None,
        from_start: bool = False,
    ) -> State:
        """Retry a failed sub-model from its last checkpoint or from the start, with the given changes.

        A new learning rate also scales the learning rates in the LR scheduler's arguments. Virtual nodes take the place
        of the batch split. Raises `BadInput`.
        """
        now = self._spec_of(run_id, submodel).hyperparameters
        changed: dict[str, Any] = {} if batch_split is None else {"batch_split": batch_split}
        if batch_split is not None and now.nodes is not None:
            changed = {"techniques": with_nodes(now, nodes=batch_split, shares=None)["techniques"]}
        if learning_rate is not None:
            changed |= at_learning_rate(now, learning_rate)
        parse_hyperparameters(now.model_dump(mode="json") | changed)
        arguments = {"hyperparameters": changed, "from_start": from_start}
        return self._store.commands.issue(run_id, submodel, Verb.RETRY, arguments)

    @permission(Role.SUBMITTER, Own.RUN, about="to {priority}")
    def set_priority(self, run_id: str, submodel: str, priority: int) -> State:
        """Change the priority of a sub-model, which affects everyone in its hybrid; raises `BadInput`.

        In a shared hybrid only an operator may: it would let one overtake others.
        """
        if self.guard.actor.sees_only_own and self._store.runs.get(run_id)[0].shared:
            message = "Others share the hybrid in which it trains."
            raise BadInput.of("Priority", "priority", message, "Ask an operator to change it.")
        part = self._spec_of(run_id, submodel).model_dump(mode="json", exclude_none=True)
        parse_run({"submodels": [part | {"priority": priority}]})
        state = self._store.commands.issue(run_id, submodel, Verb.PRIORITY, {"priority": priority})
        self._forecasts.renew(run_id, RunChange(priorities={submodel: priority}))
        return state

    @permission(Role.SUBMITTER, Own.PART, about="to {epochs}")
    def set_epochs(self, run_id: str, submodel: str, epochs: int) -> State:
        """Change the number of epochs of a sub-model; raises `BadInput`, also if the sub-model is past them."""
        hyperparameters = self._spec_of(run_id, submodel).hyperparameters
        parse_hyperparameters(hyperparameters.model_dump(mode="json") | {"epochs": epochs})
        self._require_possible_epochs(self._row(run_id, submodel), hyperparameters, epochs)
        state = self._store.commands.issue(run_id, submodel, Verb.EPOCHS, {"epochs": epochs})
        self._forecasts.renew(run_id, RunChange(epochs={submodel: epochs}))
        return state

    @permission(Role.SUBMITTER, Own.RUN, about="to {devices}")
    def set_devices(self, run_id: str, submodel: str, devices: int) -> State:
        """Change the number of logical devices that compute the virtual nodes of a sub-model; raises `BadInput`.

        No bits change. Each device more needs the memory of a part, if they compute at once.
        """
        hyper = self._spec_of(run_id, submodel).hyperparameters
        if hyper.nodes is None:
            message, remedy = f"{submodel} has no virtual nodes.", "Submit it with the technique virtual_nodes."
            raise BadInput.of("Logical devices", "devices", message, remedy)
        parse_hyperparameters(with_nodes(hyper, devices=devices))
        self._require_room_for(run_id, submodel, devices)
        return self._store.commands.issue(run_id, submodel, Verb.DEVICES, {"devices": devices})

    @permission(Role.SUBMITTER, Own.RUN, about="to {deadline_s}")
    def set_deadline(self, run_id: str, submodel: str, deadline_s: float | None) -> State:
        """Change or remove the deadline of a sub-model, in seconds after its submission.

        Raises `BadInput`, under the policy `deadline` also for one that cannot hold or that breaks another.
        """
        part = self._spec_of(run_id, submodel).model_dump(mode="json", exclude_none=True)
        parse_run({"submodels": [part | {"deadline_s": deadline_s}]})
        run, rows = self._store.runs.get(run_id)
        if run.spec.get("policy", {}).get("name") == DEADLINES.name:
            require_change(run, rows, submodel, deadline_s, self._clock.utc_s())
        return self._store.commands.issue(run_id, submodel, Verb.DEADLINE, {"deadline_s": deadline_s})

    @permission(Role.SUBMITTER, Own.RUN, about="{names}")
    def reorder(self, run_id: str, names: Sequence[str]) -> State:
        """Reorder the sub-models of a run; raises `BadInput` if one is missing or unknown."""
        known = [row.name for row in self._store.runs.get(run_id)[1]]
        if sorted(names) != sorted(known):
            message = f"The order has to name each of {', '.join(known)} once."
            raise BadInput.of("Order", "names", message, "Name them all.")
        state = self._store.commands.issue(run_id, None, Verb.ORDER, {"names": list(names)})
        self._forecasts.renew(run_id, RunChange(order=names))
        return state

    @permission(Role.SUBMITTER, Own.RUN, about="{policy.name}")
    def set_policy(self, run_id: str, policy: PolicySpec) -> State:
        """Use another policy from the next step on; raises `BadInput` for an unknown one."""
        policy_named(policy.name, policy.parameters)
        state = self._store.commands.issue(run_id, None, Verb.POLICY, {"policy": policy.model_dump(mode="json")})
        self._forecasts.renew(run_id, RunChange(policy=policy))
        return state

    @permission(Role.SUBMITTER, Own.RUN, about="to {moves}")
    def set_moves(self, run_id: str, moves: Literal["same", "any"]) -> State:
        """Say on which devices a run may go on: of the kind on which it was trained, or on any."""
        return self._store.commands.issue(run_id, None, Verb.MOVES, {"moves": moves})

    # -- observe

    @permission(Role.VIEWER, Own.SHARE, audited=False)
    def runs(self, *, within_s: float = 0.0) -> tuple[RunView, ...]:
        """Runs that this person has a part in, the newest first, without curves.

        `within_s`, as in `observe`: an answer of at most this age will do, which those who watch share.
        """
        return self._reader.all(within_s)

    @permission(Role.VIEWER, Own.SHARE, audited=False)
    def current(self, *, within_s: float = 0.0) -> tuple[RunView, ...]:
        """Of `runs` those that are open, ended last, or failed in the last three days, and some of their equals."""
        return self._reader.current(within_s)

    @permission(Role.VIEWER, Own.SHARE, audited=False)
    def observe(self, run_id: str, *, within_s: float = 0.0) -> RunView:
        """One run with its curves, newest slices, memory and events."""
        return self._reader.view(run_id, within_s=within_s)

    @permission(Role.VIEWER, Own.SHARE, audited=False)
    def graph_dot(self, run_id: str) -> str:
        """The hybrid graph as DOT text; empty until the worker has merged the networks."""
        run, parts = self._store.runs.get(run_id)
        actor = self.guard.actor
        graph = "" if run.hybrid is None else run.hybrid.graph
        return graph_dot(graph, owners_of(run, parts).names_of(actor.id) if actor.sees_only_own else None)

    @permission(Role.SUBMITTER, Own.SHARE)
    def document(self, run_id: str) -> dict[str, object]:
        """The document that `unifiednn train --json` prints."""
        return self._reader.document(run_id)

    @permission(Role.SUBMITTER, Own.SHARE)
    def metrics_csv(self, run_id: str) -> str:
        """Every point of every curve of a run, as CSV text."""
        return metrics_csv(self._reader.view(run_id, last_slices=0, most_epochs=None))

    @permission(Role.SUBMITTER, Own.SHARE)
    def spec_document(self, run_id: str) -> dict[str, object]:
        """The spec of a run, with files named by content."""
        return self._reader.view(run_id).spec

    @permission(Role.VIEWER, audited=False)
    def listing(self, query: RunQuery) -> RunLines:
        """One page of the runs that this person has a part in, filtered and sorted."""
        return self._reader.page(query)

    @permission(Role.VIEWER, audited=False)
    def compared(self, page: int = 0, rows: int = PAGE_ROWS) -> HybridLines:
        """One page of the hybrids that this person has a part in, with their baselines."""
        return self._reader.hybrids(page, rows)

    @permission(Role.VIEWER, audited=False)
    def run_choices(self) -> RunChoices:
        """What the filters of the list can choose, and how many runs there are."""
        return self._reader.choices()

    # -- delete

    @permission(Role.SUBMITTER, Own.RUN, audited=False)
    def deletion(self, run_id: str) -> DeletionView:
        """What the deletion of a run would take away."""
        run, rows = self._store.runs.get(run_id)
        alive = run.hybrid is not None and run.hybrid.heartbeat_at_s is not None
        refused = "" if State(run.state) in ENDED and not alive else f"It is {run.state}. Stop it first."
        others = self._reader.equal_to(run) if run.fingerprint else []
        taken = self._store.library.taken_from(run_id, self.guard.actor.id if self.guard.actor.sees_only_own else None)
        return DeletionView(
            run_id=run_id,
            name=run.name,
            refused=refused,
            models=sum(row.artifact is not None for row in rows),
            checkpoints=sum(row.checkpoint_step is not None for row in rows),
            size_bytes=size_of(self._home.run(run_id)),
            others=sum(other.id != run_id for other, _ in others),
            taken=tuple(taken),
        )

    @permission(Role.SUBMITTER, Own.RUN)
    def delete_run(self, run_id: str) -> None:
        """Delete a run that has ended: rows, figures, models and checkpoints. What others need stays.

        Files of the library stay, and so do other runs of its fingerprint, which can no longer be compared with it. A
        deletion that a crash interrupts is finished at the next start. Raises `BadInput` for a run that has not ended.
        """
        removal.remove_run(self._home, self._store, run_id)

    @permission(Role.SUBMITTER, audited=False)
    def delete(self, run_ids: Sequence[str]) -> None:
        """Delete several runs, each as `delete_run` does; the first refusal ends it."""
        for run_id in run_ids:
            self.delete_run(run_id)

    # -- download

    @permission(Role.SUBMITTER, audited=False)
    def trained(self) -> tuple[TrainedView, ...]:
        """Trained models that this person can download, the newest first."""
        owner = self.guard.actor.id if self.guard.actor.sees_only_own else None
        return tuple(map(trained_view, self._store.kept.of_runs(KeptQuery("model", counted=False), owner).rows))

    @permission(Role.SUBMITTER, Own.SHARE, audited=False)
    def finished(self, run_id: str) -> tuple[str, ...]:
        """Names of this person's sub-models that have a trained model; raises `NotFound` if there is none."""
        actor, rows = self.guard.actor, self._store.runs.get(run_id)[1]
        own = [row for row in rows if not actor.sees_only_own or row.owner == actor.id]
        names = tuple(row.name for row in own if row.artifact is not None)
        if not names:
            raise NotFound(f"Run '{run_id}' has no trained model yet. It appears after training.")
        return names

    @permission(Role.SUBMITTER, Own.PART)
    def artifact(self, run_id: str, submodel: str) -> Path:
        """The zip of a trained model; raises `NotFound` before it is written."""
        return self._artifact(run_id, submodel)

    @permission(Role.SUBMITTER, Own.PART, here=True)
    def download(self, run_id: str, submodel: str, folder: Path) -> Path:
        """Copy the zip of a trained model into a folder, atomically; raises `OSError`."""
        return copy_into(self._artifact(run_id, submodel), folder)

    @permission(Role.SUBMITTER, Own.PART)
    def checkpoint(self, run_id: str, submodel: str) -> Path:
        """The newest checkpoint of a sub-model, one file; raises `NotFound` before the first one."""
        return self._checkpoint(run_id, submodel)

    @permission(Role.SUBMITTER, Own.PART, here=True)
    def download_checkpoint(self, run_id: str, submodel: str, folder: Path) -> Path:
        """Copy a sub-model's newest checkpoint into a folder, atomically; raises `OSError`."""
        while True:
            newest = self._checkpoint(run_id, submodel)
            try:
                return copy_into(newest, folder, f"{run_id}-{submodel}-{newest.name}")
            except FileNotFoundError:
                if newest.exists():  # the folder is missing
                    raise  # else a newer checkpoint replaced it during the copy

    def _artifact(self, run_id: str, submodel: str) -> Path:
        artifact = self._row(run_id, submodel).artifact
        if artifact is None:
            raise NotFound(f"Run '{run_id}' has no trained model of '{submodel}' yet. It appears after training.")
        return self._home.kept(run_id, f"models/{artifact}")

    def _checkpoint(self, run_id: str, submodel: str) -> Path:
        self._row(run_id, submodel)
        newest = self._home.newest_checkpoint(run_id, submodel)
        if newest is None:
            raise NotFound(f"Sub-model '{submodel}' of run '{run_id}' has no checkpoint yet.")
        return newest

    def _row(self, run_id: str, submodel: str) -> SubModelRow:
        rows = {row.name: row for row in self._store.runs.get(run_id)[1]}
        if submodel not in rows:
            raise NotFound(f"Run '{run_id}' has no sub-model '{submodel}'. It has: {', '.join(rows)}.")
        return rows[submodel]

    def _spec_of(self, run_id: str, submodel: str) -> SubModelSpec:
        self._row(run_id, submodel)
        spec = RunSpec.model_validate(self._store.runs.get(run_id)[0].spec)
        return next(part for part in spec.submodels if part.name == submodel)

    def _require_room_for(self, run_id: str, submodel: str, devices: int) -> None:
        """Raise `BadInput` if more logical devices need more memory than is predicted to be left."""
        document = self._store.runs.get(run_id)[0].prediction
        budget_bytes, parts = document.get("budget_bytes"), {part.name: part for part in parts_of(document)}
        if budget_bytes is None or submodel not in parts:
            return
        need = parts[submodel].need
        more_bytes = need.with_devices(devices).transient_bytes - need.transient_bytes
        left_bytes = max(0, budget_bytes - int(document["peak_bytes"]))
        if more_bytes > left_bytes:
            message = f"{devices} logical devices of {submodel} need {memory_text(more_bytes)} more than now, "
            message += f"and {memory_text(left_bytes)} are left."
            raise BadInput.of("Too little memory", "devices", message, "Give fewer devices.")

    @staticmethod
    def _require_possible_epochs(row: SubModelRow, hyperparameters: Hyperparameters, epochs: int) -> None:
        steps_per_epoch = row.steps_total // row.epochs
        begun = -(-row.steps_done // steps_per_epoch)
        if epochs < begun:
            raise BadInput.of("Epochs", "epochs", f"{row.name} is already in epoch {begun}.", f"Give {begun} or more.")
        failing = hyperparameters.failing_after
        per_step = hyperparameters.lr_scheduler is not None and hyperparameters.lr_scheduler.per == "step"
        needed = epochs * (steps_per_epoch if per_step else 1)
        if failing is not None and needed > failing[2]:
            torch_class, argument, longest = failing
            message = f"{torch_class} ends with an error after {argument} = {longest}; {epochs} epochs take {needed}."
            raise BadInput.of("Epochs", "epochs", message, "Give fewer epochs, or start a new run from its checkpoint.")
