from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.reports import report_of
from tests.unit.preflight.estimate_kit import MIB, need
from unifiednn_core.base.errors import Finding
from unifiednn_core.machine import allocator
from unifiednn_core.machine.budget import Budget
from unifiednn_core.preflight import forecast as room
from unifiednn_core.preflight.estimate import CONTEXT_BYTES, FIRST_STEP_BYTES, SCRIPT_BYTES, context_key
from unifiednn_core.preflight.forecast import Forecast, forecast, memory_key, parts_of
from unifiednn_core.preflight.report import CheckReport, ResolvedFile, SubModelReport, WithoutTechniques
from unifiednn_core.scheduling.registry import POLICIES
from unifiednn_core.spec.run import Mode, RunSpec, parse_run
from unifiednn_core.store import Store
from unifiednn_core.views.run_rows import prediction_of

TOTAL = 2000 * MIB
WEIGHTS = {"small": 4, "large": 40}


def spec(**changes: Any) -> RunSpec:
    """Two sub-models on the CPU, in turns."""
    hyperparameters = changes.pop("hyperparameters", {})
    parts = [
        {
            "name": name,
            "model": f"{name}.pt2",
            "train_data": "d.pt",
            "hyperparameters": {"batch_size": 32, "epochs": 3} | hyperparameters.get(name, {}),
        }
        for name in changes.pop("names", WEIGHTS)
    ]
    return parse_run({"device": "cpu", "lanes": 1, "policy": {"name": "round_robin"}, "submodels": parts} | changes)


def report(asked: RunSpec, *, known: bool = True) -> CheckReport:
    """What a check of it would find."""

    def facts(name: str, batch: int, split: int) -> SubModelReport:
        memory = need(batch=batch, split=split, weights=WEIGHTS[name], optimizer=2 * WEIGHTS[name])
        memory = memory if known else None
        return report_of(name, parameters=WEIGHTS[name], samples=100, steps_per_epoch=4, memory=memory)

    def file(name: str) -> ResolvedFile:
        return ResolvedFile(path=Path(name), sha256=name, size_bytes=1, filename=name)

    submodels = {
        part.name: facts(part.name, part.hyperparameters.batch_size, part.hyperparameters.batch_split)
        for part in asked.submodels
    }
    return CheckReport(submodels=submodels, files={name: file(name) for name in ("small.pt2", "large.pt2", "d.pt")})


def found(store: Store, asked: RunSpec, **given: Any) -> Forecast:
    budget = given.pop("budget", Budget(TOTAL, TOTAL))
    with mock.patch.object(room, "budget_of", lambda device: budget):
        result = forecast(asked, report(asked), store.measured, **given)
    assert result is not None
    return result


def only(findings: tuple[Finding, ...]) -> Finding:
    [finding] = findings
    return finding


def test_a_run_that_fits_has_a_prediction_and_no_finding(store: Store) -> None:
    result = found(store, spec())
    assert result.findings == ()
    assert set(result.prediction.by_policy) == {policy.name for policy in POLICIES}
    assert result.prediction.peak_bytes == result.prediction.by_policy["round_robin"]
    assert result.prediction.context_bytes == CONTEXT_BYTES[allocator.of_workers()] + FIRST_STEP_BYTES["cpu"]
    assert (result.prediction.budget_bytes, result.prediction.budget_text) == (TOTAL, "on cpu in all")


def test_the_document_of_a_run_gives_the_prediction_and_its_parts_back(store: Store) -> None:
    result = found(store, spec())
    assert prediction_of(result.document) == result.prediction
    assert parts_of(result.document) == result.parts
    assert prediction_of({}) is None
    assert prediction_of({"submodels": [{"name": "of another version"}]}) is None
    assert parts_of({}) == ()


def test_the_check_report_carries_it_between_processes(store: Store) -> None:
    told = CheckReport(prediction=found(store, spec()).prediction)
    assert CheckReport.model_validate_json(told.model_dump_json()) == told


def test_a_limit_refuses_with_a_change_which_applied_is_admitted(store: Store) -> None:
    asked = spec()
    refused: list[str] = []
    for _ in range(20):
        peak_bytes = found(store, asked).prediction.peak_bytes
        limited = asked.model_copy(update={"memory_limit_bytes": peak_bytes - 1})
        finding = only(found(store, limited).findings)
        assert finding.severity == "error"
        assert "by memory_limit_bytes of the spec" in finding.message
        refused.append(finding.field)
        if finding.field.startswith("submodels.") and finding.field.count(".") == 1:
            break
        asked = applied(limited, finding)
        assert found(store, asked).findings == ()
    assert refused[0] == "policy.name"
    assert {field.rpartition(".")[2] for field in refused} >= {"name", "batch_split"}


def applied(asked: RunSpec, finding: Finding) -> RunSpec:
    """The spec with the change of a remedy, read as a person would."""
    value = finding.remedy.partition(":")[0].rpartition(" ")[2].strip('"')
    document = asked.model_dump(mode="json")
    if finding.field == "policy.name":
        document["policy"] = {"name": value}
    else:
        _, name, _, entry = finding.field.split(".")
        [part] = [part for part in document["submodels"] if part["name"] == name]
        part["hyperparameters"][entry] = int(value)
    return parse_run(document)


def test_a_baseline_is_refused_for_the_memory_of_steps_without_techniques(store: Store) -> None:
    asked = spec(names=["large"])
    facts = report(asked)
    plain = need(batch=320, weights=WEIGHTS["large"], optimizer=2 * WEIGHTS["large"])
    without = {
        "large": facts.submodels["large"].model_copy(
            update={"without_techniques": WithoutTechniques(memory=plain, without_one={})}
        )
    }
    known = facts.model_copy(update={"submodels": without})
    enough = found(store, asked).prediction.peak_bytes + 60 * MIB
    limited = asked.model_copy(update={"memory_limit_bytes": enough})
    told = {mode: forecast(limited, known, store.measured, mode=mode) for mode in ("hybrid", "sequential")}
    assert {mode: one is not None and bool(one.findings) for mode, one in told.items()} == {
        "hybrid": False,
        "sequential": True,
    }


def test_company_is_predicted_and_never_needs_more_than_the_limit(store: Store) -> None:
    alone, together = found(store, spec()).prediction, found(store, spec(lanes=2)).prediction
    assert 0 < together.company_bytes <= 0.1 * alone.peak_bytes
    assert together.peak_bytes == alone.peak_bytes + together.company_bytes
    tight = found(store, spec(lanes=2, memory_limit_bytes=alone.peak_bytes + MIB))
    assert (tight.findings, tight.prediction.company_bytes) == ((), MIB)
    assert found(store, spec(lanes=2, names=["large"])).prediction.company_bytes == 0


def test_what_no_change_can_make_fit_says_so(store: Store) -> None:
    finding = only(found(store, spec(memory_limit_bytes=MIB)).findings)
    assert finding.field == "device"
    assert "No single change is enough" in finding.remedy
    assert "there are 1.0 MiB by memory_limit_bytes" in finding.message


def test_the_device_counts_where_it_has_less_than_the_limit_allows(store: Store) -> None:
    asked = spec(memory_limit_bytes=TOTAL)
    result = found(store, asked, budget=Budget(400 * MIB, 0))
    assert "400 MiB on cpu in all" in only(result.findings).message
    assert result.prediction.budget_bytes == 400 * MIB


def test_what_is_free_now_refuses_nobody_and_an_unknown_device_neither(store: Store) -> None:
    assert found(store, spec(), budget=Budget(TOTAL, 0)).findings == ()
    result = found(store, spec(), budget=Budget(None, None))
    assert (result.findings, result.prediction.budget_bytes) == ((), None)


@pytest.mark.parametrize(("mode", "refused"), [("hybrid", True), ("sequential", True), ("concurrent", False)])
def test_that_a_concurrent_baseline_does_not_fit_is_a_result_not_a_mistake(
    store: Store, mode: Mode, refused: bool
) -> None:
    assert bool(found(store, spec(memory_limit_bytes=370 * MIB), mode=mode).findings) is refused


def test_a_sequential_baseline_needs_its_largest_process_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "of_workers", lambda: allocator.GLIBC)  # that of every baseline
    alone = found(store, spec(names=["large"])).prediction.submodels[0]
    limit = found(store, spec()).prediction.context_bytes + SCRIPT_BYTES["cpu"] + alone.peak_bytes
    asked = spec(memory_limit_bytes=limit)
    assert found(store, asked, mode="sequential").findings == ()
    assert found(store, asked).findings != ()


def test_who_joins_counts_with_those_who_are_there_and_only_what_joins_can_be_changed(store: Store) -> None:
    there = found(store, spec(names=["large"]))
    both = found(store, spec(names=["small"]), others=there.parts)
    assert [part.name for part in both.parts] == ["large", "small"]
    assert both.prediction.peak_bytes > there.prediction.peak_bytes
    limit = both.prediction.by_policy["fcfs"] - 1
    finding = only(found(store, spec(names=["small"], memory_limit_bytes=limit), others=there.parts).findings)
    assert "large" not in finding.field


def test_measurements_are_remembered_by_graph_batch_optimizer_device_and_version(store: Store) -> None:
    asked = spec()
    before = found(store, asked).prediction
    key = memory_key(asked, asked.submodels[0], report(asked))
    store.measured.remember(key, 500 * MIB)
    store.measured.remember(context_key("cpu", version("torch"), allocator.of_workers()), 111 * MIB)
    store.measured.remember(context_key("cpu", version("torch"), "another"), 999 * MIB)
    after = found(store, asked).prediction
    assert [part.measured for part in after.submodels] == [True, False]
    assert after.submodels[0].transient_bytes == 500 * MIB
    assert after.context_bytes == 111 * MIB + FIRST_STEP_BYTES["cpu"]
    more_bytes = before.context_bytes - after.context_bytes
    unmeasured = after.submodels[1]
    assert before.submodels[1] == replace(unmeasured, paper_bytes=unmeasured.paper_bytes + more_bytes)
    others = [
        spec(hyperparameters={"small": change})
        for change in (
            {"batch_size": 16},
            {"batch_split": 2},
            {"optimizer": "adam"},
            {"criterion": "nll"},
            {"ema": {"decay": 0.5}},
            {"parameter_groups": [{"names": "*", "frozen": True}]},
        )
    ]
    keys = {memory_key(other, other.submodels[0], report(other)) for other in others}
    assert len(keys | {key}) == 7
    epochs = spec(hyperparameters={"small": {"epochs": 9, "learning_rate": 0.5, "seed": 3}})
    assert memory_key(epochs, epochs.submodels[0], report(epochs)) == key


def test_without_the_need_of_everybody_nothing_is_predicted(store: Store) -> None:
    asked = spec()
    assert forecast(asked, report(asked, known=False), store.measured) is None
    assert forecast(spec(policy={"name": "odd"}), report(asked), store.measured) is None


def test_a_prediction_holds_for_the_run_as_people_have_changed_it(store: Store) -> None:
    asked = spec()
    document = found(store, asked).document
    for change in (
        {"policy": {"name": "sjf", "by": "parameters"}},
        {"policy": {"name": "fcfs"}, "names": ("large", "small")},
        {
            "hyperparameters": {"small": {"epochs": 9}, "large": {"epochs": 1}},
            "policy": {"name": "sjf", "by": "epochs"},
        },
    ):
        changed = spec(**change)
        shown = prediction_of(document, changed.model_dump(mode="json"), "cpu")
        expected = found(store, changed).prediction
        assert shown is not None
        assert (shown.peak_bytes, shown.by_policy) == (expected.peak_bytes, expected.by_policy)
        assert shown.budget_bytes == found(store, asked).prediction.budget_bytes
    peaks = {found(store, spec(policy={"name": name})).prediction.peak_bytes for name in ("fcfs", "round_robin")}
    assert len(peaks) == 2, "else the test shows nothing"
