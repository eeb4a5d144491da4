"""Opens the database: SQLite in WAL mode by default, another database by URL."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, create_engine, event, select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import WrongSchema
from unifiednn_core.store.migrations import STEPS, migrate
from unifiednn_core.store.schema import SCHEMA_VERSION, Base, SchemaRow

BUSY_TIMEOUT_S = 30
WAL_RETRY_S = 0.02


class Database:
    """Short read and write transactions over one URL. Safe to share between threads."""

    def __init__(self, url: str):
        self._engine = create_engine(url)
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine, "connect", _prepare_sqlite)
            event.listen(self._engine, "begin", _begin_sqlite)
        self._writing = self._engine.execution_options(write=True)
        with self.write() as session:
            Base.metadata.create_all(session.connection())
            version = session.scalar(select(SchemaRow.version))
            if version is None:
                session.add(SchemaRow(version=SCHEMA_VERSION))
            elif version > SCHEMA_VERSION or version < min(STEPS):
                raise WrongSchema(
                    f"{self._engine.url} holds schema {version}, this program reads {min(STEPS)} to {SCHEMA_VERSION}. "
                    "Use the program that wrote it, or set UNIFIEDNN_HOME to a new folder."
                )
            elif version < SCHEMA_VERSION:
                migrate(session.connection(), version, SCHEMA_VERSION)
                session.execute(update(SchemaRow).values(version=SCHEMA_VERSION))

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A read-only transaction: a consistent snapshot."""
        with Session(self._engine) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that holds the write lock from its start; commits at the end, rolls back after an error."""
        try:
            with Session(self._writing, expire_on_commit=False) as session, session.begin():
                yield session
                failpoints.passing("store.before_commit")
        except sqlite3.OperationalError as error:  # a fault that a test injected, as the driver would raise it
            raise OperationalError("COMMIT", None, error) from error
        failpoints.passing("store.after_commit")

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


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
