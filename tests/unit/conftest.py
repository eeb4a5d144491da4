import pytest

from tests.clock import SimulatedClock
from unifiednn_core.base.paths import Home
from unifiednn_core.store import Store


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock(1000.0)


@pytest.fixture
def store(home: Home, clock: SimulatedClock) -> Store:
    return Store.open(home, clock)
