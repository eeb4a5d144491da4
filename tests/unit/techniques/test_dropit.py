"""DropIT: gradients of inputs, biases and norms keep their bits; only those of layers' weights are approximate."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.unit.formats import kit
from tests.unit.techniques.networks import EXAMPLES, GRAPHS, Residual, attention, convolutions, example, layers
from unifiednn_core.formats.architectures import registry
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.spec.techniques import DropIT
from unifiednn_core.techniques.build import NONE, Techniques, built
from unifiednn_core.techniques.compression import Dropping, _Indexed, largest
from unifiednn_core.techniques.saved import INPUTS
from unifiednn_core.testing.techniques import check_technique, take_step

FORMS = ["deduplicated", "published"]


class HuggingFaceLayer(nn.Module):
    """As `transformers.pytorch_utils.Conv1D`."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs) * 0.1), nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


def texts() -> nn.Module:
    """Conv1d, and a Conv1D of Hugging Face."""
    return nn.Sequential(
        nn.Flatten(2),
        nn.Conv1d(3, 8, 5),
        nn.LayerNorm(252),
        HuggingFaceLayer(252, 24),
        nn.GELU(),
        HuggingFaceLayer(24, 12),
        nn.Flatten(),
        nn.Linear(96, 10),
    )


def gradients(make, techniques: Techniques = NONE, *, graph: bool = False) -> dict[str, Tensor]:
    network, inputs, targets = example(make, graph=graph)()
    inputs.requires_grad_()
    take_step(network, inputs, targets, techniques)
    return {name: one.grad for name, one in network.named_parameters()} | {"inputs": inputs.grad}


def others(make, keep: float, form: str, *, graph: bool = False) -> set[str]:
    """Names of the gradients that differ from those without it."""
    exact, found = gradients(make, graph=graph), gradients(make, built([DropIT(keep=keep, form=form)]), graph=graph)
    return {name for name in exact if not torch.equal(exact[name].view(torch.int32), found[name].view(torch.int32))}


# Weights of layers whose inputs are in no way kept for another operator.
DROPPED = {
    convolutions: {"4.weight", "8.weight"},
    layers: {"3.weight", "5.weight"},
    Residual: {"second.weight", "head.weight"},
    texts: {"3.weight", "5.weight", "7.weight"},
    attention: {"2.linear1.weight", "2.linear2.weight", "4.weight"},
}
ATTENTION = {"2.self_attn.in_proj_weight", "2.self_attn.out_proj.weight"}
"""Of a module they are out of sight: torch computes attention in one call."""


@pytest.mark.parametrize("keep", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("form", FORMS)
def test_the_contract(keep, form):
    check_technique(DropIT(keep=keep, form=form), [*EXAMPLES, example(texts), *GRAPHS])


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", DROPPED)
def test_only_gradients_of_weights_of_layers_change(make, form, graph):
    assert others(make, 0.1, form, graph=graph) == DROPPED[make] | (ATTENTION if graph and make is attention else set())


class Shared(nn.Module):
    """Inputs that two layers and a product take; the product needs each bit."""

    def __init__(self, product_first: bool):
        super().__init__()
        self.body, self.one, self.two = nn.Linear(768, 64), nn.Linear(64, 10), nn.Linear(64, 10)
        self.product_first = product_first

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.body(x.flatten(1)))
        product = (x * x).sum(1, keepdim=True) if self.product_first else 0
        taken = self.one(x) + self.two(x)
        return taken + (product if self.product_first else (x * x).sum(1, keepdim=True))


def saved_bytes(make, *techniques) -> int:
    return take_step(*example(make)(), built(techniques)).saved_bytes


@pytest.mark.parametrize("product_first", [False, True])
def test_what_another_operator_needs_stays_for_the_layers_too(product_first):
    def make() -> nn.Module:
        return Shared(product_first)

    assert others(make, 0.1, "deduplicated") == set()
    assert others(make, 0.1, "published") == {"one.weight", "two.weight"}
    nothing, deduplicated, published = (
        saved_bytes(make, *asked) for asked in ([], [DropIT(keep=0.1)], [DropIT(keep=0.1, form="published")])
    )
    assert deduplicated <= nothing < published


@pytest.mark.parametrize("make", [convolutions, layers])
def test_the_more_is_dropped_the_less_is_saved_and_the_farther_off_are_weights(make):
    keeps = [0.05, 0.2, 0.4, 0.6, 0.8]
    exact = gradients(make)
    found = [gradients(make, built([DropIT(keep=keep)])) for keep in keeps]
    errors = [sum(float((one[name] - exact[name]).norm()) for name in exact) for one in found]
    sizes = [saved_bytes(make, DropIT(keep=keep)) for keep in keeps]
    assert all(few > many for few, many in pairwise(errors)) and all(few < many for few, many in pairwise(sizes))
    assert sizes[-1] < saved_bytes(make)


def test_the_published_form_saves_nothing_behind_relu_and_says_so_by_its_bytes():
    def make() -> nn.Module:
        return registry.build("resnet", {"width": 16})

    nothing, published, deduplicated = (
        take_step(*example(make, 8)(), built(asked)).saved_bytes
        for asked in ([], [DropIT(keep=0.1, form="published")], [DropIT(keep=0.1)])
    )
    assert published > nothing and deduplicated < 0.7 * nothing


@given(st.integers(256, 3000), st.floats(0.01, 0.99), st.integers(0, 2**31), st.booleans())
@settings(deadline=None)
def test_the_largest_are_kept(count, keep, seed, ties):
    generator = torch.Generator().manual_seed(seed)
    flat = (
        torch.randint(-4, 5, (count,), generator=generator).float() if ties else torch.randn(count, generator=generator)
    )
    kept = max(1, int(count * keep))
    places = largest(flat, kept)
    assert int(places.sum()) == min(kept, int(flat.count_nonzero()))
    if not bool(places.all()):
        assert flat[places].abs().min() >= flat[~places].abs().max()
    published = Dropping(keep, shared=False).pack(flat, INPUTS)
    assert isinstance(published, _Indexed) and len(published.values) == kept
    torch.testing.assert_close(published.unpack().abs().sort().values[-kept:], flat.abs().sort().values[-kept:])


@pytest.mark.parametrize("kind", ["plain", "after relu", "in rows", "two values"])
@pytest.mark.parametrize("keep", [0.01, 0.2, 0.6])
def test_a_sample_that_misleads_costs_time_alone(kind, keep):
    flat = torch.randn(40_961, generator=torch.Generator().manual_seed(0))
    if kind == "after relu":
        flat = flat.relu()
    elif kind == "in rows":  # those that the sample sees are small
        flat[:: max(1, len(flat) // 4096) | 1] *= 1e-3
    elif kind == "two values":
        flat = flat.sign()
    count = int(len(flat) * keep)
    places = largest(flat, count)
    expected = flat.abs().topk(count).values
    assert int(places.sum()) == int((expected > 0).sum())
    assert torch.equal(flat[places].abs().sort(descending=True).values, expected[expected > 0])


def test_weights_in_another_type_are_not_taken_for_inputs():
    network, inputs, targets = example(layers)()
    inputs = inputs[:, :, :8, :8].repeat(4, 1, 2, 2)  # 128 samples for 128 x 128 weights

    def step(techniques: Techniques) -> dict[str, Tensor]:
        network.zero_grad()
        with techniques.part(network, [inputs]):
            with torch.autocast("cpu", torch.bfloat16):
                outputs = network(inputs)
            nn.functional.cross_entropy(outputs.float(), targets.repeat(4)).backward()
        return {name: one.grad.clone() for name, one in network.named_parameters()}

    exact, found = step(NONE), step(built([DropIT(keep=0.05)]))
    assert {name for name in exact if not torch.equal(exact[name], found[name])} == {
        "3.weight",
        "5.weight",
    }  # and not the weights of these


def test_computed_weights_are_exact():
    def make() -> nn.Module:
        normed = nn.utils.parametrizations.weight_norm(nn.Linear(64, 64))
        return nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.ReLU(), normed, nn.ReLU(), nn.Linear(64, 10))

    assert others(make, 0.05, "deduplicated") == {"5.weight"}


def test_a_network_of_a_file_saves_as_much(tmp_path):
    network, inputs, targets = example(convolutions)()
    kit.export(tmp_path / "network.pt2", network, inputs)
    of_file = ExportedFormat().read(tmp_path / "network.pt2", None).build()
    asked = built([DropIT(keep=0.1)])
    assert (
        take_step(of_file, inputs, targets, asked).saved_bytes == take_step(network, inputs, targets, asked).saved_bytes
    )
