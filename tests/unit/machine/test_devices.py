import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.machine.nvml import MIB, Nvml
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import CPU_DEVICES_SETTING, MOST_CPU_DEVICES
from unifiednn_core.engine.device import resolve
from unifiednn_core.machine import cores, devices
from unifiednn_core.machine.cores import default_threads, divided, lanes_of, own_cores
from unifiednn_core.machine.devices import Device, best_match, devices_of_host, matches, threads_of, torch_name
from unifiednn_core.machine.gpu import gpu_count
from unifiednn_core.machine.host_memory import host_memory

GPUS = ("NVIDIA H200, compute capability 9.0, driver 570", "NVIDIA A100-SXM4-80GB, compute capability 8.0, driver 570")
PROCESSORS = ("AMD EPYC 9654 96-Core Processor, AVX512, 2 threads", "Intel(R) Xeon(R) CPU @ 2.20GHz, AVX2, 1 thread")


def device(name: str, kind: str) -> Device:
    family, _, index = name.partition(":")
    known: Any = family
    return Device(name=name, type=known, host="h", index=int(index or 0), kind=kind, total_bytes=1, threads=1)


def machine(gpus: Sequence[str], cpus: int, processor: str) -> tuple[Device, ...]:
    names = ["cpu"] if cpus == 1 else [f"cpu:{index}" for index in range(cpus)]
    return (
        *(device(f"cuda:{index}", kind) for index, kind in enumerate(gpus)),
        *(device(name, processor) for name in names),
    )


MACHINES = st.builds(
    machine, st.lists(st.sampled_from(GPUS), max_size=4), st.integers(1, 4), st.sampled_from(PROCESSORS)
)


def fitting(asked: str, there: Sequence[Device]) -> list[str]:
    return [one.name for one in there if matches(asked, one, there)]


@given(MACHINES)
def test_what_a_spec_may_ask_for(there: tuple[Device, ...]) -> None:
    gpus = [one.name for one in there if one.type == "cuda"]
    cpus = [one.name for one in there if one.type == "cpu"]
    assert fitting("cpu", there) == cpus
    assert fitting("cuda", there) == gpus
    assert fitting("auto", there) == (gpus or cpus)
    assert fitting("H200", there) == [one.name for one in there if "H200" in one.kind]
    for one in there:
        if one.name != "cpu":
            assert fitting(one.name, there) == [one.name], "a name is one device"
        model = one.kind.partition(",")[0]
        alike = [other.name for other in there if other.kind == one.kind]
        assert set(alike) <= set(fitting(model, there)), "its model names each device of its kind"
        assert fitting(one.kind, there) == alike, "its whole kind names no others"
    for unknown in ("cuda:9", "cpu:9", "H2", "H200 A100", "TPU", "..."):
        assert fitting(unknown, there) == []


@given(MACHINES, st.sampled_from(("auto", "cpu", "CUDA:1", "h200", "nvidia a100-sxm4-80gb", "xeon", "EPYC", "AVX512")))
def test_case_and_the_order_of_words_do_not_count(there: tuple[Device, ...], asked: str) -> None:
    found = fitting(asked, there)
    assert found == fitting(asked.swapcase(), there) == fitting(" ".join(reversed(asked.split())), there)
    assert asked != "xeon" or bool(found) == any("Xeon" in one.kind and one.type == "cpu" for one in there)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=70, unique=True), st.integers(1, MOST_CPU_DEVICES))
def test_cores_are_divided_into_disjoint_sets_of_equal_size(numbers: list[int], parts: int) -> None:
    sets = divided(numbers, parts)
    assert len(sets) == parts
    if len(numbers) < parts:
        assert set(sets) == {()}, "too few: each device may use all"
        return
    together = [number for one in sets for number in one]
    assert sorted(together) == sorted(numbers), "complete and disjoint"
    sizes = [len(one) for one in sets]
    assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


def test_the_threads_of_a_physical_core_stay_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux numbers the first threads of all cores, then the second ones."""
    for number in range(8):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text("0\n")
        (folder / "core_id").write_text(f"{number % 4}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(cores, "_TOPOLOGY", tmp_path)
    assert divided(own_cores(), 2) == ((0, 1, 4, 5), (2, 3, 6, 7))


@pytest.fixture
def without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "version", lambda name: "2.13.0+cpu")


@pytest.mark.usefixtures("without_gpus")
def test_the_cpu_is_one_device_by_default_and_as_it_always_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in ("", "1"):
        monkeypatch.setenv(CPU_DEVICES_SETTING, setting)
        [found] = devices_of_host()
        assert (found.name, found.type, found.index, found.cpus) == ("cpu", "cpu", 0, ())
        assert (found.threads, found.total_bytes) == (default_threads(), host_memory()[0])
        assert found == best_match("auto") and threads_of("cpu") == default_threads()
    assert found.text == f"cpu ({devices.processor_name()})"
    assert threads_of("TPU") == default_threads(), "refused elsewhere"


@pytest.mark.usefixtures("without_gpus")
@pytest.mark.parametrize("count", [2, 3, MOST_CPU_DEVICES])
def test_logical_devices_share_the_cpu(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_DEVICES_SETTING, str(count))
    found = devices_of_host()
    assert [one.name for one in found] == [f"cpu:{index}" for index in range(count)]
    assert len({(one.kind, one.threads, one.total_bytes) for one in found}) == 1, "of one kind"
    assert {one.threads for one in found} == {max(1, cores.cores() // count)}
    assert {one.total_bytes for one in found} == {host_memory()[0] // count}
    assert tuple(one.cpus for one in found) == divided(own_cores(), count)
    assert lanes_of("auto", found[0].threads, "cpu", len(found[0].cpus)) >= 1


@pytest.mark.parametrize("setting", ["0", "-1", "two", "1.5", "²", str(MOST_CPU_DEVICES + 1)])
def test_a_bad_number_of_devices_is_told(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_DEVICES_SETTING, setting)
    with pytest.raises(BadInput, match=f"{CPU_DEVICES_SETTING}: '{setting}' is no number of devices. Give 1 to"):
        devices_of_host()


@pytest.mark.usefixtures("without_gpus")
def test_the_instruction_set_is_the_one_that_torch_names() -> None:
    assert f", {torch.backends.cpu.get_cpu_capability()}, " in devices_of_host()[0].kind


def test_flags_decide_the_instruction_set_unless_torch_is_told_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    full = "fpu fma avx2 avx512f avx512vl avx512bw avx512dq"
    for missing, level in (("", "AVX512"), ("avx512dq", "AVX2"), ("fma", "DEFAULT"), ("avx2", "AVX512")):
        flags = " ".join(flag for flag in full.split() if flag != missing)
        assert devices._capability({"flags": flags}) == level
    assert devices._capability({}) == "DEFAULT"
    for told, level in (("avx2", "AVX2"), ("default", "DEFAULT"), ("AVX2", "AVX512")):  # torch ignores the last one
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", told)
        assert devices._capability({"flags": full}) == level


def gpus(monkeypatch: pytest.MonkeyPatch, *failing: str) -> list[Device]:
    monkeypatch.setattr(devices, "version", lambda name: "2.13.0")
    monkeypatch.setattr(devices, "pynvml", Nvml(*failing))
    return [one for one in devices_of_host() if one.type == "cuda"]


def test_gpus_are_told_by_nvml_and_stand_before_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = gpus(monkeypatch)
    assert first.kind == second.kind == "NVIDIA H200, compute capability 9.0, driver 570.124.06"
    assert (first.name, first.uuid, first.driver) == ("cuda:0", "GPU-card 0", "570.124.06")
    assert (second.name, second.uuid, second.index) == ("cuda:1", "GPU-card 1", 1)
    assert (first.total_bytes, first.threads, first.cpus) == (2000 * MIB, max(1, cores.cores() // 2), ())
    assert first.text == "cuda:0 (NVIDIA H200)"
    assert [one.type for one in devices_of_host()] == ["cuda", "cuda", "cpu"]
    assert best_match("auto") == first and threads_of("auto") == first.threads


def test_one_gpu_gets_the_threads_that_it_always_got(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    [found] = gpus(monkeypatch)
    assert (found.name, found.uuid, found.threads) == ("cuda:0", "GPU-card 1", default_threads())


def test_visible_devices_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for visible, count in (("", 2), ("0", 1), ("1,0", 2), ("GPU-a, GPU-b", 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert gpu_count(Nvml()) == count
    assert [one.uuid for one in gpus(monkeypatch)] == ["GPU-card GPU-a", "GPU-card GPU-b"]


def test_what_nvml_does_not_tell_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUUID", "nvmlDeviceGetCudaComputeCapability")
    first, _ = gpus(monkeypatch, *silent)
    assert (first.total_bytes, first.uuid, first.kind) == (None, None, "NVIDIA H200, driver 570.124.06")
    assert gpus(monkeypatch, "nvmlDeviceGetName") == [], "it fell off the bus"
    assert gpus(monkeypatch, "nvmlInit") == []


@given(st.integers(0, 63))
def test_all_logical_devices_are_the_cpu_of_torch(index: int) -> None:
    assert torch_name("cpu") == torch_name(f"cpu:{index}") == "cpu"
    assert (torch_name("cuda"), torch_name(f"cuda:{index}")) == ("cuda", f"cuda:{index}")
    assert resolve(f"cpu:{index}") == torch.device("cpu")


def test_the_facts_of_a_processor_without_a_model_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_processor", lambda: {"CPU implementer": "0x41", "CPU part": "0xd40"})
    devices.processor_name.cache_clear()
    try:
        assert devices.processor_name() == "0x41 0xd40"
    finally:
        devices.processor_name.cache_clear()
