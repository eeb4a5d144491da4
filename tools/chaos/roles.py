"""What a fork of the fork server can be: worker, server, a person giving orders, or a check of the result."""

import ctypes
import json
import os
import signal
import sqlite3
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
from sqlalchemy.exc import OperationalError

from tools.chaos import faults
from tools.chaos.faults import spoil
from tools.chaos.plan import short_demo
from tools.chaos.scene import ForkRequest, JournalEntry, Role, Scene, What, ask
from unifiednn_core.base import failpoints
from unifiednn_core.base.clock import RealClock
from unifiednn_core.base.errors import BadInput, IllegalTransition, NotFound
from unifiednn_core.base.failpoints import Fault
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.runtime import worker
from unifiednn_core.runtime.launchers import Launcher, LocalLauncher, last_mark
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import PolicySpec
from unifiednn_core.store import Store
from unifiednn_core.store.workers import RestartLimits


class ForkLauncher:
    """Workers as forks of a process that has torch loaded already. They outlive the process that asks for them."""

    def __init__(self, scene: Scene, socket_path: Path):
        self._scene, self._socket_path = scene, socket_path
        self._pids: dict[str, int] = {}

    def start(self, run_id: str, threads: int, mode: str) -> int | None:
        """Start the worker of a run; the fork server already knows its plan."""
        request = ForkRequest(do="worker", folder=str(self._scene.folder), run_id=run_id, threads=threads)
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

    def last_mark(self, run_id: str) -> str | None:
        """What the last worker of a run did last, as `NAME:DOING`."""
        return last_mark(self._scene.home.at_work(run_id))


PATIENCE_S = 30.0
POLL_S = 0.02

Answer = TypeVar("Answer")
_Do = Callable[[Service, str, str | None, Any], object]
_VERBS: Mapping[str, _Do] = {
    "pause": lambda service, run_id, name, _: service.runs.pause(run_id, name),
    "resume": lambda service, run_id, name, _: service.runs.resume(run_id, name),
    "save": lambda service, run_id, name, _: service.runs.save(run_id, name),
    "priority": lambda service, run_id, name, value: service.runs.set_priority(run_id, name or "", value),
    "epochs": lambda service, run_id, name, value: service.runs.set_epochs(run_id, name or "", value),
    "order": lambda service, run_id, _, value: service.runs.reorder(run_id, value),
    "policy": lambda service, run_id, _, value: service.runs.set_policy(run_id, PolicySpec.model_validate(value)),
}


def give_orders(service: Service, scene: Scene, request: ForkRequest) -> None:
    """Ask for one thing after the other, and write down each that was acknowledged, after it was."""
    for place, (verb, submodel, value) in enumerate(request.asks, request.first):

        def tell(what: What, command: int | None = None, text: str = "", number: int = place) -> None:
            entry = JournalEntry(what=what, role="commands", pid=os.getpid(), number=number, command=command, text=text)
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
    for part in service.runs.observe(run_id).submodels:
        if part.artifact is not None:
            service.runs.download(run_id, part.name, scene.downloads)
            tell("downloaded", text=part.name)


LIMITS = RestartLimits(same_step=1_000_000, same_operator=1_000_000, futile=1_000_000, first_wait_s=0.0)
"""Here it is never a sub-model's fault that workers die at its first steps."""

_PR_SET_PDEATHSIG = 1  # prctl(2)


def role_of(request: ForkRequest) -> Role:
    """Who a request brings up."""
    return request.do if request.do in ("worker", "server", "commands") else "check"


def play(request: ForkRequest, socket_path: Path) -> int:
    """Be the process that a request asks for; returns its exit code."""
    scene = Scene(Path(request.folder))
    _settle(scene.home.run(request.run_id) / "worker.log" if request.do == "worker" else scene.log(request.do))
    if request.do == "worker" and request.damage:
        _damage(scene, request)
    if request.fresh:
        _exchange(scene, request)
    if scene.clock.exists():
        faults.follow(scene.clock)
    if request.fault:
        _arm(scene, request)
    return _PARTS[request.do](scene, request, socket_path)


def _settle(log: Path) -> None:
    """A session of one's own, and prints that go to a file."""
    os.setsid()
    if sys.platform == "linux":  # no child outlives the fork server
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    log.parent.mkdir(parents=True, exist_ok=True)
    nothing, written = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for place, handle in enumerate((nothing, written, written)):
        os.dup2(handle, place)
    os.close(nothing)
    os.close(written)


def _exchange(scene: Scene, request: ForkRequest) -> None:
    """Become a new interpreter, as the local launcher starts it."""
    command = [sys.executable, "-m", "unifiednn_core.runtime.worker", str(scene.home.root), request.run_id]
    os.execve(sys.executable, command, {**os.environ, failpoints.VARIABLE: request.fault})


def _arm(scene: Scene, request: ForkRequest) -> None:
    parsed = Fault.parse(request.fault)
    fault = Fault(parsed.point, parsed.action, parsed.hit, request.times)

    def struck(fault: Fault) -> None:
        entry = JournalEntry(what="struck", role=role_of(request), pid=os.getpid(), number=request.number,
                      point=fault.point, action=fault.action)  # fmt: skip
        scene.journal.write(entry)

    failpoints.arm(fault, struck)


def _damage(scene: Scene, request: ForkRequest) -> None:
    path = spoil(scene.home, request.run_id, request.damage, request.share)
    if path is not None:
        scene.journal.write(
            JournalEntry(what="damaged", role="worker", pid=os.getpid(), number=request.number, action=request.damage,
                  point=path.parent.name, text=path.name)
        )  # fmt: skip


def _train(scene: Scene, request: ForkRequest, _socket_path: Path) -> int:
    return worker.train(scene.home, request.run_id)


def _serve(scene: Scene, launcher: Launcher) -> int:
    service = _service(scene, launcher)
    service.start_supervisor()
    threading.Event().wait()
    return 0


def _ask(scene: Scene, request: ForkRequest, socket_path: Path) -> int:
    service = persistently(lambda: _service(scene, ForkLauncher(scene, socket_path)))
    give_orders(service, scene, request)
    return 0


def _prepare(scene: Scene, request: ForkRequest, _socket_path: Path) -> int:
    """Submit the shortened demo; nothing trains it yet."""
    service = _service(scene, LocalLauncher(scene.home))
    service.runs.submit(short_demo(service.library.prepare_samples()))
    return 0


def _check(scene: Scene, request: ForkRequest, _socket_path: Path) -> int:
    """Read every trained model back from its zip, and write down what it is."""
    service = _service(scene, LocalLauncher(scene.home))
    archives = {part.name: service.runs.artifact(request.run_id, part.name)
                for part in service.runs.observe(request.run_id).submodels if part.artifact is not None}  # fmt: skip
    hashes = {name: _sha256_of(path) for name, path in archives.items()}
    scene.hashes.write_text(json.dumps(hashes), encoding="utf-8")
    return 0


def _sha256_of(archive: Path) -> str:
    with zipfile.ZipFile(archive) as file:
        return state_sha256(safetensors.torch.load(file.read("weights.safetensors")))


def _service(scene: Scene, launcher: Launcher) -> Service:
    home, real = scene.home.create(), RealClock()
    store = Store.open(home, real)
    return Service(home, store, Supervisor(store, launcher, real, limits=LIMITS), real)


_PARTS: Mapping[str, Callable[[Scene, ForkRequest, Path], int]] = {
    "worker": _train,
    "server": lambda scene, request, path: _serve(scene, ForkLauncher(scene, path)),
    "baseline": lambda scene, request, path: _serve(scene, LocalLauncher(scene.home)),
    "commands": _ask,
    "prepare": _prepare,
    "check": _check,
}
