"""Pipelines on a GPU: PipeDream on one, the schedules of torch on two."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from unifiednn_core.formats.architectures import lenet
from unifiednn_core.techniques.pipelines.pipedream import PipeDream
from unifiednn_core.techniques.pipelines.profile import stages
from unifiednn_core.techniques.pipelines.synchronous import Pipelining, train

pytestmark = pytest.mark.gpu


def batches(device: torch.device, count: int = 6) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(16, 1, 28, 28, generator=generator).to(device), (torch.arange(16) % 10).to(device))
        for _ in range(count)
    ]


def network(device: torch.device | None = None) -> nn.Module:
    torch.manual_seed(0)
    return lenet.build(batch_norm=True).to(device)


def piped(parts: list[nn.Module], data: list[tuple[Tensor, Tensor]]) -> list[float]:
    pipeline = PipeDream(parts, [SGD(part.parameters(), lr=0.05) for part in parts])
    given = (
        (inputs, lambda output, targets=targets: cross_entropy(output, targets.to(output.device)))
        for inputs, targets in data
    )
    return [one.loss.item() for one in pipeline.train(given, len(data))]


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)


def test_one_stage_is_plain_training(cuda: torch.device, exact: None) -> None:
    plain, one = network(cuda), network(cuda)
    optimizer, losses = SGD(plain.parameters(), lr=0.05), []
    for inputs, targets in batches(cuda):
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(plain(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert piped([one], batches(cuda)) == losses
    assert all(map(torch.equal, plain.state_dict().values(), one.state_dict().values()))


def test_stages_on_the_gpu_train_as_on_the_cpu(cuda: torch.device, exact: None) -> None:
    there, here = network(cuda), network()
    made = stages(there, batches(cuda)[0][0], 3)
    assert sum(len(list(part.parameters())) for part in made) == len(list(there.parameters()))
    on_gpu = piped(made, batches(cuda))
    assert all(torch.isfinite(torch.tensor(on_gpu)))
    assert on_gpu[0] == pytest.approx(piped([here], batches(torch.device("cpu")))[0], rel=1e-3)


def test_two_gpus_share_stages(cuda: torch.device, exact: None) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU alone is here")
    whole = network()
    made = stages(whole, batches(torch.device("cpu"))[0][0], 2)
    alone = copy.deepcopy(made)
    spread = [part.to(f"cuda:{place}") for place, part in enumerate(copy.deepcopy(made))]
    assert piped(spread, batches(cuda)) == pytest.approx(piped([one.to(cuda) for one in alone], batches(cuda)))
    how = Pipelining(micro_batches=4, devices=("cuda:0", "cuda:1"), optimizer_args={"lr": 0.05})
    losses = train(made, batches(torch.device("cpu")), how)
    assert len(losses) == 6 and losses[-1] < losses[0]
