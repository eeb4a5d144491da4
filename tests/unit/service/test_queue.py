"""The line, the hybrids and the mode: what each person learns of them, and what nobody does."""

from dataclasses import replace

import pytest
from sqlalchemy import update

from tests.unit.service.kit import ADMIN, ALICE, BOB, OPERATOR, VIEWER, World, sha
from tests.unit.service.queue_kit import ALL, CPU, HER_NEXT, HERS, HIS, HIS_NEXT, HYBRID, training
from unifiednn_core.base.errors import BadInput, Forbidden
from unifiednn_core.service import filtering
from unifiednn_core.service.roles import Actor
from unifiednn_core.service.shared_spec import shared_findings
from unifiednn_core.spec.pooling import Pooling
from unifiednn_core.spec.run import parse_run
from unifiednn_core.store.schema import AttemptRow, SubModelRow


@pytest.fixture
def server(here: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """One CPU, as the supervisor sees it."""
    monkeypatch.setattr(here.service._supervisor, "_devices", lambda: (CPU,))
    for hybrid, _ in here.store.hybrids.listed():  # the device is free
        here.store.hybrids.update(hybrid.id, heartbeat_at_s=None)
    training(here)
    return here


def told(here: World, actor: Actor) -> str:
    """Everything about runs, line and devices that a person can get."""
    service = here.of(actor)
    views = service.runs.runs()
    parts = [views, service.queue.line(), service.devices.device_choices(), service.runs.trained()]
    parts += [service.devices.cards()]
    for view in views:
        parts += [service.runs.observe(view.run_id), service.runs.graph_dot(view.run_id)]
        parts += [service.runs.document(view.run_id), service.runs.metrics_csv(view.run_id)]
        parts += [service.comparisons.comparable(view.run_id)]
    return repr(parts)


def test_the_line_is_one_and_everybody_knows_their_place_in_it(server: World) -> None:
    whole = server.of(OPERATOR).queue.line()
    assert [(entry.place, entry.run_id, entry.owner) for entry in whole] == [
        (1, HIS_NEXT.run_id, BOB.id),
        (2, HER_NEXT.run_id, ALICE.id),
    ]
    [hers] = server.of(ALICE).queue.line()
    assert (hers.place, hers.run_id, hers.submodels) == (2, HER_NEXT.run_id, ("resnet",))
    assert hers.waits_for and hers.owner == ""
    assert [entry.place for entry in server.of(VIEWER).queue.line()] == [1, 2]
    seen = server.of(ALICE).runs.observe(HER_NEXT.run_id)
    assert (seen.queue_position, seen.shared) == (2, True)


def test_estimates_count_what_is_left_before_somebody(server: World) -> None:
    """A step takes 1 s in all of them: 25 s are left of the two that train, and each of the others takes 20 s."""
    first, second = server.of(OPERATOR).queue.line()
    assert first.starts_in_s is not None and 15.0 <= first.starts_in_s.likely_s <= 26.0
    assert second.ends_in_s is not None and second.ends_in_s.likely_s <= 66.0
    assert server.of(ALICE).runs.observe(HERS.run_id).ends_in_s is not None
    with server.store._database.write() as session:
        session.execute(
            update(SubModelRow).where(SubModelRow.run_id == HIS.run_id).values(service_s=0.0, memory_key="")
        )
    server.service._line.forget()
    assert all(entry.starts_in_s is None for entry in server.of(OPERATOR).queue.line()), "nobody knows its seconds"


@pytest.mark.parametrize(("who", "others"), [(ALICE, (HIS, HIS_NEXT, BOB)), (BOB, (HERS, HER_NEXT, ALICE))])
def test_nobody_learns_who_shares(
    server: World, who: Actor, others: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cause = f"The worker process 7 died. Its log is hybrids/{HYBRID}/worker.log in the home folder."
    server.store.workers.lose(HYBRID, cause, "Resume it.", died_at=f"{HIS.run_id}/{HIS.name}:5:step")
    assert server.store.workers.restart(HYBRID)
    secrets = {HYBRID, "84711", "84712", "90909" if who is ALICE else "80808"}
    for one in others:
        secrets |= {one.id, one.name} if isinstance(one, Actor) else {one.run_id, one.name, sha(one.name)}  # type: ignore[attr-defined]
    text = told(server, who)
    assert not [secret for secret in secrets if secret in text]
    own = next(one for one in ALL if one.owner == who.id)
    assert own.run_id in text and own.name in text and "weights" in text, "its own figures are there"
    monkeypatch.setattr(filtering, "_without_company", lambda view: view)
    assert [secret for secret in secrets if secret in told(server, who)], "the attack would be noticed"


def test_operators_see_the_hybrid_with_everyone_in_it(server: World) -> None:
    service = server.of(OPERATOR).queue
    [one] = service.hybrids()
    assert (one.hybrid_id, one.device, one.shared, one.policy) == (HYBRID, "cpu", True, "fair")
    assert (one.memory_bytes, one.peak_memory_bytes) == (84711, 84712)
    assert [(part.run_id, part.name, part.owner, part.steps_done) for part in one.members] == [
        (HERS.run_id, "lenet", ALICE.id, 5),
        (HIS.run_id, "secretnet", BOB.id, 10),
    ]
    assert [part.holds_device for part in one.members] == [False, True]
    figures = service.hybrid(HYBRID)
    [turn] = figures.view.schedule
    assert (turn.submodel, turn.start_s, turn.end_s) == ("lenet", 1.0, 6.0)
    assert turn.reason == "lenet has had less than secretnet." and one.now_reason == "secretnet has waited longest."
    assert figures.view.memory.y == (84711.0,) and figures.view.breakdown.total_bytes == (84711.0,)
    assert {layer.submodel for layer in figures.view.breakdown.layers} >= {"lenet", "secretnet"}


def test_an_operator_reads_plain_names_of_the_run_that_is_shown(server: World) -> None:
    [turn] = server.of(OPERATOR).runs.observe(HERS.run_id).schedule
    assert turn.reason == f"lenet has had less than {HIS.run_id}/secretnet."
    view = server.of(OPERATOR).runs.observe(HIS.run_id)
    assert view.now_reason == f"secretnet has waited longer than {HERS.run_id}/lenet."
    listed = {one.run_id: one for one in server.of(OPERATOR).runs.runs()}
    assert listed[HIS.run_id].now_reason == view.now_reason and listed[HIS.run_id].device == "cpu"
    assert server.of(BOB).runs.observe(HIS.run_id).now_reason == "It is the turn of secretnet."


def test_a_run_remembers_where_it_trained_and_says_if_kinds_differ(server: World) -> None:
    view = server.of(ALICE).runs.observe(HERS.run_id)
    assert [(stay.submodel, stay.device, stay.kind) for stay in view.stays] == [("lenet", "cpu", CPU.kind)]
    assert (view.device, view.kinds) == ("cpu", ())
    with server.store._database.write() as session:
        who = {"run_id": HERS.run_id, "submodel": "lenet", "hybrid_id": HYBRID, "attempt": 2}
        session.add(AttemptRow(**who, from_step=5, at_s=2000.0, device="cuda:0", device_kind="H200"))
    view = server.of(ALICE).runs.observe(HERS.run_id)
    assert view.kinds == (CPU.kind, "H200") and view.device == "cuda:0"


def test_the_mode_is_the_operators_and_the_log_says_who_set_it(server: World) -> None:
    service = server.of(OPERATOR).queue
    assert service.pooling() == Pooling()
    service.set_pooling(service.pooling().changed(mode="gathered", gather_n=3, policy={"name": "sjf"}))
    found = service.pooling()
    assert (found.mode, found.gather_n, found.gather_s, found.hybrid.policy.name) == ("gathered", 3, 60.0, "sjf")
    with pytest.raises(BadInput, match="unknown"):
        service.set_pooling(found.changed(policy={"name": "unknown"}))
    with pytest.raises(BadInput, match="gather_n"):
        found.changed(gather_n=0)
    with pytest.raises(Forbidden):
        server.of(ALICE).queue.set_pooling(Pooling(mode="private"))
    assert service.pooling() == found
    lines = [(one.person, one.subject, one.outcome) for one in server.of(ADMIN).people.audit()]
    assert (OPERATOR.id, "gathered", "allowed") in lines and (ALICE.id, "private", "forbidden") in lines


PART = {"name": "net", "model": "m.pt2", "train_data": "d.npz"}


def test_a_shared_submission_cannot_set_what_belongs_to_the_hybrid() -> None:
    asked = {
        "policy": {"name": "sjf"},
        "lanes": 2,
        "checkpoint": {"every_s": 5},
        "recovery": "ask",
        "step_limit_s": 5,
        "memory_limit_bytes": 2**30,
        "threads": 1023,
    }
    plain = {"hybrid": "shared", "device": "cpu", "submodels": [PART]}
    assert shared_findings(parse_run(plain), ALICE) == ()
    on_gpu = {**plain, "device": "cuda:0", "threads": 1023}
    assert shared_findings(parse_run(on_gpu), ALICE) == (), "there CPU threads decide no bit"
    for field, value in asked.items():
        found = shared_findings(parse_run({**plain, field: value}), OPERATOR)
        assert [one.field for one in found] == [field] and found[0].remedy, field
        assert shared_findings(parse_run({**plain, field: value, "hybrid": "private"}), OPERATOR) == ()
    all_found = shared_findings(parse_run({**plain, **asked}), ALICE)
    assert {one.field for one in all_found} == set(asked)
    first = parse_run({**plain, "submodels": [{**PART, "priority": -5}]})
    assert [one.field for one in shared_findings(first, ALICE)] == ["submodels.net.priority"]
    assert shared_findings(first, replace(OPERATOR)) == (), "an operator decides between people"


def test_an_operator_moves_what_waits_and_the_log_says_so(server: World) -> None:
    service = server.of(OPERATOR).queue
    assert [entry.run_id for entry in service.line()] == [HIS_NEXT.run_id, HER_NEXT.run_id]
    assert service.move(HER_NEXT.run_id, 1) == 1
    assert [(entry.place, entry.run_id) for entry in service.line()] == [(1, HER_NEXT.run_id), (2, HIS_NEXT.run_id)]
    assert server.of(ALICE).runs.observe(HER_NEXT.run_id).queue_position == 1
    waiting = server.service._line.now().fleet.view.waiting
    assert min(waiting, key=lambda entry: entry.order).run_id == HER_NEXT.run_id, "placement sees the same order"
    noted = server.store.people.audit_log(1)[0]
    assert (noted.action, noted.subject, noted.person) == ("move", f"{HER_NEXT.run_id} to place 1", OPERATOR.id)
    with pytest.raises(Forbidden):
        server.of(ALICE).queue.move(HER_NEXT.run_id, 1)
    with pytest.raises(BadInput, match="does not wait"):
        service.move(HERS.run_id, 1)
