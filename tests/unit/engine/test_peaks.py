"""One at a time climbs to the peak of its step."""

import threading

import pytest
import torch
from torch import Tensor, nn

from unifiednn_core.engine.company import Peak

PATIENCE_S = 60


def network() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def gradients(module: nn.Module) -> list[Tensor]:
    module(torch.arange(8.0).view(2, 4)).sum().backward()
    return [parameter.grad for parameter in module.parameters()]


def climb_order(until: str | None) -> list[str]:
    """What happens in which order if one steps while another waits for the right to climb."""
    peak, module, order = Peak(), network(), list[str]()
    for name, parameter in module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: note(name))
    begun, waiting = threading.Event(), threading.Event()

    def note(name: str) -> None:
        given_back = until in order
        order.append(name)
        if name.endswith("weight") and "other" not in order:  # the other one gets every chance
            other_in.wait(PATIENCE_S if given_back else 0.1)

    other_in = threading.Event()

    def other() -> None:
        begun.wait(PATIENCE_S)
        waiting.set()
        with peak.climb(network(), None):
            order.append("other")
            other_in.set()

    thread = threading.Thread(target=other)
    thread.start()
    with peak.climb(module, until):
        begun.set()
        waiting.wait(PATIENCE_S)
        gradients(module)
        order.append("end")
    thread.join(PATIENCE_S)
    return order


@pytest.mark.parametrize("until", ["4.weight", "2.weight"])
def test_the_next_one_climbs_once_a_parameter_has_its_gradient(until: str) -> None:
    order = climb_order(until)
    assert order.index(until) < order.index("other") < order.index("end")


def test_without_a_place_to_come_down_the_next_one_waits_for_the_end() -> None:
    assert climb_order(None)[-2:] == ["end", "other"]


def test_the_right_comes_back_without_a_gradient_and_after_an_error() -> None:
    peak, module = Peak(), network()
    module[4].weight.requires_grad_(False)
    with peak.climb(module, "2.weight"):
        pass
    with pytest.raises(ZeroDivisionError), peak.climb(module, "2.weight"):
        raise ZeroDivisionError
    with pytest.raises(AttributeError), peak.climb(module, "nothing"):
        pass
    with peak.climb(module, None):
        pass
    assert not module[2].weight._post_accumulate_grad_hooks


def test_gradients_have_the_same_bits() -> None:
    module = network()
    with Peak().climb(module, "2.weight"):
        ours = gradients(module)
    assert all(torch.equal(one, other) for one, other in zip(ours, gradients(network()), strict=True))
