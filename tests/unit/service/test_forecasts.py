"""Forecasts of a person: of a change of a run, of a spec, and the one that a run keeps."""

from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import update

from tests.unit.service.kit import ALICE, BOB, HERS, HIS, OPERATOR, SHARED, World, sha
from unifiednn_core.preflight.report import CheckReport, SubModelReport
from unifiednn_core.scheduling.registry import POLICIES
from unifiednn_core.service import forecasts as room
from unifiednn_core.service import rehearsals
from unifiednn_core.service.forecasts import RunChange
from unifiednn_core.service.roles import Actor
from unifiednn_core.spec.run import PolicySpec, parse_run
from unifiednn_core.store.schema import RunRow, SubModelRow
from unifiednn_core.views.forecast import finish_rows
from unifiednn_core.views.run_rows import run_view

FCFS = PolicySpec(name="fcfs")


def trains(here: World, **columns: Any) -> None:
    """Two sub-models in one lane, 1 s a step, half of 20 steps done."""
    with here.store._database.write() as session:
        session.execute(
            update(SubModelRow)
            .where(SubModelRow.run_id == SHARED)
            .values(**{"steps_done": 10, "service_s": 10.0, "lane": None, **columns})
        )
        session.execute(update(RunRow).where(RunRow.id == SHARED).values(launched_at_s=900.0))
    here.store.hybrids.update(SHARED, environment={"lanes": 1})


def test_a_change_of_the_policy_is_foreseen_for_each(here: World) -> None:
    trains(here)
    found = here.of(OPERATOR).runs.forecast_change(SHARED, RunChange(policy=FCFS))
    before, after = ({name: one.likely_s for name, one in ends.items() if one} for ends in (found.before, found.after))
    assert before == {"alpha": pytest.approx(10.5), "bravo": pytest.approx(20.5)}, "by turns of one epoch of 10 steps"
    assert after == {"alpha": pytest.approx(10.5), "bravo": pytest.approx(20.5)}
    turned = here.of(OPERATOR).runs.forecast_change(SHARED, RunChange(policy=FCFS, order=["bravo", "alpha"]))
    assert turned.after["alpha"] is not None and turned.after["alpha"].likely_s == pytest.approx(20.5)
    longer = here.of(OPERATOR).runs.forecast_change(SHARED, RunChange(epochs={"alpha": 4}))
    assert longer.after["alpha"] is not None and longer.after["alpha"].likely_s == pytest.approx(40.5)
    assert all(one is not None and one.low_s < one.likely_s < one.high_s for one in found.after.values())


def test_nothing_is_foreseen_before_the_steps_are_measured(here: World) -> None:
    trains(here, steps_done=1, service_s=0.1)
    found = here.of(OPERATOR).runs.forecast_change(SHARED, RunChange(policy=FCFS))
    assert not found.known and set(found.before) == {"alpha", "bravo"}


@pytest.mark.parametrize(("service_s", "left_s"), [(2.0, 1.0), (10.0, 10.0)])
def test_a_few_short_steps_count_without_the_first_one(here: World, service_s: float, left_s: float) -> None:
    trains(here, step_s=0.1, service_s=service_s)
    end = here.of(OPERATOR).runs.forecast_change(SHARED, RunChange(policy=FCFS)).after["alpha"]
    assert end is not None and end.likely_s == pytest.approx(left_s + 0.5)


def test_a_changed_run_keeps_a_new_forecast_and_shows_it_beside_what_happened(here: World) -> None:
    trains(here)
    here.of(OPERATOR).runs.set_policy(SHARED, FCFS)
    run, rows = here.store.runs.get(SHARED)
    view = run_view(run, rows, here.store.runs._clock.utc_s())
    assert view.forecast is not None and view.forecast.renewed and view.forecast.policy == "fcfs"
    passed_s = here.store.runs._clock.utc_s() - 900.0
    assert view.forecast.finish_s == {"alpha": pytest.approx(passed_s + 10.5), "bravo": pytest.approx(passed_s + 20.5)}
    *parts, whole = finish_rows(view)
    assert [row.name for row in parts] == ["alpha", "bravo"] and whole.predicted_s == pytest.approx(passed_s + 20.5)
    assert all(row.off is None for row in parts)


def test_who_has_a_part_only_learns_nothing_of_the_whole(here: World) -> None:
    trains(here)
    here.of(OPERATOR).runs.set_policy(SHARED, FCFS)
    assert here.of(OPERATOR).runs.observe(SHARED).forecast is not None
    assert here.of(ALICE).runs.observe(SHARED).forecast is None


def spec_and_report(seconds_per_step: float | None) -> tuple[Any, CheckReport]:
    parts = [
        {
            "name": name,
            "model": f"sha256:{sha(name)}",
            "train_data": f"sha256:{sha('d')}",
            "hyperparameters": {"epochs": 2, "batch_size": 8, "optimizer": "sgd", "learning_rate": 0.1},
        }
        for name in ("a", "b")
    ]
    facts = {
        "format": "pt2",
        "weights_bytes": 4,
        "input_shape": (1,),
        "samples": 80,
        "test_samples": None,
        "classes": 2,
        "steps_per_epoch": 10,
    }
    reports = {
        name: SubModelReport(name=name, parameters=100 * (1 + at), seconds_per_step=seconds_per_step, **facts)
        for at, name in enumerate("ab")
    }
    return parse_run({"device": "cpu", "lanes": 1, "submodels": parts}), CheckReport(submodels=reports)


def test_a_spec_is_forecast_with_timed_steps_or_in_shares_of_the_work(here: World) -> None:
    runs = here.of(OPERATOR).runs
    timed = runs.forecast(*spec_and_report(0.5))
    assert [one.policy for one in timed] == [one.name for one in POLICIES]
    assert {one.basis for one in timed} == {"timed"}
    assert timed[0].finish_s["b"] - timed[0].finish_s["a"] == pytest.approx(10.0)
    shares = runs.forecast(*spec_and_report(None))
    assert {one.basis for one in shares} == {"relative"}
    assert shares[0].finish_s == {"a": pytest.approx(100 / 3), "b": pytest.approx(100.0)}


def test_a_training_of_the_same_counts_for_those_who_may_know_it(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "memory_key", lambda spec, part, report: "same")
    with here.store._database.write() as session:
        session.execute(
            update(SubModelRow)
            .where(SubModelRow.run_id == HIS)
            .values(memory_key="same", steps_done=20, service_s=40.0)
        )
    spec, report = spec_and_report(0.5)
    spec = spec.model_copy(update={"threads": 1})
    [first, *_] = here.of(OPERATOR).runs.forecast(spec, report)
    assert first.basis == "measured"
    assert first.finish_s["b"] - first.finish_s["a"] == pytest.approx(40.0, rel=0.15)
    [hers, *_] = here.of(ALICE).runs.forecast(spec, report)
    assert hers.basis == "timed", "it would reveal that somebody trained the same network"
    assert HERS != HIS


def finish_s_of(here: World, person: Actor, *models: str) -> Mapping[str, float]:
    settings = {"epochs": 2, "batch_size": 8, "optimizer": "sgd", "learning_rate": 0.1}
    parts = [
        {
            "name": f"net{at}",
            "model": f"sha256:{model}",
            "train_data": f"sha256:{sha('none')}",
            "hyperparameters": settings,
        }
        for at, model in enumerate(models)
    ]
    [first, *_] = here.of(person).runs.forecast(parse_run({"device": "cpu", "lanes": 1, "submodels": parts}))
    return first.finish_s


def test_a_forecast_tells_nothing_of_files_of_others(here: World) -> None:
    for name, owner in (("large", BOB), ("hers", ALICE)):
        here.store.library.add_file(
            sha256=sha(name),
            kind="model",
            filename="n.pt",
            format="pt",
            size_bytes=1,
            facts={"parameters": 1000},
            owner=owner.id,
        )
    unknown = finish_s_of(here, ALICE, sha("hers"), sha("nowhere"))
    assert finish_s_of(here, ALICE, sha("hers"), sha("large")) == unknown
    assert finish_s_of(here, OPERATOR, sha("hers"), sha("large")) != unknown, "the control: sizes of files count"


def test_a_forecast_keeps_what_was_added_meanwhile_and_never_refuses_the_change(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    trains(here)
    ends = room.Forecasts._ends

    def meanwhile(*given: Any, **named: Any) -> Any:
        here.store.runs.update(SHARED, environment={"files": {"new": {"model": "net.pt2"}}})
        return ends(*given, **named)

    monkeypatch.setattr(room.Forecasts, "_ends", meanwhile)
    here.of(OPERATOR).runs.set_policy(SHARED, FCFS)
    assert {"files", rehearsals.FORECAST} <= set(here.store.runs.get(SHARED)[0].environment)

    def broken(*given: Any, **named: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(room.Forecasts, "_ends", broken)
    here.of(OPERATOR).runs.set_policy(SHARED, FCFS)  # accepted
