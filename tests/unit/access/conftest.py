import pytest

from tests.unit.access.kit import World, world
from unifiednn_core.clock import SimulatedClock
from unifiednn_core.home import Home


@pytest.fixture
def here(home: Home, clock: SimulatedClock) -> World:
    return world(home, clock)
