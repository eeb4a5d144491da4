"""Databases for tests: SQLite in the home folder, or empty ones with all tables on a PostgreSQL server."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count

import pytest
from sqlalchemy import URL, Engine

from tools.machine import ToolFailed
from unifiednn_core.base.paths import DATABASE_SETTING
from unifiednn_core.store import Store, postgresql
from unifiednn_core.store.schema import SCHEMA_VERSION, Base, SchemaRow

SQLITE, POSTGRESQL = "sqlite", "postgresql"
NEEDED_SETTING = "UNIFIEDNN_TESTS_NEED_POSTGRESQL"
"""Set where a test may not be skipped because no server can be started."""
KIND_SETTING = "UNIFIEDNN_TESTS_ON"
"""Set to `postgresql` to run all tests that open a home on it."""
NewUrl = Callable[[], AbstractContextManager[str]]
BOTH = (SQLITE, pytest.param(POSTGRESQL, marks=pytest.mark.slow))


class Databases:
    """A server, and empty databases with all tables on it."""

    def __init__(self) -> None:
        try:
            from tools.postgres import serving

            self._serving = serving()
            self.server = self._serving.__enter__()
        except (ToolFailed, ImportError) as error:
            if os.environ.get(NEEDED_SETTING):
                raise
            pytest.skip(f"no PostgreSQL: {error}")
        self._numbers = count(1)
        Store(self.server.create("empty")).close()
        self._used = self._made()
        """A database that was made, and is emptied for each test: that takes a tenth of the time to make one."""

    @contextmanager
    def new(self) -> Iterator[str]:
        """URL of a new database, which is deleted at the end with all connections to it."""
        name = self._made()
        with self._closing():
            yield self.server.url(name)
        self.server.drop(name)

    @contextmanager
    def chosen(self) -> Iterator[str]:
        """URL of an empty one, in which the stores of all homes are opened meanwhile, by other processes as well."""
        url = self.server.url(self._used)
        with self._closing(), pytest.MonkeyPatch.context() as patch:
            patch.setenv(DATABASE_SETTING, url)
            yield url
        self.server.execute(_END_OTHERS, self._used)
        self.server.execute(_EMPTY, self._used)

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Close what tests leave open; a driver complains of each connection that is forgotten."""
        opened: list[Engine] = []
        engine_of = postgresql.engine_of

        def noted(url: URL) -> Engine:
            opened.append(engine_of(url))
            return opened[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgresql, "engine_of", noted)
            yield
        for engine in opened:
            engine.dispose()

    def _made(self) -> str:
        name = f"test_{next(self._numbers)}"
        self.server.execute(f'CREATE DATABASE "{name}" TEMPLATE "empty"')
        return name

    def close(self) -> None:
        """End the server."""
        self._serving.__exit__(None, None, None)


_END_OTHERS = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_EMPTY = f"""
SET session_replication_role = replica;
{"".join(f'DELETE FROM "{name}";' for name in Base.metadata.tables if name != SchemaRow.__tablename__)}
UPDATE {SchemaRow.__tablename__} SET version = {SCHEMA_VERSION};
SELECT setval(oid, 1, false) FROM pg_class WHERE relkind = 'S';
"""
