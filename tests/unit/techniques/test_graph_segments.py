"""Random graphs with writes in place, views and skips: every cut leaves every bit, and no write into an input."""

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, fx, nn

from unifiednn_core.formats.guard import GraphGuard
from unifiednn_core.techniques.checkpointing import Segmenting, keep_as_it_is, pieces_of

ATEN = torch.ops.aten
ONE = [
    ATEN.relu_.default,
    ATEN.sigmoid.default,
    ATEN.tanh.default,
    ATEN.relu.default,
    ATEN.sigmoid_.default,
    ATEN.contiguous.default,
    ATEN.detach.default,
    ATEN.clone.default,
    ATEN.neg_.default,
]
TWO = [ATEN.add_.Tensor, ATEN.mul.Tensor, ATEN.add.Tensor, ATEN.mul_.Tensor, ATEN.type_as.default]


@st.composite
def networks(draw: st.DrawFn) -> fx.GraphModule:
    """A guarded graph over one input, a weight and a buffer, [4, 6] each; its values may share memory."""
    graph = fx.Graph()
    inputs = graph.placeholder("inputs")
    weight, buffer = graph.create_node("get_attr", "weight"), graph.create_node("get_attr", "total")
    values = [graph.call_function(ATEN.mul.Tensor, (inputs, weight))]
    for _ in range(draw(st.integers(3, 14))):
        one = values[-1 - draw(st.integers(0, min(2, len(values) - 1)))]
        kind = draw(st.integers(0, 9))
        if kind < 4:
            values.append(graph.call_function(draw(st.sampled_from(ONE)), (one,)))
        elif kind < 7:
            values.append(graph.call_function(draw(st.sampled_from(TWO)), (values[-1], one)))
        elif kind == 7:
            values.append(graph.call_function(ATEN.dropout.default, (one, 0.3, True)))
        elif kind == 8:
            flat = graph.call_function(ATEN.view.default, (one, [24]))
            values.append(graph.call_function(ATEN.view.default, (flat, [4, 6])))
        else:
            seen = graph.call_function(ATEN.detach.default, (one,))
            total = graph.call_function(ATEN.add_.Tensor, (buffer, seen))
            values.append(graph.call_function(ATEN.add.Tensor, (one, total)))
    graph.output(graph.call_function(ATEN.add.Tensor, (values[-1], weight)))
    root = nn.Module()
    root.weight = nn.Parameter(torch.linspace(-1.0, 2.0, 24).view(4, 6))
    root.register_buffer("total", torch.linspace(0.0, 1.0, 24).view(4, 6))
    module = fx.GraphModule(root, graph)
    module.forward = GraphGuard(module)
    return module.train()


def learned(network: fx.GraphModule, segments: int | None) -> list[Tensor]:
    """Gradients, buffer and loss of a step from the same state."""
    total = network.get_buffer("total")
    before, weight = total.clone(), network.get_parameter("weight")
    inputs = torch.linspace(-2.0, 2.0, 24).view(4, 6).requires_grad_()
    weight.grad = None
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            if segments is None:
                loss = network(inputs).sum()
                loss.backward()
            else:
                with Segmenting(segments).part(network, keep_as_it_is):
                    loss = network(inputs).sum()
                    loss.backward()
            random = torch.get_rng_state()
        assert weight.grad is not None
        return [weight.grad, inputs.grad if inputs.grad is not None else inputs, total.clone(), loss.detach(), random]
    finally:
        total.copy_(before)


def bits(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def valid(network: fx.GraphModule) -> list[Tensor]:
    """What a network learns; some write into what their backward needs, and torch refuses them."""
    try:
        return learned(network, None)
    except RuntimeError:
        assume(False)
        raise


@settings(deadline=None, max_examples=60)
@given(networks(), st.integers(2, 6))
def test_every_cut_leaves_every_bit(network: fx.GraphModule, segments: int) -> None:
    alone = valid(network)
    assume(len(pieces_of(network, segments)) > 1)
    found = learned(network, segments)
    assert all(torch.equal(bits(one), bits(other)) for one, other in zip(alone, found, strict=True))
