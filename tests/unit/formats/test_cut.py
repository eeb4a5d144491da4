"""Parts of networks compute what the whole does, and hold its weights under its names."""

import copy
import re
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.base import Definition, define
from unifiednn_core.formats.cut import cut, joined, segments
from unifiednn_core.formats.exported import ExportedFormat


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.c2, self.b2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(4 * 9, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.b1(self.c1(x))), 2)
        x = x + torch.relu(self.b2(self.c2(x)))
        scores: Tensor = self.head(self.drop(x.flatten(1)))
        return scores


def nested() -> nn.Module:
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    head = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 10))
    return nn.Sequential(OrderedDict(body=body, head=head))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Definition:
    torch.manual_seed(0)
    path, batch = tmp_path_factory.mktemp("graph") / "net.pt2", {0: torch.export.Dim("batch", min=2)}
    program = torch.export.export(Residual().train(), (torch.randn(6, 1, 6, 6),), dynamic_shapes=(batch,))
    torch.export.save(program, path)
    return ExportedFormat().read(path, None)


def listed(module: nn.Module) -> Definition:
    return define("module", Path("-"), lambda: copy.deepcopy(module).train(), module)


def images(samples: int = 6) -> Tensor:
    return torch.randn(samples, 1, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize(
    ("kind", "at"),
    [
        ("list", ["body"]),
        ("list", ["body.2"]),
        ("list", ["body.0", "head.2", "head.3"]),
        ("graph", ["max_pool2d"]),
        ("graph", ["b1"]),
        ("graph", ["relu", "add"]),
    ],
)
def test_the_parts_do_what_the_whole_does(exported: Definition, kind: str, at: list[str], mode: bool) -> None:
    whole = exported.build() if kind == "graph" else nested()
    parts = segments(copy.deepcopy(whole), at)
    outcomes = []
    for chain in ([whole], parts):
        torch.manual_seed(3)
        passed = images()
        for one in chain:
            passed = one.train(mode)(passed)
        torch.autograd.backward(passed.square().sum())
        outcomes.append(passed)
    assert torch.equal(*outcomes)
    again = joined([part.state_dict() for part in parts], whole.state_dict())
    assert all(torch.equal(again[name], one) for name, one in whole.state_dict().items())  # running statistics, too
    theirs = {name: one.grad for name, one in whole.named_parameters()}
    for part in parts:
        for name, weight in part.named_parameters():
            assert weight.grad is not None and (other := theirs.pop(name)) is not None
            assert torch.equal(weight.grad, other)
    assert not theirs


def test_a_part_of_a_graph_can_be_copied_and_is_guarded(exported: Definition) -> None:
    first = copy.deepcopy(segments(exported.build(), ["max_pool2d"])[0])
    second = segments(exported.build(), ["max_pool2d"])[0]
    assert torch.equal(first.eval()(images()), second.eval()(images()))
    assert type(first.forward).__name__ == "GraphGuard"
    assert first.state_dict().keys() == second.state_dict().keys()


@pytest.mark.parametrize(("at", "shape", "least"), [("body", (4, 2, 2), 0.0), ("head.2", (8,), -1.0), ("0", (), 0.0)])
def test_a_part_knows_what_it_gets_and_gives(at: str, shape: tuple[int, ...], least: float) -> None:
    definition = listed(nested())
    if at == "0":
        with pytest.raises(BadInput, match=re.escape("its layers in order are body.0, body.1")):
            cut(definition, [at], 1, images(2), "net")
        return
    state = torch.get_rng_state()
    left, right = (cut(definition, [at], place, images(2), "net") for place in (1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert left.part is not None and right.part is not None
    assert left.part.ends == right.part.begins and left.part.ends is not None
    assert (left.part.ends.shape, left.part.ends.least, left.part.classes) == (shape, least, 10)
    assert left.part.begins is None and right.part.ends is None
    assert left.parameters + right.parameters == definition.parameters
    assert {*left.build().state_dict(), *right.build().state_dict()} == set(definition.build().state_dict())


def test_what_two_parts_would_share_is_refused(exported: Definition) -> None:
    layer = nn.Linear(4, 4)
    tied = listed(nn.Sequential(nn.Linear(4, 4), layer, nn.ReLU(), layer, nn.Linear(4, 3)))
    with pytest.raises(BadInput, match="share weights"):
        cut(tied, ["2"], 1, torch.randn(2, 4), "net")
    with pytest.raises(BadInput, match="depends on more than its result"):
        segments(exported.build(), ["relu_2"])  # the sum behind it takes an earlier value, too
    with pytest.raises(BadInput, match="not in the order"):
        segments(exported.build(), ["add", "relu"])
    idle = listed(nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(36, 3)))
    with pytest.raises(BadInput, match="no weights to train"):
        cut(idle, ["1"], 1, images(2), "net")


def test_joined_weights_are_those_of_all_parts_and_no_more() -> None:
    whole = nested()
    first, second = (part.state_dict() for part in segments(whole, ["body"]))
    assert list(joined([first, second], whole.state_dict())) == list(whole.state_dict())
    for parts in ([first], [first, second, second], [first, second, {"more": torch.ones(1)}]):
        with pytest.raises(ValueError, match="part"):
            joined(parts, whole.state_dict())
