"""Errors in steps, orders, policies and devices: each ends at most the sub-model that it belongs to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from tests.clock import SimulatedClock
from tests.integration import kit
from tests.integration.kit import CLASSES, Session, submodel_spec
from tests.integration.three import NAMES, THREE, alone, at_step
from unifiednn_core.engine import device as devices
from unifiednn_core.engine.events import Answered, Captured, Granted, Refused, Released, Report
from unifiednn_core.engine.orders import Adjust, Order
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.scheduling.base import Decision, Policy, Quantum, View
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.spec.run import CheckpointSpec


def break_method(monkeypatch: pytest.MonkeyPatch, method: str, name: str) -> None:
    """Let a method of one sub-model raise, like a device without memory for it."""
    whole = getattr(SubModel, method)

    def broken(self: SubModel) -> object:
        if self.name == name:
            raise RuntimeError(f"no room to {method}")
        return whole(self)

    monkeypatch.setattr(SubModel, method, broken)


@pytest.mark.parametrize("event", [Event.PAUSE, Event.SAVE])
def test_a_capture_that_fails_in_a_turn_fails_its_sub_model_and_the_run_is_captured_all_the_same(
    event: Event, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    break_method(monkeypatch, "capture", "second")
    order = at_step("second", 2, Order(event, None, 7))
    session = Session(THREE, RoundRobin(unit="steps", amount=3), order).run()
    assert session.ended["second"].event is Event.FAIL
    assert Answered(7, None) in session.reports
    assert "first" in session.checkpoints
    if event is Event.PAUSE:
        assert set(session.ended) == {"second"}, "the others wait for the next engine"
    else:
        trained = session.hashes()
        assert {name: trained[name] for name in ("first", "third")} == alone("first", "third")
    assert "no room to capture" in capfd.readouterr().err


def test_a_sub_model_that_cannot_be_parked_fails_and_not_the_one_that_trains(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    break_method(monkeypatch, "park", "second")
    pause = at_step("first", 4, Order(Event.PAUSE, "second", 7))
    session = Session(THREE, RoundRobin(unit="steps", amount=3), pause).run()
    assert session.ended["second"].event is Event.FAIL
    trained = session.hashes()
    assert {name: trained[name] for name in ("first", "third")} == alone("first", "third")
    assert "no room to park" in capfd.readouterr().err


def test_an_error_that_leaves_the_device_unusable_reaches_the_worker(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Some CUDA errors stay: only a new process can train the others."""
    monkeypatch.setattr(devices, "is_healthy", lambda device: False)
    session = Session(THREE, RoundRobin(unit="steps", amount=3), checkpoint=CheckpointSpec(every_steps=1))
    session.hybrid.submodel("second").module.register_forward_pre_hook(lambda *_: 1 / 0)
    session.run()
    assert session.engine.device_lost is not None
    assert session.engine.device_lost[:2] == ({"second": 1}, "ZeroDivisionError: division by zero")
    assert session.ended == {}
    after = Session([THREE[0], THREE[2]], FirstComeFirstServed(), restored=session.checkpoints).run()
    assert after.hashes() == alone("first", "third")
    assert "ZeroDivisionError" in capfd.readouterr().err


class Counting(nn.Module):
    """Learns less from step to step, by a count that its `state_dict` leaves out."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(36, CLASSES)
        self.register_buffer("count", torch.ones(()), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.count += 1
        scores: Tensor = self.layer(images.flatten(1)) / self.count
        return scores


def test_buffers_outside_the_state_dict_are_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kit.NETWORKS, "counting", Counting)
    networks = [("counting", submodel_spec("x"))]
    session = Session(networks, FirstComeFirstServed(), checkpoint=CheckpointSpec(every_steps=3)).run()
    kept = next(report.checkpoint for report in session.reports if isinstance(report, Captured))
    assert "count" not in kept.state["model"]
    again = Session(networks, FirstComeFirstServed(), restored={"x": kept}).run()
    assert again.hashes() == session.hashes()


@dataclass(frozen=True)
class Faulty:
    """Has the same fault in each decision."""

    name: ClassVar[str] = "faulty"
    summary: ClassVar[str] = "Always fails."
    fault: Callable[[View], Any]

    def decide(self, view: View) -> Decision:
        wrong: Decision = self.fault(view)
        return wrong


def _raise(view: View) -> Decision:
    raise KeyError("a bug in the policy")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (_raise, "The policy faulty failed (KeyError: 'a bug in the policy')"),
        (lambda view: None, "The policy faulty returned None"),
        (lambda view: Decision(view.jobs[0].name, "soon", "Soon."), "which lacks a quantum or a reason"),  # type: ignore[arg-type]
        (lambda view: Decision(view.jobs[0].name, Quantum("epochs", 1), None), "which lacks a quantum or a reason"),  # type: ignore[arg-type]
        (lambda view: Decision("nobody", Quantum("epochs", 1), "Next."), "named 'nobody', which cannot train now"),
    ],
)
def test_a_defect_of_the_policy_is_a_refusal_and_fails_no_network(
    fault: Callable[[View], Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    asks_again = at_step("second", 2, Adjust("third", "priority", 1, 1))  # in the middle of a turn
    session = Session(THREE, Faulty(fault), asks_again).run()
    assert session.hashes() == alone()
    refused = [report for report in session.reports if isinstance(report, Refused)]
    assert refused and all(message in report.message for report in refused)
    assert all(report.submodel in report.message for report in refused)
    assert ("a bug in the policy" in caplog.text) == (fault is _raise)


def test_under_a_policy_that_always_fails_all_make_progress() -> None:
    session = Session(THREE, Faulty(_raise)).run()
    turns = [report.submodel for report in session.reports if isinstance(report, Granted)]
    assert turns == ["first", "second", "third", "first", "second", "third", "first"]


def test_the_watchdog_sees_for_which_sub_model_the_host_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are asynchronous: an endless one is met where the host waits, not in the step that launched it."""
    seen: list[tuple[str, set[str | None], set[str | None]]] = []

    def watching(what: str, whole: Callable[..., object]) -> Callable[..., object]:
        def watched(*args: Any) -> object:
            holder = args[0].name if isinstance(args[0], SubModel) else session.engine._roster.holder
            seen.append((what, {holder}, set(session.engine.at_work)))
            return whole(*args)

        return watched

    monkeypatch.setattr(devices, "synchronize", watching("synchronize", devices.synchronize))
    for method in ("capture", "park", "_move", "_evaluate"):
        monkeypatch.setattr(SubModel, method, watching(method, getattr(SubModel, method)))
    pauses = Order(Event.PAUSE, "second", 2), Order(Event.PAUSE, "third", 3)
    orders = at_step("second", 2, Order(Event.SAVE, None, 1), *pauses)

    def on_report(session: Session, report: Report) -> None:
        orders(session, report)
        if isinstance(report, Released) and report.submodel == "first":
            for name in ("second", "third"):
                session.engine.post(Order(Event.RESUME, name))

    session = Session(THREE, RoundRobin(unit="steps", amount=3), on_report)
    session.run()
    assert {what for what, *_ in seen} == {"synchronize", "capture", "park", "_move", "_evaluate"}
    assert [entry for entry in seen if entry[1] != entry[2]] == []
    assert session.engine.at_work == {}
    assert session.hashes() == alone()


@pytest.mark.parametrize("policy", [RoundRobin(), RoundRobin(unit="steps", amount=2), FirstComeFirstServed()], ids=str)
def test_the_time_of_a_step_has_no_placement_first_step_or_evaluation_in_it(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimulatedClock()

    def taking(method: str, seconds: Callable[[SubModel], float]) -> None:
        whole = getattr(SubModel, method)

        def slow(self: SubModel, *args: Any) -> object:
            clock.advance(seconds(self))
            return whole(self, *args)

        monkeypatch.setattr(SubModel, method, slow)

    taking("step", lambda submodel: 1.0 if submodel.steps_done else 500.0)
    taking("_move", lambda submodel: 100.0)
    taking("_evaluate", lambda submodel: 50.0)

    @dataclass(frozen=True)
    class Watching:
        name: ClassVar[str] = "watching"
        summary: ClassVar[str] = "Looks at what the policy sees."

        def decide(self, view: View) -> Decision:
            seen.extend((job.steps_done, job.seconds_per_step) for job in view.jobs)
            return policy.decide(view)

    seen: list[tuple[int, float | None]] = []
    edits = [at_step(name, step, Adjust(name, "priority", 1)) for name in NAMES for step in (1, 2, 4)]
    Session(THREE, Watching(), lambda session, report: [edit(session, report) for edit in edits], clock=clock).run()
    assert {rate for steps, rate in seen if steps > 1} <= {None, 1.0}
    assert {rate for steps, rate in seen if steps < 2} == {None}
    assert (max(steps for steps, _ in seen), 1.0) in seen or isinstance(policy, FirstComeFirstServed)
