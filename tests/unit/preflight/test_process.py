"""The intake process as its callers see it."""

import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn

from tests.unit.formats import kit
from tests.waiting import wait_until
from unifiednn_core.base.errors import BadInput, IntakeFailed
from unifiednn_core.base.paths import Home
from unifiednn_core.preflight import client
from unifiednn_core.preflight.report import CheckProgress, InspectJob
from unifiednn_core.spec.run import RunSpec, parse_run

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    kit.exported(folder, "cnn")
    torch.save({"inputs": torch.randn(9, *kit.IMAGES), "targets": torch.arange(9) % 3}, folder / "data.pt")
    torch.save(kit.network("cnn").state_dict(), folder / "weights.pt")
    (folder / "garbage.pt2").write_bytes(random.Random(0).randbytes(500))
    return folder


def spec(**changes: Any) -> RunSpec:
    submodel = {"name": "one", "model": "cnn.pt2", "train_data": "data.pt", "test_data": "data.pt"} | changes
    return parse_run({"submodels": [submodel]})


@pytest.mark.parametrize(
    ("filename", "kind", "fact"),
    [
        ("cnn.pt2", "model", "operators"),
        ("data.pt", "data", "samples"),
        ("weights.pt", "weights", "tensors"),
        ("garbage.pt2", "unknown", None),
    ],
)
def test_a_file_is_recognised_by_its_bytes(filename: str, kind: str, fact: str | None, folder: Path) -> None:
    report = client.inspect(folder / filename, "shown.bin")
    assert report.kind == kind
    assert report.size_bytes == (folder / filename).stat().st_size
    assert bool(report.findings) == (kind == "unknown")
    assert all(finding.field == "shown.bin" for finding in report.findings)
    assert fact is None or fact in report.facts


def test_a_check_takes_nothing_in(folder: Path, home: Home) -> None:
    told: list[CheckProgress] = []
    assert client.check(spec(), folder, home, told.append).findings == ()
    assert {(progress.place, progress.total) for progress in told} == {(1, 1)} and len(told) == 4
    assert not list(home.files.rglob("*"))


def test_a_process_that_takes_too_long_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE_S", 0.01)
    with pytest.raises(IntakeFailed, match="longer than"):
        client.inspect(folder / "cnn.pt2", "cnn.pt2")


def test_a_job_that_dies_is_an_error_and_the_next_one_works(folder: Path) -> None:
    client.inspect(folder / "cnn.pt2", "cnn.pt2")
    intake = client.template.pid
    assert intake is not None
    with client.template.connect(client.INTAKE) as connection:
        connection.sendall(b"no request\n")
        assert b"!ValidationError" in b"".join(iter(lambda: connection.recv(4096), b""))
    assert client.inspect(folder / "cnn.pt2", "cnn.pt2").kind == "model"
    assert client.template.pid == intake

    os.kill(intake, signal.SIGKILL)
    wait_until(lambda: client.template.pid is None)
    assert client.inspect(folder / "cnn.pt2", "cnn.pt2").kind == "model"
    assert client.template.pid != intake


def test_jobs_run_at_once_in_forks_of_a_process_with_one_thread(folder: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        reports = list(pool.map(lambda _: client.inspect(folder / "cnn.pt2", "cnn.pt2"), range(12)))
    assert {report.kind for report in reports} == {"model"}
    intake = client.template.pid
    assert intake is not None
    assert len(list(Path(f"/proc/{intake}/task").iterdir())) == 1


def test_a_job_that_waits_holds_up_no_other(folder: Path) -> None:
    job = InspectJob(path=folder / "cnn.pt2", filename="cnn.pt2")
    with client.template.connect(client.INTAKE) as first, client.template.connect(client.INTAKE):
        first.settimeout(60)
        first.sendall(job.model_dump_json().encode() + b"\n")
        assert b'"kind":"model"' in b"".join(iter(lambda: first.recv(2**16), b""))


def test_intake_holds_no_secrets_and_ends_with_its_parent(folder: Path) -> None:
    script = f"""
import os
from pathlib import Path
from unifiednn_core.preflight import client
client.inspect(Path({str(folder / "cnn.pt2")!r}), "cnn.pt2")
pid = client.template.pid
print(pid, "SECRET" in Path(f"/proc/{{pid}}/environ").read_text(), flush=True)
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "SECRET_TOKEN": "do not tell"},
        capture_output=True,
        text=True,
        check=True,
    )
    pid, told = done.stdout.split()
    assert told == "False"
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(pid)).wait(60)
    assert not psutil.pid_exists(int(pid))


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        client.inspect(tmp_path / "absent", "absent")


def test_the_callers_side_needs_no_torch() -> None:
    script = "import sys, unifiednn_core.preflight.client; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT).returncode == 0


def test_a_network_that_asks_for_more_memory_than_there_is_is_told_so(folder: Path, home: Home) -> None:
    """Of the layers each is small; what they make of one image takes 6 TiB."""
    pool = nn.AdaptiveAvgPool2d((10**6, 10**6))
    torch.save(nn.Sequential(nn.Conv2d(kit.IMAGES[0], 1, 1), pool, nn.Flatten()), folder / "wide.pt")
    [error] = [
        found for found in client.check(spec(model="wide.pt"), folder, home).findings if found.severity == "error"
    ]
    assert error.field == "submodels.one.model"
    assert "more memory than this machine has free" in error.message and "smaller batches" in error.remedy


def test_limits_are_in_force_in_the_process() -> None:
    script = """
import pathlib, resource
from unifiednn_core.preflight import process
process.limit_resources(2**40, 18)
assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
tries_s = 18 * (process.DRY_RUN_CPU_S + process.MEASURE_CPU_S)
assert resource.getrlimit(resource.RLIMIT_CPU)[0] == 600 + 1024 * 600 + tries_s
own = resource.getrlimit(resource.RLIMIT_DATA)[0] - process.MAPPINGS * 2**40
assert 0 < own < process.psutil.virtual_memory().total + process.STACKS_BYTES
assert resource.getrlimit(resource.RLIMIT_AS)[0] > process.MAPPINGS * 2**40
assert pathlib.Path("/proc/self/oom_score_adj").read_text() == "1000\\n"
try:
    open("large", "wb").write(bytes(4 * process.SCRATCH_BYTES))
except OSError:
    print("refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd="/tmp",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "refused\n"
