"""Workers as processes: their start, identity and liveness, and a mark of what they did last."""

import contextlib
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import psutil

from unifiednn_core.base.paths import Home
from unifiednn_core.machine import allocator
from unifiednn_core.runtime import confinement
from unifiednn_core.store.schema import HYBRID
from unifiednn_core.store.workers import WorkerIdentity

# The runner of a baseline must not load torch: it would share pages with the processes that it measures.
WORKERS = {HYBRID: "unifiednn_core.runtime.worker"}
BASELINES = "unifiednn_core.compare.runner"
MARK_BYTES = 256
_START_TICKS = 19  # of the fields after the command's name; proc_pid_stat(5) numbers it 22


class Launcher(Protocol):
    """What a supervisor needs to start workers; `LocalLauncher` says what each method does."""

    def start(self, run_id: str, threads: int, mode: str) -> int | None: ...  # noqa: D102

    def exit_code(self, run_id: str) -> int | None: ...  # noqa: D102

    def last_mark(self, run_id: str) -> str | None: ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102


class LocalLauncher:
    """Starts workers as processes of this machine. They outlive the process that starts them."""

    def __init__(self, home: Home):
        self._home = home
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, run_id: str, threads: int, mode: str) -> int:
        """Start the worker in a new session, confined where that works; returns its process id.

        It logs to a file, because a pipe may fill up.
        """
        for ended in self._processes.values():
            ended.poll()  # leaves no zombies behind
        self._home.at_work(run_id).unlink(missing_ok=True)  # the mark of an earlier worker is not this one's
        folder = self._home.run(run_id)
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", WORKERS.get(mode, BASELINES), str(self._home.root), run_id]
        with (folder / "worker.log").open("ab") as log:
            self._processes[run_id], pid = confinement.start(
                command, self._home, run_id, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=worker_environment(threads) if mode == HYBRID else training_environment(threads),
                start_new_session=True,
            )  # fmt: skip
        return pid

    def exit_code(self, run_id: str) -> int | None:
        """Exit code of the worker; None while it lives, or if this launcher did not start it."""
        process = self._processes.get(run_id)
        return None if process is None else process.poll()

    def last_mark(self, run_id: str) -> str | None:
        """Mark of the last worker of a run, as text of `store.places`; None if unknown."""
        return last_mark(self._home.at_work(run_id))

    def close(self) -> None:
        """Detach from the workers; they continue."""
        for process in self._processes.values():
            if process.poll() is None:
                process.returncode = 0  # it outlives us on purpose; without this, Popen warns about a running child
        self._processes.clear()


def training_environment(threads: int) -> dict[str, str]:
    """Environment of a process that trains: a worker, or one script of a baseline."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # repeatable matrix products; must be set before CUDA starts
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML's order, so the sampled GPU is the one that trains
    }


def worker_environment(threads: int) -> dict[str, str]:
    """Environment of a worker. Its allocator is no baseline's: those are plain PyTorch, as most people run it."""
    environment = training_environment(threads)
    return {**environment, **allocator.preloading(environment)}


def boot_id() -> str:
    """Id of the current boot of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"{psutil.boot_time():.0f}"


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


class WorkMark:
    """Marks what a worker is doing, in a file that outlives it, to find a step that kills workers repeatedly.

    The file is mapped into memory: a mark before every step costs a microsecond and no disk access. On a full disk
    there is no mark.
    """

    def __init__(self, path: Path):
        self._memory: mmap.mmap | bytearray = bytearray(MARK_BYTES)
        self._line = ""
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w+b") as file:
                file.write(bytes(MARK_BYTES))  # writing to a mapped page without room on the disk kills the process
                file.flush()
                self._memory = mmap.mmap(file.fileno(), MARK_BYTES)

    def set(self, submodel: str, doing: str) -> None:
        """Mark what the worker does with a sub-model: "step 120"."""
        self._line = f"{submodel}:{doing}"
        self._write(self._line)

    def operator(self, name: str) -> None:
        """Add the operator of torch that runs next."""
        self._write(f"{self._line} in {name}")

    def clear(self) -> None:
        """Mark that the worker is idle."""
        self._memory[:] = bytes(MARK_BYTES)

    def _write(self, line: str) -> None:
        self._memory[:] = line.encode()[:MARK_BYTES].ljust(MARK_BYTES, b"\0")


def last_mark(path: Path) -> str | None:
    """Mark of the last worker, as text of `store.places`; None if it was idle or never got that far."""
    try:
        return path.read_bytes().rstrip(b"\0").decode("utf-8", errors="replace") or None
    except OSError:
        return None
