"""The URL of the database: which kinds there are, and how to show one without its password."""

import os

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError

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
