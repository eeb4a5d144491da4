"""What a pipeline on one device holds, counted tensor by tensor, is within its forecast; that of plain steps is not."""

from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from unifiednn_core.preflight.estimate import Part, baseline_bytes, piped
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.techniques.live_bytes import LiveBytes
from unifiednn_core.techniques.pipelines.pipedream import PipeDream

BATCH, BATCHES = 32, 9


def layers(widths: list[int]) -> list[nn.Module]:
    return [nn.Sequential(nn.Linear(given, gives), nn.ReLU()) for given, gives in pairwise(widths)]


def peak_bytes(made: list[nn.Module], inputs: list[Tensor]) -> int:
    """The most that is alive while these stages train, with their weights and the optimizer's state."""
    optimizers = [torch.optim.Adam(one.parameters()) for one in made]
    with LiveBytes() as alive:
        alive.track(weight for one in made for weight in one.parameters())
        list(PipeDream(made, optimizers).train(((one, loss) for one in inputs), len(inputs)))
    most: int = max(alive.timeline)
    return most


def loss(output: Tensor) -> Tensor:
    result: Tensor = output.square().mean()
    return result


def need_of(made: list[nn.Module], inputs: Tensor) -> MemoryNeed:
    """The need of a plain step, counted in the same way: as a pipeline of one stage."""
    weights_bytes = sum(weight.numel() * weight.itemsize for one in made for weight in one.parameters())
    step_bytes = peak_bytes([nn.Sequential(*made)], [inputs, inputs])
    transient_bytes = max(0, step_bytes - 4 * weights_bytes) + inputs.numel() * inputs.itemsize
    return MemoryNeed(
        weights_bytes=weights_bytes,
        gradients_bytes=weights_bytes,
        optimizer_bytes=2 * weights_bytes,
        transient_bytes=transient_bytes,
        data={},
        batch_size=BATCH,
        whole={BATCH: transient_bytes},
    )


def total(need: MemoryNeed) -> int:
    return need.weights_bytes + need.gradients_bytes + need.optimizer_bytes + need.transient_bytes


def test_versions_and_batches_under_way_are_in_the_forecast() -> None:
    torch.manual_seed(0)
    most = 0.0
    for widths in ([512, 512, 8, 8, 8], [512, 8, 8, 8, 512], [8, 2048, 8, 8, 8], [128] * 5):
        inputs = [torch.randn(BATCH, widths[0]) for _ in range(BATCHES)]
        need = need_of(layers(widths), inputs[0])
        needed_bytes = peak_bytes(layers(widths), inputs)
        assert total(need) < needed_bytes <= total(piped(need)), widths
        most = max(most, needed_bytes / total(piped(need)))
    assert most > 0.7  # where the first stage has nearly all, the bound is close


def test_only_the_arm_of_pipedream_is_forecast_so() -> None:
    need = MemoryNeed(
        weights_bytes=5,
        gradients_bytes=5,
        optimizer_bytes=0,
        transient_bytes=40,
        data={"d": 3},
        batch_size=1,
        whole={1: 7},
        evaluation={1: 40},
    )
    peak = partial(baseline_bytes, [Part(name="a", need=need, measured_bytes=9)], device_type="cuda", context_bytes=100)
    assert peak("concurrent-pipedream") > peak("concurrent") == peak("concurrent-techniques")
    assert (piped(need).weights_bytes, piped(need).transient_bytes) == (20, 40)
    assert piped(need, stages=1).weights_bytes == 5
