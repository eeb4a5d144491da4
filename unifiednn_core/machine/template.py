"""The template process: it loads modules once and forks the processes that need them, which takes milliseconds.

It has one thread, runs no code of torch, reads no file of a user and never touches a GPU, so a fork is as good as a
new interpreter. `machine.forks` is the caller's side: each packet at the socket brings a channel to the caller. The
fork reads from it what to call; the template itself writes its exit code there.
"""

import ctypes
import gc
import importlib
import json
import mmap
import os
import random
import select
import signal
import socket
import struct
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path

from unifiednn_core.base.files import set_private_umask
from unifiednn_core.machine import allocator
from unifiednn_core.machine.host import rollup

JOB, STAY, RETIRE = b"job", b"stay", b"retire"
"""Kinds of packets: a fork that ends with its caller, one that outlives it, and to end once no job is left."""
MOST_HANDLES = 16
MOST_JOBS = max(2, os.cpu_count() or 1)
_LONGEST_REQUEST_BYTES = 2**20
_MEASURES_EVERY_S = 1.0
_DIE_WITH_PARENT, _SET_NAME = 1, 15  # prctl(2)
_ARGUMENTS = 45  # of the fields after the command's name; proc_pid_stat(5) numbers it 48
_SIZE = struct.Struct("q")

_held: tuple[int, mmap.mmap] | None = None
"""In a fork that stays: process id of its template, and where that writes its memory."""


def main() -> None:
    """Load the modules named on the command line, then serve the socket whose descriptor comes first.

    MODULE:FUNCTION is called once it is loaded.
    """
    set_private_umask()
    allocator.forget_preloading()
    control = socket.socket(fileno=int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM):  # the caller gets them, too, and then closes the socket
        signal.signal(number, signal.SIG_IGN)
    for name in sys.argv[2:]:
        module, _, function = name.partition(":")
        with suppress(ImportError):  # the fork that needs it says so
            loaded = importlib.import_module(module)
            if function:
                getattr(loaded, function)()
    gc.freeze()  # a collection in a fork would copy every page that objects lie on
    with suppress(OSError):  # the caller may have ended meanwhile, which `serve` sees
        control.send(b"ready")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # from here on a caller gets the reason with its answer
    _Template(control).serve()


def held_bytes() -> int:
    """Memory that the template of this process holds as of now, at most a second old.

    It is 0 once the template has ended, and in a process without one.
    """
    if _held is None or os.getppid() != _held[0]:
        return 0
    [size_bytes] = _SIZE.unpack_from(_held[1])
    return int(size_bytes)


def is_forked() -> bool:
    """Whether a template forked this process."""
    return _held is not None


def unfit() -> str:
    """Why a fork of this process would not be as good as a new one; nothing if it would."""
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    if threads > 1:
        return f"the template has {threads} threads"
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the list itself was one
            if str(handle.readlink()).startswith("/dev/nvidia"):
                return "the template uses a GPU"
    return ""


class _Template:
    """Forks a child for each packet, and tells each caller how its child ended."""

    def __init__(self, control: socket.socket):
        self._control = control
        self._retired = False
        self._waiting: deque[list[int]] = deque()
        self._jobs: dict[int, socket.socket] = {}
        self._stays: dict[int, tuple[socket.socket, mmap.mmap]] = {}
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve until the caller closes the socket, or it is retired and has no job left."""
        while not self._retired or self._waiting or self._jobs:
            ready = self._wait()
            if self._control.fileno() in ready and not self._receive():
                for pid in self._jobs:
                    os.kill(pid, signal.SIGKILL)
                return
            if self._woken.fileno() in ready:
                self._woken.recv(4096)
            for pid in [pid for pid, caller in self._jobs.items() if caller.fileno() in ready]:  # it hung up
                os.kill(pid, signal.SIGKILL)
            for handles in [handles for handles in self._waiting if handles[0] in ready]:
                self._waiting.remove(handles)
                _close(handles)
            self._reap()
            while self._waiting and len(self._jobs) < MOST_JOBS:
                self._fork(self._waiting.popleft(), stays=False)
            self._measure()

    def _wait(self) -> set[int]:
        poll = select.poll()
        for source in (self._control, self._woken):
            poll.register(source, select.POLLIN)
        for handle in (*(handles[0] for handles in self._waiting), *(job.fileno() for job in self._jobs.values())):
            poll.register(handle, 0)
        return {handle for handle, _ in poll.poll(_MEASURES_EVERY_S * 1000 if self._stays else None)}

    def _receive(self) -> bool:
        """Take a packet; whether the caller is still there."""
        kind, handles, *_ = socket.recv_fds(self._control, 16, MOST_HANDLES)
        if kind == STAY and handles:
            self._fork(handles, stays=True)
        elif kind == JOB and handles:
            self._waiting.append(handles)
        else:
            _close(handles)
        self._retired |= kind == RETIRE
        return bool(kind)

    def _fork(self, handles: list[int], *, stays: bool) -> None:
        channel = socket.socket(fileno=handles[0])
        if stays and (reason := unfit()):
            channel.sendall(f"!{reason}".encode())
            channel.close()
            return _close(handles[1:])
        template, memory = os.getpid(), mmap.mmap(-1, mmap.PAGESIZE) if stays else None
        pid = os.fork()
        if pid == 0:
            for _, other in self._stays.values():
                other.close()
            _become(template, memory, channel, handles)
        _close(handles[1:])
        if memory is None:
            self._jobs[pid] = channel
        else:
            self._stays[pid] = channel, memory
        return None

    def _reap(self) -> None:
        for pid in [*self._jobs, *self._stays]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                caller = self._jobs.pop(pid) if pid in self._jobs else self._stays.pop(pid)[0]
                with caller, suppress(OSError):
                    caller.setblocking(False)
                    caller.send(f"\n{os.waitstatus_to_exitcode(status)}".encode())

    def _measure(self) -> None:
        if self._stays and (sums := rollup(os.getpid())) is not None:
            for _, memory in self._stays.values():
                _SIZE.pack_into(memory, 0, sums.pss_bytes)


def _become(template: int, memory: mmap.mmap | None, channel: socket.socket, handles: list[int]) -> None:
    """Be the fork: let go of what belongs to the template, read what to call, call it, and end."""
    global _held
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if memory is None:
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
            if os.getppid() != template:
                return
        else:
            _held = template, memory
            os.setsid()
        _keep_only({0, 1, 2, *handles})  # a caller gets its end of file when its own fork ends
        random.seed()
        request = json.loads(_line(channel))
        module, _, function = request["call"].partition(":")
        work = getattr(importlib.import_module(module), function)
        code = work(channel, handles[1:], *request["arguments"])
    except BaseException as error:
        with suppress(OSError):
            channel.sendall(f"!{type(error).__name__}: {error}".replace("\n", " ")[:400].encode())
    finally:
        os._exit(code)


def name_process(title: str) -> None:
    """Show a title instead of the template's command line in lists of processes, as far as there is room."""
    ctypes.CDLL(None).prctl(_SET_NAME, b"unifiednn", 0, 0, 0)
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    begins, ends = int(fields[_ARGUMENTS]), int(fields[_ARGUMENTS + 1])
    ctypes.memmove(begins, title.encode()[: ends - begins - 1].ljust(ends - begins, b"\0"), ends - begins)


def _keep_only(handles: set[int]) -> None:
    """Close all descriptors but these. Objects that hold them are never used again."""
    for handle in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if handle not in handles:
            with suppress(OSError):  # the list itself was one
                os.close(handle)


def _line(channel: socket.socket) -> bytes:
    """One line, and nothing that comes after it."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < _LONGEST_REQUEST_BYTES:
        seen = channel.recv(2**16, socket.MSG_PEEK)
        if not seen:
            break
        line += channel.recv(seen.find(b"\n") + 1 or len(seen))
    return bytes(line)


def _close(handles: list[int]) -> None:
    for handle in handles:
        os.close(handle)
