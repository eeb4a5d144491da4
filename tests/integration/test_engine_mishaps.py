"""Errors that meet orders, or somebody else's turn: each ends the one that it belongs to, and nothing else."""

import pytest
import torch
from torch import Tensor, nn

from tests.integration import kit
from tests.integration.kit import CLASSES, Session, submodel_spec
from tests.integration.three import ALONE, THREE, at_step
from unifiednn_core.lifecycle import Event
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.spec import CheckpointSpec
from unifiednn_core.training import device as devices
from unifiednn_core.training.events import Captured, Obeyed
from unifiednn_core.training.orders import Order
from unifiednn_core.training.submodel import SubModel


def break_method(monkeypatch: pytest.MonkeyPatch, method: str, name: str) -> None:
    """Let a method of one sub-model raise, as a device does that has no room for it."""
    whole = getattr(SubModel, method)

    def broken(self: SubModel) -> object:
        if self.name == name:
            raise RuntimeError(f"no room to {method}")
        return whole(self)

    monkeypatch.setattr(SubModel, method, broken)


@pytest.mark.parametrize("event", [Event.PAUSE, Event.SAVE])
def test_who_cannot_be_captured_in_its_turn_fails_and_the_run_is_kept_all_the_same(
    event: Event, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    break_method(monkeypatch, "capture", "second")
    order = at_step("second", 2, Order(event, None, 7))
    session = Session(THREE, RoundRobin(unit="steps", amount=3), order).run()
    assert session.ended["second"].event is Event.FAIL
    assert Obeyed(7, 5) in session.reports
    assert "first" in session.checkpoints
    if event is Event.PAUSE:
        assert set(session.ended) == {"second"}, "the others wait for the next engine"
    else:
        assert {name: session.hashes()[name] for name in ("first", "third")} == {
            name: ALONE[name] for name in ("first", "third")
        }
    assert "no room to capture" in capfd.readouterr().err


def test_who_cannot_be_put_aside_fails_and_not_the_one_whose_turn_it_is(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    break_method(monkeypatch, "park", "second")
    pause = at_step("first", 4, Order(Event.PAUSE, "second", 7))
    session = Session(THREE, RoundRobin(unit="steps", amount=3), pause).run()
    assert session.ended["second"].event is Event.FAIL
    assert {name: session.hashes()[name] for name in ("first", "third")} == {
        name: ALONE[name] for name in ("first", "third")
    }
    assert "no room to park" in capfd.readouterr().err


def test_an_error_that_leaves_the_device_unusable_is_told_to_the_process(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Some CUDA errors stay: only a new process can train the others."""
    monkeypatch.setattr(devices, "is_healthy", lambda device: False)
    session = Session(THREE, RoundRobin(unit="steps", amount=3), checkpoint=CheckpointSpec(every_steps=1))
    session.hybrid.part("second").module.register_forward_pre_hook(lambda *_: 1 / 0)
    session.run()
    assert session.engine.device_lost is not None
    assert session.engine.device_lost[:2] == ("second", "ZeroDivisionError: division by zero")
    assert session.ended == {}
    after = Session([THREE[0], THREE[2]], FirstComeFirstServed(), restored=session.checkpoints).run()
    assert after.hashes() == {name: ALONE[name] for name in ("first", "third")}
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
