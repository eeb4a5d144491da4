"""seccomp: which system calls a process may make. An allow-list; everything else answers "not permitted"."""

import ctypes
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from errno import ENOSYS, EPERM

from unifiednn_core.sandbox.syscalls import ABSENT, CHECKED, SYSCALLS
from unifiednn_core.sandbox.system import prctl

_PR_SET_NAME, _PR_GET_NAME, _PR_SET_VMA = 15, 16, 0x53564D41
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUALS, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | (os.O_TMPFILE & ~os.O_DIRECTORY)
_NOT_READING = _WRITES | os.O_PATH  # a mere handle to a path is had whatever Landlock says
_FCNTL = (0, 1, 2, 3, 4, 1030)  # duplicate, flags; none that has signals sent
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # ask a terminal or pipe; close on exec

Instruction = bytes


@dataclass(frozen=True, slots=True)
class Rule:
    """When a call is allowed, by the low half of one argument."""

    argument: int
    values: tuple[int, ...] = ()
    """One of these, where there are any."""
    none_of: int = 0
    """With none of these bits."""


def rules(process: int) -> dict[str, Rule]:
    """Conditions on the calls of `CHECKED`, in the process of this id."""
    own = (0, process)
    return {
        "fcntl": Rule(1, values=_FCNTL),
        "ioctl": Rule(1, values=_IOCTL),
        "open": Rule(1, none_of=_NOT_READING),
        "openat": Rule(2, none_of=_NOT_READING),
        "prctl": Rule(0, values=(_PR_SET_NAME, _PR_GET_NAME, _PR_SET_VMA)),
        "prlimit64": Rule(0, values=own),
        "sched_setaffinity": Rule(0, values=own),
        "tgkill": Rule(0, values=(process,)),
    }


def program(machine: str, process: int) -> bytes:
    """The filter for one kind of machine, as BPF."""
    place = list(_MACHINES).index(machine)
    held = rules(process)
    parts: list[Instruction] = [
        _instruction(_LOAD, _MACHINE_AT),
        *_unless_equal(_MACHINES[machine], [_answer(_KILL_PROCESS)]),
        _instruction(_LOAD, _NUMBER_AT),
    ]
    for name, numbers in {**SYSCALLS, **CHECKED, **ABSENT}.items():
        number = numbers[place]
        if number is None:
            continue
        if name in ABSENT:
            verdict = [_answer(_ERRNO | ENOSYS)]
        elif name in CHECKED:
            verdict = _judged(held[name])
        else:
            verdict = [_answer(_ALLOW)]
        parts += [_instruction(_EQUALS, number, 0, len(verdict)), *verdict]
    return b"".join([*parts, _answer(_ERRNO | EPERM)])


def install(machine: str) -> None:
    """Put the filter up, for good, for this thread and all that it starts; raises `OSError`."""
    code = program(machine, os.getpid())
    buffer = ctypes.create_string_buffer(code, len(code))
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(_Program(len(code) // 8, ctypes.addressof(buffer))))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _judged(rule: Rule) -> list[Instruction]:
    """Instructions that answer for a call with such a rule, whatever its arguments."""
    steps = [_instruction(_LOAD, _ARGUMENTS_AT + 8 * rule.argument)]
    if rule.none_of:
        steps += [_instruction(_ANY_BIT, rule.none_of, 0, 1), _answer(_ERRNO | EPERM)]
    if not rule.values:
        return [*steps, _answer(_ALLOW)]
    for value in rule.values:
        steps += [_instruction(_EQUALS, value, 0, 1), _answer(_ALLOW)]
    return [*steps, _answer(_ERRNO | EPERM)]


def _unless_equal(value: int, otherwise: Sequence[Instruction]) -> list[Instruction]:
    return [_instruction(_EQUALS, value, len(otherwise), 0), *otherwise]


def _answer(verdict: int) -> Instruction:
    return _instruction(_RETURN, verdict)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> Instruction:
    return struct.pack("=HBBI", code, if_true, if_false, value & 0xFFFFFFFF)
