"""Certificates of separated models, from the probes in the worker to the zip that people download and verify."""

import json
import os
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.cli_kit import unifiednn
from tests.integration.product import Product, Template
from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import IntakeFailed
from unifiednn_core.base.failpoints import Fault
from unifiednn_core.base.paths import Home
from unifiednn_core.base.units import GIB
from unifiednn_core.machine.budget import Budget
from unifiednn_core.preflight import client
from unifiednn_core.preflight.report import CertifyJob
from unifiednn_core.runtime import certifier as certifying
from unifiednn_core.runtime.certifier import Certifier
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store.schema import RunRow
from unifiednn_core.views.runs import SubModelView

NAMES = ("lenet", "resnet", "transformer")


@pytest.fixture
def trained(finished: Template, home: Home) -> Iterator[Product]:
    """A home of one's own with the short demo, trained."""
    with finished.copied(home) as product:
        yield product


def part_of(service: Service, run_id: str, name: str) -> SubModelView:
    [part] = [part for part in service.runs.observe(run_id).submodels if part.name == name]
    return part


def changed(archive: Path, member: str, change: Any) -> None:
    """The same zip with one file changed; it is a whole zip again, so that only its content is wrong."""
    with zipfile.ZipFile(archive) as file:
        held = {name: file.read(name) for name in file.namelist()}
    held[member] = change(held[member])
    with zipfile.ZipFile(archive, "w") as file:
        for name, content in held.items():
            file.writestr(name, content)


def one_bit(content: bytes) -> bytes:
    """A bit in the middle is another one; in a model file it belongs to a weight."""
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def with_lossy_technique(content: bytes) -> bytes:
    spec = json.loads(content)
    spec["submodels"][0]["hyperparameters"]["techniques"] = [{"name": "compression", "bfloat16": True}]
    return json.dumps(spec).encode()


def test_a_certificate_holds_is_in_the_zip_and_is_verified_again(trained: Product, tmp_path: Path) -> None:
    service, run_id = trained.service, trained.run_id
    parts = service.runs.observe(run_id).submodels
    assert all(part.certificate is None and part.certify_at_s is not None for part in parts), "they are verified"
    done = unifiednn(trained.home, "download", run_id, "--to", str(tmp_path))  # which makes them
    assert done.returncode == 0 and done.stderr == ""
    document: Any = service.runs.document(run_id)["submodels"]
    for name in NAMES:
        part, archive = part_of(service, run_id, name), tmp_path / f"{name}.zip"
        found = part.certificate
        assert found is not None and found.holds and not found.findings and part.certify_at_s is None
        assert {one.what: one.outcome for one in found.compared} == dict.fromkeys(
            ("weights", "keys", "outputs", "answers"), "equal"
        )
        assert (
            found.state_sha256 == part.state_sha256 and found.spec["name"] == name and "import torch" in found.snippet
        )
        assert part.artifact_bytes == archive.stat().st_size
        with zipfile.ZipFile(archive) as file:
            assert json.loads(file.read("certificate.json")) == found.model_dump(mode="json")
            assert {*file.namelist()} == {*found.files, "certificate.json"} and "probes.safetensors" in found.files
        assert document[name]["certificate"]["holds"] is True
        verified = unifiednn(trained.home, "verify", str(archive), "--json")
        assert verified.returncode == 0
        again = json.loads(verified.stdout)
        outcomes = {one["what"]: one["outcome"] for one in again["compared"]}
        equal = dict.fromkeys(("files", "weights", "outputs", "answers"), "equal")
        assert outcomes == {**equal, "keys": "not compared"}
    events = [event.code for event in service.runs.observe(run_id).events]
    assert events.count("certified") == 3 and "uncertified" not in events
    assert service.store.runs.uncertified(service.clock.utc_s()) == []
    changed(tmp_path / "lenet.zip", "spec.json", with_lossy_technique)
    verified = unifiednn(trained.home, "verify", str(tmp_path / "lenet.zip"), "--json")
    assert verified.returncode == 1, "a file is another one"
    assert json.loads(verified.stdout)["techniques"] == ["compression, lossy"]


@pytest.mark.parametrize(
    ("name", "member", "what"),
    [
        ("resnet", "resnet.safetensors", "weights"),
        ("lenet", "lenet.eval.pt2", "weights"),
        ("transformer", "transformer.pt2", "weights"),
        ("resnet", "load.py", "answers"),
        ("resnet", "", "files"),
    ],
)
def test_one_wrong_bit_is_told_everywhere(trained: Product, name: str, member: str, what: str, tmp_path: Path) -> None:
    """In a file of the zip, or in the zip itself."""
    service, run_id = trained.service, trained.run_id
    archive = trained.home.run(run_id) / "models" / f"{name}.zip"
    if member:
        changed(archive, member, one_bit)
    else:
        archive.write_bytes(one_bit(archive.read_bytes()))
    done = unifiednn(trained.home, "download", run_id, name, "--to", str(tmp_path))
    assert done.returncode == 0 and "does not hold" in done.stderr and member in done.stderr
    found = part_of(service, run_id, name).certificate
    assert found is not None and not found.holds
    assert next(one.what for one in found.compared if one.outcome == "differs") == what
    told = [event.message for event in service.runs.observe(run_id).events if event.code == "uncertified"]
    assert len(told) == 1 and found.findings[0] in told[0]
    verified = unifiednn(trained.home, "verify", str(tmp_path / f"{name}.zip"))
    assert (
        verified.returncode == (1 if member else 2)
        and ("does not hold" if member else "damaged") in verified.stdout + verified.stderr
    )


def test_outputs_are_compared_bit_for_bit(trained: Product) -> None:
    """A network that gets one other bit gives other outputs: right weights alone make no certificate hold."""
    service, run_id = trained.service, trained.run_id
    [data] = {part["test_data"] for part in service.store.runs.get(run_id)[0].spec["submodels"]}
    other = torch.load(trained.home.file(data.removeprefix("sha256:")), weights_only=True)
    torch.save({**other, "inputs": other["inputs"].roll(1, 0)}, trained.home.file(data.removeprefix("sha256:")))
    probes = trained.home.run(run_id) / "models" / "resnet.probes.safetensors"
    content = bytearray(probes.read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    place = begin + header["input.0"]["data_offsets"][0] + 203
    content[place] ^= 0x40
    probes.write_bytes(content)
    service.settle_certificates(run_id)
    found = part_of(service, run_id, "resnet").certificate
    assert found is not None and not found.holds
    assert {one.what: one.outcome for one in found.compared} == {
        "weights": "equal",
        "keys": "equal",
        "outputs": "differs",
    }
    assert "The largest difference is" in found.findings[0]
    lenet = part_of(service, run_id, "lenet").certificate  # its outputs are right, and samples of its data others
    assert lenet is not None and not lenet.holds
    assert {one.what: one.outcome for one in lenet.compared}["outputs"] == "equal"
    assert "gives other answers than the hybrid. The largest difference is" in lenet.findings[0]


@pytest.mark.slow
def test_a_kill_after_the_zip_is_written_makes_the_certificate_again(
    trained: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL between zip and store, then a disk without room, then a reader that dies."""
    service, run_id = trained.service, trained.run_id
    certifier = Certifier(trained.home, service.store, service.clock, certify=client.certify)
    failpoints.arm(Fault("certificate.before_record", "disk_full"))
    with pytest.raises(OSError, match="No space left"):
        certifier.tick()
    failpoints.arm(None)
    archives = [trained.home.run(run_id) / "models" / f"{name}.zip" for name in NAMES]
    names = [zipfile.ZipFile(archive).namelist() for archive in archives]
    assert sum("certificate.json" in held for held in names) == 1
    assert all(part_of(service, run_id, name).certificate is None for name in NAMES)
    reports: list[Any] = []

    def killed(job: CertifyJob) -> Any:
        """The job as another process does it that is killed once the zip is there."""
        reports.append(client.certify(job))
        pid = os.posix_spawn("/bin/sh", ["sh", "-c", "kill -9 $$"], {})
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        raise IntakeFailed("The process that reads files was ended.")

    Certifier(trained.home, service.store, service.clock, certify=killed).tick()
    assert (
        reports[0].certificate.holds and part_of(service, run_id, reports[0].certificate.submodel).certificate is None
    )
    clock = replace_clock(service, 61.0)
    Certifier(trained.home, service.store, clock).settle(run_id)
    for name, archive in zip(NAMES, archives, strict=True):
        found = part_of(service, run_id, name).certificate
        assert found is not None and found.holds
        with zipfile.ZipFile(archive) as file:
            assert file.namelist().count("certificate.json") == 1 and file.testzip() is None
    assert not [path for path in trained.home.quarantine.iterdir() if path.name.startswith("certify-")]


def replace_clock(service: Service, later_s: float) -> Any:
    class Later:
        def utc_s(self) -> float:
            return service.clock.utc_s() + later_s

        def monotonic_s(self) -> float:
            return service.clock.monotonic_s() + later_s

    return Later()


@pytest.mark.slow
def test_a_reader_that_always_dies_is_given_up_with_a_warning(trained: Product) -> None:
    service, run_id = trained.service, trained.run_id

    def dies(job: CertifyJob) -> Any:
        raise IntakeFailed("The process that reads files was ended: it needs more memory.")

    for later_s in (1.0, 62.0, 123.0):
        certifier = Certifier(trained.home, service.store, replace_clock(service, later_s), certify=dies)
        certifier._tries.update({(run_id, name): int(later_s // 61) for name in NAMES})  # one process tries all of them
        certifier.settle(run_id)
    told = [event.message for event in service.runs.observe(run_id).events if event.code == "warned"]
    assert len(told) == 3 and all("could not be made" in one and "more memory" in one for one in told)
    assert service.store.runs.uncertified(service.clock.utc_s() + 1e6) == []


def test_an_older_export_gets_no_certificate_and_a_measured_baseline_is_left_alone(
    trained: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, run_id = trained.service, trained.run_id
    [(run, row), *_] = service.store.runs.uncertified(service.clock.utc_s())
    service.store.runs.record_export(run_id, row.name, Event.COMPLETE, model={"artifact": row.artifact})
    asked: list[CertifyJob] = []

    def certify(job: CertifyJob) -> Any:
        asked.append(job)
        return client.certify(job)

    certifier = Certifier(trained.home, service.store, service.clock, certify=certify)
    certifier._make(run, row)
    assert len(asked) == 1 and part_of(service, run_id, row.name).certificate is None
    with monkeypatch.context() as patched:
        patched.setattr(type(service.store.runs), "measuring", lambda self: True)
        certifier.tick()
        assert len(asked) == 1
    with certifier._alone(wait=False) as first:
        assert first
        certifier.tick()  # another one is at work
    assert len(asked) == 1
    certifier.tick()
    assert len(asked) == 2


def test_files_of_a_gpu_are_run_on_it_once_the_run_has_ended_or_else_on_the_cpu(
    trained: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, run_id = trained.service, trained.run_id
    with service.store._database.write() as session:
        session.get_one(RunRow, run_id).device = "cuda:0"
    asked: list[CertifyJob] = []

    def certify(job: CertifyJob) -> Any:
        asked.append(job)
        return client.certify(job)

    certifier = Certifier(trained.home, service.store, service.clock, certify=certify)
    with monkeypatch.context() as patched:
        patched.setattr(certifying, "ENDED", frozenset())  # as if it trained still
        certifier.settle(run_id)
    assert asked == []
    for free_bytes, device in ((40 * GIB, "cuda:0"), (GIB, "cpu")):
        monkeypatch.setattr(certifying, "budget_of", lambda name, free_bytes=free_bytes: Budget(80 * GIB, free_bytes))
        certifier.tick()
        assert asked[-1].device == device
    assert len(asked) == 2  # torch has no CUDA here: both were compared on the CPU
    assert all(part_of(service, run_id, job.submodel.name).certificate.holds for job in asked)


def test_a_model_that_is_gone_costs_nothing(trained: Product) -> None:
    service, run_id = trained.service, trained.run_id
    (trained.home.run(run_id) / "models" / "lenet.zip").unlink()
    service.settle_certificates(run_id)
    assert part_of(service, run_id, "lenet").certificate is None
    assert service.store.runs.uncertified(service.clock.utc_s() + 1e6) == []


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"../outside": b"x"}, "no separated model has"),
        ({"/tmp/outside": b"x"}, "no separated model has"),
        ({"a/b": b"x"}, "no separated model has"),
        ({".hidden": b"x"}, "no separated model has"),
        ({"A.pt": b"x", "a.pt": b"y"}, "two of one name"),
        ({f"f{place}": b"" for place in range(65)}, "65 files"),
        ({"spec.json": b"[" * 10_000}, "no spec"),
        ({"spec.json": b'{"submodels": [{"name": "../x"}]}'}, "no spec"),
        ({"spec.json": b'{"submodels": [{"name": "x", "model": "m", "train_data": "d"}]}'}, "no certificate"),
        ({"certificate.json": b'{"version": 2}'}, "another version"),
    ],
)
def test_a_hostile_zip_is_refused(home: Home, tmp_path: Path, files: dict[str, bytes], says: str) -> None:
    archive = tmp_path / "inside" / "x.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    done = unifiednn(home, "verify", str(archive))
    assert done.returncode == 2 and says in done.stdout + done.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"inside", "home"} and not Path("/tmp/outside").exists()


def test_damaged_and_missing_files_are_told_without_a_traceback(home: Home, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"PK\x05\x06 not a zip")
    assert unifiednn(home, "verify", str(tmp_path / "x.zip")).returncode == 2
    assert unifiednn(home, "verify", str(tmp_path / "y.zip")).returncode == 2
    packed = tmp_path / "z.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("spec.json", b" " * 10**6)
    done = unifiednn(home, "verify", str(packed), "--json")
    assert done.returncode == 2 and json.loads(done.stdout)["findings"][0]["field"] == "z.zip"
