import pytest

from tests.tools.bench.test_single import shown
from tools.bench import protection
from tools.bench.protection import Cost


def cost(added_s: float, work: str = "a step") -> Cost:
    return Cost(protection="p", work=work, without_s=(0.01, 0.01, 0.01), with_s=(0.01 + added_s, 0.01 + added_s, 1.0))


@pytest.mark.slow
def test_every_cost_is_measured_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protection, "_PAIRS", 3)
    found = protection.measure(repeats=2)
    assert [entry.protection for entry in found] == [name for name, _, _ in protection.COSTS]
    for entry in found:
        assert len(entry.without_s) == len(entry.with_s) == len(entry.ratios) == 2
        assert all(seconds > 0 for seconds in (*entry.without_s, *entry.with_s))


def test_what_a_step_pays_for_counts_together_and_what_a_turn_pays_for_by_itself() -> None:
    step, turn = cost(30e-6), cost(40e-6, protection.OF_A_TURN)
    assert protection.described((step, turn))["passed"] is True
    assert protection.described((step, step, turn))["passed"] is False
    assert protection.described((step, cost(60e-6, protection.OF_A_TURN)))["passed"] is False
    text = shown("protection", protection.described((step, turn)))
    assert "| p | a step | 10,000 µs | 10,030 µs | 1.0030 | +30.0 µs | +0.60% | yes |" in text
    assert "A step with one evaluated batch pays 0.60%." in text
