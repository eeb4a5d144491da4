"""Leases as properties: whoever is declared lost has stopped before, and nobody is condemned for an outage of all."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.store import leases

TICK_S, HEARTBEAT_S, LASTS_S = 0.5, 2.0, 150.0
Spans = Sequence[tuple[float, float]]
SPANS = st.lists(st.tuples(st.floats(0, 140), st.floats(0.5, 80)), max_size=3)
"""Begin and length of outages."""
NEVER: Spans = ()


@dataclass
class World:
    """A worker and its agent on one host, a judge on another, one database; each link may be cut, each may die."""

    all_cut: Spans = NEVER
    worker_cut: Spans = NEVER
    agent_cut: Spans = NEVER
    judge_cut: Spans = NEVER
    host_dies_at_s: float = float("inf")
    rate: float = 1.0
    """Of the worker's clock."""
    delay_s: float = 0.0
    """Between the moment that a worker remembers and the one that the database writes."""

    def __post_init__(self) -> None:
        self.heartbeat_at_s = self.host_at_s = self.judge_at_s = self.judge_since_s = 0.0
        self.renewed_s = 0.0
        self.lost_at_s: float | None = None
        self.steps_at_s: list[float] = []

    def run(self) -> "World":
        """Let time pass until the worker is declared lost; it takes a step whenever it may."""
        ticks = [at * TICK_S for at in range(int(LASTS_S / TICK_S))]
        for now_s in ticks:
            alive, up = now_s < self.host_dies_at_s, not _within(now_s, self.all_cut)
            if alive and up and not _within(now_s, self.worker_cut) and now_s % HEARTBEAT_S < TICK_S:
                self.heartbeat_at_s, self.renewed_s = now_s, (now_s - self.delay_s) * self.rate
            if alive and up and not _within(now_s, self.agent_cut) and now_s % leases.RENEW_S < TICK_S:
                self.host_at_s = now_s
            if alive and leases.may_step(self.renewed_s, now_s * self.rate):
                self.steps_at_s.append(now_s)
            if up and not _within(now_s, self.judge_cut):
                self._judge(now_s)
            if self.lost_at_s is not None:
                break
        return self

    def _judge(self, now_s: float) -> None:
        if now_s % leases.RENEW_S < TICK_S:
            self.judge_since_s = leases.since(self.judge_since_s, self.judge_at_s, now_s)
            self.judge_at_s = now_s
        may = leases.may_judge(self.judge_since_s, self.judge_at_s, now_s)
        if may and leases.is_lost(self.heartbeat_at_s, self.host_at_s, now_s):
            self.lost_at_s = now_s


def _within(now_s: float, spans: Spans) -> bool:
    return any(begin_s <= now_s < begin_s + length_s for begin_s, length_s in spans)


@given(SPANS, SPANS, SPANS, SPANS, st.floats(0.75, 1.25), st.floats(0, 5))
def test_a_worker_has_stopped_before_anybody_declares_it_lost(
    everybody: Spans, worker: Spans, agent: Spans, judge: Spans, rate: float, delay_s: float
) -> None:
    world = World(everybody, worker, agent, judge, rate=rate, delay_s=delay_s).run()
    if world.lost_at_s is not None:
        last_s = max(world.steps_at_s, default=0.0)
        assert world.lost_at_s - last_s >= leases.LOST_S - leases.STOPS_S / 0.75 - TICK_S


@given(SPANS)
def test_nobody_is_condemned_for_an_outage_of_the_database(everybody: Spans) -> None:
    assert World(everybody).run().lost_at_s is None


def test_a_lease_from_before_the_clock_was_set_back_has_run_out_and_one_renewed_since_has_not() -> None:
    before_s, now_s = 5000.0, 1000.0
    assert leases.is_lost(before_s, before_s, now_s)
    assert not leases.is_lost(before_s, now_s, now_s) and not leases.is_lost(now_s, before_s, now_s)
    assert not leases.may_judge(leases.since(before_s, before_s, now_s), now_s, now_s), "not before all could renew"


@given(st.floats(0, 100), SPANS)
def test_a_dead_host_is_missed_in_time_by_who_was_never_cut_off(dies_at_s: float, worker: Spans) -> None:
    world = World(worker_cut=worker, host_dies_at_s=dies_at_s).run()
    assert world.lost_at_s is not None
    assert world.lost_at_s <= max(dies_at_s, leases.LOST_S) + leases.LOST_S + leases.RENEW_S + TICK_S


@given(SPANS, SPANS)
def test_a_worker_is_never_lost_while_its_agent_is_heard(worker: Spans, judge: Spans) -> None:
    assert World(worker_cut=worker, judge_cut=judge).run().lost_at_s is None
