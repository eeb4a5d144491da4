"""Gangs in the engine: equal sub-models step together, and each one's life stays its own."""

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.integration.kit import CPU, Session, dataset, definition, submodel_spec
from unifiednn_core.engine import gang as gangs
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.events import Captured, Ended, EpochDone, Ganged, Granted, Left, Released, Report, Stepped
from unifiednn_core.engine.orders import AnyOrder, Order
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.scheduling.company import MemoryRoom
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.spec.run import CheckpointSpec

EPOCHS, STEPS = 4, 20  # 37 samples in batches of 8
SWEEP: dict[str, dict[str, Any]] = {
    "slow": {"learning_rate": 0.001, "seed": 1, "epochs": EPOCHS},
    "adam": {"learning_rate": 0.003, "seed": 2, "epochs": EPOCHS, "optimizer": "adam"},
    "fast": {"learning_rate": 0.05, "seed": 3, "epochs": EPOCHS, "optimizer_args": {"momentum": 0.9}},
}
Posted = Mapping[int, AnyOrder]
"""Orders by the number of reported steps after which they are posted."""


class Run(Session):
    """An engine over equal networks, each with weights of its own."""

    def __init__(
        self,
        asked: Mapping[str, Mapping[str, Any]] = SWEEP,
        *,
        fast: bool = True,
        network: str = "plain",
        policy: tuple[str, dict[str, Any]] = ("fcfs", {}),
        posted: Posted | None = None,
        size_bytes: Callable[[str], int | None] = lambda name: 1000,
        restored: Mapping[str, Checkpoint] | None = None,
    ):
        data, self._posted = ResidentData(CPU), dict(posted or {})
        ready = [
            SubModel(
                submodel_spec(name, **hyperparameters),
                definition(network, seed=place),
                seed=place,
                train=data.hold("train", dataset),
                test=data.hold("test", lambda: dataset(20, seed=1)),
                device=CPU,
            )
            for place, (name, hyperparameters) in enumerate(asked.items())
        ]
        room = MemoryRoom(working_bytes={name: size for name in asked if (size := size_bytes(name)) is not None})
        every = CheckpointSpec(every_steps=20)
        how: dict[str, Any] = {"fast": fast, "memory": lambda: room, "checkpoint": every, "restored": restored}
        super().__init__((), policy_named(*policy), Run._post, ready=ready, **how)

    def _post(self, report: Report) -> None:
        if isinstance(report, Stepped) and (order := self._posted.pop(self.steps, None)) is not None:
            self.engine.post(order)

    def weights(self) -> dict[str, Any]:
        return {name: ended.state_dict for name, ended in self.ended.items()}

    def order_of_steps(self) -> list[str]:
        return [report.submodel for report in self.of(Stepped)]


@pytest.fixture(autouse=True)
def _gangs_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gangs, "LEAST_GAIN", 0.0)


def assert_close(one: Mapping[str, Any], other: Mapping[str, Any], names: Any = SWEEP) -> None:
    for name in names:
        torch.testing.assert_close(one[name], other[name], rtol=1e-3, atol=1e-4)


def test_equal_sub_models_step_together_and_end_as_they_would_alone() -> None:
    together, alone = Run().run(), Run(fast=False).run()
    assert_close(together.weights(), alone.weights())
    assert together.order_of_steps() == [*SWEEP] * STEPS and alone.order_of_steps() != together.order_of_steps()
    told = together.of(Ganged)
    assert [(news.submodel, news.others, news.parted) for news in told] == [(name, 2, None) for name in SWEEP]
    assert not alone.of(Ganged)
    for run in (together, alone):
        assert {name: end.event for name, end in run.ended.items()} == dict.fromkeys(SWEEP, Event.COMPLETE)
        assert Counter(one.submodel for one in run.of(EpochDone)) == dict.fromkeys(SWEEP, EPOCHS)
        granted, released = run.of(Granted), run.of(Released)
        assert [turn.submodel for turn in granted if turn.begins] == [*SWEEP]
        assert {name: sum(one.steps for one in released if one.submodel == name) for name in SWEEP} == dict.fromkeys(
            SWEEP, STEPS
        )
        assert len(run.of(EpochDone)) == EPOCHS * len(SWEEP)
    assert {name: end.checkpoint and end.checkpoint.recipe.get("profile") for name, end in together.ended.items()} == (
        dict.fromkeys(SWEEP, "fast")
    )
    assert together.engine._gangs._gang is None, "nothing keeps the memory of those that have ended"
    lanes = {turn.submodel: turn.lane for turn in together.of(Granted)}
    assert lanes == {"slow": 1, "adam": 2, "fast": 3}
    cpu_s = [turn.cost.cpu_s for turn in together.of(Released)]
    assert min(cpu_s) > 0 and max(cpu_s) < 2 * min(cpu_s), "each member has its share of the time of the thread"


@pytest.mark.parametrize("policy", [("round_robin", {"unit": "steps", "amount": 1}), ("round_robin", {}), ("sjf", {})])
def test_a_quantum_is_granted_to_the_whole_gang(policy: tuple[str, dict[str, Any]]) -> None:
    together, alone = Run(policy=policy).run(), Run(fast=False).run()
    assert_close(together.weights(), alone.weights())
    steps = together.order_of_steps()
    assert all({*steps[place : place + 3]} == {*SWEEP} for place in range(0, len(steps), 3))
    assert len(together.of(Ganged)) == len(SWEEP)


def test_a_member_that_ends_earlier_drops_out_and_the_others_go_on() -> None:
    asked = {name: {**one, "epochs": 2 if name == "adam" else EPOCHS} for name, one in SWEEP.items()}
    together, alone = Run(asked).run(), Run(asked, fast=False).run()
    assert_close(together.weights(), alone.weights())
    assert next(end.submodel for end in together.of(Ended)) == "adam"
    assert together.order_of_steps()[30:] == ["slow", "fast"] * 10


@pytest.mark.parametrize("stopped", ["slow", "adam"])
def test_a_member_that_is_stopped_takes_no_further_step(stopped: str) -> None:
    run = Run(posted={15: Order(Event.STOP, stopped)}).run()
    assert run.ended[stopped].event is Event.HALT
    assert run.order_of_steps().count(stopped) == 5
    others = [name for name in SWEEP if name != stopped]
    assert all(run.ended[name].event is Event.COMPLETE for name in others)
    assert_close(run.weights(), Run(fast=False).run().weights(), others)


def test_a_member_that_is_paused_and_resumed_joins_again() -> None:
    run = Run(posted={15: Order(Event.PAUSE, "adam"), 19: Order(Event.RESUME, "adam")}).run()
    assert all(end.event is Event.COMPLETE for end in run.ended.values())
    assert_close(run.weights(), Run(fast=False).run().weights())


def test_a_gang_that_does_not_pay_parts_and_is_not_formed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gangs, "LEAST_GAIN", 1e9)
    run = Run().run()
    told = run.of(Ganged)
    assert {news.submodel for news in told} == {*SWEEP} and len(told) == len(SWEEP)
    assert all(news.parted is not None and "times as fast" in news.parted for news in told)
    assert run.order_of_steps()[-STEPS // 2 :] == ["fast"] * (STEPS // 2)
    assert_close(run.weights(), Run(fast=False).run().weights())


@pytest.mark.parametrize(
    ("change", "size_bytes"),
    [({"batch_size": 9}, 1000), ({"criterion_args": {"label_smoothing": 0.1}}, 1000), ({}, 2**60), ({}, None)],
)
def test_sub_models_that_differ_or_need_too_much_memory_are_no_gang(change: Any, size_bytes: int | None) -> None:
    asked = {"one": {"epochs": 1}, "other": {"epochs": 1, **change}}
    run = Run(asked, size_bytes=lambda name: size_bytes).run()
    assert not run.of(Ganged) and {turn.lane for turn in run.of(Granted)} == {1}


def test_from_the_checkpoints_of_its_members_a_gang_goes_on() -> None:
    first = Run().run()
    captured = {report.checkpoint.submodel: report.checkpoint for report in first.of(Captured)[:3]}
    assert {checkpoint.step for checkpoint in captured.values()} == {7} and captured.keys() == SWEEP.keys()
    again = Run(restored=captured).run()
    assert len(again.of(Stepped)) == 3 * (STEPS - 7) and again.of(Ganged)
    assert_close(again.weights(), Run(fast=False).run().weights())


@pytest.mark.parametrize("leaver", ["slow", "adam"])
def test_a_member_that_leaves_takes_no_further_step_and_goes_on_elsewhere(leaver: str) -> None:
    run, alone = Run(posted={15: Order(Event.RELEASE, leaver)}).run(), Run(fast=False).run().weights()
    captured, _ = next(pair for pair in pairwise(run.reports) if pair[1] == Left(leaver))
    assert (captured.checkpoint.submodel, captured.checkpoint.step) == (leaver, 5)
    assert run.order_of_steps().count(leaver) == 5 and {*run.ended} == {*SWEEP} - {leaver}
    assert_close(run.weights(), alone, run.ended)
    ends = {name: ended.checkpoint for name, ended in run.ended.items()}
    elsewhere = Run(restored={**ends, leaver: captured.checkpoint}).run()
    assert elsewhere.order_of_steps() == [leaver] * (STEPS - 5)
    assert_close(elsewhere.weights(), alone)
