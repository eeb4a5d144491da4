"""What goes wrong when: a pure function of a seed. The same seed gives the same exercises on every machine."""

import random
from dataclasses import dataclass, replace

from unifiednn_core.drill.cards import DECK, Card
from unifiednn_core.drill.demo import EPOCHS
from unifiednn_core.drill.errands import Ask, Errand, errand
from unifiednn_core.failpoints import Fault

ROUNDS = 12
"""Workers of one exercise that something happens to; the one after them trains to the end."""
LONGEST_JUMP_S = 12 * 3600.0
SUBMODELS = tuple(EPOCHS)
FRESH_SHARE = 0.1
"""Of all workers: new interpreters, which show that nothing depends on the fork."""
LATEST_S = 5.0
"""A worker that does not come to what it should die of is killed all the same."""
_KILLING = tuple(
    card for card in DECK if card.kind == "point" and card.signal and not card.place and not card.on_request
)


@dataclass(frozen=True, slots=True)
class Damage:
    """What happens to the newest checkpoint of a sub-model before a worker starts: `flip` a byte, or `truncate` it."""

    how: str
    share: float
    """Place in the file, as a share of its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What happens to one worker, and around it. Seconds count from its start."""

    card: str
    fresh: bool = False
    """A new interpreter instead of a fork of one that has torch loaded."""
    fault: Fault | None = None
    kill_s: float | None = None
    """SIGKILL for the worker, should it still be there."""
    kill_server_s: float | None = None
    server_down_s: float = 0.0
    server_fault: Fault | None = None
    """Armed in the server that comes up next."""
    damage: Damage | None = None
    jump_s: float | None = None
    """By how much the clock is set, forwards or backwards."""
    jump_at_s: float = 0.0
    errand: Errand | None = None


@dataclass(frozen=True, slots=True)
class Exercise:
    """One training of the demo with everything that goes wrong on its way."""

    number: int
    rounds: tuple[Round, ...]
    downloads: tuple[Errand, ...] = ()
    """Processes that download all models once they are there."""


def exercise(seed: int, number: int) -> Exercise:
    """Plan one exercise. Cards are dealt from a shuffled deck, so that everything happens equally often."""
    chance = random.Random(f"{seed}/{number}")
    cards = sorted(_dealt(seed, number), key=lambda card: card.place)  # models are separated at the end
    stretched = chance.choice((None, *SUBMODELS))
    downloads = [Errand((Ask("download", None),), 0.0, card.fault(chance)) for card in cards if card.downloads]
    rounds = [_round(chance, card, stretched if place == 1 else None)
              for place, card in enumerate(card for card in cards if not card.downloads)]  # fmt: skip
    return Exercise(number, tuple(rounds), tuple(downloads))


def _dealt(seed: int, number: int) -> list[Card]:
    cards: list[Card] = []
    for place in range(number * ROUNDS, (number + 1) * ROUNDS):
        shuffle, rest = divmod(place, len(DECK))
        deck = list(DECK)
        random.Random(f"{seed}/deck {shuffle}").shuffle(deck)
        cards.append(deck[rest])
    return cards


def _round(chance: random.Random, card: Card, stretched: str | None) -> Round:
    first = (Ask("epochs", stretched, EPOCHS[stretched] + 1),) if stretched is not None else ()
    ordinary = errand(chance, SUBMODELS, first) if first or chance.random() < 0.5 else None
    soon_s, killing = chance.uniform(0.8, 2.5), chance.choice(_KILLING).fault(chance)
    met = Round(card=card.name, errand=ordinary, fault=killing, kill_s=LATEST_S)
    match card.kind:
        case "point":
            needed = (*first, Ask("policy", None)) if card.on_request else ()
            fresh = card.signal and chance.random() < FRESH_SHARE
            asked = errand(chance, SUBMODELS, needed) if needed else ordinary
            kill_s = LATEST_S * (1 + fresh) if card.signal else None if card.place else soon_s
            return replace(met, fresh=fresh, fault=card.fault(chance), kill_s=kill_s, errand=asked)
        case "commands":
            return replace(met, errand=errand(chance, SUBMODELS, first, card.fault(chance)))
        case "server":
            fault = card.fault(chance)
            return replace(met, fault=None, kill_s=soon_s, kill_server_s=soon_s, server_fault=fault)
        case "moment":
            return _moment(chance, card, met)
        case "damage":
            return replace(met, damage=Damage(card.action, chance.random()))
        case _:
            jump_s = chance.uniform(600.0, LONGEST_JUMP_S) * (1 if card.action == "forwards" else -1)
            return replace(met, jump_s=jump_s, jump_at_s=chance.uniform(0.0, 1.5))


def _moment(chance: random.Random, card: Card, met: Round) -> Round:
    """Kill at no named point, but whenever it falls."""
    fresh = chance.random() < FRESH_SHARE and card.action in ("worker", "both")
    now_s = chance.uniform(0.0, 2.5) * (1 + fresh)  # most of it goes into loading torch
    down_s = chance.choice((0.0, chance.uniform(0.0, 1.5)))
    match card.action:
        case "worker":
            return replace(met, fresh=fresh, fault=None, kill_s=now_s)
        case "server":
            return replace(met, kill_server_s=now_s, server_down_s=down_s)
        case "both":
            return replace(met, fresh=fresh, fault=None, kill_s=now_s, kill_server_s=now_s, server_down_s=down_s)
        case _:
            return replace(met, errand=errand(chance, SUBMODELS, (), kill_s=chance.uniform(0.0, 0.1)))
