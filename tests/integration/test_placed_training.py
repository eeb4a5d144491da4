"""Sub-models on several devices: their bits, their checkpoints, their neighbours, and what the check says."""

import os
import zipfile
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch

from tests.unit.formats import kit
from tests.waiting import wait_until
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import DEVICES_SETTING, Home
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine import placed as room
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import EpochDone, Report
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.placed import NetworkPlacement, PlacedForward, placed
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.machine.cores import own_cores
from unifiednn_core.runtime import supervisor
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.placement import runs_of
from unifiednn_core.spec.run import RunSpec, SubModelSpec, parse_run
from unifiednn_core.techniques.placement import costs as costs_room
from unifiednn_core.views.placement import device_line, device_rows, plans

torch.set_num_threads(1)
CPU = torch.device("cpu")
CAPS = {"cnn": 0.015, "residual": 0.046, "attention": 0.0185}
"""MiB that one device is not enough for."""


@cache
def definition(name: str) -> Definition:
    return ExportedFormat().read(kit.exported(Path(mkdtemp()), name), None)


@cache
def dataset(name: str, seed: int = 0) -> Dataset:
    targets = torch.randint(0, 3, (37,), generator=torch.Generator().manual_seed(seed))
    return Dataset.of(inputs=kit.batch(name, 37, seed), targets=targets)


def spec(name: str, placement: dict[str, Any] | None, **hyper: Any) -> SubModelSpec:
    given = {"epochs": 2, "batch_size": 8, "seed": 3, "learning_rate": 0.05, "optimizer": "adam"} | hyper
    document = {"name": name, "model": "m", "train_data": "d", "placement": placement, "hyperparameters": given}
    return SubModelSpec.model_validate(document)


def made(name: str, placement: dict[str, Any] | None, **hyper: Any) -> SubModel:
    asked, data, whole = spec(name, placement, **hyper), ResidentData(CPU), definition(name)
    found = placed(asked, whole, dataset(name))
    train, test = (data.hold(str(seed), lambda seed=seed: dataset(name, seed)) for seed in (0, 1))  # type: ignore[misc]
    return SubModel(asked, whole if found is None else found.of(whole), seed=3, train=train, test=test, device=CPU)


def within(name: str, devices: int = 2) -> dict[str, Any]:
    return {"devices": devices, "cap_mib": CAPS[name]}


def peaks_of(found: NetworkPlacement | None) -> tuple[int, ...]:
    assert found is not None and found.ops is not None
    return found.ops.peaks_bytes


def parts(submodel: SubModel) -> int:
    forward = submodel.module.__dict__["forward"]
    assert isinstance(forward, PlacedForward)
    return len(forward.network.training.parts)


def trained(*submodels: SubModel, policy: Any = None) -> list[tuple[str, list[Any]]]:
    losses: dict[str, list[Any]] = {one.name: [] for one in submodels}

    def take(report: Report) -> None:
        if isinstance(report, EpochDone):
            losses[report.submodel].append((report.figures.train_loss, report.figures.test_loss))

    Engine(HybridModel(submodels), policy or RoundRobin(), device=CPU, report=take).run()
    return [(state_sha256(one.module.state_dict()), losses[one.name]) for one in submodels]


@pytest.mark.parametrize("name", CAPS)
def test_a_placed_sub_model_trains_to_the_bits_of_an_unplaced_one(name: str) -> None:
    plain, on_two = made(name, None), made(name, within(name))
    assert trained(plain) == trained(on_two)
    assert parts(on_two) > 1
    assert plain.module.state_dict().keys() == on_two.module.state_dict().keys()


def test_neighbours_keep_their_bits() -> None:
    alone = {name: trained(made(name, None))[0] for name in CAPS}
    together = [made("cnn", within("cnn")), made("residual", None), made("attention", within("attention"))]
    assert trained(*together, policy=RoundRobin(unit="steps", amount=1)) == [alone[one.name] for one in together]


def test_checkpoints_know_no_devices() -> None:
    """A run that begins on two devices goes on on three, then on one, and has the bits of one that never stopped."""
    whole = trained(made("cnn", None, epochs=3))[0]
    kept: Checkpoint | None = None
    for placement, until in ((within("cnn"), 4), ({"devices": 3, "cap_mib": 0.0155}, 9), (None, 15)):
        one = made("cnn", placement, epochs=3)
        if kept is not None:
            one.restore(kept)
        with one.world():
            while one.steps_done < until:
                one.step()
                if one.at_epoch_end:
                    one.end_epoch()
        assert placement is None or parts(one) > 1
        kept = one.capture()
    assert state_sha256(one.module.state_dict()) == whole[0]
    assert kept is not None and "placement" not in str(kept.recipe)


def test_a_placed_network_follows_its_weights_to_new_memory() -> None:
    one = made("residual", within("residual"))
    with one.world():
        one.step()
        before = one.module.__dict__["forward"].network
        assert one.module.__dict__["forward"].network is before
    for buffers in [layer._buffers for layer in one.module.modules()]:
        for name, value in buffers.items():
            buffers[name] = None if value is None else value.clone()  # as a move to another device leaves them
    with one.world():
        one.step()
    assert one.module.__dict__["forward"].network is not before
    plain = made("residual", None)
    with plain.world():
        plain.step()
        plain.step()
    assert state_sha256(plain.module.state_dict()) == state_sha256(one.module.state_dict())


def test_a_plan_of_the_spec_is_kept_while_it_fits() -> None:
    found = placed(spec("cnn", {"devices": 2}), definition("cnn"), dataset("cnn"))
    assert found is not None and set(found.device_of) == {0}  # a chain is not faster on two
    count = len(found.graph.ops)
    other: dict[str, Any] = {"devices": 2, "plan": [[1, count]]}
    longer: dict[str, Any] = {"devices": 2, "plan": [[1, count + 1]]}
    for asked, expected in ((other, 1), (longer, 0), (other | {"cap_mib": [9, 0.001]}, 0)):
        kept = placed(spec("cnn", asked), definition("cnn"), dataset("cnn"), by_clock=True)
        assert kept is not None and set(kept.device_of) == {expected}


def test_costs_of_a_batch_follow_from_two_small_ones() -> None:
    asked = spec("residual", {"devices": 1}, batch_size=32, optimizer="sgd")
    guessed = placed(asked, definition("residual"), dataset("residual"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "FEW", 32)
        measured = placed(asked, definition("residual"), dataset("residual"))
    assert peaks_of(guessed) == peaks_of(measured)
    adam = placed(spec("residual", {"devices": 1}, batch_size=32), definition("residual"), dataset("residual"))
    assert peaks_of(adam) > peaks_of(measured)  # two more tensors for each weight


def test_a_worker_that_has_a_plan_loads_no_more_than_it_needs() -> None:
    """To count operations and to go back by hand load sympy, 74 MiB; a plan of the check needs neither."""
    found = placed(spec("cnn", within("cnn")), definition("cnn"), dataset("cnn"))
    assert found is not None
    asked = within("cnn") | {"plan": runs_of(found.device_of)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs_room, "FlopCounterMode", None)
        patch.setattr(torch.autograd, "grad", None)
        trusted = placed(spec("cnn", asked), definition("cnn"), dataset("cnn"))
        with pytest.raises(TypeError):  # control
            placed(spec("cnn", within("cnn")), definition("cnn"), dataset("cnn"))
    assert trusted is not None and trusted.device_of == found.device_of and trusted.ops is None
    one, other = trusted.graph, found.graph
    assert (one.units, one.storages(), [op.name for op in one.ops]) == (
        other.units,
        other.storages(),
        [op.name for op in other.ops],
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("placed")
    kit.exported(folder, "cnn")
    for name, seed in (("train", 0), ("test", 1)):
        data = dataset("cnn", seed)
        torch.save({"inputs": data.first, "targets": data.targets}, folder / f"{name}.pt")
    return folder


def run_of(placement: dict[str, Any] | None, epochs: int = 2) -> RunSpec:
    files = {"model": "cnn.pt2", "train_data": "train.pt", "test_data": "test.pt"}
    hyper = {"epochs": epochs, "batch_size": 8, "learning_rate": 0.05, "seed": 3, "optimizer": "adam"}
    both: list[dict[str, Any]] = [{"name": "on_two", "placement": placement}, {"name": "plain"}]
    return parse_run({"device": "cpu", "submodels": [{**files, "hyperparameters": hyper, **one} for one in both]})


def test_the_check_warns_of_devices_that_do_not_help_and_a_start_that_does_not_fit_is_refused(
    folder: Path, service: Service
) -> None:
    [found] = service.runs.check(run_of({"devices": 2}), folder).findings
    assert (found.severity, found.title, found.field) == (
        "warning",
        "One device does all",
        "submodels.on_two.placement",
    )
    with pytest.raises(BadInput, match="placement"):
        service.runs.submit(run_of({"devices": 2, "cap_mib": 0.004}), folder)


def test_the_owner_downloads_the_network_as_it_was_submitted(folder: Path, service: Service) -> None:
    run_id = service.runs.submit(run_of(within("cnn")), folder)
    wait_until(lambda: service.runs.observe(run_id).ended_at_s is not None)
    document: dict[str, Any] = service.runs.document(run_id)
    assert document["status"] == "completed", document
    shas = {row.name: row.state_sha256 for row in service.store.runs.get(run_id)[1]}
    assert shas["on_two"] == shas["plain"] == trained(made("cnn", None))[0][0]
    service.settle_certificates(run_id)
    certificates = {one.name: one.certificate for one in service.runs.observe(run_id).submodels}
    for name, certificate in certificates.items():
        assert certificate is not None and certificate.holds, name
        with zipfile.ZipFile(service.home.run(run_id) / "models" / f"{name}.zip") as archive:
            assert {f"{name}.pt2", f"{name}.eval.pt2"} <= set(archive.namelist())
    stored = RunSpec.model_validate(service.store.runs.get(run_id)[0].spec).submodels[0].placement
    assert stored is not None and len({device for device, _ in stored.plan or ()}) == 2


def test_what_a_check_found_is_told_and_drawn(folder: Path, service: Service) -> None:
    reports = service.runs.check(run_of(within("cnn")), folder).submodels
    rows = device_rows(reports)
    assert [(row["Sub-model"], row["Device"]) for row in rows] == [("on_two", 0), ("on_two", 1)]
    assert all(row["Limit"] == "15.4 KiB" and row["Operators"] for row in rows)
    assert device_line(reports["on_two"]).count("of 15.4 KiB") == 2 and not device_line(reports["plain"])
    [chart] = plans(reports)
    assert chart.title == "on_two" and len(chart.figure["data"]) == 6  # of each device: lane, memory, limit


@pytest.mark.skipif(len(own_cores()) < 2, reason="two devices need two cores")
def test_a_run_claims_two_devices_and_another_one_waits_for_them(
    home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEVICES_SETTING, "cpu:0,cpu:1")
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    service = Service.open(home)
    try:
        long = run_of(within("cnn") | {"claim": True}, epochs=100_000)
        first = service.runs.submit(long, folder)
        second = service.runs.submit(run_of(within("cnn") | {"claim": True}), folder)
        third = service.runs.submit(run_of(None), folder)
        service.start_supervisor()
        wait_until(lambda: max(row.steps_done for row in service.store.runs.get(first)[1]) > 9)
        hybrid, _ = service.store.hybrids.get(first)
        assert {hybrid.device, *hybrid.also} == {"cpu:0", "cpu:1"}
        [listed] = [one for one in service.queue.hybrids() if one.hybrid_id == first]
        assert (listed.device, *listed.also) == (hybrid.device, *hybrid.also)
        cores = {core for name in ("cpu:0", "cpu:1") for core in service.store.devices.cpus_of(name)}
        assert hybrid.worker_pid is not None and os.sched_getaffinity(hybrid.worker_pid) == cores
        wait_until(lambda: service.store.runs.get(second)[0].waits_for)
        assert service.store.runs.get(second)[0].waits_for == "2 devices of one kind to be free at once; 0 are now"
        assert service.store.hybrids.get(third)[0].worker_pid is None, "it may not overtake"
        service.runs.stop(first)
        wait_until(lambda: all(service.runs.observe(one).ended_at_s is not None for one in (second, third)))
        for run_id in (second, third):
            shas = {row.state_sha256 for row in service.store.runs.get(run_id)[1]}
            assert shas == {trained(made("cnn", None))[0][0]}
        assert not service.store.workers.held()
    finally:
        service.close()


def test_weights_go_to_devices_of_their_own_and_their_optimizer_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on several GPUs: the second device is another one to torch, if only by its name."""
    asked, data = spec("cnn", within("cnn")), ResidentData(CPU)
    found = placed(asked, definition("cnn"), dataset("cnn"))
    assert found is not None
    own = (CPU, torch.device("cpu:0"))
    train = data.hold("d", lambda: dataset("cnn"))
    one = SubModel(asked, found.of(definition("cnn"), own), seed=3, train=train, test=None, device=CPU)
    forward = one.module.__dict__["forward"]
    with one.world():
        one.step()
        network = forward.network
        assert network.devices == own
    one.park()
    with one.world():
        one.step()
    assert forward.network is not network
    plain = made("cnn", None)
    with plain.world():
        plain.step()
        plain.step()
    assert state_sha256(plain.module.state_dict()) == state_sha256(one.module.state_dict())
