"""The process that asks for things, as a person at a terminal would; it may be killed at any of them."""

import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, TypeVar

from sqlalchemy.exc import OperationalError

from unifiednn_core.drill.journal import Entry, What
from unifiednn_core.drill.requests import Request
from unifiednn_core.drill.scene import Scene
from unifiednn_core.errors import BadInput, IllegalTransition, NotFound
from unifiednn_core.lifecycle import ENDED, State
from unifiednn_core.service import Service
from unifiednn_core.spec import PolicySpec

PATIENCE_S = 30.0
POLL_S = 0.02

Answer = TypeVar("Answer")
_Do = Callable[[Service, str, str | None, Any], object]
_VERBS: Mapping[str, _Do] = {
    "pause": lambda service, run_id, name, _: service.pause(run_id, name),
    "resume": lambda service, run_id, name, _: service.resume(run_id, name),
    "save": lambda service, run_id, name, _: service.save(run_id, name),
    "priority": lambda service, run_id, name, value: service.set_priority(run_id, name or "", value),
    "epochs": lambda service, run_id, name, value: service.set_epochs(run_id, name or "", value),
    "order": lambda service, run_id, _, value: service.reorder(run_id, value),
    "policy": lambda service, run_id, _, value: service.set_policy(run_id, PolicySpec.model_validate(value)),
}


def carry_out(service: Service, scene: Scene, request: Request) -> None:
    """Ask for one thing after the other, and write down each that was acknowledged, after it was."""
    for place, (verb, submodel, value) in enumerate(request.asks, request.first):

        def tell(what: What, command: int | None = None, text: str = "", number: int = place) -> None:
            entry = Entry(what=what, role="commands", pid=os.getpid(), number=number, command=command, text=text)
            scene.journal.write(entry)

        if verb == "download":
            _download(service, scene, request.run_id, tell)
            continue
        if verb == "resume":
            _await_pause(scene, request.run_id, submodel)
        before = _newest_command(scene, request.run_id)
        try:
            persistently(lambda: _VERBS[verb](service, request.run_id, submodel, value))  # noqa: B023  (called at once)
        except (IllegalTransition, NotFound, BadInput) as error:
            tell("refused", text=f"{verb}: {error}")
        else:
            newest = _newest_command(scene, request.run_id)
            tell("asked", newest if newest != before else None, f"{verb} {submodel or ''} {value or ''}")


def persistently(ask: Callable[[], Answer]) -> Answer:
    """Ask again while the store is locked, as a person would; nothing was acknowledged then."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except OperationalError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(POLL_S)


def _await_pause(scene: Scene, run_id: str, submodel: str | None) -> None:
    """Wait until what was paused rests; a resume is refused before."""
    deadline_s = time.monotonic() + PATIENCE_S
    waiting = (
        "SELECT count(*) FROM commands WHERE run_id = ? AND submodel IS ? AND verb = 'pause' AND applied_at_s IS NULL"
    )
    ended = {state.value for state in ENDED - {State.INTERRUPTED}}
    with closing(sqlite3.connect(scene.database)) as database:
        while time.monotonic() < deadline_s:
            [(state,)] = database.execute("SELECT state FROM runs WHERE id = ?", (run_id,))
            [(open_pauses,)] = database.execute(waiting, (run_id, submodel))
            if not open_pauses or state in ended:
                return
            time.sleep(POLL_S)


def _newest_command(scene: Scene, run_id: str) -> int | None:
    with closing(sqlite3.connect(scene.database)) as database:
        [(newest,)] = database.execute("SELECT max(id) FROM commands WHERE run_id = ?", (run_id,))
    return None if newest is None else int(newest)


def _download(service: Service, scene: Scene, run_id: str, tell: Callable[..., None]) -> None:
    """Download every model that is done."""
    scene.downloads.mkdir(exist_ok=True)
    for part in service.observe(run_id).submodels:
        if part.artifact is not None:
            service.download(run_id, part.name, scene.downloads)
            tell("downloaded", text=part.name)
