"""A fork server: it loads torch once and forks workers and servers, which takes milliseconds instead of seconds."""

import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from tools.chaos.plan import Round
from tools.chaos.roles import play, role_of
from tools.chaos.scene import ForkRequest, JournalEntry, Role, Scene, ask, named, read_request
from tools.machine import ToolFailed

_PACKAGE_PARENT = Path(__file__).resolve().parents[2]
_ENDS_WITHIN_S = 30.0
_SENDS_WITHIN_S = 1.0
"""A process that was stopped while it asked must not keep all others waiting."""
LOADED_LATE = ("torch._dynamo", "torch.export", "safetensors.torch", "unifiednn_core.formats.exported")
"""What training loads at its first use."""


class ForkServerClient:
    """Sends requests to a running fork server."""

    def __init__(self, socket_path: Path):
        self._socket_path = socket_path

    def ask(self, request: ForkRequest) -> int | None:
        """Send a request; raises `ToolFailed` if the fork server is gone."""
        try:
            return ask(self._socket_path, request)
        except OSError as error:
            raise ToolFailed(f"The fork server is gone ({error}). Start the chaos test again.") from error

    def plan(self, rounds: tuple[Round, ...]) -> None:
        """Tell it what happens to the workers that come next."""
        self.ask(ForkRequest(do="no_plans"))
        for number, part in enumerate(rounds):
            fault, damage = part.fault, part.damage
            fate = ForkRequest(
                do="next_worker",
                number=number,
                fresh=part.fresh,
                fault=named(fault),
                times=fault.times if fault else 1,
                damage=damage.how if damage else "",
                share=damage.share if damage else 0.0,
            )
            self.ask(fate)


@contextmanager
def fork_server(
    log: Path, *, loaded: Sequence[str] = LOADED_LATE, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[ForkServerClient]:
    """Run a fork server with these modules loaded during the block; its children end with it.

    `settings` are added to its environment.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UNIFIEDNN_")}
    environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **settings}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_PACKAGE_PARENT), environment.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, log.open("ab") as written:  # a socket's path is short
        socket_path = Path(folder) / "socket"
        command = [sys.executable, "-m", "tools.chaos.fork_server", str(socket_path), *loaded]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=written, env=environment
        ) as process:
            try:
                if process.stdout is None or not process.stdout.readline():
                    raise ToolFailed(f"The fork server did not start; {log} says why.")
                yield ForkServerClient(socket_path)
            finally:
                if process.stdin is not None:
                    process.stdin.close()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_ENDS_WITHIN_S)
                process.kill()


Job = Callable[[], int]
READY = b"ready\n"


@dataclass(frozen=True, slots=True)
class Child:
    """A fork that has not ended."""

    role: Role
    scene: Scene
    number: int
    run_id: str


class ForkServer:
    """Answers one request after the other; forks, kills and reaps."""

    def __init__(self, socket_path: Path):
        self._socket_path = socket_path
        self._children: dict[int, Child] = {}
        self._codes: dict[int, int] = {}
        self._next_workers: deque[ForkRequest] = deque()

    def serve(self) -> Job | None:
        """Serve until standard input is closed. In a fork it returns what the fork has to be."""
        with ExitStack() as stack:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(self._socket_path))
            listener.listen(64)
            woken, wake = (stack.enter_context(end) for end in socket.socketpair())
            for end in (woken, wake):
                end.setblocking(False)
            signal.signal(signal.SIGCHLD, lambda *_: None)
            for number in (signal.SIGINT, signal.SIGTERM):  # the chaos test also gets them, and then closes stdin
                signal.signal(number, signal.SIG_IGN)
            signal.set_wakeup_fd(wake.fileno())
            selector = stack.enter_context(selectors.DefaultSelector())
            for source in (listener, woken, sys.stdin):
                selector.register(source, selectors.EVENT_READ)
            os.write(1, READY)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if woken in ready:
                    woken.recv(4096)
                self._reap()
                if sys.stdin in ready:
                    self._end_all()
                    return None
                if listener in ready:
                    connection, _ = listener.accept()
                    connection.settimeout(_SENDS_WITHIN_S)
                    job = None
                    with connection, suppress(OSError, ValueError):  # the client may have been killed
                        job = self._answer(connection)
                    if job is not None:
                        return job

    def _answer(self, connection: socket.socket) -> Job | None:
        request = read_request(connection)
        match request.do:
            case "no_plans":
                self._next_workers.clear()
                value: int | None = 1
            case "next_worker":
                self._next_workers.append(request)
                value = 1
            case "kill":
                value = self._kill(request)
            case "signal_host":
                value = self._signal_host(request)
            case "code":
                value = self._codes.get(request.pid)
            case _:
                asked = self._with_its_fate(request) if request.do == "worker" else request
                value = self._fork(asked)
                if value == 0:
                    return lambda: play(asked, self._socket_path)
        connection.sendall(json.dumps(value).encode())
        return None

    def _with_its_fate(self, request: ForkRequest) -> ForkRequest:
        """Add to a worker what was planned for it; where nothing was, it trains in peace."""
        if not self._next_workers:
            return request
        fate = self._next_workers.popleft()
        return replace(
            request,
            number=fate.number,
            fresh=fate.fresh,
            fault=fate.fault,
            times=fate.times,
            damage=fate.damage,
            share=fate.share,
        )

    def _fork(self, request: ForkRequest) -> int:
        pid = os.fork()
        if pid:
            child = Child(role_of(request), Scene(Path(request.folder), request.host), request.number, request.run_id)
            self._children[pid] = child
            self._codes.pop(pid, None)  # of an earlier child: the system gives ids again
            entry = JournalEntry(
                what="started",
                role=child.role,
                pid=pid,
                number=request.number,
                fresh=request.fresh,
                run_id=request.run_id,
                host=request.host,
            )
            child.scene.journal.write(entry)
        return pid

    def _kill(self, request: ForkRequest) -> int:
        """Send a signal to a child. Only this process reaps children, so the id cannot belong to another process."""
        child = self._children.get(request.pid)
        if child is None:
            return 0
        action = signal.Signals(request.signal).name.lower()
        child.scene.journal.write(
            JournalEntry(
                what="shot", role=child.role, pid=request.pid, number=child.number, action=action, host=child.scene.host
            )
        )
        os.kill(request.pid, request.signal)
        return 1

    def _signal_host(self, request: ForkRequest) -> int:
        """Send a signal to all processes of a host, as when its power goes; returns how many there were."""
        here = [
            pid
            for pid, child in self._children.items()
            if (str(child.scene.folder), child.scene.host) == (request.folder, request.host)
        ]
        return sum(self._kill(replace(request, pid=pid)) for pid in here)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            code, child = os.waitstatus_to_exitcode(status), self._children.pop(pid)
            self._codes[pid] = code
            if child.scene.folder.is_dir():
                child.scene.journal.write(
                    JournalEntry(
                        what="ended",
                        role=child.role,
                        pid=pid,
                        number=child.number,
                        code=code,
                        run_id=child.run_id,
                        host=child.scene.host,
                    )
                )

    def _end_all(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)


def main() -> None:
    """Load the modules named on the command line, then serve on the socket named there."""
    for name in sys.argv[2:]:
        importlib.import_module(name)
    job = ForkServer(Path(sys.argv[1])).serve()
    if job is not None:
        code = job()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
