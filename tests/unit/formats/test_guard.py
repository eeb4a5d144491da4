"""The checks in front of a graph: the same bits as without them, at every new kind of input and only then."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from tests.unit.formats import kit
from unifiednn_core.base.errors import ContractBroken
from unifiednn_core.formats import guard
from unifiednn_core.formats.contracts import table
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.guard import GraphGuard
from unifiednn_core.formats.weights import state_sha256

aten = torch.ops.aten


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the operators that were checked, in order."""
    heard: list[str] = []

    def checked(name: str, *rest: Any) -> bool:
        heard.append(name)
        return table.check_call(name, *rest)

    monkeypatch.setattr(guard, "check_call", checked)
    return heard


def built(folder: Path, name: str) -> nn.Module:
    return ExportedFormat().read(kit.exported(folder, name), None).build()


def bare(module: nn.Module) -> nn.Module:
    """The same module as the compiled graph alone runs it."""
    del module.__dict__["forward"]
    return module


def graph(*nodes: Any) -> fx.GraphModule:
    """A graph of calls after each other; each gets the result of the one before, then its own arguments."""
    made = fx.Graph()
    value = made.placeholder("inputs")
    for function, *rest in nodes:
        value = made.call_function(function, (value, *rest))
    made.output(value)
    module = fx.GraphModule(nn.Module(), made)
    module.forward = GraphGuard(module)
    return module


def history(module: nn.Module, name: str) -> Iterator[tuple[bytes, str, bytes]]:
    """Outputs, state and random numbers after batches of several sizes in both modes."""
    torch.manual_seed(3)
    for step, samples in enumerate((4, 3, 4, 4, 1)):
        module.train(step != 2)
        outputs = module(kit.batch(name, samples, seed=step))
        if module.training:
            outputs.square().sum().backward()
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter -= 0.01 * (0 if parameter.grad is None else parameter.grad)
        state = torch.get_rng_state().numpy().tobytes()
        yield outputs.detach().numpy().tobytes(), state_sha256(module.state_dict()), state


@pytest.mark.parametrize("name", kit.NETWORKS)
def test_checks_change_no_bit(name: str, tmp_path: Path) -> None:
    guarded, plain = built(tmp_path, name), bare(built(tmp_path, name))
    assert list(guarded.state_dict()) == list(plain.state_dict())
    assert list(history(guarded, name)) == list(history(plain, name))


def test_a_kind_of_input_is_checked_once(tmp_path: Path, checks: list[str]) -> None:
    module = built(tmp_path, "residual")

    def count(samples: int, *, train: bool = True) -> int:
        checks.clear()
        module.train(train)(kit.batch("residual", samples))
        return len(checks)

    every = count(4)
    assert every > 10
    assert (count(4), count(3), count(3), count(4, train=False), count(4, train=False)) == (0, every, 0, every, 0)
    with torch.no_grad():
        assert (count(4), count(4)) == (every, 0)
    checks.clear()
    images = kit.batch("residual", 4).to(memory_format=torch.channels_last).requires_grad_()
    module.train()(images)
    assert len(checks) == every, "another layout"


def test_the_kinds_that_are_remembered_are_few(monkeypatch: pytest.MonkeyPatch, checks: list[str]) -> None:
    monkeypatch.setattr(guard, "MOST_SIGNATURES", 2)
    module = graph((aten.relu.default,))
    for size in (1, 2, 3, 3, 3):
        module(torch.ones(size))
    assert len(checks) == 5
    module(torch.ones(2))
    assert len(checks) == 5


def test_a_graph_whose_shapes_depend_on_values_is_checked_every_time(checks: list[str]) -> None:
    tags = graph((aten.to.dtype, torch.int64), (aten.one_hot.default,))
    for largest in (2.0, 2.0, 5.0):
        checks.clear()
        assert tags(torch.tensor([0.0, largest])).shape == (2, largest + 1)
        assert len(checks) == 2

    class Masked(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return aten.index.Tensor(inputs, [aten.gt.Scalar(inputs, 0)])

    module = fx.symbolic_trace(Masked())
    module.forward = GraphGuard(module)
    for sign in (1.0, -1.0):
        checks.clear()
        assert len(module(torch.ones(4) * sign)) == (4 if sign > 0 else 0)
        assert checks == ["torch.ops.aten.gt.Scalar", "torch.ops.aten.index.Tensor"]


def test_the_refusal_names_operator_node_and_sizes_and_comes_before_the_call() -> None:
    module = graph((aten.mul_.Scalar, 2), (aten.expand.default, [2, 3]), (aten.add_.Scalar, 1))
    inputs = torch.ones(1, 3)
    with pytest.raises(ContractBroken) as caught:
        module(inputs)
    assert str(caught.value) == (
        "The operator add_.Scalar at 'add__scalar' does not allow this call: 'self' is written to, but several of its "
        "entries are the same memory."
    )
    assert inputs.tolist() == [[2.0, 2.0, 2.0]], "the last operator did not run"
    with pytest.raises(ContractBroken):
        module(inputs)


class Constants(nn.Module):
    """A buffer, a constant that is changed in place, a sum with a number, and an output that is the input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen.add_(1)
        fresh = torch.tensor([1.0, 2.0, 3.0, 4.0])
        fresh.mul_(2)
        return inputs.add_(fresh * self.weight * self.seen)


def test_every_build_owns_its_tensors(tmp_path: Path) -> None:
    """Nothing that one writes to is another's: neither buffers and constants nor what a constant is copied to."""
    definition = ExportedFormat().read(kit.export(tmp_path / "m.pt2", Constants(), torch.ones(3, 4)), None)
    one, two = definition.build(), definition.build()

    def memory(module: nn.Module) -> set[int]:
        return {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers())}

    assert len(memory(one)) == 3
    assert not memory(one) & memory(two)
    before = state_sha256(two.state_dict())
    fixed = [buffer.clone() for buffer in one.buffers()]
    inputs = torch.zeros(3, 4)
    outputs = [one(inputs.clone()).detach() for _ in range(2)]
    assert torch.equal(2 * outputs[0], outputs[1]), "the constant is fresh at every call"
    assert [torch.equal(*pair) for pair in zip(fixed, one.buffers(), strict=True)].count(False) == 1
    assert state_sha256(two.state_dict()) == before


def test_a_plain_number_is_no_target() -> None:
    """`add_` would write into the tensor that torch makes of the number."""
    made = fx.Graph()
    inputs = made.placeholder("inputs")
    made.output(made.call_function(aten.add_.Tensor, (1, inputs)))
    module = fx.GraphModule(nn.Module(), made)
    module.forward = GraphGuard(module)
    with pytest.raises(ContractBroken, match="no tensor"):
        module(torch.ones(3))
