"""Errors that may repeat for hours, such as those of a full disk: the log tells each once a minute."""

import errno
import logging
import sqlite3
import sys
import time

AGAIN_S = 60.0
MOST_KNOWN = 1000
_told_at_s: dict[str, float] = {}
"""When the log told each cause last, by the monotonic clock."""


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or that of a driver inside it, says that there is no room on a disk."""
    cause = getattr(error, "orig", None) or error
    if isinstance(cause, OSError):
        return cause.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(cause, "sqlite_errorcode", None) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)


def log_error(log: logging.Logger, message: str, *args: object) -> None:
    """Log the error that is being handled: one of a disk or a database in one line, any other with its traceback.

    What was told within the last minute is not told again: the same cause, whoever meets it.
    """
    error = sys.exception()
    cause = getattr(error, "orig", None) or error
    passes = isinstance(cause, OSError | sqlite3.Error)
    said = f"{type(cause).__name__}: {cause}"
    key, now_s = said if passes else f"{message} {said}", time.monotonic()
    if now_s - _told_at_s.get(key, -AGAIN_S) < AGAIN_S:
        return
    if len(_told_at_s) >= MOST_KNOWN:
        _told_at_s.clear()
    _told_at_s[key] = now_s
    if passes:
        log.error(f"{message} %s", *args, said)
    else:
        log.error(message, *args, exc_info=error)
