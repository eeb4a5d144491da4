"""Orders to runs, as one person may give them."""

from collections.abc import Sequence
from pathlib import Path

from unifiednn_core.access.scoped_files import ScopedFiles
from unifiednn_core.control import Told
from unifiednn_core.lifecycle import State
from unifiednn_core.service import PolicyCard
from unifiednn_core.spec import PolicySpec, RunSpec, SubModelSpec
from unifiednn_core.views.comparison import Mode


class ScopedOrders(ScopedFiles):
    """The part of the scoped service that has things done. Methods are those of `Service`."""

    def policies(self) -> tuple[PolicyCard, ...]:
        """All policies with their parameters."""
        with self._may("policies") as service:
            return service.policies()

    @property
    def supervisor_alive(self) -> bool:
        """Whether queued runs are being started."""
        with self._may("supervisor_alive") as service:
            return service.supervisor_alive

    def start_supervisor(self) -> None:
        """Begin to start queued runs and to notice dead workers; safe to call again."""
        with self._may("start_supervisor") as service:
            service.start_supervisor()

    def submit(
        self,
        spec: RunSpec,
        base: Path | None = None,
        *,
        baselines: Sequence[Mode] = (),
        baselines_first: bool = False,
        told: Told | None = None,
    ) -> str:
        """Check a spec, keep its files, and queue it; returns the run's id. Raises `BadInput` with all findings."""
        with self._may("submit", about=spec.name) as service:
            known, base = self._with_own_files(spec, base), base or Path.cwd()
            return service.submit(known, base, baselines=baselines, baselines_first=baselines_first, told=told)

    def submit_arm(self, spec: RunSpec, base: Path, mode: Mode) -> str:
        """Queue one arm of a comparison, always a fresh one; returns its id."""
        with self._may("submit_arm", about=f"{mode} {spec.name}") as service:
            return service.submit_arm(self._with_own_files(spec, base), base, mode)

    def start_baseline(self, run_id: str, mode: Mode, *, fresh: bool = False) -> str:
        """Queue a baseline of a run, or take an equal one of this person's; returns its id."""
        with self._may("start_baseline", run_id, about=mode) as service:
            return service.start_baseline(run_id, mode, fresh=fresh)

    def add_submodel(
        self, run_id: str, submodel: SubModelSpec, base: Path | None = None, *, told: Told | None = None
    ) -> State:
        """Let one more network join a run. Into somebody else's run only an operator puts it."""
        with self._may("add_submodel", run_id, about=submodel.name) as service:
            known = self._with_own_files(RunSpec(submodels=(submodel,)), base).submodels[0]
            return service.add_submodel(run_id, known, base, told=told)

    def pause(self, run_id: str, submodel: str | None = None) -> State:
        """Pause a run or one sub-model at its next step boundary; its device memory is freed."""
        with self._may("pause", run_id, submodel) as service:
            return service.pause(run_id, submodel)

    def resume(self, run_id: str, submodel: str | None = None) -> State:
        """Let a paused run or sub-model, or an interrupted run, go on where it was."""
        with self._may("resume", run_id, submodel) as service:
            return service.resume(run_id, submodel)

    def save(self, run_id: str, submodel: str | None = None) -> State:
        """Write a checkpoint of a run's sub-models, or of one, now."""
        with self._may("save", run_id, submodel) as service:
            return service.save(run_id, submodel)

    def stop(self, run_id: str, submodel: str | None = None) -> State:
        """End a run or one sub-model and keep what was learnt."""
        with self._may("stop", run_id, submodel) as service:
            return service.stop(run_id, submodel)

    def discard(self, run_id: str, submodel: str | None = None) -> State:
        """End a run or one sub-model and keep nothing of it: no model, no checkpoint."""
        with self._may("discard", run_id, submodel) as service:
            return service.discard(run_id, submodel)

    def retry(
        self,
        run_id: str,
        submodel: str,
        *,
        learning_rate: float | None = None,
        batch_split: int | None = None,
        from_start: bool = False,
    ) -> State:
        """Try a failed sub-model again, from its last checkpoint or its start, with what is given changed."""
        with self._may("retry", run_id, submodel) as service:
            return service.retry(
                run_id, submodel, learning_rate=learning_rate, batch_split=batch_split, from_start=from_start
            )

    def set_priority(self, run_id: str, submodel: str, priority: int) -> State:
        """Change the priority of a sub-model, which is the business of everybody in the run."""
        with self._may("set_priority", run_id, submodel, f"to {priority}") as service:
            return service.set_priority(run_id, submodel, priority)

    def set_epochs(self, run_id: str, submodel: str, epochs: int) -> State:
        """Change for how many epochs a sub-model trains."""
        with self._may("set_epochs", run_id, submodel, f"to {epochs}") as service:
            return service.set_epochs(run_id, submodel, epochs)

    def reorder(self, run_id: str, names: Sequence[str]) -> State:
        """Put the sub-models of a run into another order."""
        with self._may("reorder", run_id, about=" ".join(names)) as service:
            return service.reorder(run_id, names)

    def set_policy(self, run_id: str, policy: PolicySpec) -> State:
        """Let another policy decide from the next step on."""
        with self._may("set_policy", run_id, about=policy.name) as service:
            return service.set_policy(run_id, policy)
