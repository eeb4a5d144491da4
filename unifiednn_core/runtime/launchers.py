"""Workers as processes: their start, identity and liveness, and a mark of what they did last."""

import contextlib
import logging
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

import psutil

from unifiednn_core.base.files import open_plain
from unifiednn_core.base.paths import Home
from unifiednn_core.machine import allocator, forks
from unifiednn_core.preflight.client import template
from unifiednn_core.runtime import confinement
from unifiednn_core.spec.run import MOST_LANES
from unifiednn_core.store.schema import HYBRID
from unifiednn_core.store.workers import WorkerIdentity

# The runner of a baseline must not load torch: it would share pages with the processes that it measures.
WORKERS = {HYBRID: "unifiednn_core.runtime.worker"}
BASELINES = "unifiednn_core.compare.runner"
RELAYED = "--relayed"
"""The argument of a worker whose store is elsewhere."""
_FORKED = "unifiednn_core.runtime.forked:work"
_JOINS_WITHIN_S = 20.0
MARK_BYTES = 256
_CREDENTIALS = ("RAY_", "AWS_", "AZURE_", "GOOGLE_APPLICATION_", "FSSPEC_")
"""Prefixes of variables with credentials of clusters and clouds, which no worker needs."""
_log = logging.getLogger(__name__)
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO of Linux: that of the machine, outside of containers
_START_TICKS = 19  # of the fields after the command's name; proc_pid_stat(5) numbers it 22


class LocalLauncher:
    """Starts workers as processes of this machine. They outlive the process that starts them.

    Workers of a hybrid start warm where this process has a template; all others load torch themselves. A baseline
    begins without a template beside it, which would lend it the pages of its libraries.
    """

    warm = True
    """Whether workers of a hybrid start warm; tests and benches switch it off."""

    def __init__(self, home: Home, *, relayed: bool = False):
        """With `relayed`, workers reach the store through a relay, this process, and die with it."""
        self._home, self._relayed = home, relayed
        self._workers: dict[str, subprocess.Popen[bytes] | _Fork] = {}

    def start(self, hybrid_id: str, threads: int, mode: str) -> int:
        """Start the worker in a new session, confined where that works; returns its process id.

        It logs to a file, because a pipe may fill up.
        """
        if (earlier := self._workers.pop(hybrid_id, None)) is not None:
            _let_go(earlier)
        self._home.at_work(hybrid_id).unlink(missing_ok=True)  # the mark of an earlier worker is not this one's
        folder = self._home.run(hybrid_id)
        folder.mkdir(parents=True, exist_ok=True)
        with opened_log(folder, self._home.log(hybrid_id).name) as log:
            if mode != HYBRID:
                template.retire()
            elif self.warm and template.ready():
                try:
                    self._workers[hybrid_id] = fork = self._fork(hybrid_id, threads, log.fileno())
                    return fork.pid
                except OSError as error:
                    _log.warning("The worker of %s starts cold: %s.", hybrid_id, error.strerror or error)
            relayed = [RELAYED] if self._relayed else []
            command = [sys.executable, "-m", WORKERS.get(mode, BASELINES), str(self._home.root), hybrid_id, *relayed]
            self._workers[hybrid_id], pid = confinement.start(
                command,
                self._home,
                hybrid_id,
                *(["--die-with-parent"] if self._relayed else []),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=worker_environment(threads) if mode == HYBRID else training_environment(threads),
                start_new_session=True,
            )
        return pid

    def _fork(self, hybrid_id: str, threads: int, log: int) -> "_Fork":
        """Have the worker forked, with the same walls around it; raises `OSError` if that does not work."""
        environment = training_environment(threads)
        with contextlib.ExitStack() as stack:
            walls: list[int] = []
            if not confinement.trial(self._home):
                if not forks.keeps_its_program():
                    raise OSError(None, "a fork could change the file of its interpreter")
                walls = stack.enter_context(confinement.namespaces(self._home, hybrid_id))
                environment = confinement.environment_inside(environment)
            how = (str(self._home.root), hybrid_id, environment, str(Path.cwd()))
            return _Fork.of(template.connect(_FORKED, *how, handles=(log, *walls), stays=True))

    def exit_code(self, hybrid_id: str) -> int | None:
        """Exit code of the worker; None while it lives, or if this launcher did not start it."""
        worker = self._workers.get(hybrid_id)
        return None if worker is None else worker.poll()

    def last_mark(self, hybrid_id: str) -> str | None:
        """Mark of the last worker of a hybrid, as text of `store.places`; None if unknown."""
        return last_mark(self._home.at_work(hybrid_id))

    def forget_ended(self, held: Collection[str]) -> None:
        """Forget workers that have ended, except those of `held` hybrids, whose exit codes may be asked for."""
        for hybrid_id in self._workers.keys() - held:
            if self._workers[hybrid_id].poll() is not None:
                del self._workers[hybrid_id]

    def close(self) -> None:
        """Detach from the workers; they continue."""
        for worker in self._workers.values():
            _let_go(worker)
        self._workers.clear()


class _Fork:
    """A worker that the template has forked."""

    def __init__(self, channel: socket.socket, pid: int):
        self.channel, self.pid = channel, pid
        self._identity = identity_of(pid)
        self._code: int | None = None

    @classmethod
    def of(cls, channel: socket.socket) -> "_Fork":
        """Let the fork begin, once it says that it stands where it should; raises `OSError` if it never does."""
        channel.settimeout(_JOINS_WITHIN_S)
        try:
            said = channel.recv(1024).decode("utf-8", "replace").partition("\n")[0]
            word, _, pid = said.partition(" ")
            if word != "joined":
                raise OSError(None, said.lstrip("!") or "the template died")
            fork = cls(channel, int(pid))
            channel.sendall(b"y")
        except (OSError, psutil.Error) as error:
            channel.close()  # a fork that is not told to begin ends
            raise error if isinstance(error, OSError) else OSError(None, "the fork died") from error
        channel.setblocking(False)
        return fork

    def poll(self) -> int | None:
        """Exit code, as of `Popen`: what the template said; if it died before, -1 once the worker is gone."""
        if self._code is None:
            try:
                said = self.channel.recv(64)
            except BlockingIOError:
                return None
            except OSError:
                said = b""
            if said.strip():
                self._code = int(said)
            elif not is_alive(self._identity):
                self._code = -1
            if self._code is not None:
                self.channel.close()
        return self._code


def training_environment(threads: int) -> dict[str, str]:
    """Environment of a process that trains: a worker, or one script of a baseline."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(_CREDENTIALS)},
        "OMP_NUM_THREADS": str(threads),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # repeatable matrix products; must be set before CUDA starts
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML's order, so the sampled GPU is the one that trains
    }


def worker_environment(threads: int) -> dict[str, str]:
    """Environment of a worker. Its allocator is no baseline's: those are plain PyTorch, as most people run it."""
    environment = training_environment(threads)
    return {**environment, **allocator.preloading(environment)}


def boot_id() -> str:
    """Id of the current boot of this machine; in a container with its PID namespace behind it, as `BOOT/INODE`."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = f"{psutil.boot_time():.0f}"
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return boot
    return boot if namespace == _FIRST_PID_NAMESPACE else f"{boot}/{namespace}"


def machine_of(boot_id: str) -> str:
    """What boots of a machine have in common in all its containers."""
    return boot_id.partition("/")[0]


def own_identity() -> WorkerIdentity:
    """Identity of the calling process."""
    return identity_of(os.getpid())


def identity_of(pid: int) -> WorkerIdentity:
    """Identity of a process of this machine. Raises `psutil.NoSuchProcess`."""
    return WorkerIdentity(pid, started_at_s(pid), boot_id())


def started_at_s(pid: int) -> float:
    """When a process started. Raises `psutil.NoSuchProcess`.

    On Linux these are seconds since boot, because a time of day changes when the clock is set.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return int(fields[_START_TICKS]) / os.sysconf("SC_CLK_TCK")
    except FileNotFoundError:
        return psutil.Process(pid).create_time()


def is_alive(worker: WorkerIdentity) -> bool:
    """Whether this very process still runs."""
    if worker.boot_id != boot_id():
        return False
    try:
        same = abs(started_at_s(worker.pid) - worker.started_at_s) < 1.0
        return same and psutil.Process(worker.pid).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False
    except psutil.AccessDenied:  # it exists
        return True


def is_elsewhere(worker: WorkerIdentity) -> bool:
    """Whether a process has another PID namespace of this very machine, so that its PID says nothing here."""
    here = boot_id()
    return worker.boot_id != here and machine_of(worker.boot_id) == machine_of(here)


class WorkMark:
    """Marks what each lane of a worker is doing, in a file that outlives it, to find a step that kills workers.

    The file is mapped into memory: a mark before every step costs a microsecond and no disk access. On a full disk
    there is no mark.
    """

    def __init__(self, path: Path):
        self._memory: mmap.mmap | bytearray = bytearray(MARK_BYTES * MOST_LANES)
        self._lines = [""] * MOST_LANES
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w+b") as file:
                file.write(bytes(len(self._memory)))  # a mapped page without room on the disk kills the process
                file.flush()
                self._memory = mmap.mmap(file.fileno(), len(self._memory))

    def set(self, lane: int, submodel: str, doing: str) -> None:
        """Mark what a lane (from 1) does with a sub-model: "step 120"; an empty text if it is done."""
        self._lines[lane - 1] = f"{submodel}:{doing}" if doing else ""
        self._write(lane, self._lines[lane - 1])

    def operator(self, lane: int, name: str) -> None:
        """Add the operator of torch that runs next."""
        self._write(lane, f"{self._lines[lane - 1]} in {name}")

    def clear(self) -> None:
        """Mark that the worker is idle."""
        self._memory[:] = bytes(len(self._memory))

    def _write(self, lane: int, line: str) -> None:
        end = lane * MARK_BYTES
        self._memory[end - MARK_BYTES : end] = line.encode()[:MARK_BYTES].ljust(MARK_BYTES, b"\0")


def opened_log(folder: Path, log: str) -> BinaryIO:
    """A log, to write at its end. What an earlier worker put in its place goes. Raises `OSError`."""
    if (folder / log).is_symlink() or not (folder / log).is_file():
        (folder / log).unlink(missing_ok=True)
    return os.fdopen(open_plain(folder, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def last_mark(path: Path) -> str | None:
    """Marks of the last worker, as text of `store.places`; None if it was idle or never got that far."""
    try:
        with os.fdopen(open_plain(path.parent, path.name), "rb") as file:
            content = file.read(MARK_BYTES * MOST_LANES)
    except OSError:
        return None
    marks = [content[start : start + MARK_BYTES].rstrip(b"\0") for start in range(0, len(content), MARK_BYTES)]
    return "\n".join(mark.decode("utf-8", errors="replace") for mark in marks if mark) or None


def _let_go(worker: "subprocess.Popen[bytes] | _Fork") -> None:
    """Hear no more of a worker, which may go on."""
    if isinstance(worker, _Fork):
        worker.channel.close()
    elif worker.poll() is None:
        worker.returncode = 0  # without this, Popen warns about a running child
