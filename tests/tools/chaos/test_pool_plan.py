from collections import Counter

import pytest

from tools.chaos.plan import Ask
from tools.chaos.pool_plan import BY_NAME, DECK, FEW, ROUNDS, SUBMISSIONS, pool_exercise, submitted_in
from tools.chaos.pool_roles import HOPELESS, spec_of
from unifiednn_core.base.failpoints import POINTS
from unifiednn_core.service.samples import SAMPLES
from unifiednn_core.spec.run import load_run, parse_run

EXERCISES = [pool_exercise(7, number) for number in range(40)]


def test_the_same_seed_gives_the_same_exercises() -> None:
    assert pool_exercise(3, 5) == pool_exercise(3, 5)
    assert pool_exercise(3, 5) != pool_exercise(4, 5) != pool_exercise(4, 6)


def test_every_point_of_placement_is_met_by_both_signals() -> None:
    met = {(card.fault_point, card.action) for card in DECK}
    placing = [point for point in POINTS if point.startswith("placement")]
    assert len(placing) > 10
    assert {(point, action) for point in placing for action in ("sigkill", "sigterm")} <= met


def test_everything_happens_equally_often() -> None:
    dealt = Counter(part.card for number in range(len(DECK)) for part in pool_exercise(1, number).rounds)
    assert dealt == Counter({name: count * ROUNDS for name, count in Counter(card.name for card in DECK).items()})


@pytest.mark.parametrize("rounds", [4, ROUNDS])
def test_everybody_submits_once(rounds: int) -> None:
    planned = pool_exercise(2, 0, rounds)
    asked = [ask.submodel for errand in planned.arrivals for ask in errand.asks]
    assert sorted(map(str, asked)) == sorted(one.name for one in submitted_in(rounds))
    assert planned.arrivals[0].after_s == 0
    assert len(submitted_in(4)) == FEW < len(SUBMISSIONS)


def test_whatever_is_paused_is_resumed_and_whatever_is_drained_is_made_ready_by_the_same_process() -> None:
    pairs = {"pause": "resume", "drain": "ready"}
    errands = [part.errand for planned in EXERCISES for part in planned.rounds if part.errand]
    seen = Counter[str]()
    for errand in errands:
        for ask, following in zip(errand.asks, [*errand.asks[1:], Ask("", None)], strict=True):
            seen[ask.verb] += 1
            if ask.verb in pairs:
                assert following.verb == pairs[ask.verb]
                assert following.submodel == ask.submodel
    assert set(seen) == {"pause", "resume", "drain", "ready", "move", "save", "priority", "epochs", "stop", "discard"}


def test_networks_with_equal_names_have_other_seeds_and_one_person_is_in_no_team() -> None:
    demo = load_run(SAMPLES / "demo.json")
    specs = [spec_of(demo, one) for one in BY_NAME.values()]
    assert [parse_run(spec.model_dump(mode="json", exclude_none=True)) for spec in specs] == specs
    seeds = [(part.name, part.hyperparameters.seed) for spec in specs for part in spec.submodels]
    assert len(set(seeds)) == len(seeds)
    assert [spec.name for spec in specs if spec.hybrid != "shared"] == [
        one.name for one in BY_NAME.values() if one.private
    ]
    rates = {spec.name: spec.submodels[0].hyperparameters.learning_rate for spec in specs}
    assert [name for name, rate in rates.items() if rate == HOPELESS] == [
        one.name for one in BY_NAME.values() if one.diverges
    ]
