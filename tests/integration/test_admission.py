"""Through the whole product: what needs too much is refused with a change that helps, what finds no room waits."""

import functools
from pathlib import Path
from typing import Never

import pytest
import torch

from tests.integration.conftest import write_spec
from tests.waiting import wait_until
from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.paths import Home
from unifiednn_core.data.datasets import read_dataset
from unifiednn_core.engine.orders import Adjust
from unifiednn_core.machine.budget import Budget, budget_of
from unifiednn_core.preflight import check as check_room
from unifiednn_core.preflight import client, forecast
from unifiednn_core.preflight.trial import OutOfTime
from unifiednn_core.runtime.worker import order_of
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import Event, State
from unifiednn_core.spec.run import RunSpec, load_run, parse_run
from unifiednn_core.web.api_runs import SubModelChanges, change_submodel

EPOCHS = {"lenet": 1, "resnet": 1, "transformer": 1}


@pytest.fixture
def demo(samples: Path, tmp_path: Path) -> RunSpec:
    """The demo for one epoch, in turns of one step, so that all three are in memory at once; no company adds to it."""
    path = write_spec(samples, tmp_path, epochs=EPOCHS, policy={"name": "round_robin", "unit": "steps"}, lanes=1)
    return load_run(path)


@pytest.fixture
def lenet(demo: RunSpec) -> RunSpec:
    """The smallest of the three by itself."""
    return demo.model_copy(update={"submodels": demo.submodels[:1]})


@pytest.fixture
def idle(home: Home) -> Service:
    """A service that starts nothing."""
    return Service.open(home)


def refused(service: Service, spec: RunSpec) -> Finding:
    with pytest.raises(BadInput) as error:
        service.runs.submit(spec)
    [finding] = error.value.findings
    return finding


@pytest.mark.slow
def test_a_limit_refuses_with_a_change_that_is_admitted_once_it_is_made(idle: Service, demo: RunSpec) -> None:
    report = idle.runs.check(demo)
    assert not report.has_errors and report.prediction is not None
    peak_bytes, by_policy = report.prediction.peak_bytes, report.prediction.by_policy
    assert by_policy["fcfs"] < peak_bytes == by_policy["round_robin"]
    limited = demo.model_copy(update={"memory_limit_bytes": peak_bytes - 1})
    finding = refused(idle, limited)
    assert idle.runs.runs() == ()
    assert finding.field == "policy.name"
    other = {"name": finding.remedy.split('"')[1]}
    run_id = idle.runs.submit(parse_run(limited.model_dump(mode="json") | {"policy": other}))
    prediction = idle.runs.observe(run_id).prediction
    assert prediction is not None
    assert prediction.peak_bytes == by_policy[other["name"]] <= peak_bytes - 1
    assert prediction.budget_bytes == peak_bytes - 1


def test_a_run_shows_what_its_check_has_predicted(idle: Service, demo: RunSpec) -> None:
    in_lanes = demo.model_copy(update={"lanes": 2})
    prediction = idle.runs.check(in_lanes).prediction
    assert prediction is not None
    assert prediction.company_bytes > 0
    assert idle.runs.observe(idle.runs.submit(in_lanes)).prediction == prediction


@pytest.mark.slow
def test_a_larger_split_is_asked_for_where_the_policy_cannot_help(idle: Service, demo: RunSpec) -> None:
    [transformer] = [part for part in demo.submodels if part.name == "transformer"]
    alone = demo.model_copy(update={"submodels": (transformer,)})
    prediction = idle.runs.check(alone).prediction
    assert prediction is not None
    limited = alone.model_copy(update={"memory_limit_bytes": prediction.peak_bytes - 1})
    finding = refused(idle, limited)
    assert finding.field == "submodels.transformer.hyperparameters.batch_split"
    split = int(finding.remedy.partition(":")[0].rpartition(" ")[2])
    hyperparameters = transformer.hyperparameters.model_copy(update={"batch_split": split})
    smaller = transformer.model_copy(update={"hyperparameters": hyperparameters})
    after = idle.runs.observe(idle.runs.submit(limited.model_copy(update={"submodels": (smaller,)}))).prediction
    assert after is not None
    assert after.peak_bytes <= prediction.peak_bytes - 1


@pytest.mark.slow
def test_who_would_make_a_run_too_large_cannot_join_it(idle: Service, demo: RunSpec) -> None:
    first, *_, last = demo.submodels
    both = idle.runs.check(demo.model_copy(update={"submodels": (first, last)})).prediction
    assert both is not None
    one = demo.model_copy(update={"submodels": (first,), "memory_limit_bytes": both.peak_bytes - 1})
    run_id = idle.runs.submit(one)
    with pytest.raises(BadInput, match="memory_limit_bytes"):
        idle.runs.add_submodel(run_id, last)
    assert [part.name for part in idle.runs.observe(run_id).submodels] == [first.name]
    spec = idle.store.runs.get(run_id)[0].spec
    idle.store.runs.update(run_id, spec=spec | {"memory_limit_bytes": both.peak_bytes})
    idle.runs.add_submodel(run_id, last)
    prediction = idle.runs.observe(run_id).prediction
    assert prediction is not None
    assert [part.name for part in prediction.submodels] == [first.name, last.name]
    assert prediction.peak_bytes == both.peak_bytes


def test_more_than_the_machine_has_is_refused_before_anything_is_queued(
    idle: Service, demo: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "budget_of", lambda device: Budget(300 * 1024**2, 0))
    finding = refused(idle, demo)
    assert "300 MiB on cpu in all" in finding.message
    assert idle.runs.runs() == ()


def test_a_run_waits_for_memory_and_starts_by_itself_and_the_next_one_after_it(home: Home, lenet: RunSpec) -> None:
    free = [64 * 1024**2]
    service = Service.open(home)
    service._supervisor._budget = lambda device: Budget(budget_of(device).total_bytes, free[0])
    service.start_supervisor()
    try:
        first, second, stopped = (service.runs.submit(lenet.model_copy(update={"name": name})) for name in "abc")
        wait_until(lambda: service.runs.observe(first).waits_for is not None)
        view = service.runs.observe(first)
        assert view.state is State.QUEUED
        assert view.prediction is not None
        assert "on any device; cpu has 64 MiB free" in (view.waits_for or "")
        wait_until(lambda: service.runs.observe(second).waits_for == "its turn; 1 is before it in line")
        service.runs.stop(stopped)
        wait_until(lambda: service.runs.observe(stopped).state is State.STOPPED)
        assert service.runs.observe(first).state is State.QUEUED
        free[0] = view.prediction.peak_bytes
        wait_until(lambda: service.runs.observe(second).ended_at_s is not None)
        states = [service.runs.observe(run_id).state for run_id in (first, second)]
        assert states == [State.COMPLETED, State.COMPLETED]
        assert service.runs.observe(first).waits_for is None
    finally:
        service.close()


@pytest.mark.slow
def test_a_network_that_could_not_be_tried_starts_and_its_mistake_ends_it_alone(
    service: Service, demo: RunSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No time is left for any dry run here, and one network gets labels that it has no classes for."""

    def too_slow(_: object) -> Never:
        raise OutOfTime

    monkeypatch.setattr(client, "check", check_room.check)
    monkeypatch.setattr(check_room, "dry_run", too_slow)
    good, other, *_ = demo.submodels
    data = read_dataset(Path(good.train_data))
    assert data.targets is not None
    torch.save({"inputs": data.first[:100].clone(), "targets": data.targets[:100] + 100}, tmp_path / "wrong.pt")
    bad = other.model_copy(update={"train_data": str(tmp_path / "wrong.pt")})
    warned: list[Finding] = []
    spec = demo.model_copy(update={"submodels": (good, bad)})
    run_id = service.runs.submit(spec, on_warnings=warned.extend)
    assert [finding.field for finding in warned if finding.title == "Not tried"] == [
        f"submodels.{part.name}.model" for part in (good, bad)
    ]
    observed = functools.partial(service.runs.observe, run_id)
    assert observed().prediction is None
    wait_until(lambda: observed().ended_at_s is not None)
    states = {part.name: part.state for part in observed().submodels}
    assert states == {good.name: State.COMPLETED, bad.name: State.FAILED}


@pytest.mark.slow
def test_open_virtual_nodes_are_numbers_once_a_run_waits_and_their_devices_can_change(
    idle: Service, demo: RunSpec
) -> None:
    """The fewest that fit; then other devices for them, as far as there is memory, by every way to ask."""
    [transformer] = [part for part in demo.submodels if part.name == "transformer"]

    def asked(limit_bytes: int | None, **nodes: object) -> RunSpec:
        hyper = transformer.hyperparameters.model_dump(mode="json")
        hyper["techniques"] = [{"name": "virtual_nodes", **nodes}] if nodes else []
        part = transformer.model_dump(mode="json") | {"hyperparameters": hyper}
        document = demo.model_dump(mode="json") | {"submodels": [part], "memory_limit_bytes": limit_bytes}
        return parse_run(document)

    prediction = idle.runs.check(asked(None)).prediction
    assert prediction is not None
    limited = asked(prediction.peak_bytes - 1, nodes="fit")
    report = idle.runs.check(limited)
    found = report.submodels["transformer"].nodes
    assert not report.has_errors and found is not None and found.nodes > 1
    runs = [idle.store.runs.get(idle.runs.submit(limited))[0] for _ in range(2)]
    [technique] = runs[0].spec["submodels"][0]["hyperparameters"]["techniques"]
    assert technique == {"name": "virtual_nodes", "nodes": found.nodes, "devices": 1}
    roomy = idle.store.runs.get(idle.runs.submit(asked(None, nodes="fit")))[0]
    assert runs[0].fingerprint == runs[1].fingerprint != roomy.fingerprint
    assert roomy.spec["submodels"][0]["hyperparameters"]["techniques"][0]["nodes"] == 1

    run_id = idle.runs.submit(asked(None, nodes=4, devices=2))
    idle.runs.set_devices(run_id, "transformer", 3)
    change_submodel(idle, run_id, "transformer", SubModelChanges(devices=4))
    first = idle.store.commands.open(run_id)[0]
    assert order_of(first, "transformer") == Adjust("transformer", "devices", 3, first.id)
    idle.store.commands.settle_unclaimed()
    [technique] = idle.store.runs.get(run_id)[0].spec["submodels"][0]["hyperparameters"]["techniques"]
    assert (technique["nodes"], technique["devices"]) == (4, 4)
    with pytest.raises(BadInput, match="at most 64"):
        idle.runs.set_devices(run_id, "transformer", 65)
    idle.store.runs.transition(run_id, None, Event.CLAIM)
    idle.store.runs.transition(run_id, "transformer", Event.FAIL)
    idle.runs.retry(run_id, "transformer", batch_split=8)
    [technique] = idle.store.runs.get(run_id)[0].spec["submodels"][0]["hyperparameters"]["techniques"]
    assert (technique["nodes"], technique["devices"]) == (8, 4)
    assert idle.runs.observe(run_id).submodels[0].batch_split == 8
    with pytest.raises(BadInput, match="no virtual nodes"):
        idle.runs.set_devices(idle.runs.submit(asked(None)), "transformer", 2)
