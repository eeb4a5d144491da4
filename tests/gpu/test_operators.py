"""Operators on a GPU neither read nor write memory that is not theirs."""

import pytest
import torch

from tests.gpu import checks
from tests.gpu.poisoned import harmful

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


def test_results_do_not_depend_on_foreign_memory(cuda: torch.device) -> None:
    assert harmful(cuda) == []


def test_harm_would_be_noticed(cuda: torch.device) -> None:
    checks.harm_is_noticed(cuda)
