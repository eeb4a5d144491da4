"""Plain SQL on the store of an exercise, SQLite or PostgreSQL.

What an audit reads must not come through the code that it judges.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

SQLITE = "sqlite:///"
BUSY_TIMEOUT_S = 30.0
Row = tuple[Any, ...]
Ask = Callable[..., list[Row]]
"""Takes a query with `?` for each value that follows."""

Value = TypeVar("Value")


class NotOpenNow(Exception):
    """The store cannot be read at the moment; it may be locked, or its server may be down."""


def is_sqlite(url: str) -> bool:
    """Whether a store is a file of SQLite."""
    return url.startswith(SQLITE)


@contextmanager
def asking(url: str) -> Iterator[Ask]:
    """Read a store during the block, each query for itself. Raises `NotOpenNow`."""
    with _connected(url) as execute:
        yield execute


def rows(url: str, query: str, *values: object) -> list[Row]:
    """Answer one query. Raises `NotOpenNow`."""
    with asking(url) as ask:
        return ask(query, *values)


def change(url: str, *statements: str) -> None:
    """Carry out statements in one transaction. Raises `NotOpenNow`."""
    with _connected(url, writes=True) as execute:
        for statement in statements:
            execute(statement)


def document(value: Any) -> Any:
    """A JSON column; SQLite gives its text, PostgreSQL its value."""
    return json.loads(value) if isinstance(value, str) else value


def plain(url: str) -> str:
    """The address of a PostgreSQL database without the name of a driver."""
    scheme, _, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}://{rest}"


@contextmanager
def _connected(url: str, *, writes: bool = False) -> Iterator[Ask]:
    if is_sqlite(url):
        with _of_sqlite(url.removeprefix(SQLITE), writes=writes) as ask:
            yield ask
        return
    import psycopg  # an extra; a drill on SQLite does without

    try:
        with psycopg.connect(plain(url), autocommit=not writes, connect_timeout=5) as connection:

            def ask_postgres(query: str, *values: object) -> list[Row]:
                found = connection.execute(query.replace("?", "%s").encode(), values or None)
                return [] if found.description is None else list(found.fetchall())

            yield ask_postgres
    except psycopg.OperationalError as error:
        raise NotOpenNow(str(error)) from error


@contextmanager
def _of_sqlite(path: str, *, writes: bool) -> Iterator[Ask]:
    try:
        address, by_uri = (path, False) if writes else (f"file:{path}?mode=ro", True)
        with closing(sqlite3.connect(address, uri=by_uri, timeout=BUSY_TIMEOUT_S)) as connection, connection:

            def ask_sqlite(query: str, *values: object) -> list[Row]:
                return connection.execute(query, values).fetchall()

            yield ask_sqlite
    except sqlite3.OperationalError as error:
        raise NotOpenNow(str(error)) from error
