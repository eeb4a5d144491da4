"""Several supervisors, each in a process of its own, race for one device."""

import multiprocessing
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.store.racing import PATIENCE_S, race
from tests.unit.store.test_store import add_run
from unifiednn_core.base.paths import Home
from unifiednn_core.store import Store

RACERS = 4
ROUNDS = 1000


def double_claims(database: Path, rounds: int) -> tuple[int, int]:
    """Claims, and rounds in which the device was claimed more than once."""
    with closing(Store(database)) as store:
        for racer in range(RACERS):
            add_run(store, f"r{racer}", created_at_s=float(racer))
    context = multiprocessing.get_context("spawn")
    together, won = context.Barrier(RACERS), context.Queue()
    racers = [context.Process(target=race, args=(database, me, rounds, together, won)) for me in range(RACERS)]
    for racer in racers:
        racer.start()
    claims = Counter(number for _ in racers for number in won.get(timeout=rounds + PATIENCE_S))
    for racer in racers:
        racer.join()
    return claims.total(), sum(times > 1 for times in claims.values())


@pytest.mark.slow
def test_a_device_is_never_claimed_twice_in_a_thousand_rounds(home: Home) -> None:
    assert double_claims(home.database, ROUNDS) == (ROUNDS, 0)
