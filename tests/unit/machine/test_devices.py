import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.machine.nvml import MIB, Nvml
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import DEVICES_SETTING, MOST_CPU_DEVICES
from unifiednn_core.machine import cores, devices
from unifiednn_core.machine.cores import default_threads, divided, lanes_of, own_cores
from unifiednn_core.machine.devices import best_match, devices_of_host, threads_of
from unifiednn_core.machine.gpu import gpu_count
from unifiednn_core.machine.host import host_memory
from unifiednn_core.spec.devices import Device


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
    for setting in ("", "cpu"):
        monkeypatch.setenv(DEVICES_SETTING, setting)
        [found] = devices_of_host()
        assert (found.name, found.type, found.index, found.cpus) == ("cpu", "cpu", 0, ())
        assert (found.threads, found.total_bytes) == (default_threads(), host_memory()[0])
        assert found == best_match("auto") and threads_of("cpu") == default_threads()
    assert found.text == f"cpu ({devices.processor_name()})"
    assert threads_of("TPU") == default_threads(), "refused elsewhere"


@pytest.mark.usefixtures("without_gpus")
@pytest.mark.parametrize("count", [2, 3, MOST_CPU_DEVICES])
def test_logical_devices_share_the_cpu(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEVICES_SETTING, ",".join(f"CPU:{index}" for index in range(count)))
    found = devices_of_host()
    assert [one.name for one in found] == [f"cpu:{index}" for index in range(count)]
    assert len({(one.kind, one.threads, one.total_bytes) for one in found}) == 1, "of one kind"
    assert {one.threads for one in found} == {max(1, cores.cores() // count)}
    assert {one.total_bytes for one in found} == {host_memory()[0] // count}
    assert tuple(one.cpus for one in found) == divided(own_cores(), count)
    assert lanes_of("auto", found[0].threads, "cpu", len(found[0].cpus)) >= 1


@pytest.mark.parametrize("setting", ["-1", "two", "1.5", "²", str(MOST_CPU_DEVICES)])
def test_a_bad_part_of_the_cpu_is_told(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEVICES_SETTING, f"cpu:{setting}")
    with pytest.raises(BadInput, match=f"{DEVICES_SETTING}: 'cpu:{setting}' is no part of the CPU. Name"):
        devices_of_host()


@pytest.mark.usefixtures("without_gpus")
def test_a_machine_may_offer_a_part_of_the_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEVICES_SETTING, "cpu:1")
    [found] = devices_of_host()
    assert found.name == "cpu:1" and found.total_bytes == host_memory()[0] // 2


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
    assert (first.name, first.uuid) == ("cuda:0", "GPU-card 0")
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
    for visible, count in (("", 0), ("-1", 0), ("0", 1), ("1,0", 2), ("1,-1,0", 1), ("GPU-a, GPU-b", 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert gpu_count(Nvml()) == count
    assert [one.uuid for one in gpus(monkeypatch)] == ["GPU-card GPU-a", "GPU-card GPU-b"]


def test_what_nvml_does_not_tell_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUUID", "nvmlDeviceGetCudaComputeCapability")
    first, _ = gpus(monkeypatch, *silent)
    assert (first.total_bytes, first.uuid, first.kind) == (None, None, "NVIDIA H200, driver 570.124.06")
    assert gpus(monkeypatch, "nvmlDeviceGetName") == [], "it fell off the bus"
    assert gpus(monkeypatch, "nvmlInit") == []


def test_the_facts_of_a_processor_without_a_model_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_processor", lambda: {"CPU implementer": "0x41", "CPU part": "0xd40"})
    devices.processor_name.cache_clear()
    try:
        assert devices.processor_name() == "0x41 0xd40"
    finally:
        devices.processor_name.cache_clear()


def test_a_process_keeps_to_some_cores_with_all_its_threads_and_all_that_it_starts() -> None:
    own, begun, go_on = os.sched_getaffinity(0), threading.Event(), threading.Event()
    seen: list[set[int]] = []

    def looks() -> None:
        begun.set()
        go_on.wait(60)
        seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=looks)
    thread.start()
    begun.wait(60)
    first = {min(own)}
    try:
        cores.keep_to(())
        assert os.sched_getaffinity(0) == own, "no numbers are all cores"
        cores.keep_to(first)
        go_on.set()
        thread.join()
        asked = "import os; print(os.sched_getaffinity(0))"
        started = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
        assert (seen, started.stdout.strip()) == ([first], str(first))
        cores.keep_to([10**6])  # refused by the system, which leaves it as it is
        assert os.sched_getaffinity(0) == first
    finally:
        go_on.set()
        cores.keep_to(own)
