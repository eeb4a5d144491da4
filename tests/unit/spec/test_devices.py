from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.engine.device import resolve
from unifiednn_core.spec.devices import Device, host_of, matches, on_host, own_name, torch_name, type_named

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


@given(MACHINES, MACHINES)
def test_a_host_may_be_asked_for(servers: tuple[Device, ...], others: tuple[Device, ...]) -> None:
    away = [on_host(one, "gpu-1") for one in others]
    there = [*servers, *away]
    assert fitting("gpu-1", there) == [f"gpu-1/{name}" for name in fitting("auto", others)]
    assert fitting("server", there) == fitting("server/auto", there) == fitting("auto", servers)
    for asked in ("cuda", "cpu", "H200", "cuda:0", "cpu:1"):
        assert fitting(f"GPU-1/{asked}", there) == [f"gpu-1/{name}" for name in fitting(asked, others)]
        assert fitting(f"server/{asked}", there) == fitting(asked, servers)
    for one in servers:
        if one.name != "cpu":
            assert fitting(one.name, there) == [one.name], "names alone are those of the server"
    for one in away:
        assert fitting(one.name, there)[0].startswith("gpu-1/") and torch_name(one.name) == torch_name(
            own_name(one.name)
        )
        assert (host_of(one.name), type_named(one.name)) == ("gpu-1", one.type)
    assert fitting("H200", there) == [one.name for one in there if "H200" in one.kind], "words mean any host"
    assert fitting("gpu-2/cpu", there) == fitting("gpu-2", there) == []


@given(st.integers(0, 63))
def test_all_logical_devices_are_the_cpu_of_torch(index: int) -> None:
    assert torch_name("cpu") == torch_name(f"cpu:{index}") == "cpu"
    assert (torch_name("cuda"), torch_name(f"cuda:{index}")) == ("cuda", f"cuda:{index}")
    assert resolve(f"cpu:{index}") == torch.device("cpu")
