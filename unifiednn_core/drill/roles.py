"""What the processes of an exercise are: a worker, a server, one that asks for things, one that checks models.

All run in forks of the zygote.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import safetensors.torch

from unifiednn_core import failpoints
from unifiednn_core.clock import RealClock
from unifiednn_core.drill import asking, clock
from unifiednn_core.drill.damage import spoil
from unifiednn_core.drill.demo import EPOCHS, short_demo
from unifiednn_core.drill.journal import Entry, Role
from unifiednn_core.drill.launcher import ForkLauncher
from unifiednn_core.drill.requests import Request
from unifiednn_core.drill.scene import Scene
from unifiednn_core.failpoints import Fault
from unifiednn_core.runtime import worker
from unifiednn_core.runtime.launchers import Launcher, LocalLauncher
from unifiednn_core.service import Service
from unifiednn_core.store import Store
from unifiednn_core.weights import state_sha256

DEATHS_LIMIT = 1_000_000
"""Here it is never a sub-model's fault that workers die at its first steps."""

_PR_SET_PDEATHSIG = 1  # prctl(2)


def role_of(request: Request) -> Role:
    """Who a request brings up."""
    return request.do if request.do in ("worker", "server", "commands") else "check"


def play(request: Request, socket_path: Path) -> int:
    """Be the process that a request asks for; returns its exit code."""
    scene = Scene(Path(request.folder))
    _settle(scene.home.run(request.run_id) / "worker.log" if request.do == "worker" else scene.log(request.do))
    if request.do == "worker" and request.damage:
        _damage(scene, request)
    if request.fresh:
        _exchange(scene, request)
    if scene.clock.exists():
        clock.follow(scene.clock)
    if request.fault:
        _arm(scene, request)
    return _PARTS[request.do](scene, request, socket_path)


def _settle(log: Path) -> None:
    """A session of one's own, and prints that go to a file."""
    os.setsid()
    if sys.platform == "linux":  # nobody is left behind, however the zygote ends
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


def _exchange(scene: Scene, request: Request) -> None:
    """Become a new interpreter, as the local launcher starts it."""
    command = [sys.executable, "-m", "unifiednn_core.runtime.worker", str(scene.home.root), request.run_id]
    os.execve(sys.executable, command, {**os.environ, failpoints.VARIABLE: request.fault})


def _arm(scene: Scene, request: Request) -> None:
    parsed = Fault.parse(request.fault)
    fault = Fault(parsed.point, parsed.action, parsed.hit, request.times)

    def struck(fault: Fault) -> None:
        entry = Entry(what="struck", role=role_of(request), pid=os.getpid(), number=request.number,
                      point=fault.point, action=fault.action)  # fmt: skip
        scene.journal.write(entry)

    failpoints.arm(fault, struck)


def _damage(scene: Scene, request: Request) -> None:
    path = spoil(scene.home, request.run_id, request.damage, request.share)
    if path is not None:
        scene.journal.write(
            Entry(what="damaged", role="worker", pid=os.getpid(), number=request.number, action=request.damage,
                  point=path.parent.name, text=path.name)
        )  # fmt: skip


def _train(scene: Scene, request: Request, _socket_path: Path) -> int:
    return worker.train(scene.home, request.run_id)


def _serve(scene: Scene, launcher: Launcher) -> int:
    service = _service(scene, launcher)
    service.start_supervisor()
    threading.Event().wait()
    return 0


def _ask(scene: Scene, request: Request, socket_path: Path) -> int:
    service = asking.persistently(lambda: _service(scene, ForkLauncher(scene, socket_path)))
    asking.carry_out(service, scene, request)
    return 0


def _prepare(scene: Scene, request: Request, _socket_path: Path) -> int:
    """Hand in the demo, cut short, without anybody who would train it."""
    service = _service(scene, LocalLauncher(scene.home))
    service.submit(short_demo(service.prepare_samples(), request.epochs or EPOCHS))
    return 0


def _check(scene: Scene, request: Request, _socket_path: Path) -> int:
    """Read every trained model back from its zip, and write down what it is."""
    service = _service(scene, LocalLauncher(scene.home))
    archives = {part.name: service.artifact(request.run_id, part.name)
                for part in service.observe(request.run_id).submodels if part.artifact is not None}  # fmt: skip
    hashes = {name: _sha256_of(path) for name, path in archives.items()}
    scene.hashes.write_text(json.dumps(hashes), encoding="utf-8")
    return 0


def _sha256_of(archive: Path) -> str:
    with zipfile.ZipFile(archive) as file:
        return state_sha256(safetensors.torch.load(file.read("weights.safetensors")))


def _service(scene: Scene, launcher: Launcher) -> Service:
    home, real = scene.home.create(), RealClock()
    return Service(home, Store.open(home, real), launcher, real, deaths_limit=DEATHS_LIMIT)


_PARTS: Mapping[str, Callable[[Scene, Request, Path], int]] = {
    "worker": _train,
    "server": lambda scene, request, path: _serve(scene, ForkLauncher(scene, path)),
    "baseline": lambda scene, request, path: _serve(scene, LocalLauncher(scene.home)),
    "commands": _ask,
    "prepare": _prepare,
    "check": _check,
}
