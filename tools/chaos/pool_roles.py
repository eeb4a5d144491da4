"""What processes of the drill with shared hybrids do: people who submit and give orders, and a check of the result."""

import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tools.chaos.plan import CHECKPOINT_STEPS, NEVER_S, short
from tools.chaos.pool_plan import BY_NAME, TEAM, Submission
from tools.chaos.rows import change, rows
from tools.chaos.scene import ForkRequest, JournalEntry, Scene, What
from tools.chaos.serving import POLL_S, ForkLauncher, await_pause, newest_command, open_service, persistently, sha256_of
from unifiednn_core.base.clock import RealClock, stamp
from unifiednn_core.base.errors import BadInput, IllegalTransition, NotFound
from unifiednn_core.base.paths import SHARED_RUN
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.run import CheckpointSpec, RunSpec
from unifiednn_core.spec.sharing import Sharing
from unifiednn_core.store.schema import Base, RunRow, SubModelRow

HOPELESS = 1e30
"""A learning rate with which a network diverges."""
DRAINED_WITHIN_S = 3.0
_LEARNING_RATE = 0.05
REFUSED = 2
_EMPTIED = ("submodels", "runs", "hybrids", "events")


def spec_of(demo: RunSpec, one: Submission) -> RunSpec:
    """The spec that a person submits."""
    parts = []
    for part in demo.submodels:
        if part.name in one.epochs:
            cut = short(part, one.epochs[part.name])
            rate = {"learning_rate": HOPELESS} if one.diverges else {}
            hyperparameters = cut.hyperparameters.model_copy(update={"seed": one.seed(part.name), **rate})
            parts.append(cut.model_copy(update={"owner": one.owner, "hyperparameters": hyperparameters}))
    spec = RunSpec(name=one.name, device="cpu", threads=1, hybrid="shared", submodels=tuple(parts))
    if not one.private:
        return spec
    checkpoint = CheckpointSpec(every_s=NEVER_S, every_steps=CHECKPOINT_STEPS)
    return spec.model_copy(update={"hybrid": "private", "checkpoint": checkpoint})


def prepare(scene: Scene, request: ForkRequest) -> int:
    """Make a home with teams, in which all that people will submit has been checked and imported.

    What a submission would queue is kept in a file, because a check takes seconds; to submit then is to queue it.
    """
    service = open_service(scene, LocalLauncher(scene.home))
    demo, checked = service.library.prepare_samples(), {}
    for name, _, _ in request.asks:
        run, rows = service.store.runs.get(service.runs.submit(spec_of(demo, BY_NAME[name])))
        checked[name] = {"run": _columns(run), "rows": [_columns(row) for row in rows]}
    _checked(scene).write_text(json.dumps(checked), encoding="utf-8")
    change(scene.url, *(f"DELETE FROM {table}" for table in _EMPTIED))
    service.store.people.set_sharing(Sharing.TEAM, by="")
    for person in TEAM:
        service.store.people.give_team(person, "drill", by="")
    return 0


def prepare_alone(scene: Scene, request: ForkRequest) -> int:
    """Queue single networks as private runs, which train alone; the run's name says which one, of how many epochs."""
    service = open_service(scene, LocalLauncher(scene.home))
    for number, (name, part, epochs) in enumerate(request.asks):
        run, rows = _rows(scene, name, f"alone-{number}")
        [row] = [row for row in rows if row.name == part]
        [spec] = [one for one in run.spec["submodels"] if one["name"] == part]
        more = {"epochs": epochs, **({"learning_rate": _LEARNING_RATE} if BY_NAME[name].diverges else {})}
        spec = {**spec, "hyperparameters": spec["hyperparameters"] | more}
        run.spec = {**run.spec, "hybrid": "private", "submodels": [spec]}
        run.name, run.shared, row.arrival = f"{name}/{part}/{epochs}", False, 0
        row.steps_total, row.epochs = row.steps_total // row.epochs * epochs, epochs
        service.store.runs.add((run, [row]))
    return 0


def check(scene: Scene) -> int:
    """Read every trained model of every run back from its zip, and write down what it is, by run and name."""
    service = open_service(scene, LocalLauncher(scene.home))
    hashes = {
        f"{run.id}/{row.name}": sha256_of(service.runs.artifact(run.id, row.name))
        for run, rows in service.store.runs.listed()
        for row in rows
        if row.artifact is not None
    }
    scene.hashes.write_text(json.dumps(hashes), encoding="utf-8")
    return 0


def _checked(scene: Scene) -> Path:
    return scene.home.root / "checked.json"


def _columns(row: Base) -> dict[str, Any]:
    return {column.name: getattr(row, column.name) for column in row.__table__.columns}


def _rows(scene: Scene, name: str, run_id: str) -> tuple[RunRow, list[SubModelRow]]:
    """New rows of a submission."""
    checked = json.loads(_checked(scene).read_text(encoding="utf-8"))[name]
    run = RunRow(**checked["run"] | {"id": run_id, "created_at_s": RealClock().utc_s()})
    return run, [SubModelRow(**columns | {"run_id": run_id}) for columns in checked["rows"]]


def people(scene: Scene, request: ForkRequest, socket_path: Path) -> int:
    """Ask for one thing after the other, and write down each that was acknowledged, after it was."""
    try:
        service = persistently(lambda: open_service(scene, ForkLauncher(scene, socket_path)))
    except BadInput as error:  # there is no store to be had now
        print(error, flush=True)  # noqa: T201
        return REFUSED
    for place, (verb, whom, value) in enumerate(request.asks, request.first):

        def tell(what: What, text: str, run_id: str = "", command: int | None = None, number: int = place) -> None:
            entry = JournalEntry(
                what=what, role="commands", pid=os.getpid(), number=number, command=command, text=text, run_id=run_id
            )
            scene.journal.write(entry)

        text = f"{verb} {whom or ''} {value or ''}"
        try:
            if verb in _OF_RUN:
                name, _, part = (whom or "").partition("/")
                run_id, submodel = persistently(lambda: _run_called(scene, name)), part or None  # noqa: B023
                if verb == "resume":
                    await_pause(scene, run_id, submodel)
                before = persistently(lambda: newest_command(scene, run_id))  # noqa: B023
                persistently(lambda: _OF_RUN[verb](service, run_id, submodel, value))  # noqa: B023  (called at once)
                newest = persistently(lambda: newest_command(scene, run_id))  # noqa: B023
                tell("asked", text, run_id, newest if newest != before else None)
            else:
                found = persistently(lambda: _OF_SERVER[verb](service, scene, whom, value))  # noqa: B023
                tell("done", text, found)
        except (IllegalTransition, NotFound, BadInput) as error:
            tell("refused", f"{text}: {error}")
    return 0


_Do = Callable[[Service, str, str | None, Any], object]
_OF_RUN: Mapping[str, _Do] = {
    "pause": lambda service, run_id, part, _: service.runs.pause(run_id, part),
    "resume": lambda service, run_id, part, _: service.runs.resume(run_id, part),
    "stop": lambda service, run_id, part, _: service.runs.stop(run_id, part),
    "discard": lambda service, run_id, part, _: service.runs.discard(run_id, part),
    "save": lambda service, run_id, part, _: service.runs.save(run_id, part),
    "priority": lambda service, run_id, part, value: service.runs.set_priority(run_id, part or "", value),
    "epochs": lambda service, run_id, part, value: service.runs.set_epochs(run_id, part or "", value),
    "retry": lambda service, run_id, part, _: service.runs.retry(
        run_id, part or "", learning_rate=_LEARNING_RATE, from_start=True
    ),
}


def _run_called(scene: Scene, name: str) -> str:
    found = rows(scene.url, "SELECT id FROM runs WHERE name = ? ORDER BY created_at_s", name)
    if not found:
        raise NotFound(f"{name} has not been submitted yet.")
    return str(found[0][0])


def _submit(service: Service, scene: Scene, whom: str, _: Any) -> str:
    kind = "" if BY_NAME[whom].private else SHARED_RUN
    run, rows = _rows(scene, whom, f"{kind}{stamp(RealClock().utc_s())}-{secrets.token_hex(4)}")
    service.store.runs.add((run, rows))
    return run.id


def _move(service: Service, scene: Scene, _: str | None, share: float) -> str:
    """Ask one that trains in a shared hybrid to leave it."""
    placed = [
        (hybrid.id, one.row.run_id, one.row.name)
        for hybrid, members in service.store.hybrids.listed()
        if hybrid.shared
        for one in members
    ]
    if not placed:
        raise NotFound("Nothing trains in a shared hybrid.")
    hybrid_id, run_id, name = placed[int(share * len(placed))]
    service.store.workers.ask_to_leave(hybrid_id, [(run_id, name)], "the drill moves it")
    return run_id


def _drain(service: Service, scene: Scene, _: str | None, share: float) -> str:
    """Drain a device, one with work if there is one; wait until it is empty, but not for long."""
    busy = [hybrid.device for hybrid in service.store.workers.held() if hybrid.device]
    names = busy or [row.name for row in service.store.devices.all()]
    if not names:
        raise NotFound("No supervisor has seen a device yet.")
    name = names[int(share * len(names))]
    service.store.devices.set_state(name, "draining")
    deadline_s = time.monotonic() + DRAINED_WITHIN_S
    while time.monotonic() < deadline_s and any(hybrid.device == name for hybrid in service.store.workers.held()):
        time.sleep(POLL_S)
    return ""


def _ready(service: Service, scene: Scene, *_: Any) -> str:
    """Let all devices be used again."""
    for row in service.store.devices.all():
        if row.state == "draining":
            service.store.devices.set_state(row.name, "ready")
    return ""


_OF_SERVER: Mapping[str, Callable[[Service, Scene, Any, Any], str]] = {
    "submit": _submit,
    "move": _move,
    "drain": _drain,
    "ready": _ready,
}
