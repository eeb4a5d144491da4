"""A fused step gives each member the gradients of its own step, whatever operators its network has."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sample_models.architectures import roberta, transformer_lm, vgg_cbam
from tests.unit.formats.kit import export
from unifiednn_core.base.errors import NoBatchedForm
from unifiednn_core.engine import batched
from unifiednn_core.engine.fused import Fused, fuse
from unifiednn_core.engine.step_program import record, state_of
from unifiednn_core.formats.architectures import registry
from unifiednn_core.formats.registry import format_named

MEMBERS, BATCH, CLASSES = 3, 6, 4
Make = Callable[[], nn.Module]
IMAGE, ROW = (2, 8, 8), (12,)


class Calls(nn.Module):
    """A few weights around an expression of operators."""

    def __init__(self, call: Callable[[Tensor], Tensor], *shape: int):
        super().__init__()
        self.call, self.gain = call, nn.Parameter(1 + 0.1 * torch.randn(shape))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return self.call(x * self.gain)


def layers(*parts: nn.Module) -> Make:
    """A fresh network of such parts with weights of its own."""

    def make() -> nn.Module:
        network = nn.Sequential(*parts)
        for one in network.modules():
            if hasattr(one, "reset_parameters"):
                one.reset_parameters()
        return network

    return make


def of(name: str, **args: Any) -> Make:
    return lambda: registry.build(name, args)


def calls(call: Callable[[Tensor], Tensor], *shape: int) -> Make:
    return lambda: Calls(call, *shape)


NETWORKS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "lenet": (of("lenet", channels=1, image_size=28, classes=CLASSES, batch_norm=True), (1, 28, 28)),
    "lenet without norms": (of("lenet", channels=1, image_size=28, classes=CLASSES), (1, 28, 28)),
    "resnet": (of("resnet", blocks=[1, 1, 1, 1], width=4, channels=3, classes=CLASSES), (3, 16, 16)),
    "mlp": (of("mlp", inputs=12, hidden=[9, 7], classes=CLASSES), ROW),
    "transformer": (of("transformer", layers=1, model_size=8, heads=2, dropout=0.0, classes=CLASSES), (8, 8)),
    "vgg_cbam": (
        lambda: vgg_cbam.build(width=2, hidden=8, pooled=1, reduction=2, classes=CLASSES, dropout=0.0),
        (3, 32, 32),
    ),
    "groups": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, groups=2, padding="same"), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(256, CLASSES)
        ),
        IMAGE,
    ),
    "transposed": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(2, 4, 3, stride=2, groups=2),
            nn.SiLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(256, CLASSES),
        ),
        IMAGE,
    ),
    "sequence": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, 12)),
            nn.Conv1d(1, 3, 3),
            nn.BatchNorm1d(3),
            nn.MaxPool1d(2),
            nn.Flatten(),
            nn.BatchNorm1d(15),
            nn.Linear(15, CLASSES),
        ),
        ROW,
    ),
    "frozen": (
        lambda: nn.Sequential(nn.Linear(12, 8).requires_grad_(False), nn.LeakyReLU(), nn.Linear(8, CLASSES)),
        ROW,
    ),
    "unused": (lambda: nn.Sequential(nn.Linear(12, CLASSES), nn.ParameterList([nn.Parameter(torch.ones(2))]))[:1], ROW),
    "shapes": (
        calls(
            lambda x: (
                torch.cat([x.permute(0, 2, 3, 1)[:, 1:3].reshape(6, 32), x.mean((2, 3)), x.amax((-1, 1))], 1)
                .chunk(2, 1)[0]
                .unsqueeze(-1)
                .expand(6, 21, 4)
                .transpose(1, 2)
                .sum(2)
            ),
            2,
            1,
            1,
        ),
        IMAGE,
    ),
    "broadcasts": (
        calls(
            lambda x: (
                torch.nn.functional.max_pool2d(x, 2) * x.sigmoid().mean((2, 3), keepdim=True)
                + x.mean(1, keepdim=True)[..., :4, :4]
                - 2.0 / (3.0 + x[:, :, :4, :4])
            ).flatten(1)[:, :4],
            8,
        ),
        IMAGE,
    ),
    "matrices": (
        calls(lambda x: torch.softmax(x @ x.transpose(1, 2), -1).matmul(x).view(6, -1).tanh()[:, :4], 3),
        (4, 3),
    ),
    "in place": (calls(lambda x: x.add_(1).mul_(2.0).add_(x.sum(1, keepdim=True)).relu_()[:, :4], 12), ROW),
    "pad": (calls(lambda x: torch.nn.functional.pad(x, (1, 2), value=0.5)[:, ::4][:, :4], 12), ROW),
}


def batches(shape: Sequence[int], dtype: torch.dtype, classes: int = CLASSES) -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(BATCH, *shape, dtype=dtype), torch.randint(classes, (BATCH,))) for _ in range(MEMBERS)]


def fused_and_alone(
    networks: Sequence[nn.Module], criterion: nn.Module, given: Sequence[tuple[Tensor, Tensor]]
) -> tuple[Fused, list[list[Tensor]]]:
    """A fused pass, and the tensors of all networks after a step of each alone, with its gradients."""
    programs = [record(one, criterion, x.clone(), t) for one, (x, t) in zip(networks, given, strict=True)]
    assert all(program == programs[0] for program in programs)
    batched.require_batched(programs[0])
    states = [state_of(one, criterion) for one in networks]
    found = fuse(programs[0], states, [(x.clone(), t) for x, t in given])
    for row, (one, (x, t)) in enumerate(zip(networks, given, strict=True)):
        loss = criterion(one(x.clone()), t)
        loss.backward()
        torch.testing.assert_close(found.losses[row], loss.detach(), rtol=1e-5, atol=1e-6)
    return found, states


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_each_member_gets_the_gradients_and_statistics_of_its_own_step(network: str, dtype: Any, most: float) -> None:
    torch.manual_seed(5)
    make, shape = NETWORKS[network]
    networks = [make().to(dtype) for _ in range(MEMBERS)]
    found, states = fused_and_alone(networks, nn.CrossEntropyLoss(), batches(shape, dtype))
    assert found.error(states) <= most
    wrong = found._replace(gradients=[None if one is None else one.flip(0) for one in found.gradients])
    assert wrong.error(states) > 0.01, "gradients of another member would be noticed"
    for row, (one, state) in enumerate(zip(networks, states, strict=True)):
        before = [None if tensor.grad is None else tensor.grad.clone() for tensor in state]
        one.zero_grad()
        found.hand_out(states)
        assert [tensor.grad is None for tensor in state] == [grad is None for grad in before], row
    pairs = [(grad, tensor.grad) for tensor, grad in zip(states[-1], before, strict=True) if grad is not None]
    assert pairs and all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in pairs)


CRITERIA: dict[str, tuple[nn.Module, Callable[[Tensor], Tensor]]] = {
    "label smoothing": (nn.CrossEntropyLoss(label_smoothing=0.2), lambda x: x),
    "ignored labels": (nn.CrossEntropyLoss(ignore_index=1), lambda x: x),
    "shares": (nn.CrossEntropyLoss(), lambda x: nn.functional.one_hot(x, CLASSES).double()),
    "mse": (nn.MSELoss(), lambda x: torch.randn(BATCH, CLASSES, dtype=torch.float64)),
    "l1": (nn.L1Loss(), lambda x: torch.randn(BATCH, CLASSES, dtype=torch.float64)),
    "smooth l1": (nn.SmoothL1Loss(beta=0.3), lambda x: torch.randn(BATCH, CLASSES, dtype=torch.float64)),
    "huber": (nn.HuberLoss(delta=0.2), lambda x: torch.randn(BATCH, CLASSES, dtype=torch.float64)),
    "bce with logits": (nn.BCEWithLogitsLoss(), lambda x: torch.rand(BATCH, CLASSES, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", CRITERIA)
def test_each_member_has_the_mean_loss_of_its_own_batch(name: str) -> None:
    torch.manual_seed(6)
    criterion, targets = CRITERIA[name]
    given = [(x, targets(t)) for x, t in batches(ROW, torch.float64)]
    networks = [nn.Linear(12, CLASSES).double() for _ in range(MEMBERS)]
    found, states = fused_and_alone(networks, criterion, given)
    assert found.error(states) <= 1e-13
    if name in ("label smoothing", "ignored labels"):
        ignored = criterion.ignore_index if name == "ignored labels" else None
        counts = [
            int(((one(x).argmax(1) == t) & (t != 1 if ignored else t >= 0)).sum())
            for one, (x, t) in zip(networks, given, strict=True)
        ]
        assert found.correct(ignored).tolist() == counts


def test_the_pixels_of_an_image_have_classes_of_their_own() -> None:
    torch.manual_seed(7)
    given = [(torch.randn(BATCH, *IMAGE).double(), torch.randint(3, (BATCH, 8, 8))) for _ in range(MEMBERS)]
    networks = [nn.Conv2d(2, 3, 3, padding=1).double() for _ in range(MEMBERS)]
    found, states = fused_and_alone(networks, nn.CrossEntropyLoss(ignore_index=2), given)
    assert found.error(states) <= 1e-13


@pytest.mark.parametrize(
    ("make", "inputs", "said"),
    [
        (lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 4)), "tokens", "aten.embedding.default"),
        (
            lambda: transformer_lm.build(vocabulary=9, length=5, model_size=8, heads=2, hidden=8, layers=1),
            "tokens",
            "has no batched form",
        ),
        (
            lambda: roberta.build(vocabulary=9, positions=9, model_size=8, heads=2, hidden=8, layers=1, classes=4),
            "tokens",
            "has no batched form",
        ),
        (lambda: nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5)), "rows", "aten.dropout.default draws random numbers"),
        (calls(lambda x: x.cumsum(1)[:, :4], 5), "rows", "aten.cumsum.default has no batched form"),
        (calls(lambda x: x[:, :4] * float(x.sum()), 5), "rows", "aten.item.default has no batched form"),
        (calls(lambda x: x[:, :4] + torch.ones(4), 5), "rows", "aten.ones.default has no batched form"),
        (calls(lambda x: x[:, :4] + torch.tensor([1.0, 2.0, 3.0, 4.0]), 5), "rows", "aten.lift_fresh.default"),
        (calls(lambda x: x.gather(1, torch.zeros_like(x, dtype=torch.int64))[:, :4], 5), "rows", "aten."),
        (calls(lambda x: x.mean(1).squeeze()[:, None].expand(6, 4), 5), "rows", "aten.squeeze.default"),
    ],
)
def test_a_network_with_an_operator_that_has_no_batched_form_is_refused_by_its_name(
    make: Make, inputs: str, said: str
) -> None:
    given = torch.randint(9, (BATCH, 5)) if inputs == "tokens" else torch.randn(BATCH, 5)
    network, criterion = make(), nn.CrossEntropyLoss()
    with torch.no_grad():
        outputs = network(given)
    targets = torch.randint(4, (BATCH, *outputs.shape[2:]))
    with pytest.raises(NoBatchedForm, match=said):
        program = record(network, criterion, given, targets)
        batched.require_batched(program)
        fuse(program, [state_of(network, criterion)], [(given, targets)])


def test_a_criterion_with_weights_of_its_own_is_refused() -> None:
    network, criterion = nn.Linear(12, CLASSES), nn.CrossEntropyLoss(weight=torch.ones(CLASSES))
    given = batches(ROW, torch.float32)[0]
    program = record(network, criterion, *given)
    with pytest.raises(NoBatchedForm, match="weights of its own"):
        fuse(program, [state_of(network, criterion)], [given])


def test_a_record_leaves_the_network_as_it_was_and_a_file_gives_the_same_operators(tmp_path: Any) -> None:
    make, shape = NETWORKS["lenet"]
    network, criterion = make(), nn.CrossEntropyLoss()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    given = batches(shape, torch.float32)
    program = record(network, criterion, given[0][0].clone(), given[0][1])
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    path = tmp_path / "lenet.pt2"
    export(path, network, given[0][0])
    read = format_named("pt2").read(path, None)
    files = [read.build() for _ in range(MEMBERS)]
    written = record(files[0], criterion, given[0][0].clone(), given[0][1])
    assert {call.name for call in written.calls} == {call.name for call in program.calls}
    found, states = fused_and_alone(files, criterion, given)
    assert found.error(states) <= 1e-5
