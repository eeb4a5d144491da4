"""A service that answers from invented runs and remembers what it was asked to do."""

import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.ui.fake_views import (
    NAMES,
    STEPS_PER_EPOCH,
    demo_spec,
    ended,
    failed,
    interrupted,
    library,
    mid_flight,
    queued,
    run,
    sha,
    submodel,
)
from unifiednn_core.control import Told
from unifiednn_core.errors import BadInput, Finding, IntakeFailed, NotFound
from unifiednn_core.lifecycle import Event, State, actions, next_state, submodel_actions
from unifiednn_core.scheduling.registry import PolicyCard, describe, policy_named
from unifiednn_core.server_folders import ServerFile
from unifiednn_core.spec import PolicySpec, RunSpec, SubModelSpec
from unifiednn_core.views.comparison import Comparison, Mode
from unifiednn_core.views.memory import Prediction
from unifiednn_core.views.runs import CommandView, FileView, RunView, TrainedView


@dataclass(frozen=True)
class FakeSubModelReport:
    name: str
    format: str = "exported"
    parameters: int = 9_326
    weights_bytes: int = 37_304
    input_shape: tuple[int | None, ...] = (1, 8, 8)
    samples: int = 1_437
    test_samples: int | None = 360
    classes: int | None = 10
    steps_per_epoch: int = STEPS_PER_EPOCH
    operators: tuple[str, ...] = ()


@dataclass(frozen=True)
class FakeCheckReport:
    findings: tuple[Finding, ...]
    submodels: dict[str, FakeSubModelReport]
    prediction: Prediction | None = None


@dataclass
class FakeService:
    """Answers from lists that a test may change; remembers what it was asked to do."""

    listed: list[RunView] = field(default_factory=lambda: [mid_flight(), queued(), ended(), failed(), interrupted()])
    held: list[FileView] = field(default_factory=lambda: list(library()))
    findings: tuple[Finding, ...] = ()
    drafts: dict[str, dict[str, object]] = field(default_factory=dict)
    done: list[tuple[object, ...]] = field(default_factory=list)
    submitted: list[RunSpec] = field(default_factory=list)
    plans: list[tuple[tuple[Mode, ...], bool]] = field(default_factory=list)
    """Baselines of each submission, and whether they run first."""
    sent: dict[str, tuple[str, bytes, tuple[str, ...]]] = field(default_factory=dict)
    failing: IntakeFailed | None = None
    """What reading a file ends with, whatever it holds."""
    """Uploads that have arrived: name, content and kinds."""
    on_server: tuple[ServerFile, ...] = ()
    compared: Comparison | None = None
    predicted: Prediction | None = None
    supervisor_alive: bool = True

    def start_supervisor(self) -> None:
        pass

    def files(self) -> tuple[FileView, ...]:
        return tuple(self.held)

    def import_file(self, filename: str, chunks: Iterable[bytes], kinds: Sequence[str] = ()) -> FileView:
        content = b"".join(chunks)
        if content == b"broken":
            raise BadInput.of("Not a model", field=filename, message="This is no model.", remedy="Export it again.")
        kind = "checkpoint" if "checkpoint" in kinds else kinds[0]
        file = replace(library()[0], filename=filename, kind=kind, sha256=sha(filename), size_bytes=len(content))
        self.held.append(file)
        return file

    def finish_upload(self, upload_id: str) -> FileView:
        if self.failing is not None:
            raise self.failing
        filename, content, kinds = self.sent.pop(upload_id)
        return self.import_file(filename, [content], kinds)

    def server_files(self, suffixes: Sequence[str] = ()) -> tuple[ServerFile, ...]:
        return self.on_server

    def import_server_file(self, name: str, kinds: Sequence[str]) -> FileView:
        shown = next(file.shown for file in self.on_server if file.name == name)
        return self.import_file(Path(shown).name, [b"content"], kinds)

    def prepare_samples(self) -> RunSpec:
        return demo_spec()

    def check(self, spec: RunSpec) -> FakeCheckReport:
        reports = {s.name: FakeSubModelReport(s.name) for s in spec.submodels}
        return FakeCheckReport(self.findings, reports, self.predicted)

    def submit(
        self,
        spec: RunSpec,
        *,
        baselines: Sequence[Mode] = (),
        baselines_first: bool = False,
        told: Told | None = None,
    ) -> str:
        if any(finding.severity == "error" for finding in self.findings):
            raise BadInput(self.findings)
        if told is not None:
            told(self.findings)
        self.submitted.append(spec)
        self.plans.append((tuple(baselines), baselines_first))
        parts = tuple(submodel(at, s.name, 0, State.QUEUED) for at, s in enumerate(spec.submodels))
        run_id = f"r-new-{len(self.submitted)}"
        self.listed.insert(0, run(run_id, State.QUEUED, parts, name=spec.name, queue_position=2))
        return run_id

    def runs(self) -> tuple[RunView, ...]:
        return tuple(map(with_actions, self.listed))

    def observe(self, run_id: str) -> RunView:
        for view in self.listed:
            if view.run_id == run_id:
                return with_actions(view)
        raise NotFound(f"There is no run '{run_id}'.")

    def comparable(self, run_id: str) -> tuple[RunView, ...]:
        of = self.observe(run_id)
        equal = (view for view in self.runs() if of.fingerprint and view.fingerprint == of.fingerprint)
        return tuple(equal) or (of,)

    def comparison(self, run_id: str) -> Comparison:
        if self.compared is None or self.observe(run_id).fingerprint != self.compared.fingerprint:
            raise NotFound(f"Run '{run_id}' is a baseline of no hybrid that is here.")
        return self.compared

    def comparison_document(self, run_id: str) -> dict[str, object]:
        return {"name": self.comparison(run_id).name}

    def report(self, run_id: str) -> str:
        return f"<!doctype html><title>{self.comparison(run_id).name}</title>"

    def start_baseline(self, run_id: str, mode: Mode, *, fresh: bool = False) -> str:
        self.done.append(("baseline", run_id, mode))
        alive = (State.COMPLETED, State.RUNNING, State.QUEUED)
        known = [view for view in self.comparable(run_id) if view.mode == mode and view.state in alive]
        if known:
            return known[0].run_id
        made = replace(queued(), run_id=f"r-{mode}-new", mode=mode, fingerprint=self.observe(run_id).fingerprint)
        self.listed.insert(0, made)
        return made.run_id

    def pause(self, run_id: str, submodel: str | None = None) -> None:
        self._apply(Event.PAUSE, run_id, submodel)

    def resume(self, run_id: str, submodel: str | None = None) -> None:
        self._apply(Event.RESUME, run_id, submodel)

    def stop(self, run_id: str, submodel: str | None = None) -> None:
        self._apply(Event.STOP, run_id, submodel)

    def discard(self, run_id: str, submodel: str | None = None) -> None:
        self._apply(Event.DISCARD, run_id, submodel)

    def save(self, run_id: str, submodel: str | None = None) -> None:
        self._apply(Event.SAVE, run_id, submodel)

    def retry(
        self,
        run_id: str,
        submodel: str,
        *,
        learning_rate: float | None = None,
        batch_split: int | None = None,
        from_start: bool = False,
    ) -> None:
        changes = {"learning_rate": learning_rate, "batch_split": batch_split, "from_start": from_start}
        self._apply(Event.RETRY, run_id, submodel, {key: value for key, value in changes.items() if value})

    def set_priority(self, run_id: str, submodel: str, priority: int) -> None:
        self._ask(run_id, submodel, "priority", priority)

    def set_epochs(self, run_id: str, submodel: str, epochs: int) -> None:
        self._ask(run_id, submodel, "epochs", epochs)

    def reorder(self, run_id: str, names: Sequence[str]) -> None:
        self._ask(run_id, None, "order", list(names))

    def set_policy(self, run_id: str, policy: PolicySpec) -> None:
        policy_named(policy.name, policy.parameters)  # raises BadInput as the real one does
        self._ask(run_id, None, "policy", policy.model_dump())

    def add_submodel(
        self, run_id: str, submodel: SubModelSpec, base: Path | None = None, *, told: Told | None = None
    ) -> None:
        if any(finding.severity == "error" for finding in self.findings):
            raise BadInput(self.findings)
        if told is not None:
            told(self.findings)
        self._ask(run_id, None, "add", submodel)

    def checkpoint(self, run_id: str, submodel: str) -> Path:
        path = Path(tempfile.gettempdir()) / f"unifiednn-fake-{run_id}-{submodel}.safetensors"
        path.write_bytes(bytes(8))
        return path

    def trained(self) -> tuple[TrainedView, ...]:
        return tuple(
            TrainedView(run_id=view.run_id, run_name=view.name, submodel=s.name, filename=s.artifact,
                        size_bytes=s.artifact_bytes or 0, state_sha256=s.state_sha256 or "",
                        test_accuracy=s.test_accuracy, created_at_s=view.created_at_s)
            for view in self.listed
            for s in view.submodels
            if s.artifact
        )  # fmt: skip

    def artifact(self, run_id: str, submodel: str) -> Path:
        path = Path(tempfile.gettempdir()) / f"unifiednn-fake-{run_id}-{submodel}.zip"
        path.write_bytes(b"PK\x05\x06" + bytes(18))  # an empty zip
        return path

    def document(self, run_id: str) -> dict[str, object]:
        return {"run_id": run_id}

    def graph_dot(self, run_id: str) -> str:
        boxes = "".join(f'input -> "{name}"; "{name}" -> output;' for name in NAMES)
        return f'digraph {{ rankdir=LR; bgcolor="transparent"; node [shape=box, style="rounded"]; {boxes} }}'

    def save_draft(self, document: dict[str, object], draft_id: str | None = None) -> str:
        draft_id = draft_id or f"d{len(self.drafts)}"
        self.drafts[draft_id] = document
        return draft_id

    def draft(self, draft_id: str) -> dict[str, object]:
        if draft_id not in self.drafts:
            raise NotFound(f"There is no draft '{draft_id}'.")
        return self.drafts[draft_id]

    def delete_draft(self, draft_id: str) -> None:
        del self.drafts[draft_id]

    def policies(self) -> tuple[PolicyCard, ...]:
        return describe()

    def architecture_defaults(self, name: str) -> dict[str, object]:
        return {"width": 64}

    def architectures(self) -> tuple[str, ...]:
        return ("lenet", "mlp", "resnet", "transformer")

    def _apply(self, event: Event, run_id: str, submodel: str | None, *details: object) -> None:
        view = self.observe(run_id)
        thing = next((s for s in view.submodels if s.name == submodel), view)
        state = next_state(submodel or view.name, thing.state, event)  # raises IllegalTransition as the real one does
        self.done.append((event.value, run_id, submodel, *details))
        if submodel is None:
            changed = replace(view, state=state)
        else:
            parts = tuple(replace(s, state=state) if s.name == submodel else s for s in view.submodels)
            changed = replace(view, submodels=parts)
        self._put(changed)

    def _ask(self, run_id: str, submodel: str | None, what: str, value: object) -> None:
        view = self.observe(run_id)
        self.done.append((what, run_id, submodel, value))
        command = CommandView(submodel=submodel, text=f"{what} {value}", issued_at_s=time.time())
        self._put(replace(view, waiting_commands=(*view.waiting_commands, command)))

    def _put(self, changed: RunView) -> None:
        places = [place for place, view in enumerate(self.listed) if view.run_id == changed.run_id]
        self.listed[places[0]] = changed


def with_actions(view: RunView) -> RunView:
    """What can be done, after the states that the view has now."""
    parts = tuple(replace(s, actions=submodel_actions(view.state, s.state)) for s in view.submodels)
    return replace(view, actions=actions(view.state), submodels=parts)
