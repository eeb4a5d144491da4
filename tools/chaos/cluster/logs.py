"""Errors that the processes of an exercise wrote into their logs."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

_LAST_LINE = re.compile(r"^(?P<name>[A-Za-z_][\w.]*(?:Error|Exception|Fenced|Failed|Exit|Interrupt|[a-z]))(?::|$)")
_BEGIN = "Traceback (most recent call last):"
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception")
EXPECTED = frozenset(
    {
        "sqlalchemy.exc.OperationalError",  # the store could not be reached, or was locked
        "psycopg.OperationalError",
        "sqlite3.OperationalError",
        "OSError",  # a full or read-only disk
        "ConnectionError",
        "ConnectionResetError",
        "BrokenPipeError",
        "TimeoutError",
        "unifiednn_core.base.errors.BlobsUnreachable",
        "unifiednn_core.base.errors.Fenced",
        "unifiednn_core.base.errors.Diverged",  # one submission does so, until its owner retries it
    }
)
"""Errors that the faults of the drill cause by themselves, and that the program waits out."""


def errors_in(lines: Iterable[str]) -> Counter[str]:
    """Names of the errors whose tracebacks stand in a log; of a chain of causes the last one."""
    found: list[str] = []
    inside = False
    for line in lines:
        if line.startswith(_BEGIN):
            inside = True
        elif line.startswith(_CHAINED) and found:
            found.pop()
        elif inside and not line.startswith((" ", "\t", "\n")):
            matched = _LAST_LINE.match(line.rstrip())
            found += [matched["name"]] if matched else []
            inside = False
    return Counter(found)


def unexpected(folder: Path) -> Counter[str]:
    """Names of the errors in all logs below a folder that no fault explains."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*.log"):
        with path.open(encoding="utf-8", errors="replace") as log:
            found += errors_in(log)
    return Counter({name: count for name, count in found.items() if not _is_expected(name)})


def _is_expected(name: str) -> bool:
    return name in EXPECTED or name.startswith("psycopg.errors.")
