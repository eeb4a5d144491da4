"""What is checked on a GPU, tried on the CPU."""

import pytest
import torch

from tests.gpu import checks

CPU = torch.device("cpu")


def test_the_check_of_equality_holds_on_a_cpu() -> None:
    checks.equality(CPU, ["lenet", "transformer", "transformer_lm", "roberta"])


@pytest.mark.parametrize(
    "check",
    [
        checks.memory_is_contained,
        checks.divergence_is_noticed,
        checks.restored_state_is_on_the_device,
        checks.parked_and_placed_again,
        checks.leaves_and_goes_on,
        checks.randomness_is_each_ones_own,
        checks.settings_are_put_back,
        checks.damaged_data_are_noticed,
        checks.harm_is_noticed,
    ],
)
def test_the_other_checks_hold_on_a_cpu(check: object) -> None:
    assert callable(check)
    check(CPU)
