"""What goes wrong when: a pure function of a seed. The same seed plans the same exercises on every machine."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from unifiednn_core.base.failpoints import Fault
from unifiednn_core.spec.pooling import PoolMode
from unifiednn_core.spec.run import CheckpointSpec, LRSchedulerSpec, RunSpec, SubModelSpec

EPOCHS: Mapping[str, int] = {"lenet": 15, "resnet": 8, "transformer": 8}
STRETCHED: Mapping[str, int] = {name: epochs + 1 for name, epochs in EPOCHS.items()}
"""Epochs of a sub-model if one more is ordered during the training."""
CHECKPOINT_STEPS = 8
NEVER_S = 24 * 3600.0
_STEPS_PER_EPOCH = 23  # of the transformer: 1,437 digits in batches of 64


def short_demo(demo: RunSpec, epochs: Mapping[str, int] = EPOCHS) -> RunSpec:
    """Cut the demo; on a CPU and with one thread, so that equal bits can be asked for."""
    parts = tuple(short(part, epochs[part.name]) for part in demo.submodels)
    checkpoint = CheckpointSpec(every_s=NEVER_S, every_steps=CHECKPOINT_STEPS)
    changes = {"name": "chaos", "device": "cpu", "threads": 1, "checkpoint": checkpoint, "submodels": parts}
    return demo.model_copy(update=changes)


def short(part: SubModelSpec, epochs: int) -> SubModelSpec:
    """One cycle lasts as long as the longest training, whether it is stretched or not."""
    schedule = part.hyperparameters.lr_scheduler
    if schedule is not None and schedule.name == "one_cycle":
        total_steps = _STEPS_PER_EPOCH * STRETCHED[part.name]
        schedule = LRSchedulerSpec(name="one_cycle", args={**schedule.args, "total_steps": total_steps}, per="step")
    elif schedule is not None and schedule.name == "multi_step":
        schedule = LRSchedulerSpec(name="multi_step", args={"milestones": [3, 6], "gamma": 0.1})
    hyperparameters = part.hyperparameters.model_copy(update={"epochs": epochs, "lr_scheduler": schedule})
    return part.model_copy(update={"hyperparameters": hyperparameters})


Kind = Literal["point", "commands", "server", "moment", "damage", "clock"]


@dataclass(frozen=True, slots=True)
class Card:
    """`kind` says who is met: a worker at a `point`, the process that issues `commands`, the `server`, and so on."""

    kind: Kind
    action: str
    fault_point: str = ""
    hits: int = 1
    """The fault strikes at one of the first so many passings."""

    @property
    def name(self) -> str:
        """As a person reads it in a journal."""
        return f"{self.kind} {self.fault_point or ''} {self.action}".replace("  ", " ")

    @property
    def signal(self) -> bool:
        """Whether the fault ends the process."""
        return self.action in SIGNALS

    @property
    def place(self) -> int:
        """When it can be met: 0 at any time, later where a sub-model has to end first; the killing ones go first."""
        return 0 if not self.fault_point.startswith("separation") else 1 if self.signal else 2

    @property
    def on_request(self) -> bool:
        """Whether a worker meets it only after an order."""
        return self.fault_point.startswith(("command", "policy"))

    @property
    def downloads(self) -> bool:
        """Whether it is met by who downloads a model."""
        return self.fault_point.startswith("download")

    def fault(self, chance: random.Random) -> Fault:
        """Arm it for one of its passings; a disk stays full, and a store locked, for a while."""
        times = 1 if self.signal else chance.randint(1, 4)
        return Fault(self.fault_point, self.action, hit=chance.randint(1, self.hits), times=times)


SIGNALS = ("sigkill", "sigterm")
_HITS = {
    "checkpoint.before_write": 6,
    "checkpoint.before_fsync": 6,
    "checkpoint.before_rename": 6,
    "checkpoint.after_rename": 6,
    "store.before_commit": 25,
    "store.after_commit": 25,
    "command.before_effect": 3,
    "command.after_effect": 3,
    "policy.before_switch": 1,
    "policy.after_switch": 1,
    "separation.before_write": 2,
    "separation.before_rename": 2,
    "separation.after_rename": 2,
}
_ASKED_HITS = {
    "command.before_acknowledgement": 3,
    "command.after_acknowledgement": 3,
    "store.before_commit": 4,
    "store.after_commit": 4,
    "download.before_copy": 1,
    "download.before_rename": 1,
}
_DISK_POINTS = (
    "checkpoint.before_write",
    "checkpoint.before_fsync",
    "checkpoint.before_rename",
    "separation.before_write",
    "separation.before_rename",
)
_LOCKED: tuple[tuple[Kind, int], ...] = (("point", 25), ("commands", 4))
_MOMENTS = ("worker",) * 5 + ("server",) * 3 + ("both",) * 4 + ("commands",) * 2

DECK: tuple[Card, ...] = (
    *(Card("point", action, point, hits) for point, hits in _HITS.items() for action in SIGNALS),
    *(Card("point", action, point, _HITS[point]) for point in _DISK_POINTS for action in ("disk_full", "read_only")),
    *(Card("commands", action, point, hits) for point, hits in _ASKED_HITS.items() for action in SIGNALS),
    *(Card("server", action, f"store.{when}_commit", 4) for when in ("before", "after") for action in SIGNALS),
    *(Card(kind, "locked", "store.before_commit", hits) for kind, hits in _LOCKED),
    *(Card("moment", whom) for whom in _MOMENTS),
    *(Card("damage", how) for how in ("flip", "truncate") * 2),
    *(Card("clock", where) for where in ("forwards", "backwards")),
)


POLICIES: tuple[dict[str, Any], ...] = (
    {"name": "fcfs"},
    {"name": "priority"},
    {"name": "sjf"},
    {"name": "round_robin"},
    {"name": "round_robin", "unit": "steps", "amount": 3},
    {"name": "srtf"},
    {"name": "fair", "turn_s": 0.1},
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
    second_server_s: float | None = None
    """When a second server starts beside the first; it is there to the end, or until it meets `server_fault`."""
    damage: Damage | None = None
    jump_s: float | None = None
    """By how much the clock is set, forwards or backwards."""
    jump_at_s: float = 0.0
    errand: Errand | None = None


@dataclass(frozen=True, slots=True)
class Exercise:
    """One training of the demo, or of several submissions, with everything that goes wrong on its way."""

    number: int
    rounds: tuple[Round, ...]
    downloads: tuple[Errand, ...] = ()
    """Processes that download all models once they are there."""
    arrivals: tuple[Errand, ...] = ()
    """Processes that submit; seconds count from the start of the exercise."""
    mode: PoolMode = "pooled"
    """What the server does with shared submissions."""


def exercise(seed: int, number: int, rounds: int = ROUNDS) -> Exercise:
    """Plan one exercise of `rounds` cards, dealt from a shuffled deck, so that everything happens equally often."""
    chance = random.Random(f"{seed}/{number}")
    cards = sorted(_dealt(seed, number, rounds), key=lambda card: card.place)  # models are separated at the end
    stretched = chance.choice((None, *SUBMODELS))
    downloads = [Errand((Ask("download", None),), 0.0, card.fault(chance)) for card in cards if card.downloads]
    planned = [
        _round(chance, card, stretched if place == 1 else None)
        for place, card in enumerate(card for card in cards if not card.downloads)
    ]
    return Exercise(number, tuple(planned), tuple(downloads))


def _dealt(seed: int, number: int, rounds: int) -> list[Card]:
    cards: list[Card] = []
    for place in range(number * rounds, (number + 1) * rounds):
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
