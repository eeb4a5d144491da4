"""Opens the database: SQLite in WAL mode by default, PostgreSQL by URL.

SQLite lets one transaction write at a time. On PostgreSQL each write names a scope, and two of one scope never overlap:
- `queue`, the default: whatever claims, places, commands or ends. Nothing else writes meanwhile, in any scope.
- `hybrid:ID`: the reports of one worker. Those of different workers overlap.
So what a transaction has read stays true until it ends, on both. The first thing that a worker reads in each is its
fence. Locks are taken in the order queue, then the other.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, create_engine, event, extract, func, inspect, select
from sqlalchemy.exc import DatabaseError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from unifiednn_core.base import failpoints
from unifiednn_core.base.clock import Clock, RealClock
from unifiednn_core.base.errors import Fenced, WrongSchema
from unifiednn_core.store import postgresql
from unifiednn_core.store.postgresql import QUEUE as QUEUE
from unifiednn_core.store.postgresql import address_of, is_remote, shown
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


class Database:
    """Short read and write transactions over one URL. Safe to share between threads."""

    def __init__(self, url: str, clock: Clock | None = None):
        """Open a database; make the tables of a new one. Raises `BadInput`, `WrongSchema`."""
        address = address_of(url)
        self.is_remote = is_remote(url)
        """Whether it is a server, which other machines may use as well."""
        own = clock or RealClock()
        self._servers = _ServersClock(own) if self.is_remote and isinstance(own, RealClock) else None
        self.clock: Clock = self._servers or own
        """Its `utc_s` is what all machines agree on, without a question to the server: for moments that are stored."""
        self.fence: Fence | None = None
        """What has to hold for each write of this process; only a worker has one."""
        if self.is_remote:
            self._engine = postgresql.engine_of(address)
            snapshot = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
            self._reading = self._engine.execution_options(**snapshot)
            self._writing = self._engine.execution_options(isolation_level="READ COMMITTED", write=True)
        else:
            self._engine = create_engine(address)
            event.listen(self._engine, "connect", _prepare_sqlite)
            event.listen(self._engine, "begin", _begin_sqlite)
            self._writing = self._engine.execution_options(write=True)
            self._reading = self._engine.execution_options()
        try:
            self._prepare(shown(address))
        except BaseException:
            self.close()
            raise

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A read-only transaction: a consistent snapshot. Raises `OperationalError` for what passes by itself."""
        try:
            with Session(self._reading) as session:
                yield session
        except SQLAlchemyError as error:
            if self.is_remote:
                raise postgresql.as_callers_know_it(error) from error
            _raise_defect(error)
            raise

    @contextmanager
    def write(self, scope: str = QUEUE) -> Iterator[Session]:
        """A transaction that excludes all others of its scope from its start; see the top of this file.

        Commits at the end, rolls back after an error. Raises `OperationalError` for what passes by itself: nothing was
        written then.
        """
        mark, ends = None, False
        try:
            with Session(self._writing, expire_on_commit=False) as session, session.begin():
                if self.is_remote:
                    mark = postgresql.begin(session, scope)
                if self.fence is not None:
                    self.fence.require(session)
                yield session
                failpoints.passing("store.before_commit")
                ends = True
        except sqlite3.OperationalError as error:  # a fault that a test injected, as the driver would raise it
            raise OperationalError("COMMIT", None, error) from error
        except SQLAlchemyError as error:
            if not self.is_remote:
                _raise_defect(error)
                raise
            told = postgresql.as_callers_know_it(error)
            cut_off = ends and isinstance(told, OperationalError)
            if mark is None or not (cut_off and postgresql.was_committed(self._engine, mark)):
                raise told from error
        failpoints.passing("store.after_commit")

    def now_s(self, session: Session) -> float:
        """UTC seconds that all machines agree on: the clock of the server, or of this machine with SQLite.

        A clock other than the machine's was injected by a test, and counts everywhere.
        """
        if self._servers is None:
            return self.clock.utc_s()
        asked_s = self.clock.monotonic_s()
        now_s = float(session.execute(select(extract("epoch", func.clock_timestamp()))).scalar_one())
        self._servers.set(now_s, (asked_s + self.clock.monotonic_s()) / 2)
        return now_s

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _prepare(self, where: str) -> None:
        if self.is_remote:
            postgresql.require_answer(self._engine)
            with self.read() as session:
                self.now_s(session)
        if self._is_up_to_date():
            return
        if self.is_remote:
            with self._engine.begin() as connection:
                postgresql.make_writers(connection)
        with self.write() as session:
            _make_tables(session, where)

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


def _raise_defect(error: SQLAlchemyError) -> None:
    """Raise `DatabaseError` for what SQLite calls operational, although it never passes: a wrong statement."""
    if isinstance(error, OperationalError) and getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:
        raise DatabaseError(error.statement, error.params, error.orig or error) from error


class _ServersClock:
    """The clock of a database server, as of its last answer; every lease that is renewed asks it again."""

    def __init__(self, own: Clock):
        self.monotonic_s, self.thread_s, self.waited_s = own.monotonic_s, own.thread_s, own.waited_s
        self._ahead_s = 0.0

    def set(self, utc_s: float, monotonic_s: float) -> None:
        """Set it: this is the UTC time of the server at this monotonic time."""
        self._ahead_s = utc_s - monotonic_s

    def utc_s(self) -> float:
        return self.monotonic_s() + self._ahead_s


def _make_tables(session: Session, where: str) -> None:
    Base.metadata.create_all(session.connection())
    version = session.scalar(select(SchemaRow.version))
    if version is None:
        session.add(SchemaRow(version=SCHEMA_VERSION))
    elif version != SCHEMA_VERSION:
        raise WrongSchema(
            f"{where} holds schema {version}, this program reads {SCHEMA_VERSION}. "
            "Use the program that wrote it, or set UNIFIEDNN_HOME to a new folder."
        )


def _prepare_sqlite(connection: Any, _record: object) -> None:
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


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
