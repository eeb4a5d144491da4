"""A plain training loop whose step can be captured as a CUDA graph. For the probe alone; no part of the product."""

import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor, nn

from tools.bench.architectures import build
from tools.bench.networks import NETWORKS, Scale

BATCHES = {"lenet": 256, "resnet18": 128, "resnet34": 128}
_SCALE = 1 / 255
_SAMPLES = {"cuda": 8192, "cpu": 512}
_WARM_UP_STEPS = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of a step: by the clock, and of the processor."""

    ms: float
    cpu_ms: float


class Training:
    """A network on resident data of bytes, with its own order and optimizer.

    A step reads the places of its batch from a tensor that stays where it is, as a graph needs it.
    """

    def __init__(self, name: str, device: torch.device, *, seed: int = 0, optimizer: str = "SGD", **arguments: Any):
        """`arguments` are those of the optimizer; the learning rate is 0.01 unless they name one."""
        network, scale = NETWORKS[name], "paper" if device.type == "cuda" else "cpu"
        known: Scale = "paper" if scale == "paper" else "cpu"
        torch.manual_seed(seed)
        self.device, self.batch = device, BATCHES[name]
        self.module = build(network.architecture, network.args(known)).to(device).train()
        self.inputs, self.targets = _data(network.sample[known], device)
        self.weights = list(self.module.parameters())
        self.optimizer = getattr(torch.optim, optimizer)(self.weights, **{"lr": 0.01, **arguments})
        self.criterion = nn.CrossEntropyLoss()
        self._order = torch.Generator().manual_seed(seed)
        self._places = torch.zeros(self.batch, dtype=torch.int64, device=device)
        self._next_epoch()

    def with_dropout(self, share: float) -> "Training":
        """The same, with dropout before its last layer."""
        modules = [module for module in self.module.modules() if isinstance(module, nn.Linear)]
        modules[-1].register_forward_pre_hook(lambda _, given: (nn.functional.dropout(given[0], share),))
        return self

    def advance(self) -> None:
        """Write the places of the next batch."""
        if self._at + self.batch > len(self.inputs):
            self._next_epoch()
        self._places.copy_(self._permutation[self._at : self._at + self.batch])
        self._at += self.batch

    def forget_gradients(self) -> None:
        """Drop all gradients, so that the next backward pass makes new ones."""
        for weight in self.weights:
            weight.grad = None

    def learn(self) -> None:
        """Forward and backward."""
        inputs = self.inputs.index_select(0, self._places).float() * _SCALE
        loss = self.criterion(self.module(inputs), self.targets.index_select(0, self._places))
        loss.backward()

    def step(self) -> None:
        """One step, operator by operator."""
        self.advance()
        self.forget_gradients()
        self.learn()
        self.optimizer.step()

    def state(self) -> Any:
        """All that a step changes."""
        own = copy.deepcopy((self.module.state_dict(), self.optimizer.state_dict()))
        return own, self._order.get_state(), self._permutation.clone(), self._at

    def restore(self, state: Any) -> None:
        """Take a state back."""
        (module, optimizer), order, permutation, self._at = state
        self.module.load_state_dict(module)
        self.optimizer.load_state_dict(copy.deepcopy(optimizer))  # it would keep the tensors of the state
        self._order.set_state(order)
        self._permutation = permutation.clone()

    def bits(self) -> str:
        """Hash of weights and buffers."""
        found = hashlib.sha256()
        for _, value in sorted(self.module.state_dict().items()):
            found.update(value.detach().cpu().contiguous().numpy().tobytes())
        return found.hexdigest()[:12]

    def _next_epoch(self) -> None:
        self._permutation = torch.randperm(len(self.inputs), generator=self._order).to(self.device)
        self._at = 0


def warmed_up(trainings: list[Training], steps: int = _WARM_UP_STEPS) -> None:
    """Let libraries prepare what a capture cannot, on another stream; the state afterwards is that of before."""
    kept, side = [training.state() for training in trainings], _stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for training in trainings:
            for _ in range(steps):
                training.step()
    torch.cuda.current_stream().wait_stream(side)
    for training, state in zip(trainings, kept, strict=True):
        training.restore(state)
        training.forget_gradients()


def captured(training: Training, *, whole: bool) -> tuple[Callable[[], None], float]:
    """A step by a graph of forward and backward, or of the whole step; and the seconds that the capture took."""
    random = torch.cuda.get_rng_state()
    warmed_up([training])
    graph, began_s = torch.cuda.CUDAGraph(), perf_counter()
    with torch.cuda.graph(graph):
        training.learn()
        if whole:
            training.optimizer.step()
    torch.cuda.synchronize()
    took_s = perf_counter() - began_s
    torch.cuda.set_rng_state(random)  # nothing ran while it was captured

    def step() -> None:
        training.advance()
        graph.replay()
        if not whole:
            training.optimizer.step()

    return step, took_s


def branches(trainings: list[Training]) -> tuple[torch.cuda.CUDAGraph, float]:
    """One graph with a branch for the whole step of each network; and the seconds that the capture took."""
    for training in trainings:
        training.step()
    warmed_up(trainings, steps=2)
    streams, graph, began_s = [_stream() for _ in trainings], torch.cuda.CUDAGraph(), perf_counter()
    with torch.cuda.graph(graph):
        here = torch.cuda.current_stream()
        for training, stream in zip(trainings, streams, strict=True):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                training.learn()
                training.optimizer.step()
            here.wait_stream(stream)
    torch.cuda.synchronize()
    return graph, perf_counter() - began_s


def timed(step: Callable[[], object], steps: int, device: torch.device) -> Timing:
    """Mean of some steps, after three that do not count."""
    for _ in range(_WARM_UP_STEPS):
        step()
    wait(device)
    began_s, cpu_began_s = perf_counter(), process_time()
    for _ in range(steps):
        step()
    wait(device)
    return Timing(1e3 * (perf_counter() - began_s) / steps, 1e3 * (process_time() - cpu_began_s) / steps)


def wait(device: torch.device) -> None:
    """Until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _stream() -> Any:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def _data(shape: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    generator, samples = torch.Generator().manual_seed(7), _SAMPLES[device.type]
    inputs = torch.randint(0, 256, (samples, *shape), dtype=torch.uint8, generator=generator)
    return inputs.to(device), torch.randint(0, 10, (samples,), generator=generator).to(device)
