import pytest

from pages._ui import arms, predictions
from tests.ui.fake_arms import baseline, hybrid
from unifiednn_core.base.units import MIB
from unifiednn_core.spec.lifecycle import Event, State


def test_every_choice_of_baselines_has_a_name_and_every_name_its_choice():
    for name, modes in arms.CHOICES.items():
        assert arms.choice_of(modes) == name
    assert arms.choice_of(("sequential", "concurrent")) == "Both"


@pytest.mark.parametrize(
    ("predicted", "measured", "words"),
    [(412, 400, "3 % above"), (380, 400, "5 % below"), (400, 401, "right"), (400, None, "not measured yet")],
)
def test_a_prediction_is_held_against_its_measurement(predicted, measured, words):
    assert predictions.off_text(predicted * MIB, measured and measured * MIB) == words


def test_the_newest_baseline_of_a_kind_is_taken_and_one_that_failed_only_for_want_of_another():
    failed, done = baseline("concurrent", State.FAILED, run_id="newer"), baseline("concurrent")
    assert arms.newest([failed, done, hybrid()]) == {"concurrent": done}
    assert arms.newest([failed, hybrid()]) == {"concurrent": failed}
    assert arms.newest([hybrid()]) == {}


def test_a_baseline_can_only_be_stopped_and_a_hybrid_is_left_as_it_is():
    everything = frozenset(Event)
    fitted = arms.fitting(baseline("concurrent", State.RUNNING, actions=everything))
    assert fitted.actions == {Event.STOP} and not any(submodel.actions for submodel in fitted.submodels)
    own = hybrid(actions=everything)
    assert arms.fitting(own) is own
