"""Changes to a run that lives, before they are asked for. Pure."""

from collections.abc import Mapping, Sequence

from unifiednn_core.lifecycle import ENDED, State
from unifiednn_core.views.runs import RunView, SubModelView

# An interrupted run waits to be resumed; what is changed meanwhile holds from then on.
OPEN = (frozenset(State) - ENDED - {State.DRAFT, State.STOPPING}) | {State.INTERRUPTED}


def is_open(thing: RunView | SubModelView) -> bool:
    """Whether something about a run or a sub-model can still be changed."""
    return thing.state in OPEN


def moved(names: Sequence[str], name: str, by: int) -> list[str]:
    """Names with one of them moved by so many places; it stays within the ends."""
    rest = [other for other in names if other != name]
    at = max(0, min(names.index(name) + by, len(rest)))
    return [*rest[:at], name, *rest[at:]]


def whole_order(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """All names, those in `wanted` in its order, each other one at the place that it has."""
    turn = iter(wanted)
    return [next(turn) if name in wanted else name for name in names]


def changed(known: Mapping[str, int], typed: Mapping[str, int]) -> dict[str, int]:
    """What was typed and differs."""
    return {name: value for name, value in typed.items() if value != known[name]}
