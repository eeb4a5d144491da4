"""What people ask for while an exercise goes on. Planned here, carried out by a process of its own."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unifiednn_core.failpoints import Fault

POLICIES: tuple[dict[str, Any], ...] = (
    {"name": "fcfs"},
    {"name": "priority"},
    {"name": "sjf"},
    {"name": "round_robin"},
    {"name": "round_robin", "unit": "steps", "amount": 3},
)
VERBS = ("priority", "policy", "order", "save", "hold", "hold all")
"""What an ordinary errand is drawn from; `hold` pauses and resumes."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One thing asked for, of a sub-model or of the whole run; `value` is what the verb takes."""

    verb: str
    submodel: str | None
    value: Any = None


@dataclass(frozen=True, slots=True)
class Errand:
    """What one process asks for, one after the other, `after_s` seconds after a worker was started."""

    asks: tuple[Ask, ...]
    after_s: float
    fault: Fault | None = None
    kill_s: float | None = None
    """SIGKILL for the process that asks, so many seconds after its own start."""


def errand(
    chance: random.Random,
    submodels: Sequence[str],
    first: Sequence[Ask] = (),
    fault: Fault | None = None,
    kill_s: float | None = None,
) -> Errand:
    """Draw an errand that begins with `first`. Whatever it pauses it resumes."""
    asks = [_filled(chance, ask) for ask in first]
    for verb in chance.choices(VERBS, k=chance.randint(1, 3)):
        asks += _drawn(chance, verb, submodels)
    return Errand(tuple(asks), after_s=chance.uniform(0.0, 1.2), fault=fault, kill_s=kill_s)


def _drawn(chance: random.Random, verb: str, submodels: Sequence[str]) -> list[Ask]:
    name = chance.choice(submodels)
    match verb:
        case "hold":
            return [Ask("pause", name), Ask("resume", name)]
        case "hold all":
            return [Ask("pause", None), Ask("resume", None)]
        case "priority":
            return [Ask("priority", name, chance.randint(-3, 3))]
        case "order":
            return [Ask("order", None, tuple(chance.sample(submodels, k=len(submodels))))]
        case "save":
            return [Ask("save", chance.choice((name, None)))]
        case _:
            return [_filled(chance, Ask(verb, None))]


def _filled(chance: random.Random, ask: Ask) -> Ask:
    return Ask("policy", None, dict(chance.choice(POLICIES))) if ask.verb == "policy" and ask.value is None else ask
