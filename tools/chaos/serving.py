"""A service as the processes of an exercise open it: its workers are forks, and nobody is to blame for their deaths."""

import time
import zipfile
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import safetensors.torch
from sqlalchemy.exc import OperationalError

from tools.chaos.rows import NotOpenNow, asking, rows
from tools.chaos.scene import ForkRequest, Scene, ask
from unifiednn_core.base.clock import RealClock
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.runtime.launchers import Launcher, last_mark
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.store import Store
from unifiednn_core.store.workers import RestartLimits

PATIENCE_S = 30.0
POLL_S = 0.02

Answer = TypeVar("Answer")


class ForkLauncher:
    """Workers as forks of a process that has torch loaded already. They outlive the process that asks for them."""

    def __init__(self, scene: Scene, socket_path: Path):
        self._scene, self._socket_path = scene, socket_path
        self._pids: dict[str, int] = {}

    def start(self, run_id: str, threads: int, mode: str) -> int | None:
        """Start the worker of a run; the fork server already knows its plan."""
        request = ForkRequest(
            do="worker", folder=str(self._scene.folder), host=self._scene.host, run_id=run_id, threads=threads
        )
        pid = ask(self._socket_path, request)
        if pid is not None:
            self._pids[run_id] = pid
        return pid

    def exit_code(self, run_id: str) -> int | None:
        """Exit code of a worker that was started here and has ended."""
        pid = self._pids.get(run_id)
        return None if pid is None else ask(self._socket_path, ForkRequest(do="code", pid=pid))

    def close(self) -> None:
        """Let go of the workers; they go on."""
        self._pids.clear()

    def forget_ended(self, held: Collection[str]) -> None:
        """The fork server forgets nothing."""

    def last_mark(self, run_id: str) -> str | None:
        """What the last worker of a run did last, as `NAME:DOING`."""
        return last_mark(self._scene.home.at_work(run_id))


LIMITS = RestartLimits(same_step=1_000_000, same_operator=1_000_000, futile=1_000_000, first_wait_s=0.0)
"""Here it is never a sub-model's fault that workers die at its first steps."""


def persistently(ask: Callable[[], Answer]) -> Answer:
    """Ask again while the store is locked or away, as a person would; nothing was acknowledged then."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except (OperationalError, NotOpenNow):
            if time.monotonic() > deadline_s:
                raise
            time.sleep(POLL_S)


def await_pause(scene: Scene, run_id: str, submodel: str | None) -> None:
    """Wait until what was paused rests; a resume is refused before."""
    deadline_s = time.monotonic() + PATIENCE_S
    waiting = (
        "SELECT count(*) FROM commands WHERE run_id = ? AND coalesce(submodel, '') = ? AND verb = 'pause'"
        " AND applied_at_s IS NULL"
    )
    ended = {state.value for state in ENDED - {State.INTERRUPTED}}
    while time.monotonic() < deadline_s:
        with suppress(NotOpenNow), asking(scene.url) as ask_store:
            [(state,)] = ask_store("SELECT state FROM runs WHERE id = ?", run_id)
            [(open_pauses,)] = ask_store(waiting, run_id, submodel or "")
            if not open_pauses or state in ended:
                return
        time.sleep(POLL_S)


def newest_command(scene: Scene, run_id: str) -> int | None:
    """Id of the last command of a run."""
    [(newest,)] = rows(scene.url, "SELECT max(id) FROM commands WHERE run_id = ?", run_id)
    return None if newest is None else int(newest)


def open_service(scene: Scene, launcher: Launcher) -> Service:
    """Open the home of a scene."""
    home, real = scene.home.create(), RealClock()
    store = Store(scene.url, real)
    return Service(home, store, Supervisor(store, launcher, real, limits=LIMITS), real)


def sha256_of(archive: Path) -> str:
    """Hash of the weights in a downloaded zip."""
    with zipfile.ZipFile(archive) as file:
        return state_sha256(safetensors.torch.load(file.read("weights.safetensors")))
