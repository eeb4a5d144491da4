"""The caller's side of the template process, which forks what would have to load torch first."""

import fcntl
import functools
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from unifiednn_core.machine import allocator
from unifiednn_core.machine.template import JOB, RETIRE, STAY

_PACKAGE_PARENT = Path(__file__).resolve().parents[2]
_START = "from unifiednn_core.machine.template import main; main()"
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV")
# What the interpreter and the libraries of torch read when they are loaded: a fork cannot change it any more.
_KEPT_GROUPS = (
    "ATEN_",
    "DNNL_",
    "GLIBC_",
    "GOMP_",
    "KMP_",
    "MALLOC_",
    "MKL_",
    "OMP_",
    "ONEDNN_",
    "PYTHON",
    "PYTORCH_",
    "TORCH_",
)
_FIXED = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1") | {
    "CUDA_VISIBLE_DEVICES": "",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # a question for GPUs must not start the driver
}
_TRIAL_S, _LOADS_WITHIN_S = 30.0, 20.0
_ENDS_WITHIN_S, _TAKES_WITHIN_S = 3.0, 10.0


class _Running(NamedTuple):
    """A template process, and our end of its socket."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    owner: int
    """Process that started it: a fork of that one leaves it alone."""
    environment: Mapping[str, str]

    @property
    def lives(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        self.control.close()
        if self.owner == os.getpid():
            try:
                self.process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:  # it hangs
                self.process.kill()
                self.process.wait()


class Template:
    """The template process of this process: started with the first use, and again after it has died."""

    def __init__(self, modules: Sequence[str]):
        """`modules` are loaded before it forks."""
        self._modules = tuple(modules)
        self._lock = threading.RLock()
        self._current: _Running | None = None
        self._loaded = False
        self._retired: list[_Running] = []

    @property
    def pid(self) -> int | None:
        """Its process id; None while there is none."""
        current = self._current
        return current.process.pid if current is not None and current.lives else None

    def start(self) -> None:
        """Start it unless it runs; does not wait until it has loaded its modules."""
        with self._lock:
            self._running()

    def ready(self) -> bool:
        """Whether it has loaded its modules, under the settings of now.

        One that has died is started again, but none that nobody has used. One that was retired is waited for, too: a
        worker that starts cold beside it would share pages with it that nobody counts.
        """
        with self._lock:
            if self._current is None and not self._retired:
                return False
            patience_s = _LOADS_WITHIN_S if self._current is None else 0.0
            current = self._running()
            if not self._loaded and select.select([current.control], [], [], patience_s)[0]:
                with suppress(OSError):
                    self._loaded = bool(current.control.recv(16))
            return self._loaded and current.environment == _environment()

    def connect(self, call: str, *arguments: object, handles: Sequence[int] = (), stays: bool = False) -> socket.socket:
        """Have a process forked, as `connect` of this module; raises `OSError`."""
        with self._lock:
            try:
                return connect(self._running().control, call, *arguments, handles=handles, stays=stays)
            except OSError:  # it died a moment ago
                return connect(self._start().control, call, *arguments, handles=handles, stays=stays)

    def retire(self) -> None:
        """Let it end with its last job. Forks that stay go on."""
        with self._lock:
            if self._current is not None:
                with suppress(OSError):
                    self._current.control.send(RETIRE)
                self._retired.append(self._current)
                self._current = None

    def stop(self) -> None:
        """End it with all its jobs. Forks that stay go on."""
        with self._lock:
            for running in (*self._retired, *([self._current] if self._current is not None else [])):
                running.close()
            self._retired, self._current = [], None

    def _running(self) -> _Running:
        return self._current if self._current is not None and self._current.lives else self._start()

    def _start(self) -> _Running:
        if self._current is not None:
            self._current.close()
        for ended in [running for running in self._retired if not running.lives]:
            self._retired.remove(ended)
            ended.close()
        environment, program = _environment(), sealed_interpreter()
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs.fileno()), *self._modules],
                executable=None if program is None else f"/proc/self/fd/{program}",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *(() if program is None else (program,))),
            )
        self._current, self._loaded = _Running(process, control, os.getpid(), environment), False
        return self._current


def connect(
    control: socket.socket, call: str, *arguments: object, handles: Sequence[int] = (), stays: bool = False
) -> socket.socket:
    """Have a process forked that calls `call(channel, handles, *arguments)`; returns the other end of the channel.

    `call` is MODULE:FUNCTION and returns an exit code, which the template writes into the channel as its last line.
    A fork that does not stay ends with the channel. Raises `OSError`.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            control.settimeout(_TAKES_WITHIN_S)  # one that hangs takes no packets
            socket.send_fds(control, [STAY if stays else JOB], [theirs.fileno(), *handles])
            control.settimeout(None)
        ours.sendall(json.dumps({"call": call, "arguments": arguments}).encode() + b"\n")
    except OSError:
        ours.close()
        raise
    return ours


def keeps_its_program() -> bool:
    """Whether no fork can change the file of its own interpreter, which it reaches past every mount."""
    return sealed_interpreter() is not None or not _is_ours(Path(sys.executable).resolve())


@functools.cache
def sealed_interpreter() -> int | None:
    """Descriptor of a copy of the interpreter in memory that cannot be changed; None if not needed or not to be had."""
    program = Path(sys.executable).resolve()
    if sys.platform != "linux" or not _is_ours(program):
        return None
    try:
        copy = os.memfd_create("python", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with program.open("rb") as file, os.fdopen(copy, "wb", closefd=False) as written:
            shutil.copyfileobj(file, written)
        sealed = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, sealed)
        subprocess.run(
            [sys.executable, "-c", ""],
            executable=f"/proc/self/fd/{copy}",
            pass_fds=(copy,),
            env=_environment(),
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return copy


def _is_ours(program: Path) -> bool:
    return program.stat().st_uid == os.geteuid() or os.access(program, os.W_OK)


def _environment() -> dict[str, str]:
    """No secrets, no GPU, one thread, and the allocator of a worker."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_GROUPS)}
    search_path = os.pathsep.join(filter(None, (str(_PACKAGE_PARENT), os.environ.get("PYTHONPATH"))))
    return {**kept, **allocator.preloading(os.environ), **_FIXED, "PYTHONPATH": search_path}
