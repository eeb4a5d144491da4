"""When to look at the store again: always, if it is on this machine; when it tells of news, if it is on a server."""

import time
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Protocol

from sqlalchemy import Engine, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

AFAR_S = 1.0
"""How often to look without news: reports are written then."""
AGAIN_S = 5.0
"""How often to connect again to a server that cannot be reached."""


class StoreNews(Protocol):
    """Says when to look."""

    def due(self) -> bool:
        """Whether to look now. Costs nothing, and never waits for a server that answers."""
        ...

    def close(self) -> None:
        """Hear no more."""
        ...


class Polled:
    """News of a store on this machine, where a look costs less than to be told."""

    def due(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Nothing is open."""


class Told:
    """News from a server, over a connection of its own. For one thread."""

    def __init__(self, engine: Engine, name: str):
        self._engine, self._channel = engine, channel_of(name)
        self._link: Any = None
        self._looked_at_s = self._tried_at_s = -AGAIN_S

    def due(self) -> bool:
        """Whether something was told, or `AFAR_S` have passed since the last look."""
        now_s = time.monotonic()
        if not (self._heard(now_s) or now_s - self._looked_at_s >= AFAR_S):
            return False
        self._looked_at_s = now_s
        return True

    def close(self) -> None:
        """Close the connection."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _heard(self, now_s: float) -> bool:
        """Whether something was told; also after a new connection, before which something may have been."""
        if self._link is None:
            return self._connect(now_s)
        try:
            self._link.pgconn.consume_input()
        except self._engine.dialect.loaded_dbapi.Error:
            self.close()
            return False
        heard = False
        while self._link.pgconn.notifies() is not None:
            heard = True
        return heard

    def _connect(self, now_s: float) -> bool:
        if now_s - self._tried_at_s < AGAIN_S:
            return False
        self._tried_at_s = now_s
        try:
            pooled = self._engine.raw_connection()
            link: Any = pooled.driver_connection
            pooled.detach()
            link.autocommit = True
            link.execute(f'LISTEN "{self._channel}"')
        except (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error):
            return False
        self._link = link
        return True


def tell(session: Session, names: Iterable[str]) -> None:
    """Tell of news of these names, once the transaction has been committed."""
    session.execute(select(*(func.pg_notify(channel_of(name), "") for name in sorted(set(names)))))


def channel_of(name: str) -> str:
    """Channel of a hybrid: names of channels are short."""
    return f"unifiednn_{blake2b(name.encode(), digest_size=12).hexdigest()}"
