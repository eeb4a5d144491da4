"""Memory of a GPU: what is given back, and whether NVML and nvidia-smi agree."""

import gc
import os
import subprocess

import pytest
import torch

from tests.gpu.checks import IN_TURNS
from tests.gpu.kit import KINDS, SAMPLES, TEST_SAMPLES, Bench, dataset, spec_of
from unifiednn_core.engine.device import exact_profile
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Released
from unifiednn_core.machine.gpu import GpuSampler

MIB = 1024**2
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


def allocated_bytes() -> int:
    gc.collect()
    return torch.cuda.memory_allocated()


def bench_of(cuda: torch.device, *names: str) -> Bench:
    return Bench(cuda, [(name, KINDS[name], spec_of(name, KINDS[name])) for name in names], IN_TURNS)


def test_what_has_not_started_holds_nothing(cuda: torch.device) -> None:
    before = allocated_bytes()
    bench = bench_of(cuda, "resnet", "lenet")
    assert allocated_bytes() == before
    with exact_profile(cuda, 1), bench.submodels[0].world():
        bench.submodels[0].step()
    assert {weight.device.type for weight in bench.submodels[1].module.parameters()} == {"cpu"}


def test_between_its_turns_a_network_holds_no_gradients(cuda: torch.device) -> None:
    bench = bench_of(cuda, "resnet")
    with exact_profile(cuda, 1), bench.submodels[0].world():
        bench.submodels[0].step()
    assert all(weight.grad is None for weight in bench.submodels[0].module.parameters())


def test_parking_gives_the_memory_of_the_device_back(cuda: torch.device) -> None:
    warm = bench_of(cuda, "resnet")  # libraries keep workspaces of their own from the first step on
    with exact_profile(cuda, 1), warm.submodels[0].world():
        warm.submodels[0].step()
    warm.submodels[0].park()
    warm.submodels[0].release()
    del warm
    before, held = allocated_bytes(), torch.cuda.memory_reserved()
    bench = bench_of(cuda, "resnet")
    with exact_profile(cuda, 1), bench.submodels[0].world():
        bench.submodels[0].step()
    in_use = allocated_bytes()
    weights = sum(w.numel() * w.element_size() for w in bench.submodels[0].module.parameters())
    assert in_use >= before + 3 * weights  # weights and the two moments of Adam
    bench.submodels[0].park()
    assert allocated_bytes() == before
    assert torch.cuda.memory_reserved() <= held


def smi(query: str) -> list[str]:
    command = ["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()


def steady_mib(sampler: GpuSampler) -> tuple[float, float]:
    """Memory in use by NVML and by nvidia-smi, at a time at which it did not change."""
    for _ in range(20):
        before = sampler.read([os.getpid()]).device_bytes
        told = float(smi("gpu=memory.used")[0])
        after = sampler.read([os.getpid()]).device_bytes
        if before is not None and before == after:
            return before / MIB, told
    pytest.skip("somebody else uses the GPU: its memory changed twenty times")


def test_nvml_and_nvidia_smi_tell_the_same(cuda: torch.device) -> None:
    sampler = GpuSampler(0)
    held = torch.empty(300 * MIB, dtype=torch.uint8, device=cuda).fill_(1)
    torch.cuda.synchronize()
    mine, theirs = steady_mib(sampler)
    assert abs(mine - theirs) <= 1
    assert mine >= held.numel() / MIB


def test_memory_of_this_process_is_what_nvidia_smi_tells_or_a_note_says_why_not(cuda: torch.device) -> None:
    sampler = GpuSampler(0)
    held = torch.empty(300 * MIB, dtype=torch.uint8, device=cuda).fill_(1)
    torch.cuda.synchronize()
    reading = sampler.read([os.getpid()])
    rows = [line.split(",") for line in smi("compute-apps=pid,used_memory")]
    own = [float(used) for pid, used in rows if int(pid) == os.getpid() and used.strip().isdecimal()]
    if own and reading.process_bytes is not None:
        assert abs(reading.process_bytes / MIB - own[0]) <= 1
        assert own[0] >= held.numel() / MIB
    else:
        assert reading.notes


def test_with_two_lanes_the_own_memory_of_all_adds_up_to_that_of_the_process(cuda: torch.device) -> None:
    names = ("lenet", "resnet", "transformer")
    bench = bench_of(cuda, *names)
    bench.engine = Engine(bench.hybrid, IN_TURNS, device=cuda, report=bench._take, lanes=2)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    bench.run()
    own = dict.fromkeys(names, 0)
    for report in bench.reports:
        if isinstance(report, Released):
            own[report.submodel] = max(own[report.submodel], report.cost.own_bytes or 0)
    assert all(own.values()), own
    process_bytes = GpuSampler(cuda.index or 0).read((os.getpid(),)).process_bytes
    if process_bytes is None:
        pytest.skip("NVML does not name processes here")
    context_bytes = process_bytes - torch.cuda.memory_reserved()
    data_bytes = sum(
        one.nbytes for name in names for one in dataset(KINDS[name], SAMPLES + TEST_SAMPLES, 0).inputs.values()
    )
    peak_bytes = context_bytes + torch.cuda.max_memory_reserved()
    known_bytes = context_bytes + data_bytes + sum(own.values())
    assert abs(known_bytes - peak_bytes) <= 0.1 * peak_bytes, (own, context_bytes, data_bytes, peak_bytes)
