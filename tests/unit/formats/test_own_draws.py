"""Draws from a network's own generator are those from the default one: outputs, gradients, states, bit for bit."""

import copy
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from tests.hostile.operators.seeds import seeds
from tests.unit.formats import kit
from tests.unit.formats.test_draws import made, variants
from unifiednn_core.base.errors import ContractBroken
from unifiednn_core.formats import draws as drawing
from unifiednn_core.formats import guard
from unifiednn_core.formats.architectures import registry
from unifiednn_core.formats.contracts import table
from unifiednn_core.formats.draws import OwnDraws, draws
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.weights import state_sha256

SEED = 11
STATE = torch.Generator().manual_seed(SEED).get_state()
FORMS = {f"torch.ops.{operator}": operator for operator in drawing._FORMS}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda tensor: tensor,
    "transposed": lambda tensor: tensor.mT if tensor.dim() > 1 else tensor,
    "double": lambda tensor: tensor.double(),
    "bfloat16": lambda tensor: tensor.bfloat16(),
    "half": lambda tensor: tensor.half(),
}


def outcome(function: Any, own: OwnDraws | None, args: Any, kwargs: Any, change: Any) -> Any:
    """Results, changed arguments, gradients and the state of the generator after a call, or its error."""

    def argument(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return change(value).requires_grad_()

    args, kwargs = pytree.tree_map(argument, (made(args), made(kwargs)))
    leaves = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    given = pytree.tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, (args, kwargs))
    generator = torch.default_generator if own is None else own.generator
    generator.set_state(STATE)
    try:
        result = function(*given[0], **given[1])
    except (RuntimeError, TypeError) as error:
        return type(error)
    with suppress(RuntimeError):  # some have no derivative
        (result.double() * torch.arange(result.numel()).view(result.shape)).sum().backward()
    tensors = [result.detach(), generator.get_state(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]
    return [(tensor.dtype, tensor.stride(), tensor.reshape(-1).view(torch.uint8).tolist()) for tensor in tensors]


@pytest.mark.parametrize("name", FORMS)
def test_a_form_gives_the_bits_of_its_operator(name: str) -> None:
    own = OwnDraws()
    own.begin()
    form, moved = own.form_of(FORMS[name]), 0
    for call in seeds()[name]:
        for args, kwargs in variants(name, call):
            if kwargs.get("enable_gqa"):
                continue
            for layout, change in LAYOUTS.items():
                expected = outcome(FORMS[name], None, args, kwargs, change)
                assert outcome(form, own, args, kwargs, change) == expected, (args, kwargs, layout)
                moved += isinstance(expected, list) and bytes(expected[1][2]) != STATE.numpy().tobytes()
    assert moved, "the test compares calls that draw"


class Everything(nn.Module):
    """Draws in all the ways that a file can say with a generator."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.drop, self.channels = nn.Conv2d(1, 4, 3), nn.Dropout(0.3), nn.Dropout2d(0.4)
        self.slope, self.head = nn.RReLU(), nn.Linear(36, kit.CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.channels(functional.max_pool2d(self.slope(self.conv(self.drop(images))), 2)).flatten(1)
        hidden = hidden + torch.rand_like(hidden) * torch.bernoulli(torch.full_like(hidden, 0.5))
        noise = torch.randn(36, device=hidden.device) + torch.rand(36, device=hidden.device)
        scores: Tensor = self.head(functional.dropout(hidden + noise, 0.1, self.training, inplace=True))
        return scores


def layers(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Dropout(0.3),
        nn.Conv2d(1, 4, 3),
        nn.RReLU(inplace=True),
        nn.Dropout2d(0.4),
        nn.MaxPool2d(2),
        nn.RReLU(),
        nn.Dropout2d(0.2, inplace=True),
        nn.Flatten(),
        nn.Dropout(1.0),
        nn.Linear(36, 9),
        nn.Dropout(0.5, inplace=True),
        nn.Dropout(0.0),
        nn.Linear(9, kit.CLASSES),
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    torch.manual_seed(SEED)
    return {
        "everything": kit.export(folder / "e.pt2", Everything(), torch.randn(3, *kit.IMAGES)),
        "lstm": kit.exported(folder, "lstm"),
        "cnn": kit.exported(folder, "cnn"),
        "attention": kit.exported(folder, "attention"),
    }


def networks(name: str, files: dict[str, Path]) -> tuple[nn.Module, nn.Module]:
    """Two equal networks that are not trained."""
    if name in files:
        first, second = (ExportedFormat().read(files[name], None).build() for _ in range(2))
        return first, second
    torch.manual_seed(SEED)
    built = layers(SEED) if name == "layers" else registry.build("transformer", {"dropout": 0.2})
    return built, copy.deepcopy(built)


def batch(name: str, samples: int, seed: int) -> Tensor:
    kinds = {"everything": "cnn", "layers": "cnn"}
    if name == "transformer":
        return torch.randn(samples, 8, 8, generator=torch.Generator().manual_seed(seed))
    return kit.batch(kinds.get(name, name), samples, seed)


def history(network: nn.Module, name: str, generator: torch.Generator) -> list[Any]:
    """Outputs, state and random numbers of five steps, one of them an evaluation."""
    generator.manual_seed(SEED)
    seen: list[Any] = []
    for step, samples in enumerate((4, 3, 4, 4, 2)):
        network.train(step != 2)
        outputs = network(batch(name, samples, step))
        if network.training:
            outputs.square().sum().backward()
            with torch.no_grad():
                for parameter in network.parameters():
                    parameter -= 0.01 * (0 if parameter.grad is None else parameter.grad)
        state = generator.get_state().numpy().tobytes()
        seen.append((outputs.detach().numpy().tobytes(), state_sha256(network.state_dict()), state))
    return seen


@pytest.mark.parametrize("name", ["everything", "cnn", "attention", "layers", "transformer"])
def test_a_network_trains_to_the_same_bits(name: str, files: dict[str, Path]) -> None:
    plain, network = networks(name, files)
    own, before = drawing.own_draws(network), torch.get_rng_state()
    assert own is not None
    own.begin()
    seen = history(network, name, own.generator)
    assert torch.equal(torch.get_rng_state(), before), "nothing comes from the default generator"
    assert seen == history(plain, name, torch.default_generator)
    assert len({state for _, _, state in seen}) >= 4, "the test compares networks that draw"
    own.end()
    assert history(network, name, torch.default_generator) == history(plain, name, torch.default_generator)


@pytest.mark.parametrize("name", ["everything", "attention"])
def test_contracts_hold_for_a_form(name: str, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard checks the operators of the file, whatever runs in their place."""
    heard: list[str] = []

    def checked(name: str, *rest: Any) -> bool:
        heard.append(name)
        return table.check_call(name, *rest)

    monkeypatch.setattr(guard, "check_call", checked)
    plain, network = networks(name, files)
    plain(batch(name, 3, 0))
    expected, heard[:] = list(heard), []
    own = drawing.own_draws(network)
    assert own is not None
    own.begin()
    network(batch(name, 3, 0))
    assert heard == expected
    with pytest.raises(ContractBroken):
        table.check_call(
            str(guard.name_of(own.form_of(torch.ops.aten.dropout.default))), (torch.ones(2), 1.5, True), {}
        )


SHARING: dict[str, Callable[[], nn.Module]] = {
    "alpha": lambda: nn.Sequential(nn.Dropout(0.1), nn.AlphaDropout(0.1)),
    "one dimension": lambda: nn.Dropout1d(0.1),
    "recurrent": lambda: nn.Sequential(nn.Dropout(0.1), nn.LSTM(4, 4, num_layers=2, dropout=0.1)),
    "attention of torch": lambda: nn.TransformerEncoderLayer(4, 2, dropout=0.1),
}


@pytest.mark.parametrize("name", [*SHARING, "lstm"])
def test_all_draws_have_a_form_or_none(name: str, files: dict[str, Path]) -> None:
    network = networks(name, files)[0] if name in files else SHARING[name]()
    fields = [dict(layer.__dict__) for layer in network.modules()]
    assert draws(network)
    assert drawing.own_draws(network) is None
    assert [dict(layer.__dict__) for layer in network.modules()] == fields


def test_grouped_heads_stay_with_the_default_generator(tmp_path: Path) -> None:
    class Grouped(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(x, x[:, :1], x[:, :1], dropout_p=0.1, enable_gqa=True)

    file = kit.export(tmp_path / "g.pt2", nn.Sequential(nn.Linear(4, 4), Grouped()), torch.ones(3, 2, 5, 4))
    assert drawing.own_draws(ExportedFormat().read(file, None).build()) is None


def test_a_dropout_with_a_hook_is_not_known_to_draw_from_its_own_generator_alone() -> None:
    """The hook of a plug-in may draw from the default generator, of which a neighbour in another lane has the state."""
    layer = nn.Dropout(0.5)
    layer.register_forward_hook(lambda module, given, output: output + torch.rand(()))
    assert drawing.own_draws(nn.Sequential(nn.Linear(2, 2), layer)) is None


def test_the_own_forward_of_a_layer_survives_a_turn() -> None:
    layer = nn.Dropout(0.5)
    layer.__dict__["forward"] = own = lambda inputs: inputs * 2
    draws = drawing.own_draws(nn.Sequential(layer))
    if draws is not None:
        draws.begin()
        draws.end()
    assert layer.__dict__.get("forward") is own
