"""What a fork of the fork server can be: worker, server, a person giving orders, or a check of the result."""

import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tools.chaos import faults, pool_roles
from tools.chaos.cluster import roles as cluster
from tools.chaos.faults import spoil
from tools.chaos.plan import short_demo
from tools.chaos.scene import ForkRequest, JournalEntry, Role, Scene, What
from tools.chaos.serving import ForkLauncher, await_pause, newest_command, open_service, persistently, sha256_of
from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import BadInput, IllegalTransition, NotFound
from unifiednn_core.base.failpoints import Fault
from unifiednn_core.runtime import worker
from unifiednn_core.runtime.launchers import Launcher, LocalLauncher
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.run import PolicySpec

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
            entry = JournalEntry(
                what=what,
                role="commands",
                pid=os.getpid(),
                number=number,
                command=command,
                text=text,
                run_id=request.run_id,
            )
            scene.journal.write(entry)

        if verb == "download":
            _download(service, scene, request.run_id, tell)
            continue
        if verb == "resume":
            await_pause(scene, request.run_id, submodel)
        before = newest_command(scene, request.run_id)
        try:
            persistently(lambda: _VERBS[verb](service, request.run_id, submodel, value))  # noqa: B023  (called at once)
        except (IllegalTransition, NotFound, BadInput) as error:
            tell("refused", text=f"{verb}: {error}")
        else:
            newest = newest_command(scene, request.run_id)
            tell("asked", newest if newest != before else None, f"{verb} {submodel or ''} {value or ''}")


def _download(service: Service, scene: Scene, run_id: str, tell: Callable[..., None]) -> None:
    """Download every model that is done."""
    scene.downloads.mkdir(exist_ok=True)
    for part in service.runs.observe(run_id).submodels:
        if part.artifact is not None:
            service.runs.download(run_id, part.name, scene.downloads)
            tell("downloaded", text=part.name)


_PR_SET_PDEATHSIG = 1  # prctl(2)


def role_of(request: ForkRequest) -> Role:
    """Who a request brings up."""
    match request.do:
        case "worker" | "server" | "agent" | "commands" as role:
            return role
        case "people":
            return "commands"
        case _:
            return "check"


def play(request: ForkRequest, socket_path: Path) -> int:
    """Be the process that a request asks for; returns its exit code."""
    scene = Scene(Path(request.folder), request.host)
    os.environ.update(scene.settings)
    cluster.settle()
    _settle(scene.home.log(request.run_id) if request.do == "worker" else scene.log(request.do))
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
        entry = JournalEntry(
            what="struck",
            role=role_of(request),
            pid=os.getpid(),
            number=request.number,
            point=fault.point,
            action=fault.action,
        )
        scene.journal.write(entry)

    failpoints.arm(fault, struck)


def _damage(scene: Scene, request: ForkRequest) -> None:
    path = spoil(scene.home, request.run_id, request.damage, request.share)
    if path is not None:
        scene.journal.write(
            JournalEntry(
                what="damaged",
                role="worker",
                pid=os.getpid(),
                number=request.number,
                action=request.damage,
                point=path.parent.name,
                text=path.name,
                run_id=path.parents[2].name,
            )
        )


def _train(scene: Scene, request: ForkRequest, _socket_path: Path) -> int:
    return worker.train(scene.home, request.run_id)


def _serve(scene: Scene, launcher: Launcher) -> int:
    service = open_service(scene, launcher)
    service.start_supervisor()
    threading.Event().wait()
    return 0


def _ask(scene: Scene, request: ForkRequest, socket_path: Path) -> int:
    service = persistently(lambda: open_service(scene, ForkLauncher(scene, socket_path)))
    give_orders(service, scene, request)
    return 0


def _prepare(scene: Scene, request: ForkRequest, _socket_path: Path) -> int:
    """Submit the shortened demo; nothing trains it yet."""
    service = open_service(scene, LocalLauncher(scene.home))
    service.runs.submit(short_demo(service.library.prepare_samples()))
    return 0


def _check(scene: Scene, request: ForkRequest, _socket_path: Path) -> int:
    """Read every trained model back from its zip, and write down what it is."""
    service = open_service(scene, LocalLauncher(scene.home))
    archives = {
        part.name: service.runs.artifact(request.run_id, part.name)
        for part in service.runs.observe(request.run_id).submodels
        if part.artifact is not None
    }
    hashes = {name: sha256_of(path) for name, path in archives.items()}
    scene.hashes.write_text(json.dumps(hashes), encoding="utf-8")
    return 0


_PARTS: Mapping[str, Callable[[Scene, ForkRequest, Path], int]] = {
    "worker": _train,
    "server": lambda scene, request, path: _serve(scene, ForkLauncher(scene, path)),
    "baseline": lambda scene, request, path: _serve(scene, LocalLauncher(scene.home)),
    "commands": _ask,
    "prepare": _prepare,
    "check": _check,
    "prepare_pool": lambda scene, request, _: pool_roles.prepare(scene, request),
    "prepare_alone": lambda scene, request, _: pool_roles.prepare_alone(scene, request),
    "people": lambda scene, request, path: pool_roles.people(scene, request, path),
    "check_pool": lambda scene, request, _: pool_roles.check(scene),
    "agent": lambda scene, request, path: cluster.serve_host(scene, path),
    "share_files": lambda scene, request, _: cluster.share_files(scene),
    "read_pages": lambda scene, request, _: cluster.read_pages(scene),
}
