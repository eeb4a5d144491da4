"""What is planned is the same for a seed, meets everything, and comes from people who exist."""

from collections import Counter

import pytest

from tools.chaos.cluster.plan import DECKS, FEW, FEW_STRIKES, HOSTS, LEASE, STRIKES, DatabaseName, cluster_exercise
from tools.chaos.pool_plan import BY_NAME, ON_CLUSTER

pytestmark = pytest.mark.parametrize("database", list(DatabaseName))


def test_the_same_seed_plans_the_same(database: DatabaseName) -> None:
    assert cluster_exercise(3, 5, database) == cluster_exercise(3, 5, database)
    assert cluster_exercise(3, 5, database) != cluster_exercise(4, 5, database)


def test_every_strike_comes_as_often_as_it_is_in_the_deck(database: DatabaseName) -> None:
    deck = DECKS[database]
    exercises = [cluster_exercise(0, number, database) for number in range(len(deck))]
    struck = Counter(strike.kind for one in exercises for strike in one.strikes)
    assert struck == {kind: count * STRIKES for kind, count in Counter(deck).items()}


def test_a_host_is_gone_for_a_moment_or_for_longer_than_its_lease(database: DatabaseName) -> None:
    strikes = [strike for number in range(40) for strike in cluster_exercise(0, number, database).strikes]
    away_s = [strike.lasts_s for strike in strikes if strike.kind in ("host", "stop", "split")]
    assert any(seconds < LEASE.stops_s for seconds in away_s)
    assert any(seconds > LEASE.lost_s for seconds in away_s)
    assert {strike.host for strike in strikes} == set(HOSTS)
    if database is DatabaseName.POSTGRES:
        ways = {(strike.to_server, strike.to_client) for strike in strikes if strike.kind == "split"}
        assert ways == {(True, True), (True, False), (False, True)}


def test_all_submit_once_and_few_in_a_short_exercise(database: DatabaseName) -> None:
    whole, short = cluster_exercise(0, 0, database), cluster_exercise(0, 0, database, FEW_STRIKES)
    assert sorted(asked.submodel or "" for one in whole.arrivals for asked in one.asks) == sorted(
        one.name for one in ON_CLUSTER
    )
    assert len(short.arrivals) == FEW
    assert len(short.strikes) == FEW_STRIKES


def test_no_two_networks_have_one_seed(database: DatabaseName) -> None:
    seeds = [one.seed(part) for one in BY_NAME.values() for part in one.epochs]
    assert len(seeds) == len(set(seeds))
