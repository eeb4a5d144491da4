"""Several supervisors, each in a process of its own, race for one device."""

import multiprocessing
from collections import Counter
from contextlib import closing

import pytest

from tests.databases import Databases
from tests.unit.store.racing import PATIENCE_S, race
from tests.unit.store.test_store import add_run
from unifiednn_core.store import Store

RACERS = 4
ROUNDS = 1000


def double_claims(url: str, rounds: int) -> tuple[int, int]:
    """Claims, and rounds in which the device was claimed more than once."""
    with closing(Store(url)) as store:
        for racer in range(RACERS):
            add_run(store, f"r{racer}", created_at_s=float(racer))
    context = multiprocessing.get_context("spawn")
    together, won = context.Barrier(RACERS), context.Queue()
    racers = [context.Process(target=race, args=(url, me, rounds, together, won)) for me in range(RACERS)]
    for racer in racers:
        racer.start()
    claims = Counter(number for _ in racers for number in won.get(timeout=rounds + PATIENCE_S))
    for racer in racers:
        racer.join()
    return claims.total(), sum(times > 1 for times in claims.values())


@pytest.mark.slow
def test_a_device_is_never_claimed_twice_in_a_thousand_rounds(postgresql: Databases) -> None:
    with postgresql.chosen() as url:
        assert double_claims(url, ROUNDS) == (ROUNDS, 0)
