"""The check refuses a technique that does not work for a network, and predicts the memory with those that do."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.unit.preflight.test_savings import smooth, trial_of
from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.preflight.technique_check import check_techniques


class Remembering(nn.Module):
    """Adds the number of its calls, which nothing restores."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale, self.calls = nn.Linear(64, 64), nn.Linear(64, 64), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.scale(self.layer(x) * self.calls)


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2.0)


def refusal(network: nn.Module, *techniques: object) -> str | None:
    trial = trial_of(network, *techniques)
    trial = replace(trial, definition=replace(trial.definition, build=lambda: copy.deepcopy(network)))
    tried = dry_run(trial)
    random = torch.get_rng_state()
    before = [value.clone() for value in tried.module.state_dict().values()]
    try:
        check_techniques(trial, tried)
    except BadInput as error:
        [found] = error.findings
        assert found.field == "submodels.one.hyperparameters.techniques"
        assert found.severity == "error"
        return found.message
    finally:
        assert torch.equal(random, torch.get_rng_state())
        assert all(map(torch.equal, before, tried.module.state_dict().values()))
    return None


def several(kind: type[nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), kind(), kind(), kind(), nn.BatchNorm1d(64), nn.Dropout(), nn.Linear(64, 4))


def test_a_technique_that_suits_a_network_passes() -> None:
    assert refusal(smooth(), "checkpointing", "compression") is None
    assert refusal(several(nn.Identity), {"name": "checkpointing", "segments": 4}) is None


@pytest.mark.parametrize(
    ("network", "why"),
    [(several(InPlace), "writes into its input"), (several(Remembering), "keeps something between two calls")],
)
def test_one_that_does_not_is_refused_with_the_reason(network: nn.Module, why: str) -> None:
    found = refusal(network, {"name": "checkpointing", "segments": 6})
    assert found is not None
    assert why in found


def test_a_network_of_one_piece_is_refused() -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.flatten(1))

    assert "no two layers follow each other" in (refusal(Whole(), "checkpointing") or "")
