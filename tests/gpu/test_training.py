"""Training on a GPU: the same bits as alone, and nobody suffers from another."""

import pytest
import torch

from tests.gpu import checks
from tests.gpu.kit import KINDS

# Kernels without a deterministic twin only warn (training/device.py); the bits below say whether it matters.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("name", KINDS)
def test_the_same_training_gives_the_same_bits_twice(cuda: torch.device, name: str) -> None:
    checks.repeatable(cuda, name)


def test_a_hybrid_has_the_bits_of_each_network_alone(cuda: torch.device) -> None:
    checks.equality(cuda, list(KINDS))


def test_too_little_memory_ends_one_alone(cuda: torch.device) -> None:
    checks.memory_is_contained(cuda)
    torch.zeros(1, device=cuda).item()  # the device still works


def test_a_loss_that_is_no_number_is_noticed(cuda: torch.device) -> None:
    checks.divergence_is_noticed(cuda)


def test_optimizer_state_is_on_the_device_after_a_restore(cuda: torch.device) -> None:
    checks.restored_state_is_on_the_device(cuda)


def test_randomness_is_each_ones_own(cuda: torch.device) -> None:
    checks.randomness_is_each_ones_own(cuda)


def test_settings_of_the_process_are_put_back(cuda: torch.device) -> None:
    checks.settings_are_put_back(cuda)


def test_damaged_data_are_noticed(cuda: torch.device) -> None:
    checks.damaged_data_are_noticed(cuda)


def test_a_parked_network_goes_on_with_the_same_bits(cuda: torch.device) -> None:
    checks.parked_and_placed_again(cuda)


def test_a_network_moves_to_another_hybrid_with_the_same_bits(cuda: torch.device) -> None:
    checks.leaves_and_goes_on(cuda)
