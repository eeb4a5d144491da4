from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
import torch

from tests.integration.kit import Session, submodel, submodel_spec, vanilla
from tests.integration.three import NAMES, POLICIES, THREE, alone, at_step, losses_alone
from unifiednn_core.engine import checkpoint_file
from unifiednn_core.engine.events import Answered, Captured, Ended, Granted, Released, Report, Stepped
from unifiednn_core.engine.orders import Adjust, Join, Order, Reorder, SetPolicy
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.priority import Priority
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.spec.run import CheckpointSpec, Hyperparameters


def trace(session: Session, *, without: str) -> list[tuple[str, int]]:
    """Turns of the others: who, and for how many steps."""
    return [(r.submodel, r.steps) for r in session.reports if isinstance(r, Released) and r.submodel != without]


@pytest.mark.parametrize("policy", [p for p in POLICIES if "seconds" not in str(p) and "time" not in str(p)], ids=str)
def test_a_pause_in_the_middle_of_an_epoch_changes_no_bits_and_no_turns_of_others(policy: Policy) -> None:
    pause = at_step("first", 2, Order(Event.PAUSE, "first", 1))

    def on_report(session: Session, report: Report) -> None:
        pause(session, report)
        if len(session.ended.keys() - {"first"}) == 2 and (
            isinstance(report, Ended) or (isinstance(report, Answered) and report.id == 1)
        ):
            session.engine.post(Order(Event.RESUME, "first", 2))

    session = Session(THREE, policy, on_report).run()
    assert session.hashes() == alone()
    answers = [report.id for report in session.reports if isinstance(report, Answered)]
    if len(answers) == 2:  # under some policies it is the last that is left
        held = next(i for i, report in enumerate(session.reports) if isinstance(report, Answered))
        between = [report for report in session.reports[held:] if isinstance(report, Stepped)]
        others_left = sum(report.submodel != "first" for report in between)
        assert all(report.submodel != "first" for report in between[:others_left])
    assert len(session.losses("first")) == 15
    others = Session([(network, spec) for network, spec in THREE if spec.name != "first"], policy).run()
    assert _joined(trace(session, without="first")) == _joined(trace(others, without="first"))


def _joined(turns: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Turns, with consecutive ones of the same sub-model joined."""
    return [(name, sum(steps for _, steps in group)) for name, group in groupby(turns, key=lambda turn: turn[0])]


@pytest.mark.parametrize("policy", [RoundRobin(), RoundRobin(unit="steps", amount=4), Priority()], ids=str)
def test_orders_for_others_leave_a_turn_as_it_is(policy: Policy) -> None:
    undisturbed = trace(Session(THREE, policy).run(), without="")
    edit = at_step(
        "second", 2, Adjust("third", "priority", 1, 1), Order(Event.SAVE, None, 2), Order(Event.SAVE, "first", 3)
    )
    assert trace(Session(THREE, policy, edit).run(), without="") == undisturbed


def test_a_paused_run_is_left_with_everything_captured_and_goes_on_in_the_next_engine() -> None:
    pause = at_step("second", 2, Order(Event.PAUSE, None, 5))
    before = Session(THREE, RoundRobin(unit="steps", amount=3), pause).run()
    assert not before.ended
    assert before.reports[-2] == Answered(5, None)
    after = Session(THREE, RoundRobin(unit="steps", amount=3), restored=before.checkpoints).run()
    assert after.hashes() == alone()
    for name in NAMES:
        assert before.losses(name) + after.losses(name) == losses_alone(name)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_from_any_capture_on_training_goes_on_with_the_same_bits(policy: Policy) -> None:
    """Also from captures in the middle of a turn."""
    session = Session(THREE, policy, checkpoint=CheckpointSpec(every_steps=4)).run()
    captured = [report.checkpoint for report in session.reports if isinstance(report, Captured)]
    assert {checkpoint.submodel for checkpoint in captured} == set(NAMES)
    for checkpoint in captured:
        name = checkpoint.submodel
        [network] = [(network, spec) for network, spec in THREE if spec.name == name]
        again = Session([network], FirstComeFirstServed(), restored={name: checkpoint}).run()
        assert again.hashes() == alone(name)
        assert again.losses(name) == losses_alone(name)[checkpoint.step :]
        assert again.epochs(name) == session.epochs(name)[checkpoint.epoch :]


def test_a_checkpoint_at_the_limit_of_epochs_is_as_small_as_an_early_one_and_goes_on(tmp_path: Path) -> None:
    [most] = [one.le for one in Hyperparameters.model_fields["epochs"].metadata if hasattr(one, "le")]
    stopping = {"metric": "train_loss", "patience": most}
    whole, later = (submodel("mlp", submodel_spec("x", epochs=most, early_stopping=stopping)) for _ in range(2))
    train_an_epoch(whole)
    first_bytes = checkpoint_file.write(whole.capture(), tmp_path / "first")
    progress, asked, per_epoch = whole._progress, whole.spec.hyperparameters.early_stopping, whole.steps_done
    assert progress.last is not None
    for epoch in (*range(2, 1000), most - 1):
        progress.steps_done = epoch * per_epoch
        progress.close_epoch(replace(progress.last, epoch=epoch, step=progress.steps_done), asked)
    last_bytes = checkpoint_file.write(whole.capture(), tmp_path / "last")
    assert abs(last_bytes - first_bytes) < 100, "a few digits more"
    later.restore(checkpoint_file.read(tmp_path / "last"))
    for one in (whole, later):
        assert not one.finished
        train_an_epoch(one)
        assert one.finished and one.last is not None and one.last.epoch == most
    assert later.last == whole.last
    assert state_sha256(later.module.state_dict()) == state_sha256(whole.module.state_dict())


def train_an_epoch(one: SubModel) -> None:
    with one.world():
        for _ in iter(lambda: one.at_epoch_end, True):
            one.step()
        one.end_epoch()


def test_a_capture_is_not_repeated_before_it_is_written_or_without_a_new_step() -> None:
    session = Session(THREE, FirstComeFirstServed(), checkpoint=CheckpointSpec(every_steps=1), keeps=False).run()
    captured = [report.checkpoint.submodel for report in session.reports if isinstance(report, Captured)]
    assert captured == ["first", "second", "third"]


def test_a_sub_model_is_saved_on_request() -> None:
    session = Session(THREE, FirstComeFirstServed(), at_step("first", 7, Order(Event.SAVE, "first", 9))).run()
    [captured] = [report.checkpoint for report in session.reports if isinstance(report, Captured)]
    assert (captured.submodel, captured.step) == ("first", 7)
    assert session.reports[session.reports.index(Answered(9, 7)) - 1] == Captured(captured)


def test_edits_take_effect_at_the_next_step() -> None:
    def on_report(session: Session, report: Report) -> None:
        at_step("first", 2, SetPolicy(Priority(), 1), Adjust("third", "epochs", 3, 2))(session, report)

    session = Session(THREE, FirstComeFirstServed(), on_report).run()
    order = [report.submodel for report in session.reports if isinstance(report, Granted)]
    assert order == ["first", "second", "third", "second", "third", "first"]
    trained = session.hashes()
    assert {name: trained[name] for name in ("first", "second")} == alone("first", "second")
    longer = submodel_spec("third", priority=1, batch_size=16, epochs=3)
    assert session.hashes()["third"] == vanilla("cnn", longer)[0]


def test_fewer_epochs_than_were_begun_are_declined() -> None:
    edit = at_step(
        "first", 7, Adjust("first", "epochs", 1, 1), Adjust("second", "epochs", 1, 2), Adjust("gone", "epochs", 1, 3)
    )
    session = Session(THREE, FirstComeFirstServed(), edit).run()
    answers = {report.id: report.declined for report in session.reports if isinstance(report, Answered)}
    assert answers == {1: "first is in epoch 2 already", 2: None, 3: "gone has ended"}
    assert session.hashes()["first"] == alone()["first"]
    assert session.hashes()["second"] == vanilla("mlp", submodel_spec("second", priority=1, epochs=1))[0]


def test_an_order_can_be_changed() -> None:
    session = Session(THREE, FirstComeFirstServed(), at_step("first", 2, Reorder(("third", "first"), 1))).run()
    order = [report.submodel for report in session.reports if isinstance(report, Granted)]
    assert order == ["first", "third", "first", "second"]
    assert session.hashes() == alone()


def test_one_more_joins_and_no_bits_of_others_change() -> None:
    late = ("lstm", submodel_spec("late", priority=0, seed=11))

    def on_report(session: Session, report: Report) -> None:
        join = Join("late", lambda: session.add(*late), 1)
        at_step("first", 2, join)(session, report)

    session = Session(THREE, Priority(), on_report).run()
    assert session.hashes() == {**alone(), "late": vanilla(*late)[0]}
    assert Answered(1, None) in session.reports


def test_one_that_cannot_join_fails_alone(capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> SubModel:
        torch.rand(3)  # an initialisation draws from the generator of the sub-model that trains
        raise RuntimeError("no such layer")

    session = Session(THREE, RoundRobin(), at_step("first", 2, Join("late", broken, 1))).run()
    assert session.ended["late"].cause == "RuntimeError: no such layer"
    assert {name: session.hashes()[name] for name in NAMES} == alone()
    assert "no such layer" in capfd.readouterr().err


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_ends_its_sub_model_before_it_spoils_the_weights(value: float) -> None:
    session = Session(THREE, RoundRobin(unit="steps", amount=2), checkpoint=CheckpointSpec(every_steps=1))
    part, calls = session.hybrid.submodel("second"), iter(range(100))
    part.module.register_forward_hook(lambda *args: args[2] * value if next(calls) == 4 else None)
    session.run()
    ended = session.ended["second"]
    assert (ended.event, ended.checkpoint) == (Event.FAIL, None)
    assert "at or before step 5" in (ended.cause or "")
    assert "learning rate" in (ended.remedy or "")
    trained = session.hashes()
    assert {name: trained[name] for name in ("first", "third")} == alone("first", "third")
    kept = [r.checkpoint for r in session.reports if isinstance(r, Captured) and r.checkpoint.submodel == "second"]
    assert kept[-1].step == 4
    again = Session([THREE[1]], FirstComeFirstServed(), restored={"second": kept[-1]}).run()
    assert again.hashes()["second"] == alone()["second"]
