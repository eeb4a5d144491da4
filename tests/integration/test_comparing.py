"""Baselines are queued, found again and compared; nothing trains here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.base.paths import Home
from unifiednn_core.compare import fingerprint as fingerprint_module
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import Event, State
from unifiednn_core.spec.run import PolicySpec, RunSpec, load_run
from unifiednn_core.store.schema import SubModelRow


@pytest.fixture
def idle(home: Home) -> Iterator[Service]:
    """A service without a supervisor: what is queued stays queued."""
    service = Service.open(home)
    yield service
    service.close()


@pytest.fixture
def spec(short_demo: Path) -> RunSpec:
    return load_run(short_demo)


def enter(service: Service, run_id: str, submodel: str, state: str) -> None:
    with service.store._database.write() as session:
        session.get_one(SubModelRow, (run_id, submodel)).state = state


def complete(service: Service, run_id: str, **columns: Any) -> None:
    """Let a run have been trained, as far as the store knows."""
    service.store.runs.update(run_id, state=State.COMPLETED.value, **columns)


def waiting(service: Service) -> list[tuple[str, str]]:
    """Runs as the device will be given to them."""
    runs = sorted(service.runs.runs(), key=lambda run: run.queue_position or 0)
    return [(run.mode, run.run_id) for run in runs]


@pytest.mark.slow
@pytest.mark.parametrize("first", [False, True])
def test_baselines_are_queued_before_or_after_their_run(idle: Service, spec: RunSpec, first: bool) -> None:
    run_id = idle.runs.submit(spec, baselines=("concurrent", "sequential"), baselines_first=first)
    modes = [mode for mode, _ in waiting(idle)]
    assert modes == (["concurrent", "sequential", "hybrid"] if first else ["hybrid", "concurrent", "sequential"])
    assert len({run.fingerprint for run in idle.comparisons.comparable(run_id)}) == 1
    assert {run.run_id for run in idle.comparisons.comparable(run_id)} == {other for _, other in waiting(idle)}


def test_an_equal_baseline_is_taken_instead_of_a_new_one(idle: Service, spec: RunSpec) -> None:
    run_id = idle.runs.submit(spec)
    baseline = idle.comparisons.start_baseline(run_id, "concurrent")
    assert idle.comparisons.start_baseline(run_id, "concurrent") == baseline
    for part in idle.store.runs.get(baseline)[1]:
        enter(idle, baseline, part.name, State.COMPLETED.value)
    complete(idle, baseline)
    other_policy = spec.model_copy(update={"policy": PolicySpec(name="fcfs"), "name": "another name"})
    again = idle.runs.submit(other_policy, baselines=("concurrent",))
    assert idle.comparisons.start_baseline(again, "concurrent") == baseline
    assert idle.comparisons.start_baseline(again, "concurrent", fresh=True) != baseline
    assert idle.comparisons.start_baseline(again, "sequential") != baseline
    assert [run.mode for run in idle.runs.runs()].count("concurrent") == 2


@pytest.mark.slow
def test_a_failed_baseline_is_run_again(idle: Service, spec: RunSpec) -> None:
    run_id = idle.runs.submit(spec)
    baseline = idle.comparisons.start_baseline(run_id, "concurrent")
    idle.store.runs.update(baseline, state=State.FAILED.value)
    assert idle.comparisons.start_baseline(run_id, "concurrent") != baseline


@pytest.mark.slow
@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED, State.STOPPING])
def test_a_baseline_that_lacks_a_sub_model_is_run_again(idle: Service, spec: RunSpec, state: State) -> None:
    run_id = idle.runs.submit(spec)
    baseline = idle.comparisons.start_baseline(run_id, "concurrent")
    _, parts = idle.store.runs.get(baseline)
    for part in parts:
        enter(idle, baseline, part.name, State.COMPLETED.value)
    complete(idle, baseline)
    assert idle.comparisons.start_baseline(run_id, "concurrent") == baseline
    enter(idle, baseline, "resnet", state.value)
    assert idle.comparisons.start_baseline(run_id, "concurrent") != baseline


@pytest.mark.slow
def test_a_verdict_outlives_the_machine_that_it_was_measured_on(
    idle: Service, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = idle.runs.submit(spec, baselines=("concurrent",))
    measured_on = idle.comparisons.comparison(run_id).environment
    monkeypatch.setattr(fingerprint_module, "versions", lambda: {"torch": "another"})
    found = idle.comparisons.comparison(run_id)
    assert found.environment == measured_on
    assert not any("changed" in str(verdict.withheld_because) for verdict in found.verdicts.values())
    with pytest.raises(BadInput, match="Submit it again"):
        idle.comparisons.start_baseline(run_id, "sequential")


@pytest.mark.slow
def test_another_training_asks_for_another_baseline(idle: Service, spec: RunSpec) -> None:
    first = idle.runs.submit(spec, baselines=("concurrent",))
    other = idle.runs.submit(spec.model_copy(update={"submodels": spec.submodels[:2]}), baselines=("concurrent",))
    assert [run.mode for run in idle.comparisons.comparable(first)] == ["concurrent", "hybrid"]
    compared, others = ({run.run_id for run in idle.comparisons.comparable(one)} for one in (first, other))
    assert compared.isdisjoint(others)


def test_a_run_that_was_changed_gets_no_baseline(idle: Service, spec: RunSpec) -> None:
    run_id = idle.runs.submit(spec)
    idle.runs.set_epochs(run_id, "lenet", 2)
    row, _ = idle.store.runs.get(run_id)
    parts = [
        part | {"hyperparameters": part["hyperparameters"] | {"epochs": 2}} if part["name"] == "lenet" else part
        for part in row.spec["submodels"]
    ]
    idle.store.runs.update(run_id, spec=row.spec | {"submodels": parts})
    with pytest.raises(BadInput, match="Submit it again"):
        idle.comparisons.start_baseline(run_id, "concurrent")


def test_baselines_take_no_orders_but_to_stop(idle: Service, spec: RunSpec) -> None:
    baseline = idle.comparisons.start_baseline(idle.runs.submit(spec), "sequential")
    assert idle.runs.observe(baseline).actions <= {Event.STOP, Event.DISCARD, Event.RESUME}
    assert {part.actions for part in idle.runs.observe(baseline).submodels} == {frozenset()}
    for order in (
        lambda: idle.runs.pause(baseline),
        lambda: idle.runs.pause(baseline, "lenet"),
        lambda: idle.runs.save(baseline),
        lambda: idle.runs.set_priority(baseline, "lenet", 3),
        lambda: idle.runs.set_policy(baseline, PolicySpec(name="fcfs")),
        lambda: idle.runs.reorder(baseline, ["resnet", "lenet", "transformer"]),
    ):
        with pytest.raises(BadInput, match="one uninterrupted measurement"):
            order()
    assert idle.runs.observe(baseline).waiting_commands == ()
    assert idle.runs.stop(baseline) is State.STOPPING


def test_an_unknown_kind_of_baseline_is_refused_before_anything_is_queued(idle: Service, spec: RunSpec) -> None:
    with pytest.raises(BadInput, match="Choose concurrent, sequential"):
        idle.runs.submit(spec, baselines=("parallel",))  # type: ignore[arg-type]
    assert idle.runs.runs() == ()


@pytest.mark.slow
def test_a_comparison_of_a_baseline_is_that_of_its_hybrid(idle: Service, spec: RunSpec) -> None:
    run_id = idle.runs.submit(spec)
    baseline = idle.comparisons.start_baseline(run_id, "concurrent")
    assert idle.comparisons.comparison(baseline).run_id == run_id
    alone = idle.comparisons.submit_arm(
        spec.model_copy(update={"seed": 4, "submodels": spec.submodels[:1]}), Path.cwd(), "concurrent"
    )
    with pytest.raises(NotFound, match="baseline without a hybrid"):
        idle.comparisons.comparison(alone)


@pytest.mark.slow
def test_the_document_of_a_comparison_is_the_documented_one(idle: Service, spec: RunSpec) -> None:
    run_id = idle.runs.submit(spec, baselines=("concurrent",))
    document = idle.comparisons.comparison_document(run_id)
    hybrid: Any = document["hybrid"]
    assert (hybrid["run_id"], hybrid["mode"], set(hybrid)) == (run_id, "hybrid", set(idle.runs.document(run_id)))
    assert list(document["baselines"]) == ["concurrent"]  # type: ignore[call-overload]
    verdict: Any = document["verdict"]
    assert set(verdict) == {"concurrent", "sequential"}
    assert {
        "memory_ratio",
        "makespan_ratio",
        "mean_turnaround_ratio",
        "cpu_seconds_ratio",
        "identical_weights",
        "withheld_because",
    } <= set(verdict["concurrent"])
    assert verdict["concurrent"]["withheld_because"] == f"hybrid run {run_id} is queued; its figures come when it ends"
    assert verdict["sequential"]["withheld_because"] == "there is no sequential baseline of this run yet"
