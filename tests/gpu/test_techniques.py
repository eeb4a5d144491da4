"""Techniques that move memory between a GPU and its host: the bits of the plain loop, and less memory on the GPU."""

import gc
from typing import Any

import pytest
import torch

from tests.gpu.checks import IN_TURNS
from tests.gpu.kit import KINDS, Bench, Kind, alone, hash_of, spec_of
from unifiednn_core.engine.events import Report, Stepped

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
    with submodel.world():
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


@pytest.mark.parametrize("name", ["lenet", "resnet", "transformer", "transformer_lm", "vgg_cbam", "roberta"])
@pytest.mark.parametrize("technique", ["compression", {"name": "dropit", "keep": 1.0}])
def test_what_is_packed_has_the_same_bits(cuda: torch.device, name: str, technique: Any) -> None:
    ended = bench_of(cuda, [name], technique).run()
    assert hash_of(ended[name]) == alone(KINDS[name], spec_of(name, KINDS[name]), cuda)


@pytest.mark.parametrize("technique", ["compression", {"name": "dropit", "keep": 0.1}])
def test_packing_on_a_gpu_saves_memory_of_a_step(cuda: torch.device, technique: Any) -> None:
    def peak_bytes(*techniques: Any) -> int:
        [submodel] = bench_of(cuda, ["resnet"], *techniques).submodels
        with submodel.world():
            submodel.step()
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
            submodel.step()
        return torch.cuda.max_memory_allocated() - held

    assert peak_bytes(technique) < peak_bytes()


@pytest.mark.parametrize("name", ["lenet", "resnet", "transformer", "transformer_lm", "vgg_cbam", "roberta"])
def test_what_is_computed_again_has_the_same_bits(cuda: torch.device, name: str) -> None:
    ended = bench_of(cuda, [name], {"name": "checkpointing"}).run()
    assert hash_of(ended[name]) == alone(KINDS[name], spec_of(name, KINDS[name]), cuda)


@pytest.mark.parametrize("kind", [Kind("lenet", {"batch_norm": False}, (1, 28, 28)), *KINDS.values()], ids=str)
def test_one_to_four_streams_compute_virtual_nodes_to_the_same_bits(cuda: torch.device, kind: Kind) -> None:
    def trained(devices: int) -> str | None:
        nodes = {"name": "virtual_nodes", "nodes": 4, "devices": devices}
        bench = Bench(cuda, [("one", kind, spec_of("one", kind, techniques=[nodes]))], IN_TURNS)
        return hash_of(bench.run()["one"])

    assert len({trained(devices) for devices in (1, 2, 3, 4)}) == 1
