"""Puts the walls up and makes every system call that there is; prints which did more than answer "not permitted"."""

import ctypes
import errno
import json
import mmap
import os
import sys
import time
from pathlib import Path

from unifiednn_core.sandbox import landlock, system, walls
from unifiednn_core.sandbox.limits import Limits
from unifiednn_core.sandbox.syscalls import CHECKED, SYSCALLS

MOST = 600
UNFILTERED = (335, 336)  # uprobes: the kernel answers them itself, with SIGILL, whatever the filter
X32 = 0x40000000
INT80 = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # mov eax, 20 (getpid of 32 bits); int 0x80; ret


def main() -> None:
    if user := int(sys.argv[1]):
        os.setgid(user)
        os.setuid(user)
        system.prctl(4, 1)  # as a process is that was started by this user
    machine = ["x86_64", "aarch64"].index(str(system.machine()))
    numbers = {name: held[machine] for name, held in {**SYSCALLS, **CHECKED}.items()}
    score = os.open("/proc/self/oom_score_adj", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getppid()
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    if sys.argv[2:] != ["stay"]:
        landlock.version = lambda: 0  # seccomp has to hold by itself
    walls.put_up(walls.Walls(("/dev/null",), Limits(), parent=parent, sees_only_readable=True))
    if sys.argv[2:] == ["int80"]:
        page.write(INT80)
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()

    if sys.argv[2:] == ["stay"]:
        sys.stdout.write(f"{os.getpid()}\n")
        sys.stdout.flush()
        time.sleep(600)

    def answer(number: int, *arguments: object) -> int:
        words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
        return 0 if libc.syscall(ctypes.c_long(number), *words, *[0] * (6 - len(words))) >= 0 else ctypes.get_errno()

    others = [number for number in range(MOST) if number not in (*numbers.values(), *UNFILTERED)]
    others += [X32 + number for number in range(MOST)] if machine == 0 else []
    answered = [number for number in others if answer(number) not in (errno.EPERM, errno.ENOSYS)]

    null, at = b"/dev/null", -100
    tried = {
        **{f"openat {bit:o}": ("openat", at, null, bit, 0o600) for bit in (1, 2, 0o100, 0o1000, 0o2000, 0o10000000)},
        **{f"openat temporary {bit:o}": ("openat", at, b"/tmp", bit, 0o600) for bit in (0o20000000, 0o20200002)},
        **{f"fcntl {order}": ("fcntl", 1, order, 0) for order in (*range(5, 40), *range(1024, 1045)) if order != 1030},
        **{f"ioctl {order}": ("ioctl", 0, order, 0) for order in (0x5412, 0x540E, 0x5423, 0x5452, 0x5422, 0x40047399)},
        **{f"prctl {order}": ("prctl", order, 0, 0, 0, 0) for order in range(80) if order not in (15, 16)},
        "signal to its parent": ("tgkill", parent, parent, 0),
        "limit of its parent": ("prlimit64", parent, 7, 0, 0),
        "processors of its parent": ("sched_setaffinity", parent, 8, b"\xff" * 8),
    }
    passed = [
        name for name, (call, *arguments) in tried.items() if answer(numbers[str(call)] or 0, *arguments) != errno.EPERM
    ]
    sys.stdout.write(
        json.dumps(
            {
                "swept": len(others),
                "answered": answered,
                "arguments that got through": passed,
                "oom_score_adj": os.pread(score, 9, 0).decode().strip(),
                "owner of its memory": Path("/proc/self/mem").stat().st_uid,
            }
        )
    )


if __name__ == "__main__":
    main()
