from dataclasses import replace

import pytest

from tools.bench import overhead
from tools.bench.overhead import Overhead, measure


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [(replace(network, samples=96, epochs=3), turns) for network, turns in overhead._CASES]
    monkeypatch.setattr(overhead, "_CASES", tuple(cases))


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_bare_and_engine_train_the_same_number_of_steps_to_the_same_bits() -> None:
    found = measure(repeats=2)
    assert [(entry.submodels, entry.quantum, entry.steps) for entry in found] == 2 * [
        (1, "to completion", 9),
        (3, "1 step", 9),
    ]
    for entry in found:
        assert entry.identical_weights
        assert len(entry.bare_step_s) == len(entry.engine_step_s) == len(entry.ratios) == 2
        assert all(seconds > 0 for seconds in (*entry.bare_step_s, *entry.engine_step_s))


@pytest.mark.parametrize(
    ("bare_s", "engine_s", "holds"),
    [(1e-4, 1.39e-4, True), (1e-4, 1.41e-4, False), (1e-2, 1.019e-2, True), (1e-2, 1.021e-2, False)],
)
def test_what_is_promised_depends_on_how_long_a_step_takes(bare_s: float, engine_s: float, holds: bool) -> None:
    entry = Overhead(
        network="net",
        submodels=1,
        quantum="1 step",
        steps=1,
        bare_step_s=(bare_s, bare_s, bare_s),
        engine_step_s=(engine_s, 9.0, 0.0),
        identical_weights=True,
    )
    assert entry.holds is holds, "the median counts"
