"""Techniques that move memory between a GPU and its host: the bits of the plain loop, and less memory on the GPU."""

import gc
import sys
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.gpu.checks import IN_TURNS
from tests.gpu.kit import KINDS, Bench, Kind, alone, hash_of, spec_of
from unifiednn_core.engine.device import exact_profile
from unifiednn_core.engine.events import Report, Stepped
from unifiednn_core.formats.architectures import registry
from unifiednn_core.spec.techniques import AnyTechnique
from unifiednn_core.techniques.build import built

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


def bench_of(cuda: torch.device, names: list[str], *techniques: dict[str, Any], **hyperparameters: Any) -> Bench:
    asked = {**hyperparameters, "techniques": list(techniques)}
    return Bench(cuda, [(name, KINDS[name], spec_of(name, KINDS[name], **asked)) for name in names], IN_TURNS)


@pytest.mark.parametrize("names", [["lenet", "resnet"], ["transformer", "transformer_lm"]])
def test_idle_ones_leave_the_gpu_and_every_bit_stays(cuda: torch.device, names: list[str]) -> None:
    bench = bench_of(cuda, names, {"name": "idle_offload"})
    ended = bench.run()
    assert {name: hash_of(end) for name, end in ended.items()} == {
        name: alone(KINDS[name], spec_of(name, KINDS[name]), cuda) for name in names
    }


def test_between_its_turns_nothing_of_it_is_on_the_gpu(cuda: torch.device) -> None:
    [submodel] = bench_of(cuda, ["resnet"], {"name": "idle_offload"}, optimizer="adam").submodels
    with exact_profile(cuda, 1), submodel.world():
        submodel.step()
        placed = torch.cuda.memory_allocated()
    gc.collect()
    freed = placed - torch.cuda.memory_allocated()
    assert freed >= submodel.footprint.weights_bytes + submodel.footprint.optimizer_bytes
    assert all(weight.is_pinned() for weight in submodel.module.parameters())


def test_two_of_them_are_never_there_together(cuda: torch.device) -> None:
    together: list[tuple[str, ...]] = []

    def look(bench: Bench, report: Report) -> None:
        if isinstance(report, Stepped):
            together.append(tuple(name for name, one in bench.engine.footprints().items() if one.placed))

    bench = bench_of(cuda, ["lenet", "resnet"], {"name": "idle_offload"})
    bench.then = look
    bench.run()
    assert together
    assert all(len(names) == 1 for names in together)


EXACT = [
    [{"name": "checkpointing"}],
    [{"name": "offload"}],
    [{"name": "offload", "budget_mib": 0.5, "ahead": 3}],
    [{"name": "compression"}, {"name": "offload", "ahead": 0}, {"name": "checkpointing"}],
    [{"name": "compression"}],
    [{"name": "dropit", "keep": 1.0}],
]


@pytest.mark.parametrize("asked", EXACT)
@pytest.mark.parametrize("name", list(KINDS))
def test_exact_techniques_leave_the_bits_of_the_plain_loop(
    cuda: torch.device, name: str, asked: list[dict[str, Any]]
) -> None:
    ended = bench_of(cuda, [name], *asked).run()
    assert hash_of(ended[name]) == alone(KINDS[name], spec_of(name, KINDS[name]), cuda)


class Workspaces(TorchDispatchMode):
    """Memory at the peak of each operator, and the part of it that was free again when the operator ended."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int, str]] = []
        """Peak, workspace, and name, by operator."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = func(*args, **(kwargs or {}))
        peak = torch.cuda.max_memory_allocated()
        self.seen.append((peak, peak - max(before, torch.cuda.memory_allocated()), str(func)))
        return result


def tensor_peak_bytes(cuda: torch.device, *asked: dict[str, Any]) -> tuple[int, str]:
    """Most memory of a ResNet18's steps in tensors, beyond weights and gradients, without workspaces of kernels.

    Returns also the facts that explain it: the operators with the highest peaks, and those with the largest workspaces.
    """
    module = registry.build("resnet18", {"width": 32, "classes": 10, "imagenet_stem": False}).to(cuda)
    inputs, targets = torch.randn(256, 3, 32, 32, device=cuda), torch.arange(256, device=cuda) % 10
    techniques = built(TypeAdapter(list[AnyTechnique]).validate_python(list(asked)))
    rest = torch.cuda.memory_allocated() + sum(one.nbytes for one in module.parameters())
    with exact_profile(cuda, 1):
        for _ in range(3):
            module.zero_grad(set_to_none=True)
            with Workspaces() as seen, techniques.part(module, (inputs, targets)):
                nn.functional.cross_entropy(module(inputs), targets).backward()
    mib = 1024**2
    facts = [
        f"{name}: peak {(peak - rest) / mib:.0f} MiB, workspace {space / mib:.0f} MiB"
        for order in (0, 1)
        for peak, space, name in sorted(seen.seen, key=lambda one: one[order], reverse=True)[:6]
    ]
    return max(peak - space for peak, space, _ in seen.seen) - rest, "\n".join([str(asked), *facts])


def test_a_resnet18_trains_in_two_fifths_of_its_memory(cuda: torch.device) -> None:
    """A budget counts tensors: nobody knows the workspaces of cuDNN beforehand. The figures are printed."""
    whole, facts = tensor_peak_bytes(cuda)
    sys.stdout.write(facts + "\n")
    for share, technique in (
        (0.4, {"name": "offload", "budget_mib": 0.3 * whole / 1024**2}),
        (0.4, {"name": "offload"}),
        (0.8, {"name": "checkpointing"}),
    ):
        peak, facts = tensor_peak_bytes(cuda, technique)
        sys.stdout.write(facts + "\n")
        assert peak <= share * whole, f"{peak / whole:.2f} of {whole}:\n{facts}"


@pytest.mark.parametrize("asked", [{"name": "compression"}, {"name": "dropit", "keep": 0.1}], ids=str)
def test_packing_on_a_gpu_saves_memory_of_a_step(cuda: torch.device, asked: dict[str, Any]) -> None:
    assert tensor_peak_bytes(cuda, asked)[0] < tensor_peak_bytes(cuda)[0]


@pytest.mark.parametrize("kind", [Kind("lenet", {"batch_norm": False}, (1, 28, 28)), *KINDS.values()], ids=str)
def test_one_to_four_streams_compute_virtual_nodes_to_the_same_bits(cuda: torch.device, kind: Kind) -> None:
    def trained(devices: int) -> str | None:
        nodes = {"name": "virtual_nodes", "nodes": 4, "devices": devices}
        bench = Bench(cuda, [("one", kind, spec_of("one", kind, techniques=[nodes]))], IN_TURNS)
        return hash_of(bench.run()["one"])

    assert len({trained(devices) for devices in (1, 2, 3, 4)}) == 1
