"""What the doctor says about this machine, and about GPU servers as NVML shows them."""

import json
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from unifiednn_core.base.paths import Home
from unifiednn_core.base.units import GIB
from unifiednn_core.cli.main import app
from unifiednn_core.machine import peers
from unifiednn_core.service import doctor
from unifiednn_core.service.doctor import ALL_USERS, examined, protections_of


def one_gpu(*, cuda: int = 13000, processes: tuple[Any, ...] = (), error: Exception | None = None) -> Any:
    """NVML of a server with one GPU."""

    def memory(handle: int) -> Any:
        if error is not None:
            raise error
        return SimpleNamespace(free=130 * GIB, total=140 * GIB)

    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlSystemGetDriverVersion=lambda: "580.1",
        nvmlSystemGetCudaDriverVersion_v2=lambda: cuda,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: "H200",
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: processes,
    )


def of_gpu(monkeypatch: pytest.MonkeyPatch, home: Home, torch: tuple[str, str | None], nvml: Any) -> dict[str, Any]:
    monkeypatch.setattr(doctor, "_torch", lambda: torch)
    return {one.name: one for one in examined(home, nvml=nvml)}


@pytest.mark.parametrize(
    ("torch", "cuda", "state", "remedy"),
    [
        (("2.11.0", "13.0"), 13000, "ok", ""),
        (("2.11.0", "12.8"), 13000, "ok", ""),
        (("2.11.0", "13.0"), 12040, "missing", "Update the driver, or install torch for CUDA 12."),
        (("2.13.0+cpu", None), 13000, "missing", "Install torch for CUDA 13; see pytorch.org."),
    ],
)
def test_driver_and_torch_are_held_against_each_other(
    home: Home, monkeypatch: pytest.MonkeyPatch, torch: tuple[str, str | None], cuda: int, state: str, remedy: str
) -> None:
    found = of_gpu(monkeypatch, home, torch, one_gpu(cuda=cuda))
    assert (found["GPU"].state, found["GPU"].remedy) == (state, remedy)
    assert found["cuda:0"].found == "H200, 130.0 GiB of 140.0 GiB free, 0 processes"


def process(pid: int, size: int | None) -> Any:
    return SimpleNamespace(pid=pid, usedGpuMemory=size)


@pytest.mark.parametrize(
    ("nvml", "state", "said"),
    [
        (one_gpu(processes=(process(os.getpid(), GIB),)), "ok", "1 processes"),
        (one_gpu(processes=(process(2**30, GIB),)), "advice", "--pid=host"),
        (one_gpu(processes=(process(os.getpid(), None),)), "advice", "tells no memory by process"),
        (one_gpu(error=RuntimeError("GPU is lost")), "missing", "GPU is lost"),
    ],
)
def test_what_nvml_cannot_tell_here_is_named(
    home: Home, monkeypatch: pytest.MonkeyPatch, nvml: Any, state: str, said: str
) -> None:
    one = of_gpu(monkeypatch, home, ("2.11.0", "13.0"), nvml)["cuda:0"]
    assert one.state == state and said in f"{one.found} {one.remedy}"


def test_the_terminal_says_it_and_its_exit_code_tells_whether_something_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNIFIEDNN_HOME", str(tmp_path / "home"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = CliRunner().invoke(app, ["doctor", "--json", "--port", str(taken.getsockname()[1])])
    found = {one["name"]: one for one in json.loads(done.stdout)}
    assert done.exit_code == 0
    assert found["port"]["state"] == "advice" and "unifiednn app --port" in found["port"]["remedy"]
    assert {"GPU", "devices", "memory", "disk", "allocator", "packages", "home", "dashboard", "workers"} <= found.keys()
    monkeypatch.setenv("UNIFIEDNN_DEVICES", "cuda:7")
    missing = CliRunner().invoke(app, ["doctor"])
    assert missing.exit_code == 1 and "UNIFIEDNN_DEVICES" in missing.stdout


def test_a_package_below_its_floor_is_missing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "requires", lambda name: ["numpy>=99", 'nothing>=1; extra == "dev"'])
    [one] = [one for one in examined(home) if one.name == "packages"]
    assert one.state == "missing" and one.found.startswith("numpy>=99 (found 2.")


def missing(home: Home) -> dict[str, str]:
    return {one.name: f"{one.found} {one.remedy}" for one in protections_of(home) if not one.holds}


def test_a_home_that_others_can_enter_is_told(home: Home) -> None:
    assert "home" not in missing(home)
    home.root.chmod(0o755)
    assert "home" not in missing(home)  # its folders are closed
    home.files.chmod(0o750)
    assert str(home.root) in missing(home)["home"]


def test_a_dashboard_for_all_users_is_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "can_tell", lambda: True)
    assert "dashboard" not in missing(home)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", [*sys.argv, ALL_USERS])
        assert ALL_USERS in missing(home)["dashboard"]
    monkeypatch.setattr(peers, "can_tell", lambda: False)
    assert "sign-in" in missing(home)["dashboard"]
