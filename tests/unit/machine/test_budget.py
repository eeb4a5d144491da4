from pathlib import Path
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from tests.unit.machine.nvml import Nvml
from unifiednn_core.base.paths import DEVICES_SETTING
from unifiednn_core.machine import devices, host
from unifiednn_core.machine.budget import UNKNOWN, Budget, budget_of, device_type, slot
from unifiednn_core.machine.gpu import gpu_count

GIB = 1024**3


def test_the_host_has_what_the_system_says_and_no_more_than_a_container_allows() -> None:
    found = budget_of("cpu")
    assert found.total_bytes is not None and found.free_bytes is not None
    assert 0 < found.free_bytes <= found.total_bytes <= psutil.virtual_memory().total


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control group with 2 GiB, 1.5 GiB of them in use, half a GiB of that for files that can be dropped."""
    own = tmp_path / "outer" / "own"
    own.mkdir(parents=True)
    (own / "memory.max").write_text(f"{2 * GIB}\n")
    (own / "memory.current").write_text(f"{3 * GIB // 2}\n")
    (own / "memory.stat").write_text(f"anon 17\ninactive_file {GIB // 2}\nactive_file 3\n")
    (own.parent / "memory.max").write_text("max\n")
    (own.parent / "memory.current").write_text(f"{9 * GIB}\n")
    monkeypatch.setattr(host, "_CGROUPS", tmp_path)
    (tmp_path / "groups").write_text("3:cpu:/x\n0::/outer/own\n")
    monkeypatch.setattr(host, "_OWN_GROUPS", tmp_path / "groups")
    machine = SimpleNamespace(total=64 * GIB, available=60 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: machine)
    return own


def test_a_container_limits_the_host(container: Path) -> None:
    assert budget_of("cpu") == Budget(2 * GIB, GIB)
    (container.parent / "memory.max").write_text(f"{GIB}\n")
    assert budget_of("cpu") == Budget(GIB, 0)


def test_a_limit_above_the_machine_is_none(container: Path) -> None:
    (container / "memory.max").write_text(f"{2**63}\n")
    assert budget_of("cpu") == Budget(64 * GIB, 60 * GIB)


def test_a_card_that_cannot_be_asked_is_unknown() -> None:
    if gpu_count() == 0:
        assert budget_of("cuda:0") == UNKNOWN


def test_a_card_never_has_more_free_memory_than_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total=GIB, free=2**64 - 5)
    for name, answer in (("Init", None), ("DeviceGetHandleByIndex", "card"), ("DeviceGetMemoryInfo", memory)):
        monkeypatch.setattr(pynvml, f"nvml{name}", lambda *_, answer=answer: answer)
    assert budget_of("cuda:0") == Budget(GIB, None)


def test_a_logical_device_has_its_share_and_never_more_than_is_free(
    container: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEVICES_SETTING, "cpu:0,cpu:1")
    assert budget_of("cpu:1") == Budget(GIB, GIB)
    (container / "memory.current").write_text(f"{2 * GIB}\n")
    assert budget_of("cpu:0") == Budget(GIB, GIB // 2)
    assert budget_of("cpu") == Budget(2 * GIB, GIB // 2), "the host itself"


def test_devices_are_told_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    monkeypatch.setattr(devices, "version", lambda name: "2.13.0")
    monkeypatch.setattr(devices, "pynvml", nvml)
    asked = ("auto", "cuda", "cuda:1", "cpu", "H200", "cpu:7", "TPU")
    assert [slot(name) for name in asked] == ["cuda:0", "cuda:0", "cuda:1", "cpu", "cuda:0", "cpu:7", "TPU"]
    assert [device_type(name) for name in asked] == ["cuda", "cuda", "cuda", "cpu", "cuda", "cpu", "cpu"]
    nvml.sizes = {"card 1": 80 * GIB}
    assert slot("auto") == "cuda:1", "the largest one"
    monkeypatch.setattr(devices, "version", lambda name: "2.13.0+cpu")  # which can use none of them
    assert (slot("auto"), slot("cuda:1"), device_type("cuda:1")) == ("cpu", "cuda:1", "cuda")
    monkeypatch.setattr(devices, "version", lambda name: "2.13.0")
    monkeypatch.setattr(devices, "gpu_count", lambda _: 0)
    assert device_type("auto") == "cpu"
