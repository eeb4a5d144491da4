from collections import Counter

import pytest

from tools.chaos.plan import DECK, EPOCHS, LONGEST_JUMP_S, ROUNDS, STRETCHED, Ask, Exercise, exercise, short_demo
from unifiednn_core.base.failpoints import POINTS
from unifiednn_core.service.samples import SAMPLES
from unifiednn_core.spec.run import load_run, parse_run

EXERCISES = [exercise(7, number) for number in range(40)]


def asks(planned: Exercise) -> list[Ask]:
    return [ask for part in planned.rounds if part.errand for ask in part.errand.asks]


def test_the_same_seed_gives_the_same_exercises() -> None:
    assert exercise(3, 5) == exercise(3, 5)
    assert exercise(3, 5) != exercise(4, 5) != exercise(4, 6)


def test_every_point_is_met_by_both_signals() -> None:
    met = {(card.fault_point, card.action) for card in DECK}
    others = ("placement.", "blob.", "certificate.", "removal.")  # other drills strike some, unit tests the rest
    private = [point for point in POINTS if not point.startswith(others)]
    assert {(point, action) for point in private for action in ("sigkill", "sigterm")} <= met


def test_everything_happens_equally_often() -> None:
    whole = [exercise(1, number) for number in range(len(DECK))]  # a whole number of decks
    dealt = Counter(part.card for planned in whole for part in planned.rounds)
    of_deck = Counter(card.name for card in DECK if not card.downloads)
    assert dealt == Counter({name: count * ROUNDS for name, count in of_deck.items()})
    downloads = sum(card.downloads for card in DECK)
    assert sum(len(planned.downloads) for planned in whole) == downloads * ROUNDS


def test_every_worker_but_those_at_the_end_is_killed_or_meets_a_fault_that_kills() -> None:
    for planned in EXERCISES:
        assert len(planned.rounds) + len(planned.downloads) == ROUNDS
        for part in planned.rounds:
            kills = part.fault is not None and part.fault.action.startswith("sig")
            assert kills or part.kill_s is not None or "separation" in part.card


def test_faults_of_separation_come_last() -> None:
    for planned in EXERCISES:
        late = ["separation" in part.card for part in planned.rounds]
        assert late == sorted(late)


def test_whatever_is_paused_is_resumed_by_the_same_process() -> None:
    for ask, following in ((a, b) for planned in EXERCISES for a, b in pairs(asks(planned))):
        if ask.verb == "pause":
            assert following == Ask("resume", ask.submodel)


def pairs(sequence: list[Ask]) -> list[tuple[Ask, Ask]]:
    return list(zip(sequence, [*sequence[1:], Ask("nothing", None)], strict=True))


def test_epochs_are_only_changed_to_what_was_trained_without_faults() -> None:
    changes = [ask for planned in EXERCISES for ask in asks(planned) if ask.verb == "epochs"]
    assert changes
    assert all(ask.submodel and ask.value == STRETCHED[ask.submodel] for ask in changes)


def test_the_clock_is_set_in_both_directions() -> None:
    jumps = [part.jump_s for planned in EXERCISES for part in planned.rounds if part.jump_s is not None]
    assert min(jumps) < 0 < max(jumps)
    assert all(abs(jump_s) <= LONGEST_JUMP_S for jump_s in jumps)


@pytest.mark.parametrize("epochs", [EPOCHS, STRETCHED])
def test_the_short_demo_is_a_valid_run_of_one_thread_on_a_cpu(epochs: dict[str, int]) -> None:
    spec = short_demo(load_run(SAMPLES / "demo.json"), epochs)
    assert parse_run(spec.model_dump(mode="json", exclude_none=True)) == spec
    assert {part.name: part.hyperparameters.epochs for part in spec.submodels} == epochs
    assert (spec.device, spec.threads) == ("cpu", 1)
    one_cycle = next(part for part in spec.submodels if part.name == "transformer").hyperparameters.lr_scheduler
    assert one_cycle is not None
    assert one_cycle.args["total_steps"] == 23 * STRETCHED["transformer"]
