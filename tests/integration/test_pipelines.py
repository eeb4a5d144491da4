"""Pipelines of several processes on gloo."""

import os
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing import active_children, get_context, parent_process
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed import pipelining  # noqa: F401  (forks find it loaded)
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from unifiednn_core.base.errors import BadInput, PipelineFailed
from unifiednn_core.formats.architectures import lenet
from unifiednn_core.techniques.pipelines.profile import stages
from unifiednn_core.techniques.pipelines.synchronous import Pipelining, ScheduleName, places, train

FORKED = get_context("fork")
OPTIMIZER = {"optimizer": SGD, "optimizer_args": {"lr": 0.1, "momentum": 0.9}}


def parts(count: int) -> list[nn.Module]:
    """Convolution and batch normalisation first, then dense stages."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 16))
        inner = [nn.Sequential(nn.Tanh(), nn.Linear(16, 16)) for _ in range(count - 2)]
        return [first, *inner, nn.Linear(16, 4)]


def batches(count: int = 2) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(16, 1, 8, 8, generator=generator), torch.randint(4, (16,), generator=generator))
        for _ in range(count)
    ]


def accumulated(modules: Sequence[nn.Module], micro_batches: int) -> list[float]:
    """The same in one process: gradients of micro-batches added up, then divided."""
    network = nn.Sequential(*modules)
    optimizer, losses = SGD(network.parameters(), **OPTIMIZER["optimizer_args"]), []
    for inputs, targets in batches():
        optimizer.zero_grad(set_to_none=True)
        found = []
        for one, wanted in zip(inputs.chunk(micro_batches), targets.chunk(micro_batches), strict=True):
            loss = cross_entropy(network(one), wanted)
            loss.backward()
            found.append(loss.detach())
        for weight in network.parameters():
            weight.grad /= micro_batches
        optimizer.step()
        losses.append(torch.stack(found).mean().item())
    return losses


def bits(modules: Sequence[nn.Module]) -> list[bytes]:
    weights = [one for module in modules for one in module.state_dict().values()]
    gradients = [one.grad for module in modules for one in module.parameters() if one.grad is not None]
    return [one.numpy(force=True).tobytes() for one in (*weights, *gradients)]


def check(schedule: ScheduleName, stages: int, processes: int, micro_batches: int, context: Any = FORKED) -> None:
    piped, plain = parts(stages), parts(stages)
    how = Pipelining(
        schedule=schedule, micro_batches=micro_batches, devices=("cpu",) * processes, timeout_s=60, **OPTIMIZER
    )
    losses = train(piped, batches(), how, context=context)
    assert losses == accumulated(plain, micro_batches)
    assert bits(piped) == bits(plain)
    accumulated(again := parts(stages), 2 * micro_batches)
    assert bits(again) != bits(plain), "other micro-batches would be noticed"
    assert not [one for one in active_children() if one.name.startswith("pipeline")]


@pytest.mark.parametrize(
    ("schedule", "stages"), [("1f1b", 2), ("gpipe", 2), ("interleaved", 4), ("zero_bubble", 4), ("zero_bubble_v", 4)]
)
def test_gradients_of_two_processes_are_those_of_accumulation(schedule: ScheduleName, stages: int) -> None:
    check(schedule, stages, 2, 4)


def test_a_network_is_cut_and_trained_in_two_processes() -> None:
    def network() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return lenet.build(image_size=8, classes=4, batch_norm=True)

    exported = torch.export.export(network(), (batches(1)[0][0][:4],), strict=False).module()
    for whole in (network(), exported):
        plain = network()
        how = Pipelining(micro_batches=4, devices=("cpu", "cpu"), timeout_s=60, **OPTIMIZER)
        losses = train(stages(whole, batches(1)[0][0][:4], 2), batches(), how, context=FORKED)
        assert losses == accumulated([plain], 4)
        assert bits([whole]) == bits([plain]), "its own weights, buffers and gradients"


@pytest.mark.long
@pytest.mark.parametrize(
    ("schedule", "stages"), [("1f1b", 4), ("gpipe", 4), ("interleaved", 8), ("zero_bubble", 8), ("zero_bubble_v", 8)]
)
def test_gradients_of_four_processes_are_those_of_accumulation(schedule: ScheduleName, stages: int) -> None:
    check(schedule, stages, 4, 8)


@pytest.mark.long
def test_processes_start_as_new_interpreters() -> None:
    check("1f1b", 2, 2, 4, get_context("spawn"))


class Failing(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.layer = how, nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        if parent_process() is not None:
            if self.how == "raises":
                raise ValueError("no such thing")
            if self.how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)
        return self.layer(x)


@pytest.mark.parametrize(
    ("how", "message", "timeout_s"),
    [
        ("raises", r"Rank 1 of 2 failed: ValueError: no such thing\. All", 60),
        ("dies", r"Rank 1 of 2 failed: its process ended with exit code -9", 60),
        ("hangs", r"took longer than 1 s; rank 0, 1 had not finished", 1),
    ],
)
def test_a_rank_that_fails_ends_all_and_is_named(how: str, message: str, timeout_s: float) -> None:
    stages = [parts(2)[0], Failing(how)]
    before, threads = bits(stages), threading.active_count()
    with pytest.raises(PipelineFailed, match=message):
        train(
            stages, batches(1), Pipelining(micro_batches=4, devices=("cpu", "cpu"), timeout_s=timeout_s), context=FORKED
        )
    assert not [one for one in active_children() if one.name.startswith("pipeline")]
    assert threading.active_count() == threads
    assert bits(stages) == before, "the stages stay as they were"


def test_what_a_schedule_cannot_do_is_refused() -> None:
    assert places("zero_bubble_v", 4, 2) == [[0, 3], [1, 2]]
    assert places("interleaved", 4, 2) == [[0, 2], [1, 3]]
    for schedule, count in (("1f1b", 4), ("zero_bubble_v", 6), ("interleaved", 3)):
        with pytest.raises(BadInput, match="per process"):
            places(schedule, count, 2)
    with pytest.raises(BadInput, match="does not divide into 3 equal parts"):
        train(parts(2), batches(), Pipelining(micro_batches=3, devices=("cpu", "cpu")))
