"""What the database does for a call: statements, and steps of SQLite's virtual machine, which no load changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, event

EVERY = 10
"""Steps of the machine between two counts; a statement of fewer counts as none."""


@dataclass(slots=True)
class Counted:
    """What was sent meanwhile."""

    sent: list[str] = field(default_factory=list)
    """Statements, without the begin of each transaction."""
    steps: int = 0
    """Of the virtual machine, to within `EVERY` a statement: they grow with the rows that are read."""
    given: list[Any] = field(default_factory=list)
    """Parameters of each statement."""

    @property
    def statements(self) -> int:
        """How many were sent."""
        return len(self.sent)


@contextmanager
def counted(engine: Engine) -> Iterator[Counted]:
    """Count what this process asks through an engine, in all threads."""
    found, seen = Counted(), set[Any]()

    def step() -> int:
        found.steps += EVERY
        return 0

    def note(_connection: object, cursor: Any, statement: str, given: Any, *_: object) -> None:
        if cursor.connection not in seen:
            seen.add(cursor.connection)
            cursor.connection.set_progress_handler(step, EVERY)
        if not statement.startswith("BEGIN"):
            found.sent.append(statement)
            found.given.append(given)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)
        for connection in seen:
            connection.set_progress_handler(None, 0)


def plans(engine: Engine, found: Counted) -> list[str]:
    """How SQLite looks up the rows of each statement: lines of `EXPLAIN QUERY PLAN`."""
    lines: list[str] = []
    with engine.connect() as connection:
        for statement, given in zip(found.sent, found.given, strict=True):
            if statement.startswith(("SELECT", "WITH")):
                rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)
                lines += [row[-1] for row in rows]
    return lines
