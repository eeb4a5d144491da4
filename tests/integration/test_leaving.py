"""A sub-model that is asked to leave its hybrid: what is reported, and what stays of it there."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.kit import ROOM, Session, submodel_spec, vanilla
from tests.integration.three import NAMES, POLICIES, THREE, alone, at_step, losses_alone
from unifiednn_core.base.errors import Diverged
from unifiednn_core.engine import checkpoint_file
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.checkpoint_file import CheckpointStore
from unifiednn_core.engine.events import Answered, Captured, DataChanged, Left, Report, Stepped
from unifiednn_core.engine.graph import graph_document
from unifiednn_core.engine.orders import Adjust, AnyOrder, Join, Order
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.spec.lifecycle import Event

PAUSE = Order(Event.PAUSE, "first", 1)
RELEASE = Order(Event.RELEASE, "first")
ROUND = RoundRobin(unit="steps", amount=2)


def of(session: Session, name: str) -> list[Report]:
    """What was reported of a sub-model, in order."""
    said = [report for report in session.reports if not isinstance(report, Answered)]
    return [r for r in said if (r.checkpoint if isinstance(r, Captured) else r).submodel == name]


def left_at(session: Session, name: str = "first") -> int:
    """Step at which a sub-model left, with its state captured and nothing said of it later."""
    *_, captured, last = of(session, name)
    assert isinstance(captured, Captured)
    assert last == Left(name)
    assert name not in session.hybrid.names
    assert name not in session.engine.footprints()
    assert session.engine._rates.seconds_per_step(name) is None
    return captured.checkpoint.step


def goes_on(session: Session, name: str = "first") -> str | None:
    """Hash of the weights after it went on from its last checkpoint in a hybrid of its own."""
    networks = [(network, spec) for network, spec in THREE if spec.name == name]
    again = Session(networks, FirstComeFirstServed(), restored={name: session.checkpoints[name]}).run()
    assert session.losses(name) + again.losses(name) == losses_alone(name)
    return again.hashes()[name]


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_one_leaves_at_the_next_step_boundary_and_goes_on_elsewhere_with_the_same_bits(
    policy: Policy, lanes: int
) -> None:
    session = Session(THREE, policy, at_step("first", 7, RELEASE), lanes=lanes, **ROOM).run()
    assert left_at(session) == 7
    assert goes_on(session) == alone()["first"]
    assert session.hashes() == alone("second", "third")


@pytest.mark.parametrize(
    ("orders", "steps"),
    [
        pytest.param([at_step("second", 1, RELEASE)], 2, id="while it waits"),
        pytest.param([at_step("first", 3, PAUSE), at_step("third", 3, RELEASE)], 3, id="paused"),
        pytest.param([at_step("first", 3, PAUSE, RELEASE)], 3, id="while it is to pause"),
    ],
)
def test_one_leaves_wherever_it_is(orders: list[Callable[[Session, Report], None]], steps: int) -> None:
    def on_report(session: Session, report: Report) -> None:
        for order in orders:
            order(session, report)

    session = Session(THREE, ROUND, on_report).run()
    captured = [report for report in of(session, "first") if isinstance(report, Captured)]
    assert [report.checkpoint.step for report in captured] == [steps]
    assert of(session, "first")[-1] == Left("first")
    told = [report for report in session.reports if isinstance(report, Answered) or report == Left("first")]
    assert [type(report) for report in told] == ([Left] if steps == 2 else [Answered, Left])
    assert goes_on(session) == alone()["first"]
    assert session.hashes() == alone("second", "third")


def test_one_that_has_not_begun_leaves_nothing_behind() -> None:
    session = Session(THREE, FirstComeFirstServed(), at_step("first", 2, Order(Event.RELEASE, "third"))).run()
    assert of(session, "third") == [Left("third")]
    assert session.hashes() == alone("first", "second")


def test_all_leave_and_the_engine_returns() -> None:
    session = Session(THREE, ROUND, at_step("second", 2, Order(Event.RELEASE))).run()
    assert not session.ended
    assert {report.submodel for report in session.reports if isinstance(report, Left)} == set(NAMES)
    assert not session.data.sets
    assert {"first": goes_on(session), "second": goes_on(session, "second")} == alone("first", "second")


@pytest.mark.parametrize(
    ("order", "event"),
    [(Order(Event.STOP, "first"), Event.HALT), (Order(Event.DISCARD, "first"), Event.HALT)],
    ids=["stopped", "discarded"],
)
def test_an_end_that_comes_first_is_what_is_reported(order: AnyOrder, event: Event) -> None:
    session = Session(THREE, ROUND, at_step("first", 3, RELEASE, order)).run()
    assert session.ended["first"].event is event
    assert Left("first") not in session.reports


def test_one_at_its_last_step_completes() -> None:
    session = Session(THREE, ROUND, at_step("first", 15, RELEASE)).run()
    assert session.hashes() == alone()
    assert Left("first") not in session.reports


def test_one_whose_state_cannot_be_captured_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(THREE, ROUND, at_step("first", 3, RELEASE))

    def capture() -> Checkpoint:
        raise Diverged("first", 3, float("nan"))

    monkeypatch.setattr(session.hybrid.submodel("first"), "capture", capture)
    session.run()
    assert (session.ended["first"].event, session.ended["first"].checkpoint) == (Event.FAIL, None)
    assert "learning rate" in (session.ended["first"].remedy or "")
    assert Left("first") not in session.reports
    assert session.hashes() == alone("second", "third") | {"first": None}


def rejoin(session: Session) -> SubModel:
    """Let the first one in again, where it left."""
    [first] = [spec for _, spec in THREE if spec.name == "first"]
    found = session.add("lstm", first)
    found.restore(session.checkpoints["first"])
    return found


def test_one_joins_again_and_goes_on_with_the_same_bits() -> None:
    def on_report(session: Session, report: Report) -> None:
        at_step("first", 3, RELEASE)(session, report)
        if report == Left("first"):
            session.engine.post(Join("first", lambda: rejoin(session), 1))

    session = Session(THREE, ROUND, on_report).run()
    assert session.hashes() == alone()
    assert session.losses("first") == losses_alone("first")


@pytest.mark.parametrize("captured_step", [0, 3])
def test_one_that_leaves_before_its_first_step_is_captured_unless_its_checkpoint_counts(captured_step: int) -> None:
    def on_report(session: Session, report: Report) -> None:
        at_step("first", 3, RELEASE)(session, report)
        if report == Left("first") and session.reports.count(report) == 1:
            session.engine.post(Join("first", lambda: rejoin(session), 1, captured_step=captured_step))
            session.engine.post(RELEASE)

    session = Session(THREE, ROUND, on_report).run()
    captured = [one for one in session.reports if isinstance(one, Captured) and one.checkpoint.submodel == "first"]
    assert session.reports.count(Left("first")) == 2
    assert [one.checkpoint.step for one in captured] == [3] * (1 if captured_step else 2)


def test_the_data_are_verified_and_forgotten_with_the_last_one_who_uses_them() -> None:
    session = Session(THREE[:1], FirstComeFirstServed(), at_step("first", 3, RELEASE)).run()
    assert not session.data.sets
    both = Session(THREE[:2], ROUND, at_step("first", 3, RELEASE)).run()
    assert both.hashes() == alone("second")


@pytest.mark.parametrize("order", [RELEASE, Order(Event.RELEASE)], ids=["one", "all"])
@pytest.mark.parametrize("at_work", ["first", "third"])
def test_one_whose_data_have_changed_fails_and_so_do_the_others(order: Order, at_work: str) -> None:
    def spoil(session: Session, report: Report) -> None:
        if isinstance(report, Stepped) and (report.submodel, report.step) == (at_work, 3):
            session.data.sets["train"].inputs["inputs"][0] += 1
        at_step(at_work, 3, order)(session, report)

    session = Session(THREE, ROUND, spoil).run()
    assert {name: ended.event for name, ended in session.ended.items()} == dict.fromkeys(NAMES, Event.FAIL)
    assert all("changed in memory" in (ended.cause or "") for ended in session.ended.values())
    assert {r.submodel for r in session.reports if isinstance(r, DataChanged)} == {*NAMES}
    assert not any(isinstance(report, Left) for report in session.reports)


def test_what_happens_to_data_later_is_not_said_of_one_that_left() -> None:
    def spoil(session: Session, report: Report) -> None:
        at_step("first", 3, RELEASE)(session, report)
        if isinstance(report, Stepped) and (report.submodel, report.step) == ("second", 8):
            session.data.sets["train"].inputs["inputs"][0] += 1

    session = Session(THREE[:2], ROUND, spoil).run()
    assert session.ended["second"].event is Event.FAIL
    assert "changed in memory" in (session.ended["second"].cause or "")
    assert of(session, "first")[-1] == Left("first")


def test_a_policy_does_not_choose_one_that_is_about_to_leave() -> None:
    session = Session(THREE, ROUND)
    jobs = session.engine._roster.jobs
    jobs["first"].leaving = True
    assert [job.name for job in session.engine._roster.runnable] == ["second", "third"]


KEYS = ("s20261122-210000-abcd/net", "s20261122-210001-efgh/net")


@pytest.mark.parametrize("lanes", [1, 2])
def test_two_of_one_name_train_together_under_their_keys(lanes: int, tmp_path: Path) -> None:
    networks = [("lstm", submodel_spec("net", epochs=3)), ("mlp", submodel_spec("net"))]
    release = at_step(KEYS[0], 4, Order(Event.RELEASE, KEYS[0]))
    session = Session(networks, ROUND, release, keys=KEYS, lanes=lanes, **ROOM)
    assert [graph["name"] for graph in json.loads(graph_document(session.hybrid))] == list(KEYS)
    session.run()
    assert left_at(session, KEYS[0]) == 4
    assert session.hashes() == {KEYS[1]: vanilla(*networks[1])[0]}
    path = CheckpointStore(tmp_path / "net").put(session.checkpoints[KEYS[0]])
    read = checkpoint_file.read(path)
    assert read.submodel == "net"
    assert not any(key.partition("/")[0].encode() in path.read_bytes() for key in KEYS)
    again = Session(networks[:1], ROUND, restored={KEYS[1]: read}, keys=KEYS[1:]).run()
    assert again.hashes() == {KEYS[1]: vanilla(*networks[0])[0]}


def test_a_person_reads_the_plain_name() -> None:
    edits = at_step(KEYS[0], 6, Adjust(KEYS[0], "epochs", 1, 1), Adjust("s1/gone", "epochs", 1, 2))
    session = Session([THREE[0]], ROUND, edits, keys=KEYS[:1])
    part, calls = session.hybrid.submodel(KEYS[0]), iter(range(100))
    part.module.register_forward_hook(lambda *args: args[2] * float("nan") if next(calls) == 9 else None)
    session.run()
    answers = {report.id: report.declined for report in session.reports if isinstance(report, Answered)}
    assert answers == {1: "net is in epoch 2 already", 2: "gone has ended"}
    assert (session.ended[KEYS[0]].cause or "").startswith("The loss of first is nan")
