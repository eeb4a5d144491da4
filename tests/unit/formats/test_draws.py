"""Who draws random numbers, judged without a run, against what a run does to the default generator."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from tests.contract.format_networks import CASES
from tests.hostile.operators import layers
from tests.hostile.operators.layers import LAYER, layer_seeds
from tests.hostile.operators.seeds import seeds
from tests.hostile.operators.values import Call, contents, mapped
from tests.unit.formats import kit
from tests.unit.formats.test_described import CONFIGS, config, inputs_of
from unifiednn_core.formats.architectures import registry
from unifiednn_core.formats.contracts import table
from unifiednn_core.formats.contracts.general import overload, parameters
from unifiednn_core.formats.draws import draws, operator_draws
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.rebuild import LAYERS, construct


def moves(run: Callable[[], object]) -> bool:
    """Whether this draws from the default generator."""
    before = torch.get_rng_state()
    run()
    return not torch.equal(before, torch.get_rng_state())


def made(value: Any) -> Any:
    return mapped(value, lambda tensor: contents(tensor, 1).as_strided(tensor.shape, tensor.strides()).detach())


def variants(name: str, call: Call) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """An ordinary call, and what it becomes with each share and mode at its ends."""
    yield list(call.args), dict(call.kwargs)
    if torch.Tag.nondeterministic_seeded not in overload(name).tags:
        return
    choices = {"p": (0.0, 1.0), "dropout": (0.3,), "dropout_p": (0.0, 0.5), "train": (False, True)}
    choices["training"] = choices["train"]
    for place, declared in enumerate(parameters(name)):
        for value in choices.get(declared.name, ()):
            args, kwargs = list(call.args), dict(call.kwargs)
            if place < len(args):
                args[place] = value
            else:
                kwargs[declared.name] = value
            yield args, kwargs


def node_of(function: Any, args: list[Any], kwargs: dict[str, Any]) -> fx.Node:
    graph = fx.Graph()
    described = [mapped(value, lambda _: graph.placeholder("x")) for value in args]
    return graph.call_function(function, tuple(described), mapped(kwargs, lambda _: graph.placeholder("x")))


def test_an_operator_draws_if_and_only_if_its_call_says_so() -> None:
    drawn = set()
    for name in table.ATEN:
        function = overload(name)
        for call in seeds()[name]:
            for args, kwargs in variants(name, call):
                said = operator_draws(node_of(function, args, kwargs))
                found = moves(lambda: function(*made(args), **made(kwargs)))  # noqa: B023
                assert said == found, (name, args, kwargs)
                drawn |= {name} if found else set()
    assert len(drawn) >= 20
    assert {name.split(".")[3] for name in drawn} >= {"dropout", "lstm", "scaled_dot_product_attention", "rand"}


RECURRENT = {"dropout": 0.4, "num_layers": 2}


@pytest.mark.filterwarnings("ignore:dropout option adds dropout")
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_draws_if_and_only_if_it_says_so(name: str) -> None:
    for call in layer_seeds()[LAYER + name]:
        for changes in ({}, {"p": 0.0}, {"p": 1.0}, {"dropout": 0.0}, {"dropout": 0.4}, RECURRENT):
            if changes.keys() - layers.parameters(LAYERS[name]).keys() or (changes and "norm_type" in call.kwargs):
                continue
            layer = construct(LAYERS[name], {**call.kwargs, **changes}, name)
            assert draws(layer) == moves(lambda: layer(*made(call.args))), (call, changes)  # noqa: B023


@pytest.mark.parametrize("name", ["lenet", "mlp", "resnet", "transformer"])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_an_architecture_draws_if_and_only_if_it_has_dropout(name: str, share: float) -> None:
    takes_share = name in ("mlp", "transformer")
    network = registry.build(name, {"dropout": share} if takes_share else {})
    shape = {"lenet": (2, 1, 28, 28), "resnet": (2, 3, 32, 32), "mlp": (2, 64), "transformer": (2, 8, 8)}[name]
    assert draws(network) == moves(lambda: network(torch.ones(shape))) == (takes_share and share > 0)


@pytest.mark.parametrize("name", kit.NETWORKS)
def test_a_graph_draws_if_and_only_if_the_network_does(name: str, tmp_path: Any) -> None:
    network, graph = kit.network(name), ExportedFormat().read(kit.exported(tmp_path, name), None).build()
    batch = kit.batch(name, 3)
    assert draws(graph) == moves(lambda: graph(batch)) == moves(lambda: network(batch)) == (name != "residual")


SHARES = """
attention_dropout attention_probs_dropout_prob attn_pdrop classifier_dropout_prob dropout embd_pdrop hidden_dropout_prob
qa_dropout resid_pdrop seq_classif_dropout summary_first_dropout summary_last_dropout
"""


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_a_network_of_transformers_draws_if_and_only_if_its_config_says_so(name: str, share: float) -> None:
    shares = dict.fromkeys(SHARES.split(), share)
    with torch.random.fork_rng(devices=[]):
        network = registry.build("huggingface", {"config": config(name) | shares})
        assert draws(network) == moves(lambda: network.train()(inputs_of(name))) == (share > 0)
    next(network.children()).register_forward_hook(lambda *_: None)
    assert draws(network)


class Own(nn.Linear):
    """Draws, and nobody can see it."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + torch.rand(())


def test_what_is_unknown_may_draw() -> None:
    """A layer of somebody else, hooks, replaced methods, functions, and graphs that no file was read into."""
    own, hooked, replaced = Own(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
    hooked.register_forward_hook(lambda _, __, outputs: outputs + torch.rand(()))
    replaced.forward = lambda inputs: inputs + torch.rand(())  # type: ignore[method-assign]
    given = nn.TransformerEncoderLayer(4, 2, dropout=0.0, activation=lambda x: x + torch.rand(()))
    for layer, size in ((own, 3), (hooked, 3), (replaced, 3), (given, 4)):
        assert moves(lambda: nn.Sequential(layer)(torch.ones(2, size)))  # noqa: B023
        assert draws(nn.Sequential(nn.Linear(3, 3), layer))
    assert draws(fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3))))
    assert not draws(nn.Sequential(nn.Linear(3, 3)))


@pytest.mark.parametrize("name", CASES)
def test_no_network_of_the_list_of_formats_draws_unseen(name: str) -> None:
    case = CASES[name]
    network, (inputs, _) = case.network().train(), case.data(0)
    with torch.random.fork_rng(devices=[]):
        assert draws(network) or not moves(lambda: network(inputs[:4]))
