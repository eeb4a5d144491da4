"""The intake process: `python -m unifiednn_core.preflight.intake FD`.

It loads torch once, before it has read any file, and forks a child with limits for each job that arrives at the socket
FD. It has one thread and runs no code of torch, so a fork is as good as a new interpreter. It ends with the process
that started it, and its jobs end with it.
"""

import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path

import torch

from unifiednn_core.base.files import keep_private
from unifiednn_core.engine import late_dynamo
from unifiednn_core.preflight import process
from unifiednn_core.preflight.report import Request

MOST_AT_ONCE = max(2, os.cpu_count() or 1)
# Modules that reading and training load at their first use; not pyarrow, which starts a thread.
_LOADED_LATE = ("torch.export", "safetensors.torch", "PIL.Image")
_DIE_WITH_PARENT, _NEW_USERS, _NEW_NETWORK = 1, 0x10000000, 0x40000000


def main() -> None:
    """Load what jobs need, then serve them."""
    keep_private()
    control = socket.socket(fileno=int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM):  # the caller gets them, too, and then closes the socket
        signal.signal(number, signal.SIG_IGN)
    _leave_the_network()
    for name in _LOADED_LATE:
        with suppress(ImportError):
            importlib.import_module(name)
    late_dynamo.install()
    torch.set_num_threads(1)
    gc.freeze()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # from here on a caller gets the reason with its answer
    _serve(control)


def _serve(control: socket.socket) -> None:
    """Fork a child for each connection; a caller that hangs up ends its job."""
    waiting: deque[socket.socket] = deque()
    running: dict[int, socket.socket] = {}
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    while True:
        poll = select.poll()
        for source in (control, woken):
            poll.register(source, select.POLLIN)
        for caller in (*waiting, *running.values()):
            poll.register(caller, 0)
        ready = {handle for handle, _ in poll.poll()}
        if control.fileno() in ready:
            data, handles, *_ = socket.recv_fds(control, 1, 1)
            if not data:
                for pid in running:
                    os.kill(pid, signal.SIGKILL)
                return
            waiting += [socket.socket(fileno=handle) for handle in handles]
        if woken.fileno() in ready:
            woken.recv(4096)
        for pid in [pid for pid, caller in running.items() if caller.fileno() in ready]:
            os.kill(pid, signal.SIGKILL)
        waiting = deque(caller for caller in waiting if caller.fileno() not in ready)
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                _hang_up(running.pop(pid), os.waitstatus_to_exitcode(status))
        while waiting and len(running) < MOST_AT_ONCE:
            caller = waiting.popleft()
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (control, woken, wake, *waiting, *running.values()):
                    other.close()  # a caller gets its end of file when its own job ends
                _work(caller)
            running[pid] = caller


def _hang_up(caller: socket.socket, code: int) -> None:
    """Tell the caller how the child ended."""
    with caller, suppress(OSError):
        caller.setblocking(False)
        caller.send(f"\n{code}".encode())


def _work(caller: socket.socket) -> None:
    """Do one job in this fork and end it."""
    parent = os.getppid()
    code = 1
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        with caller.makefile("rb") as lines:
            request = Request.model_validate_json(lines.readline())
        os.environ.update(request.environment)
        caller.sendall(process.work(request.job).model_dump_json().encode())
        code = 0
    except BaseException as error:
        with suppress(OSError):
            caller.sendall(f"!{type(error).__name__}: {error}".replace("\n", " ")[:400].encode())
    finally:
        os._exit(code)


def _leave_the_network() -> None:
    """Leave the host's network if the kernel allows it; a reader needs none."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        libc.unshare(_NEW_NETWORK)
    elif libc.unshare(_NEW_USERS | _NEW_NETWORK) == 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text, encoding="ascii")


if __name__ == "__main__":
    main()
