import pytest

from tests.clock import SimulatedClock
from tests.unit.service.kit import World, world
from unifiednn_core.base.paths import Home


@pytest.fixture
def here(home: Home, clock: SimulatedClock) -> World:
    return world(home, clock)
