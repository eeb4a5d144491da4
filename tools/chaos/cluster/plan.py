"""What goes wrong on a cluster, and when: a pure function of a seed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from tools.chaos.plan import Ask, Errand, Round
from tools.chaos.pool_plan import ON_CLUSTER, Submission, errand
from unifiednn_core.base.failpoints import Fault
from unifiednn_core.spec.pooling import PoolMode

Kind = Literal["worker", "agent", "host", "stop", "people", "connection", "database", "split", "locked", "files"]
HOSTS = ("a", "b")


class DatabaseName(Enum):
    """Where the store of a cluster is."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """How soon a host is missed, in seconds, by the names of `store.leases`.

    A fifth of what the product takes, so that a drill can wait for it.
    """

    renew_s: float = 1.0
    gap_s: float = 3.0
    """Renewals further apart are no unbroken row."""
    stops_s: float = 4.0
    """A worker that could not renew for so long takes no more steps."""
    lost_s: float = 6.0
    """A host that has not renewed for so long is declared lost."""


LEASE = Lease()


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault from outside. `share` draws whom it meets among several."""

    kind: Kind
    after_s: float
    """Since the strike before."""
    host: str = ""
    lasts_s: float = 0.0
    """Until the host, network, database or blob store is back."""
    share: float = 0.0
    to_server: bool = True
    """Whether a split holds back what the host sends."""
    to_client: bool = True
    reset: bool = False
    """Whether a split ends with a reset of all connections."""


@dataclass(frozen=True, slots=True)
class ClusterExercise:
    """A few submissions, and everything that goes wrong on their way."""

    number: int
    strikes: tuple[Strike, ...]
    arrivals: tuple[Errand, ...]
    """Processes that submit; the first at once, the others between strikes."""
    errands: tuple[Errand, ...]
    """Orders, one process for each, between strikes."""
    fates: tuple[Round, ...]
    """What the workers that are started one after the other die of by themselves."""
    agent_faults: tuple[Fault | None, ...]
    """The same for the agents that are started after a death."""
    mode: PoolMode
    rounds: tuple[Round, ...] = ()
    """As of other exercises: what happened to a worker by its number."""


STRIKES = 12
FEW, FEW_STRIKES = 3, 5
"""Submissions of an exercise with no more strikes than that."""
_WORKER_POINTS: Mapping[str, int] = {
    "checkpoint.before_rename": 4,
    "checkpoint.after_rename": 4,
    "store.before_commit": 15,
    "store.after_commit": 15,
    "command.before_effect": 1,
    "command.after_effect": 1,
    "placement.before_leave": 1,
    "placement.after_leave": 1,
    "separation.before_rename": 1,
    "separation.after_rename": 1,
    "placement.before_close": 1,
    "placement.after_close": 1,
}
"""Points that a worker passes, and among how many passings the fault is dealt."""
_AGENT_POINTS: Mapping[str, int] = {
    "store.before_commit": 6,
    "store.after_commit": 6,
    **dict.fromkeys(("blob.before_put", "blob.before_rename", "blob.after_put", "blob.before_delete"), 4),
    **{
        f"placement.{when}_{what}": 1
        for what in ("open", "join", "restart", "give_back")
        for when in ("before", "after")
    },
}
_PEOPLE_POINTS = ("command.before_acknowledgement", "command.after_acknowledgement", "store.after_commit")
_DISK_POINTS = ("checkpoint.before_write", "checkpoint.before_rename", "separation.before_write")
_EVERYWHERE: tuple[Kind, ...] = (
    *("worker",) * 9,
    *("agent",) * 6,
    *("host",) * 6,
    *("stop",) * 3,
    *("people",) * 2,
    "files",
)
DECKS: Mapping[DatabaseName, tuple[Kind, ...]] = {
    DatabaseName.SQLITE: (*_EVERYWHERE, *("locked",) * 2),
    DatabaseName.POSTGRES: (*_EVERYWHERE, *("connection",) * 5, *("split",) * 4, "database"),
}
"""Strikes by database. A deck is dealt out before it is shuffled again, so each happens as often as it is in it."""


def cluster_exercise(
    seed: int, number: int, database: DatabaseName, strikes: int = STRIKES, lease: Lease = LEASE
) -> ClusterExercise:
    """Plan one exercise."""
    chance = random.Random(f"cluster {database.value} {seed}/{number}")
    few = strikes <= FEW_STRIKES
    submitted = tuple(chance.sample(ON_CLUSTER, k=FEW if few else len(ON_CLUSTER)))
    return ClusterExercise(
        number=number,
        strikes=tuple(_strike(chance, kind, lease) for kind in _dealt(seed, number, database, strikes)),
        arrivals=tuple(Errand((Ask("submit", one.name),), 0.0) for one in submitted),
        errands=tuple(_errand(chance, submitted) for _ in range(max(1, strikes // 3))),
        fates=tuple(_fate(chance) for _ in range(strikes)),
        agent_faults=tuple(_of_agent(chance) for _ in range(strikes)),
        mode="pooled" if few else chance.choice(("pooled", "pooled", "pooled", "private")),
    )


def _dealt(seed: int, number: int, database: DatabaseName, strikes: int) -> list[Kind]:
    deck, kinds = DECKS[database], list[Kind]()
    for place in range(number * strikes, (number + 1) * strikes):
        shuffle, rest = divmod(place, len(deck))
        dealt = list(deck)
        random.Random(f"cluster {database.value} {seed}/deck {shuffle}").shuffle(dealt)
        kinds.append(dealt[rest])
    return kinds


def _strike(chance: random.Random, kind: Kind, lease: Lease) -> Strike:
    soon_s, longer_s = chance.uniform(0.2, 1.0), chance.uniform(lease.lost_s + 0.5, lease.lost_s + 3.0)
    lasts_s = {
        "agent": chance.choice((0.0, soon_s)),
        "host": chance.choice((0.0, soon_s, longer_s, longer_s)),
        "stop": chance.choice((soon_s, longer_s, longer_s)),
        "split": chance.choice((soon_s, lease.stops_s + soon_s, longer_s, longer_s)),
        "database": soon_s,
        "locked": soon_s + 1.0,
        "files": soon_s + 1.0,
    }.get(kind, 0.0)
    to_server, to_client = chance.choice(((True, True), (True, False), (False, True)))
    return Strike(
        kind=kind,
        after_s=chance.uniform(0.2, 1.8),
        host=chance.choice(HOSTS),
        lasts_s=lasts_s,
        share=chance.random(),
        to_server=to_server,
        to_client=to_client,
        reset=chance.random() < 0.5,
    )


def _errand(chance: random.Random, submitted: Sequence[Submission]) -> Errand:
    """Orders of a person, who may be killed while giving them."""
    dies = chance.random() < 0.3
    fault = Fault(chance.choice(_PEOPLE_POINTS), "sigkill", hit=chance.randint(1, 2)) if dies else None
    return errand(chance, submitted, fault=fault)


def _fate(chance: random.Random) -> Round:
    """Die at a point, meet a disk that is full for a while, or nothing."""
    if chance.random() < 0.1:
        action = chance.choice(("disk_full", "read_only"))
        fault = Fault(chance.choice(_DISK_POINTS), action, hit=chance.randint(1, 3), times=chance.randint(1, 4))
        return Round(card="disk", fault=fault)
    return Round(card="point", fault=_maybe(chance, _WORKER_POINTS, 0.5))


def _of_agent(chance: random.Random) -> Fault | None:
    """Die at a point, find the place of shared files full for a while, or nothing."""
    if chance.random() < 0.15:
        action = chance.choice(("disk_full", "read_only"))
        return Fault("blob.before_rename", action, hit=chance.randint(1, 4), times=chance.randint(1, 4))
    return _maybe(chance, _AGENT_POINTS, 0.5)


def _maybe(chance: random.Random, points: Mapping[str, int], share: float) -> Fault | None:
    if chance.random() >= share:
        return None
    point = chance.choice(sorted(points))
    return Fault(point, chance.choice(("sigkill", "sigkill", "sigterm")), hit=chance.randint(1, points[point]))
