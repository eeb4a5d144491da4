import copy
from typing import Any

import pytest
import torch
from torch import nn

from unifiednn_core.engine.optimizers import build_optimizer, follow_parameters, restore_state
from unifiednn_core.formats.weights import tree_to_cpu
from unifiednn_core.spec.choices import OPTIMIZERS
from unifiednn_core.spec.run import Hyperparameters

VARIANTS = [
    *((name, {}) for name in OPTIMIZERS),
    ("sgd", {"momentum": 0.9, "nesterov": True}),
    ("adam", {"amsgrad": True, "betas": [0.8, 0.99]}),
    ("rmsprop", {"momentum": 0.5, "centered": True}),
    ("nadam", {"decoupled_weight_decay": True}),
]


def network(dtype: torch.dtype, optimizer: str = "sgd") -> nn.Module:
    torch.manual_seed(1)
    if optimizer == "muon":  # takes matrices alone
        return nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False)).to(dtype)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).to(dtype)


def train(module: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    dtype = next(module.parameters()).dtype
    for step in steps:
        inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(step)).to(dtype)
        optimizer.zero_grad()
        module(inputs).square().sum().backward()
        optimizer.step()


def host_copy(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    copied: dict[str, Any] = tree_to_cpu(optimizer.state_dict())
    return copied


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("name", "args"), VARIANTS, ids=str)
def test_an_optimizer_goes_on_where_it_was_bit_for_bit(name: str, args: dict[str, object], dtype: torch.dtype) -> None:
    asked = Hyperparameters(optimizer=name, optimizer_args=args, learning_rate=0.01)
    module = network(dtype, name)
    optimizer = build_optimizer(module.named_parameters(), asked)
    train(module, optimizer, range(4))
    state, weights = host_copy(optimizer), copy.deepcopy(module.state_dict())
    train(module, optimizer, range(4, 8))

    again = network(dtype, name)
    again.load_state_dict(weights)
    restored = build_optimizer(again.named_parameters(), asked)
    restore_state(restored, state)
    follow_parameters(restored)
    train(again, restored, range(4, 8))
    for key, tensor in module.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor)
    for before, after in zip(
        host_copy(optimizer)["state"].values(), host_copy(restored)["state"].values(), strict=True
    ):
        assert before.keys() == after.keys()
        for key, value in before.items():
            assert value is None or (value.dtype == after[key].dtype and torch.equal(value, after[key]))


def test_a_captured_state_shares_no_memory() -> None:
    module = network(torch.float32)
    optimizer = build_optimizer(module.named_parameters(), Hyperparameters(optimizer="adam"))
    train(module, optimizer, range(2))
    state = host_copy(optimizer)
    before = state["state"][0]["exp_avg"].clone()
    train(module, optimizer, range(2, 4))
    assert torch.equal(state["state"][0]["exp_avg"], before)
    restore_state(optimizer, state)
    train(module, optimizer, range(2, 4))
    assert torch.equal(state["state"][0]["exp_avg"], before)
