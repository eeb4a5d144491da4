from hypothesis import given
from hypothesis import strategies as st

from tests.clock import SimulatedClock
from unifiednn_core.machine.host import SamplingBudget


class Costs:
    """CPU time of a thread that only samples."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def __call__(self) -> float:
        return self.spent_s


def test_the_first_sample_is_due_at_once() -> None:
    assert SamplingBudget(SimulatedClock(5.0)).due()


def test_cheap_samples_come_five_times_a_second() -> None:
    clock = SimulatedClock()
    pace, taken = SamplingBudget(clock, cpu_s=Costs()), 0
    for _ in range(1000):
        clock.advance(0.01)
        if pace.due():
            taken += 1
            with pace.spending():
                pass
    assert 48 <= taken <= 51


def test_a_sample_that_failed_has_cost_as_much_and_is_not_due_again_at_once() -> None:
    clock, costs = SimulatedClock(), Costs()
    pace = SamplingBudget(clock, cpu_s=costs)
    try:
        with pace.spending():
            costs.spent_s += 0.02
            raise OSError
    except OSError:
        pass
    clock.advance(1.99)
    assert not pace.due()
    clock.advance(0.02)
    assert pace.due()


@given(
    costs_s=st.lists(st.floats(0.0, 0.2), min_size=1, max_size=30),
    ticks_s=st.lists(st.floats(0.001, 3.0), min_size=1, max_size=60),
    most_hz=st.floats(0.5, 20.0),
    most_share=st.floats(0.001, 0.5),
)
def test_no_sampler_takes_more_than_its_share(
    costs_s: list[float], ticks_s: list[float], most_hz: float, most_share: float
) -> None:
    clock, spent = SimulatedClock(), Costs()
    pace = SamplingBudget(clock, most_hz=most_hz, most_share=most_share, cpu_s=spent)
    costs, taken, before_last_s = list(costs_s), 0, 0.0
    for tick_s in ticks_s:
        if pace.due() and costs:
            before_last_s, taken = spent.spent_s, taken + 1
            with pace.spending():
                spent.spent_s += costs.pop()
        clock.advance(tick_s)
        if pace.due():
            assert spent.spent_s <= most_share * clock.monotonic_s() * (1 + 1e-9) + 1e-12
        assert before_last_s <= most_share * clock.monotonic_s() * (1 + 1e-9) + 1e-12
        assert taken <= 1 + most_hz * clock.monotonic_s() * (1 + 1e-9)
