"""How much service counts for each owner, for policies that share the device between owners.

As in stride scheduling (Waldspurger and Weihl, 1995), absence earns nothing: an owner who joins, for the first time or
again, begins level with the least served of those in line.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Shares:
    """Seconds of service by owner, since this began to count."""

    _service_s: dict[str, float] = field(default_factory=dict)
    _in_line: frozenset[str] = frozenset()
    _least_s: float = 0.0
    """Lowest service per ticket when it was last asked for."""

    def charge(self, owner: str, seconds: float) -> None:
        """Count a turn of one of the owner's sub-models."""
        self._service_s[owner] = self._service_s.get(owner, 0.0) + seconds

    def of(self, tickets: Mapping[str, float]) -> Mapping[str, float]:
        """Seconds of service of the owners in line now, with the tickets of each."""
        stayed = [self._service_s.get(owner, 0.0) / tickets[owner] for owner in self._in_line & tickets.keys()]
        self._least_s = min(stayed, default=self._least_s)
        for owner in tickets.keys() - self._in_line:
            self._service_s[owner] = max(self._service_s.get(owner, 0.0), self._least_s * tickets[owner])
        self._in_line = frozenset(tickets)
        return self._service_s
