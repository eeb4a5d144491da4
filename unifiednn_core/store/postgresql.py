"""What PostgreSQL needs beside SQLAlchemy: locks by scope, timeouts, and certainty about a commit that was cut off."""

import json
import math
import os
import time
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from uuid import uuid4

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.orm import Session

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import DATABASE_SETTING

_TITLE = "Database"
_SQLITE = "sqlite"
_POSTGRESQL = ("postgres", "postgresql", "postgresql+psycopg")
_FORM = "Write it as postgresql://USER:PASSWORD@HOST:5432/DATABASE, with %40 for an @ in the password."


def address_of(text: str) -> URL:
    """The address of a database, with the driver that is used for it. Raises `BadInput`, which never shows `text`."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise BadInput.of(_TITLE, DATABASE_SETTING, "The URL of the database cannot be read.", _FORM) from None
    if url.get_backend_name() == _SQLITE:
        return url
    if url.drivername not in _POSTGRESQL:
        message = f"'{url.drivername}' is no database that this program knows; it knows SQLite and PostgreSQL."
        raise BadInput.of(_TITLE, DATABASE_SETTING, message, _FORM)
    return url.set(drivername=_POSTGRESQL[-1])


def is_remote(text: str) -> bool:
    """Whether a database with this URL is reached over a network. Raises `BadInput`."""
    return address_of(text).get_backend_name() != _SQLITE


def trouble(error: DatabaseError) -> tuple[str, str]:
    """What the database says is wrong, in one line, and what to do about it."""
    url = os.environ.get(DATABASE_SETTING)
    server = "Start the server that UNIFIEDNN_DATABASE_URL names, or wait until it is back; then try again."
    remedy = server if url and is_remote(url) else "Free or repair the home folder (UNIFIEDNN_HOME)."
    return str(error.orig).partition("\n")[0].rstrip("."), remedy


def shown(url: URL) -> str:
    """A database for people: without user, password and options, which may hold one, too."""
    if url.get_backend_name() == _SQLITE:
        return str(url)
    port = "" if url.port is None else f":{url.port}"
    return f"postgresql://{url.host or ''}{port}/{url.database or ''}"


LOCK_S, IDLE_S, CONNECT_S = 30, 10, 10
"""Longest waits for a lock, of a transaction for its next statement, and for a connection.

A transaction that hangs must not keep others from renewing their leases for `leases.STOPS_S`.
"""
SILENT_MS = 20_000
"""A connection is lost when what was sent over it has had no answer for so long."""
CERTAIN_S = 45.0
"""Longest wait for news of a cut-off commit: until the server has given up its transaction, too."""
AGAIN_S = 0.2
START_S = 15.0
"""How long a server that does not answer is asked again before the program gives up at its start."""
QUEUE: Final = "queue"
_SESSION = (
    f"-c lock_timeout={LOCK_S}s -c idle_in_transaction_session_timeout={IDLE_S}s -c jit=off "
    f"-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 -c tcp_user_timeout={SILENT_MS}"
)
"""For the server, which is to notice as soon as the client when the other is gone."""
_LINK: Final = {
    "connect_timeout": CONNECT_S,
    "client_encoding": "utf8",
    "application_name": "unifiednn",
    "options": _SESSION,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": SILENT_MS,
}
_PASSING = ("08", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE that pass by themselves: connection, rolled back, no resources, locked, ended by an operator."""
_PASSING_TOO = ("25006", "25P03", "25P04")  # a standby, and two timeouts
_QUEUE_LOCK, _LOCKS = (
    "pg_advisory_xact_lock(:queue)",
    "pg_advisory_xact_lock_shared(:queue), pg_advisory_xact_lock(:scope)",
)
_MARKED = (
    "WITH mark AS (INSERT INTO writers VALUES (:id, :number, extract(epoch FROM clock_timestamp())) ON CONFLICT (id) "
    "DO UPDATE SET number = excluded.number, at_s = excluded.at_s RETURNING number) SELECT number, {} FROM mark"
)
_MARK_QUEUE, _MARK = text(_MARKED.format(_QUEUE_LOCK)), text(_MARKED.format(_LOCKS))
_LOCK_QUEUE, _LOCK = text(f"SELECT {_QUEUE_LOCK}"), text(f"SELECT {_LOCKS}")
_LAST = text("SELECT number FROM writers WHERE id = :id")
_FORGET = text("DELETE FROM writers WHERE at_s < extract(epoch FROM clock_timestamp()) - :kept_s")
KEPT_S = 86_400.0
"""How long the mark of a connection is kept."""
_INSTALL = "Install it with: pip install 'unifiednn[postgres]'"
_REFUSALS = ("authentication failed", "does not exist", "pg_hba.conf", "not permitted", "permission denied")
"""Parts of what a server says that does not pass by itself. All else does: it starts, stops, recovers or is full."""


def engine_of(url: URL) -> Engine:
    """An engine for a server; nothing is sent yet. Raises `BadInput` if its driver is missing."""
    try:
        engine = create_engine(
            url,
            connect_args={name: value for name, value in _LINK.items() if name not in url.query},
            pool_pre_ping=True,
            hide_parameters=True,
            json_serializer=_json,
        )
    except ImportError as error:
        message = f"PostgreSQL needs the package psycopg, which cannot be used here: {error}."
        raise BadInput.of("Database", DATABASE_SETTING, message, _INSTALL) from None
    event.listen(engine, "connect", _without_nul)
    return engine


def require_answer(engine: Engine) -> None:
    """Wait until a server answers. Raises `BadInput` if it does not, or refuses this program."""
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            with engine.connect() as connection:
                encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
        except (DBAPIError, NoConnection) as error:
            said = str(getattr(error, "orig", error)).strip()
            refused = "FATAL" in said and any(part in said for part in _REFUSALS)
            if refused or not isinstance(error, OperationalError) or time.monotonic() > deadline_s:
                message = f"{shown(engine.url)} cannot be used: {said.splitlines()[0].rstrip('.')}."
                remedy = "Start the server, or correct the URL: its host, database, user and password."
                raise BadInput.of("Database", DATABASE_SETTING, message, remedy) from None
            time.sleep(AGAIN_S)
        else:
            if encoding != "UTF8":
                message = f"{shown(engine.url)} has the encoding {encoding}; names of files and people need UTF8."
                remedy = "Make it with: createdb --encoding UTF8 --template template0"
                raise BadInput.of("Database", DATABASE_SETTING, message, remedy)
            return


class WriteMark(NamedTuple):
    """What a transaction leaves in the table `writers`: its connection, and the number of its write there."""

    writer: str
    number: int
    scope: str


def make_writers(connection: Connection) -> None:
    """Make the table of the last write of each connection; idempotent."""
    connection.execute(_LOCK_QUEUE, _keys(QUEUE))  # even IF NOT EXISTS fails for one of two who make it at once
    connection.exec_driver_sql(
        "CREATE TABLE IF NOT EXISTS writers (id VARCHAR PRIMARY KEY, number BIGINT NOT NULL, at_s FLOAT NOT NULL)"
    )


def begin(session: Session, scope: str) -> WriteMark:
    """Take the locks of a scope until the end of the transaction, and leave its mark.

    Two of one scope never overlap, and nothing overlaps one of the scope `queue`, because all others share its lock.
    Taken in this order they cannot wait for each other in a circle.
    """
    known = session.connection().info  # of the connection, as long as that lasts
    writer, known["writes"] = known.setdefault("writer", uuid4().hex), known.get("writes", 0) + 1
    session.execute(_MARK_QUEUE if scope == QUEUE else _MARK, {"id": writer, "number": known["writes"], **_keys(scope)})
    if known["writes"] == 1:
        session.execute(_FORGET, {"kept_s": KEPT_S})
    return WriteMark(writer, known["writes"], scope)


def was_committed(engine: Engine, mark: WriteMark) -> bool:
    """Whether a transaction whose connection was lost during its commit took effect; waits until the server knows.

    False also if the server does not come back within `CERTAIN_S`. The number of the transaction itself says nothing:
    a server that crashed may give it to another one.
    """
    deadline_s = time.monotonic() + CERTAIN_S
    while time.monotonic() < deadline_s:
        try:
            with engine.connect() as connection:
                connection.execution_options(isolation_level="READ COMMITTED")  # to see what came while it waits
                connection.execute(_LOCK_QUEUE if mark.scope == QUEUE else _LOCK, _keys(mark.scope))  # so it is over
                return bool(connection.scalar(_LAST, {"id": mark.writer}) == mark.number)
        except (DBAPIError, NoConnection):
            time.sleep(AGAIN_S)
    return False


def as_callers_know_it(error: SQLAlchemyError) -> SQLAlchemyError:
    """The error that callers wait out, `OperationalError`, for whatever passes by itself; all others as they are."""
    if isinstance(error, NoConnection):
        return OperationalError("CONNECT", None, error)
    if not isinstance(error, DBAPIError) or isinstance(error, OperationalError):
        return error
    code = getattr(error.orig, "sqlstate", None) or ""
    passes = error.connection_invalidated or code[:2] in _PASSING or code in _PASSING_TOO
    lost = error.orig is not None and "connection is" in str(error.orig)  # closed, or lost
    return OperationalError(error.statement, None, error.orig or error) if passes or lost else error


def _keys(scope: str) -> dict[str, int]:
    return {"queue": _key(QUEUE), **({} if scope == QUEUE else {"scope": _key(scope)})}


def _key(scope: str) -> int:
    """A lock's number: equal scopes have the same in every process."""
    return int.from_bytes(blake2b(scope.encode(), digest_size=8, person=b"unifiednn").digest(), signed=True)


def _json(value: object) -> str:
    """JSON as SQLite would give it back, but numbers that JSON does not have are null: PostgreSQL refuses them."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(one) for key, one in value.items()}
        case list() | tuple():
            return [_finite(one) for one in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def _without_nul(connection: Any, _record: object) -> None:
    """Let text with a NUL be stored: PostgreSQL has none, and what people name must not break a log."""
    from psycopg.types.string import StrDumper

    class Text(StrDumper):
        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in obj else obj)

    connection.adapters.register_dumper(str, Text)
