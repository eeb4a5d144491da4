"""The line of a simulated fleet, kept in order while entries come and go."""

from bisect import bisect_left
from itertools import count

from unifiednn_core.scheduling.line import Waiting

_Place = tuple[tuple[float, int], int]
"""What the line is ordered by, and who came first of equal ones."""


class StandingLine:
    """All that wait, in order."""

    def __init__(self) -> None:
        self.entries: list[Waiting] = []
        self.by_key: dict[str, Waiting] = {}
        """By key of each sub-model."""
        self._places: list[_Place] = []
        self._place_of: dict[int, _Place] = {}
        self._came = count()

    def add(self, entry: Waiting) -> None:
        """Put an entry in its place."""
        place = entry.order, next(self._came)
        at = bisect_left(self._places, place)
        self._places.insert(at, place)
        self.entries.insert(at, entry)
        self._place_of[id(entry)] = place
        self.by_key.update(dict.fromkeys(entry.keys, entry))

    def take(self, entry: Waiting) -> None:
        """Take an entry out."""
        at = bisect_left(self._places, self._place_of.pop(id(entry)))
        del self._places[at], self.entries[at]
        for key in entry.keys:
            del self.by_key[key]
