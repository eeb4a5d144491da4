"""Landlock: which files a process may open, whoever its user is. Works without root and without packages."""

import ctypes
import os
import stat
from collections.abc import Iterable

from unifiednn_core.sandbox.system import call, prctl

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # equal on all machines
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
# Kinds of access to files that each version of the interface added; all of them are denied but by rule.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_BIND_AND_CONNECT_TCP, _SINCE_NETWORK = 0b11, 4
_ABSTRACT_SOCKETS_AND_SIGNALS, _SINCE_SCOPES = 0b11, 6
_PR_SET_NO_NEW_PRIVS = 38


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """Version of the interface that this kernel has; 0 without Landlock."""
    try:
        return call(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def restrict(readable: Iterable[str]) -> None:
    """Let this thread, and what it starts, read below `readable` and do nothing else with files. Raises `OSError`.

    Paths that do not exist are left out. Where the kernel can, TCP, abstract sockets and signals to others go, too.
    """
    has = version()
    rights = sum(added for since, added in _FILE_RIGHTS.items() if since <= has)
    ruleset = _Ruleset(
        rights,
        _BIND_AND_CONNECT_TCP if has >= _SINCE_NETWORK else 0,
        _ABSTRACT_SOCKETS_AND_SIGNALS if has >= _SINCE_SCOPES else 0,
    )
    size = 24 if has >= _SINCE_SCOPES else 16 if has >= _SINCE_NETWORK else 8
    handle = call(_CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    try:
        for path in readable:
            _allow(handle, path)
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
        call(_RESTRICT_SELF, handle, 0)
    finally:
        os.close(handle)


def _allow(ruleset: int, path: str) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        is_folder = stat.S_ISDIR(os.fstat(place).st_mode)
        rule = _PathBeneath(_READ_FILE | _READ_DIR if is_folder else _READ_FILE, place)
        call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(place)
