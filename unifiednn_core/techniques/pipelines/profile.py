"""PipeDream's profiler: how long each layer takes, and how many bytes its output and its weights have."""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from unifiednn_core.techniques.pipelines.layers import Chain, chain
from unifiednn_core.techniques.pipelines.partition import Layer, Machines, partitions

REPEATS = 3


def profile(cut: Chain, inputs: Tensor) -> list[Layer]:
    """Measure forward and backward of each layer for one batch; weights, buffers and generators stay as they are."""
    measured = []
    with torch.random.fork_rng(devices=[inputs.device] if inputs.is_cuda else []):
        for place in range(len(cut.layers)):
            part = cut.part(place, place + 1)
            inputs, layer = _measured(part, inputs)
            measured.append(layer)
    return measured


def stages(network: nn.Module, inputs: Tensor, count: int) -> list[nn.Module]:
    """Cut a network into a straight pipeline of so many stages, or of its layers if it has fewer, as fast as can be.

    The stages share its weights and buffers. Raises `BadInput` if it cannot be cut.
    """
    cut = chain(network)
    count = min(count, len(cut.layers))
    if count <= 1:
        return [network]
    plan = partitions(profile(cut, inputs), Machines(count=count, replicate=False))[-1]
    if plan is None:  # without a limit of memory there is always one
        return [network]
    return [cut.part(stage.first, stage.end) for stage in plan.stages]


def _measured(part: nn.Module, inputs: Tensor) -> tuple[Tensor, Layer]:
    weights = [one for one in part.parameters() if one.requires_grad]

    def forward() -> tuple[Tensor, Tensor]:
        given = inputs.detach().requires_grad_(inputs.is_floating_point())
        buffers = {name: one.clone() for name, one in part.named_buffers()}
        output: Tensor = functional_call(part, buffers, (given,))
        return given, output

    def both() -> Tensor:
        given, output = forward()
        wanted = [given] if given.requires_grad else []
        if output.requires_grad:
            torch.autograd.grad(output, [*wanted, *weights], torch.ones_like(output), allow_unused=True)
        return output.detach()

    output = both()  # the first time is longer
    time_s = min(_seconds(both, inputs.device) for _ in range(REPEATS))
    weight_bytes = sum(one.nbytes for one in part.parameters())
    return output, Layer(time_s=time_s, activation_bytes=output.nbytes, weight_bytes=weight_bytes)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begun_s = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun_s
