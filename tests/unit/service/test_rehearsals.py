"""Speeds of sub-models by the rows and turns of a run that trains."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.scheduling.rehearsal import LEAST_S, SETTLED_STEPS, SLOWDOWN, Pace
from unifiednn_core.service.rehearsals import FORECAST, paces_of, stretches_of
from unifiednn_core.store.schema import RunRow, SubModelRow
from unifiednn_core.store.speeds import TimedTurn

ALONE_S, BESIDE_S = 0.1, 0.15
"""Seconds of a step alone, and beside another sub-model."""


def run(**columns: Any) -> RunRow:
    return RunRow(id="r", threads=1, hybrid=None, started_at_s=0.0, **{"environment": {}, **columns})


def row(name: str, steps: int, service_s: float, **columns: Any) -> SubModelRow:
    plain: dict[str, Any] = {"state": "running", "memory_key": name, "device_kind": "EPYC", "lane": None}
    return SubModelRow(name=name, steps_done=steps, service_s=service_s, **{**plain, **columns})


def both(steps: int, **columns: Any) -> list[SubModelRow]:
    """Two that have stepped side by side in their first turns, which have not ended."""
    return [
        row(name, steps, steps * BESIDE_S, lane=lane, turn_since_s=0.0, **columns)
        for lane, name in enumerate("ab", start=1)
    ]


@given(st.integers(SETTLED_STEPS, 10**6))
def test_a_turn_beside_one_that_has_not_ended_either_is_company(steps: int) -> None:
    known = paces_of(run(), both(steps), (), {"a": Pace(ALONE_S)})
    assert known["a"].step_s == pytest.approx(ALONE_S) and known["a"].slowdown == pytest.approx(BESIDE_S / ALONE_S)
    assert known["b"].step_s == pytest.approx(BESIDE_S / SLOWDOWN), "nothing else is known of it"


def test_cpu_seconds_are_those_of_ended_turns() -> None:
    first = [TimedTurn(name, 0.0, SETTLED_STEPS * BESIDE_S, SETTLED_STEPS) for name in "ab"]
    seen = {
        turns_steps: paces_of(
            run(),
            [
                row(
                    name,
                    turns_steps,
                    turns_steps * BESIDE_S,
                    lane=1,
                    turn_since_s=SETTLED_STEPS * BESIDE_S,
                    cpu_s=SETTLED_STEPS * ALONE_S,
                )
                for name in "ab"
            ],
            first,
            {},
        )
        for turns_steps in (SETTLED_STEPS, 2 * SETTLED_STEPS, 50 * SETTLED_STEPS)
    }
    for known in seen.values():
        assert known["a"].step_s == pytest.approx(ALONE_S)


def test_few_steps_mostly_warm_up_so_the_forecast_of_the_run_goes_on() -> None:
    few, long = SETTLED_STEPS // 2, 2 * SETTLED_STEPS
    slow = {"service_s": LEAST_S / 2, "step_s": 7 * ALONE_S}
    kept = run(environment={FORECAST: {"step_s": {"a": ALONE_S}}})
    assert paces_of(kept, [row("a", few, **slow)], (), {"a": Pace(1.0)})["a"] == Pace(ALONE_S)
    assert paces_of(run(), [row("a", few, **slow)], (), {"a": Pace(1.0)})["a"] == Pace(1.0)
    assert paces_of(run(), [row("a", few, **slow)], (), {})["a"] == Pace(7 * ALONE_S), "nothing else is known"
    turns = [TimedTurn("a", 0.0, long * ALONE_S, long)]
    assert paces_of(kept, [row("a", long, long * ALONE_S)], turns, {})["a"].step_s == pytest.approx(ALONE_S)


def test_a_running_turn_counts_only_if_all_before_it_are_known() -> None:
    now = row("a", 50, 5.0, lane=1, turn_since_s=9.0)
    whole = [TimedTurn("a", 0.0, 2.0, 20, 0), TimedTurn("a", 2.0, 4.0, 20, 20)]
    assert stretches_of(run(), [now], whole)[-1] == ("a", 9.0, 10.0, 10)
    assert len(stretches_of(run(), [now], whole[1:])) == 1, "its part of the service is not known"
    assert stretches_of(run(), [now], ())[-1] == ("a", 9.0, 14.0, 50)
