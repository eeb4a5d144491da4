"""Order of the line: what a move changes. Pure."""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeVar

Entry = TypeVar("Entry")


def moved(line: Sequence[Entry], at: int, to: int) -> list[Entry]:
    """The line with one entry taken from one place to another; the order of all others stays."""
    others = [*line[:at], *line[at + 1 :]]
    return [*others[:to], line[at], *others[to:]]


def rising(keys: Iterable[float]) -> list[float]:
    """The keys of a line, each above the one before it: equal ones are raised by as little as a float can say.

    Runs exchange the keys that they have, so however often they are moved, no key is needed between two others.
    """
    return list(accumulate(keys, lambda before, key: max(key, math.nextafter(before, math.inf))))
