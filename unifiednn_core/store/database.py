"""Opens the database: SQLite in WAL mode.

One transaction writes at a time, so what it has read stays true until it ends. The first thing that a worker reads in
each is its fence.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, create_engine, event, inspect, select
from sqlalchemy.exc import DatabaseError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from unifiednn_core.base import failpoints
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import Fenced, WrongSchema
from unifiednn_core.store.schema import SCHEMA_VERSION, Base, HybridRow, SchemaRow


@dataclass(frozen=True, slots=True)
class Fence:
    """What has to hold for a worker to write: the hybrid has a worker, and it is this one."""

    hybrid_id: str
    attempt: int
    process: tuple[int, float] | None = None
    """PID and start of the worker; None does not look at them. A new worker has others before it has a new attempt."""

    def require(self, session: Session) -> None:
        """Raise `Fenced` if the worker has lost its hybrid. Nothing that could take it overlaps a write transaction."""
        asked = select(HybridRow.attempt, HybridRow.worker_pid, HybridRow.worker_started_at_s).where(
            HybridRow.id == self.hybrid_id, HybridRow.heartbeat_at_s.is_not(None), HybridRow.worker_pid.is_not(None)
        )
        found = session.execute(asked).one_or_none()
        if found is None or found[0] != self.attempt or self.process not in (None, tuple(found[1:])):
            raise Fenced(self.hybrid_id, self.attempt)


BUSY_TIMEOUT_S = 30
WAL_RETRY_S = 0.02

Kind = TypeVar("Kind")
_joined: ContextVar[Session | None] = ContextVar("joined", default=None)
"""The transaction that reads and writes of this thread are a part of."""


class Database:
    """Short read and write transactions on one file. Safe to share between threads."""

    def __init__(self, file: Path, clock: Clock | None = None):
        """Open a database; make the tables of a new one. Raises `WrongSchema`."""
        self.clock: Clock = clock or Clock()
        self.fence: Fence | None = None
        """What has to hold for each write of this process; only a worker has one."""
        self._engine = create_engine(URL.create("sqlite", database=str(file)))
        event.listen(self._engine, "connect", _prepare)
        event.listen(self._engine, "begin", _begin)
        self._writing = self._engine.execution_options(write=True)
        try:
            if not self._is_up_to_date():
                with self.write() as session:
                    _make_tables(session, file)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def joined(self) -> Iterator[Session]:
        """A write transaction that all reads and writes of this thread join until it ends. Raises as `write`."""
        with self.write() as session:
            token = _joined.set(session)
            try:
                yield session
            finally:
                _joined.reset(token)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A read-only transaction: a consistent snapshot. Raises `OperationalError` for what passes by itself."""
        if (outer := _joined.get()) is not None:
            yield outer
            return
        try:
            with Session(self._engine) as session:
                yield session
        except SQLAlchemyError as error:
            _raise_defect(error)
            raise

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that excludes all other writes from its start.

        Commits at the end, rolls back after an error. Raises `OperationalError` for what passes by itself: nothing was
        written then.
        """
        if (outer := _joined.get()) is not None:
            yield outer
            outer.flush()
            return
        try:
            with Session(self._writing, expire_on_commit=False) as session, session.begin():
                if self.fence is not None:
                    self.fence.require(session)
                yield session
                failpoints.passing("store.before_commit")
        except sqlite3.OperationalError as error:  # a fault that a test injected, as the driver would raise it
            raise OperationalError("COMMIT", None, error) from error
        except SQLAlchemyError as error:
            _raise_defect(error)
            raise
        failpoints.passing("store.after_commit")

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _is_up_to_date(self) -> bool:
        """Whether the tables are there as this program needs them. Asks in one read: workers start all the time."""
        with self.read() as session:
            there = inspect(session.connection()).has_table(SchemaRow.__tablename__)
            return there and session.scalar(select(SchemaRow.version)) == SCHEMA_VERSION


class Repository:
    """What all repositories share: the database and its clock, and reads of one query each."""

    def __init__(self, database: Database):
        self._database, self._clock = database, database.clock

    def _rows(self, asked: Any) -> list[Any]:
        """The first column of all rows."""
        with self._database.read() as session:
            return list(session.scalars(asked))

    def _all(self, asked: Any) -> Sequence[Any]:
        """All rows."""
        with self._database.read() as session:
            return session.execute(asked).all()

    def _value(self, asked: Any) -> Any:
        """The first column of the first row; None without one."""
        with self._database.read() as session:
            return session.scalar(asked)

    def _get(self, table: type[Kind], key: Any) -> Kind | None:
        """The row with this primary key."""
        with self._database.read() as session:
            return session.get(table, key)


def trouble(error: DatabaseError) -> tuple[str, str]:
    """What the database says is wrong, in one line, and what to do about it."""
    said = str(error.orig).partition("\n")[0].rstrip(".")
    return said, "Free or repair the home folder (UNIFIEDNN_HOME)."


def _raise_defect(error: SQLAlchemyError) -> None:
    """Raise `DatabaseError` for what SQLite calls operational, although it never passes: a wrong statement."""
    if isinstance(error, PoolTimeout):  # all connections wait for a locked store
        raise OperationalError("BEGIN", None, error) from error
    if isinstance(error, OperationalError) and getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:
        raise DatabaseError(error.statement, error.params, error.orig or error) from error


def _make_tables(session: Session, file: Path) -> None:
    Base.metadata.create_all(session.connection())
    version = session.scalar(select(SchemaRow.version))
    if version is None:
        session.add(SchemaRow(version=SCHEMA_VERSION))
    elif version != SCHEMA_VERSION:
        raise WrongSchema(
            f"{file} holds schema {version}, this program reads {SCHEMA_VERSION}. "
            "Use the program that wrote it, or set UNIFIEDNN_HOME to a new folder."
        )


def _prepare(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the begin event below decides how a transaction starts
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000}")
    _use_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")  # an acknowledged command survives a power cut
    connection.execute("PRAGMA foreign_keys = ON")


def _use_wal(connection: Any) -> None:
    """Switch to WAL mode. SQLite refuses one of two processes that create a database together, without waiting."""
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(WAL_RETRY_S)
        else:
            return


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
