"""What goes wrong when several people's submissions share hybrids: a pure function of a seed, as for one run."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tools.chaos.plan import FRESH_SHARE, LATEST_S, SIGNALS, Ask, Card, Damage, Errand, Exercise, Round
from unifiednn_core.base.failpoints import Fault
from unifiednn_core.spec.pooling import PoolMode


@dataclass(frozen=True, slots=True)
class Submission:
    """What a person submits: networks of the demo with their epochs, each with a seed of its own."""

    name: str
    owner: str
    epochs: Mapping[str, int]
    diverges: bool = False
    """It fails at first, until a person retries it with a smaller learning rate."""
    private: bool = False
    """It trains in a hybrid of its own."""

    def seed(self, part: str) -> int:
        """Seed of one of its networks; no two of all submissions are equal, so that swapped ones are noticed."""
        return 1 + 10 * list(BY_NAME).index(self.name) + sorted(self.epochs).index(part)


SUBMISSIONS = (
    Submission("ana's lenet", "ana", {"lenet": 7}),
    Submission("ben's resnet", "ben", {"resnet": 5}),
    Submission("cleo's pair", "cleo", {"lenet": 4, "transformer": 3}),
    Submission("dora's lenet", "dora", {"lenet": 5}),
    Submission("ana's transformer", "ana", {"transformer": 5}),
    Submission("ben's mistake", "ben", {"lenet": 3}, diverges=True),
)
TEAM = ("ana", "ben", "cleo")
"""Who may share a process; dora is in no team."""
ON_CLUSTER = (
    Submission("ana's small lenet", "ana", {"lenet": 5}),
    Submission("ben's own lenet", "ben", {"lenet": 4}, private=True),
    Submission("cleo's small pair", "cleo", {"lenet": 3, "transformer": 2}),
    Submission("dora's small lenet", "dora", {"lenet": 4}),
    Submission("ana's small transformer", "ana", {"transformer": 3}),
    Submission("ben's small mistake", "ben", {"lenet": 3}, diverges=True),
    Submission("cleo's own resnet", "cleo", {"resnet": 3}, private=True),
    Submission("dora's small pair", "dora", {"lenet": 3, "resnet": 2}),
)
"""Smaller ones, for the drill on a cluster."""
LONG = (
    Submission("erik's long lenet", "erik", {"lenet": 160}),
    Submission("erik's own long lenet", "erik", {"lenet": 161}, private=True),
)
"""Long enough for something to happen in the middle."""
BY_NAME = {one.name: one for one in (*SUBMISSIONS, *ON_CLUSTER, *LONG)}
ROUNDS = 12
FEW = 3
"""Submissions of an exercise of few rounds."""
LAST_ARRIVAL_S = 6.0
LONGEST_JUMP_S = 12 * 3600.0

_OF_WORKER = {
    "checkpoint.before_write": 6,
    "checkpoint.before_rename": 6,
    "checkpoint.after_rename": 6,
    "store.before_commit": 25,
    "store.after_commit": 25,
    "command.before_effect": 1,
    "command.after_effect": 1,
    "placement.before_release": 1,
    "placement.before_leave": 1,
    "placement.after_leave": 1,
    "separation.before_write": 2,
    "separation.before_rename": 2,
    "separation.after_rename": 2,
    "placement.before_close": 1,
    "placement.after_close": 1,
}
"""Points that a worker passes, and among how many passings the fault is dealt."""
_WHEN = ("before", "after")
_OF_SERVER = {
    **{f"store.{when}_commit": 4 for when in _WHEN},
    **{f"placement.{when}_{what}": 1 for what in ("open", "join", "restart", "give_back") for when in _WHEN},
}
_ASKED = {
    "command.before_acknowledgement": 2,
    "command.after_acknowledgement": 2,
    "store.before_commit": 4,
    "store.after_commit": 4,
}
_DISK_POINTS = (
    "checkpoint.before_write",
    "checkpoint.before_rename",
    "separation.before_write",
    "separation.before_rename",
)
_MOMENTS = (
    *("worker",) * 6,
    *("server",) * 3,
    *("second server",) * 3,
    *("both",) * 4,
    *("commands",) * 2,
    *("drain",) * 4,
)
_LATE = ("separation", "placement.before_close", "placement.after_close")
"""Points that a worker passes once a sub-model has ended."""

DECK: tuple[Card, ...] = (
    *(Card("point", action, point, hits) for point, hits in _OF_WORKER.items() for action in SIGNALS),
    *(Card("point", action, point, 4) for action in ("disk_full", "read_only") for point in _DISK_POINTS),
    *(Card("server", action, point, hits) for point, hits in _OF_SERVER.items() for action in SIGNALS),
    *(Card("commands", action, point, hits) for point, hits in _ASKED.items() for action in SIGNALS),
    Card("point", "locked", "store.before_commit", 25),
    *(Card("moment", whom) for whom in _MOMENTS),
    *(Card("damage", how) for how in ("flip", "truncate")),
    *(Card("clock", where) for where in ("forwards", "backwards")),
)
VERBS = ("hold", "hold all", "priority", "save", "move", "move", "drain")
_MODES: tuple[PoolMode, ...] = ("pooled",) * 6 + ("gathered", "private")


def pool_exercise(seed: int, number: int, rounds: int = ROUNDS) -> Exercise:
    """Plan one exercise of `rounds` cards, dealt from a shuffled deck, so that everything happens equally often."""
    chance = random.Random(f"pooled {seed}/{number}")
    few = rounds < ROUNDS
    submitted = tuple(chance.sample(submitted_in(rounds), k=len(submitted_in(rounds))))
    cards = _dealt(seed, number, rounds)
    once = _only_once(chance, submitted)
    planned = tuple(_round(chance, card, submitted, once) for card in cards)
    times_s = sorted(chance.uniform(0.0, LAST_ARRIVAL_S / (1 + few)) for _ in submitted[1:])
    arrivals = tuple(
        Errand((Ask("submit", one.name),), at_s) for one, at_s in zip(submitted, (0.0, *times_s), strict=True)
    )
    return Exercise(number, planned, arrivals=arrivals, mode="pooled" if few else chance.choice(_MODES))


def submitted_in(rounds: int) -> tuple[Submission, ...]:
    """What people submit in exercises of so many rounds."""
    return SUBMISSIONS[:FEW] if rounds < ROUNDS else SUBMISSIONS


def _dealt(seed: int, number: int, rounds: int) -> list[Card]:
    cards: list[Card] = []
    for place in range(number * rounds, (number + 1) * rounds):
        shuffle, rest = divmod(place, len(DECK))
        deck = list(DECK)
        random.Random(f"pooled {seed}/deck {shuffle}").shuffle(deck)
        cards.append(deck[rest])
    return cards


def _only_once(chance: random.Random, submitted: Sequence[Submission]) -> list[Ask]:
    """Orders that are given once in an exercise: one epoch more, a stop."""
    part = chance.choice([f"{one.name}/{name}" for one in submitted if not one.diverges for name in one.epochs])
    name, _, network = part.rpartition("/")
    asks = [Ask("epochs", part, BY_NAME[name].epochs[network] + 1)]
    if chance.random() < 0.3:
        asks.append(Ask(chance.choice(("stop", "discard")), chance.choice(submitted).name))
    return asks


def errand(
    chance: random.Random,
    submitted: Sequence[Submission],
    first: Sequence[Ask] = (),
    fault: Fault | None = None,
    kill_s: float | None = None,
) -> Errand:
    """Draw an errand that begins with `first`. Whatever it pauses it resumes, whatever it drains it makes ready."""
    asks = list(first)
    for verb in chance.choices(VERBS, k=chance.randint(1, 2)):
        asks += _drawn(chance, verb, submitted)
    return Errand(tuple(asks), after_s=chance.uniform(0.0, 1.5), fault=fault, kill_s=kill_s)


def _drawn(chance: random.Random, verb: str, submitted: Sequence[Submission]) -> list[Ask]:
    one = chance.choice(submitted)
    part = f"{one.name}/{chance.choice(sorted(one.epochs))}"
    match verb:
        case "hold":
            return [Ask("pause", part), Ask("resume", part)]
        case "hold all":
            return [Ask("pause", one.name), Ask("resume", one.name)]
        case "priority":
            return [Ask("priority", part, chance.randint(-3, 3))]
        case "save":
            return [Ask("save", chance.choice((part, one.name)))]
        case "drain":
            return [Ask("drain", None, chance.random()), Ask("ready", None)]
        case _:
            return [Ask("move", None, chance.random())]


def _round(chance: random.Random, card: Card, submitted: Sequence[Submission], once: list[Ask]) -> Round:
    first = [once.pop(0)] if once and chance.random() < 0.3 else []
    ordinary = errand(chance, submitted, first) if first or chance.random() < 0.6 else None
    soon_s, fresh = chance.uniform(0.5, 2.5), card.signal and chance.random() < FRESH_SHARE
    met = Round(card=card.name, errand=ordinary, kill_s=soon_s)
    match card.kind:
        case "point":
            asked = errand(chance, submitted, [*first, *_needed(chance, card, submitted)]) if card.signal else ordinary
            late = card.fault_point.startswith(_LATE)
            kill_s = LATEST_S * (1 + fresh + late) if card.signal else soon_s
            return replace(met, fresh=fresh, fault=card.fault(chance), kill_s=kill_s, errand=asked)
        case "commands":
            return replace(met, errand=errand(chance, submitted, first, card.fault(chance)))
        case "server":
            return _server(chance, replace(met, kill_server_s=soon_s), card, submitted, first)
        case "moment":
            return _moment(chance, card, met, submitted)
        case "damage":
            return replace(met, damage=Damage(card.action, chance.random()))
        case _:
            jump_s = chance.uniform(600.0, LONGEST_JUMP_S) * (1 if card.action == "forwards" else -1)
            return replace(met, jump_s=jump_s, jump_at_s=chance.uniform(0.0, 1.5))


def _needed(chance: random.Random, card: Card, submitted: Sequence[Submission]) -> list[Ask]:
    """Orders without which a worker does not come to the point."""
    if card.fault_point.startswith("command"):
        return [ask for one in submitted for ask in _drawn(chance, "save", (one,))]
    if card.fault_point.startswith(("placement.before_release", "placement.before_leave", "placement.after_leave")):
        return [ask for verb in ("move", "hold", "move") for ask in _drawn(chance, verb, submitted)]
    return []


def _server(chance: random.Random, met: Round, card: Card, submitted: Sequence[Submission], first: list[Ask]) -> Round:
    """Kill worker and server, and let the next server meet the point."""
    give_back = "give_back" in card.fault_point
    verbs = ("drain",) if give_back else ("move", "hold", "move")
    asks = [ask for verb in verbs for ask in _drawn(chance, verb, submitted)]
    asked = replace(errand(chance, submitted, [*first, *asks]), after_s=chance.uniform(0.3, 1.0))
    at_s = asked.after_s + chance.uniform(0.0, 0.4) if give_back else met.kill_s
    return replace(met, kill_s=at_s, kill_server_s=at_s, server_fault=card.fault(chance), errand=asked)


def _moment(chance: random.Random, card: Card, met: Round, submitted: Sequence[Submission]) -> Round:
    """Kill at no named point, but whenever it falls."""
    fresh = chance.random() < FRESH_SHARE and card.action in ("worker", "both")
    now_s = chance.uniform(0.0, 2.5) * (1 + fresh)  # most of it goes into loading torch
    down_s = chance.choice((0.0, chance.uniform(0.0, 1.5)))
    match card.action:
        case "worker":
            return replace(met, fresh=fresh, kill_s=now_s)
        case "second server":
            return replace(met, kill_s=now_s + 1.0, kill_server_s=now_s, second_server_s=now_s / 2)
        case "drain":
            drained = errand(chance, submitted, _drawn(chance, "drain", submitted))
            return replace(met, errand=drained, kill_s=drained.after_s + chance.uniform(0.0, 0.6))
        case "server":
            return replace(met, kill_s=None, kill_server_s=now_s, server_down_s=down_s)
        case "both":
            return replace(met, fresh=fresh, kill_s=now_s, kill_server_s=now_s, server_down_s=down_s)
        case _:
            return replace(met, errand=errand(chance, submitted, kill_s=chance.uniform(0.0, 0.1)))
