"""Networks that train as independent parts on synthetic intermediate labels, and are joined."""

import os
import signal
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.integration.kit import CPU, dataset, definition, submodel_spec, vanilla
from tests.unit.formats import kit
from tests.waiting import wait_until
from unifiednn_core.base.errors import BadInput
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.binding import STORED, codes_of, part_of, stored_outputs
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.module import PickledModule
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.run import SubModelSpec, parse_run

AT = ["2"]
NETWORK = "plain"


def specs(**split: Any) -> tuple[SubModelSpec, ...]:
    """The parts of the network of this file, then the network."""
    document = submodel_spec("mlp").model_dump(mode="json", exclude_none=True)
    return parse_run({"submodels": [document | {"split": {"at": AT, **split}}]}).submodels


def part(spec: SubModelSpec, data: ResidentData, given: Dataset | None = None) -> SubModel:
    train = data.hold(spec.name, lambda: given or dataset())
    return SubModel(spec, part_of(spec, definition(NETWORK), dataset()), seed=3, train=train, test=None, device=CPU)


def trained(submodels: Sequence[SubModel]) -> dict[str, str]:
    Engine(HybridModel(submodels), RoundRobin(), device=CPU).run()
    return {one.name: state_sha256(one.module.state_dict()) for one in submodels}


def plain_loop(spec: SubModelSpec) -> str:
    """The left part by a plain loop on the codes: mean squared error, data order by the recipe."""
    definition_of_part = part_of(spec, definition(NETWORK), dataset())
    assert spec.split is not None and definition_of_part.part is not None and definition_of_part.part.ends is not None
    rows = codes_of(definition_of_part.part.ends, definition_of_part.part.classes, spec.split, 1)
    module, hyper, data = definition_of_part.build(), spec.hyperparameters, dataset()
    optimizer = torch.optim.SGD(module.parameters(), lr=hyper.learning_rate)
    generator = torch.Generator().manual_seed(3)
    for _ in range(hyper.epochs):
        for batch in torch.split(torch.randperm(data.samples, generator=generator), hyper.batch_size):
            optimizer.zero_grad()
            nn.functional.mse_loss(module(data.first[batch]), rows[(data.targets[batch])]).backward()  # type: ignore[index, no-untyped-call]
            optimizer.step()
    return state_sha256(module.state_dict())


def test_parts_know_nothing_of_each_other_and_leave_others_their_bits() -> None:
    left, right, _ = specs()
    data, other = ResidentData(CPU), submodel_spec("other")
    alone = {name: sha256 for one in (left, right) for name, sha256 in trained([part(one, ResidentData(CPU))]).items()}
    neighbour = SubModel(other, definition(NETWORK), seed=3, train=data.hold("o", dataset), test=None, device=CPU)
    together = [part(left, data), part(right, data), neighbour]
    seen: list[bool] = []
    together[1].module.register_forward_pre_hook(lambda _, given: seen.extend(one.requires_grad for one in given))
    storages = [{one.untyped_storage().data_ptr() for one in sub.module.parameters()} for sub in together]
    assert not storages[0] & storages[1]
    assert trained(together) == alone | {"other": vanilla(NETWORK, other)[0]}
    assert alone["mlp-1"] == plain_loop(left)
    assert seen and not any(seen), "no gradient flows back over the cut"
    begun = {one.name: state_sha256(part(one, ResidentData(CPU)).module.state_dict()) for one in (left, right)}
    assert all(alone[name] != begun[name] for name in begun)  # control: both did train


def test_other_seeds_of_codes_train_other_parts() -> None:
    shas = [trained([part(specs(seed=seed)[0], ResidentData(CPU))])["mlp-1"] for seed in (1, 1, 2)]
    assert shas[0] == shas[1] != shas[2]


def test_stored_outputs_are_those_of_the_trained_part_before() -> None:
    left, right, _ = specs(labels="outputs")
    first = part(left, ResidentData(CPU))
    trained([first])
    state = torch.get_rng_state()
    weights: dict[str, Tensor] = {name: one.detach() for name, one in first.module.state_dict().items()}
    stored = stored_outputs(right, definition(NETWORK), [weights], dataset(), CPU)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        assert torch.equal(stored.inputs[STORED], first.module.eval()(dataset().first))
    assert not stored.inputs[STORED].requires_grad
    before = state_sha256(weights)
    on_outputs = trained([part(right, ResidentData(CPU), stored)])
    assert state_sha256(first.module.state_dict()) == before
    assert on_outputs != trained([part(right, ResidentData(CPU))])  # control: codes are something else


def test_targets_that_are_no_class_numbers_are_refused() -> None:
    left, *_ = specs()
    for targets in (torch.rand(37), torch.zeros(37, 6, dtype=torch.int64)):
        with pytest.raises(BadInput, match="not one class number for each sample"):
            part_of(left, definition(NETWORK), Dataset.of(dataset().first, targets))


def network() -> nn.Module:
    first, second, head = nn.Linear(36, 16), nn.Linear(16, 16), nn.Linear(16, 8)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.BatchNorm1d(16), nn.ReLU(), head)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mlp.pt").write_bytes(kit.file_of(network))
    for name, seed in (("train", 0), ("test", 1)):
        data = dataset(64, seed)
        torch.save({"inputs": data.first, "targets": data.targets}, tmp_path / f"{name}.pt")
    return tmp_path


def asked(name: str, **more: Any) -> dict[str, Any]:
    hyper = {"epochs": 2, "batch_size": 16, "learning_rate": 0.05, "seed": 1}
    files = {"model": "mlp.pt", "train_data": "train.pt", "test_data": "test.pt"}
    return {"name": name, **files, "hyperparameters": hyper, **more}


def test_the_owner_downloads_the_joined_network(folder: Path, service: Service) -> None:
    """Two split networks in one run: one is joined of codes alone, one learns from outputs and recovers."""
    split = {"at": ["2"]}
    submodels = [asked("one", split=split), asked("two", split=split | {"labels": "outputs", "recovery_epochs": 1})]
    spec = parse_run({"device": "cpu", "submodels": submodels})
    run_id = service.runs.submit(spec, folder, baselines=("sequential",))
    wait_until(lambda: service.runs.observe(run_id).ended_at_s is not None)
    document: dict[str, Any] = service.runs.document(run_id)
    assert document["status"] == "completed", document
    judge(service, run_id, folder)
    models = service.home.run(run_id) / "models"
    for name in ("one", "two"):
        parts = [load_file(models / f"{name}-{place}.safetensors") for place in (1, 2)]
        whole = PickledModule().read_state_dict(models / f"{name}.pt")
        assert parts[0].keys() | parts[1].keys() == whole.keys() and not parts[0].keys() & parts[1].keys()
        same = all(torch.equal((parts[0] | parts[1])[key], one) for key, one in whole.items())
        assert same == (name == "one"), "recovery changes weights; without it they are those of the parts"
        assert document["submodels"][name]["test_accuracy"] is not None
        with zipfile.ZipFile(models / f"{name}.zip") as archive:
            assert {f"{name}.pt", "weights.safetensors", "load.py"} <= set(archive.namelist())
    figures = document["submodels"]
    assert (figures["one"]["steps"], figures["two"]["steps"]) == (0, 4)


def judge(service: Service, run_id: str, folder: Path) -> None:
    """Set the run of `one` and `two` against the training of both in one piece."""
    comparable = service.comparisons.comparable(run_id)
    [baseline] = [run.run_id for run in comparable if run.mode == "sequential"]
    wait_until(lambda: service.runs.observe(baseline).ended_at_s is not None)
    assert service.comparisons.why_no_baseline(run_id) is None
    found = service.comparisons.comparison(run_id)
    verdict = found.verdicts["sequential"]
    assert (verdict.withheld_because, verdict.identical_weights, verdict.lossy) == (None, None, ("one", "two"))
    assert verdict.memory_ratio is not None and verdict.makespan_ratio is not None
    told = " ".join(verdict.notes)
    assert "the split of one is lossy" in told and "one-1" not in told
    assert told.count("ends with a test accuracy of") == 2
    parts = {part.name: part for part in service.runs.observe(baseline).submodels}
    assert {name: (one.epochs, one.steps_done) for name, one in parts.items()} == {"one": (2, 8), "two": (2, 8)}
    whole = parse_run({"device": "cpu", "submodels": [asked("one"), asked("two")]})
    end_to_end = service.runs.submit(whole, folder)
    wait_until(lambda: service.runs.observe(end_to_end).ended_at_s is not None)
    shas = {part.name: part.state_sha256 for part in service.runs.observe(end_to_end).submodels}
    assert {name: one.state_sha256 for name, one in parts.items()} == shas, "it is the same training"
    turnarounds = {part.name: part.turnaround_s or 0 for part in service.runs.observe(run_id).submodels}
    mean_s, measured = (turnarounds["one"] + turnarounds["two"]) / 2, found.hybrid.mean_turnaround_s
    assert measured is not None and measured.median == pytest.approx(mean_s), "parts count with their network"


def test_a_baseline_is_predicted_in_one_piece(folder: Path, service: Service) -> None:
    split, alone = (
        service.runs.check(parse_run({"device": "cpu", "submodels": [asked("one", **more)]}), folder)
        for more in ({"split": {"at": ["2"]}}, {})
    )
    joined, whole = split.submodels["one"], alone.submodels["one"]
    assert joined.whole == whole.memory and whole.whole is None
    assert joined.memory is not None and joined.memory.gradients_bytes == 0, "it is joined as it is"


def submitted(folder: Path, service: Service, *, epochs: int = 100_000, **more: Any) -> str:
    """A run of one split network that trains for long."""
    one = asked("one", split={"at": ["2"], **more.pop("split", {})})
    one["hyperparameters"]["epochs"] = epochs
    checkpoint = {} if more else {"checkpoint": {"every_steps": 50}}
    spec = {"device": "cpu", **checkpoint, "submodels": [one], **more}
    return service.runs.submit(parse_run(spec), folder)


def states(service: Service, run_id: str) -> dict[str, str]:
    return {row.name: row.state for row in service.store.runs.get(run_id)[1]}


def wait_for_steps(service: Service, run_id: str, least: int, *places: int) -> None:
    wait_until(lambda: min(service.store.runs.get(run_id)[1][place].steps_done for place in places) > least)


@pytest.mark.long
def test_a_network_that_waits_obeys_and_says_why_it_cannot_come(folder: Path, service: Service) -> None:
    run_id = submitted(folder, service)
    wait_for_steps(service, run_id, 20, 0, 1)
    service.runs.pause(run_id, "one")
    wait_until(lambda: states(service, run_id)["one"] == "paused")
    service.runs.resume(run_id, "one")
    wait_until(lambda: states(service, run_id)["one"] == "queued")
    service.runs.stop(run_id, "one-2")
    service.runs.discard(run_id, "one-1")
    wait_until(lambda: service.runs.observe(run_id).ended_at_s is not None)
    assert states(service, run_id) == {"one-1": "stopped", "one-2": "stopped", "one": "failed"}
    [whole] = [row for row in service.store.runs.get(run_id)[1] if row.name == "one"]
    assert whole.cause == "one-1 ended without weights, and one is joined of its parts."


@pytest.mark.long
@pytest.mark.parametrize("stopped", [["one"], ["one-1", "one-2"]])
def test_a_stop_ends_a_network_that_waits_and_stopped_parts_are_joined(
    folder: Path, service: Service, stopped: list[str]
) -> None:
    run_id = submitted(folder, service)
    wait_for_steps(service, run_id, 20, 0, 1)
    for name in stopped:
        service.runs.stop(run_id, name)
    wait_until(lambda: states(service, run_id)["one"] in ("stopped", "completed"))
    assert states(service, run_id)["one"] == ("stopped" if stopped == ["one"] else "completed")


@pytest.mark.long
def test_a_split_network_survives_the_death_of_its_worker_in_each_phase(folder: Path, service: Service) -> None:
    """The bits are those of a run that nothing happened to."""
    split = {"labels": "outputs", "recovery_epochs": 200}
    run_ids = [submitted(folder, service, epochs=300, split=split) for _ in range(2)]
    for place in range(3):
        wait_for_steps(service, run_ids[0], 60, place)
        pid = service.store.hybrids.get(run_ids[0])[0].worker_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: service.store.hybrids.get(run_ids[0])[0].worker_pid not in (None, pid))
    for run_id in run_ids:
        wait_until(lambda run_id=run_id: service.runs.observe(run_id).ended_at_s is not None)
        assert set(states(service, run_id).values()) == {"completed"}
    shas = [{row.name: row.state_sha256 for row in service.store.runs.get(run_id)[1]} for run_id in run_ids]
    assert shas[0] == shas[1]


@pytest.mark.long
def test_the_parts_of_a_network_train_in_a_shared_hybrid(folder: Path, service: Service) -> None:
    split = {"labels": "outputs", "recovery_epochs": 1}
    run_id = submitted(folder, service, epochs=2, split=split, hybrid="shared")
    wait_until(lambda: service.runs.observe(run_id).ended_at_s is not None)
    assert set(states(service, run_id).values()) == {"completed"}
