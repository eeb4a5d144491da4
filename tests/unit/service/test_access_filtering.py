import json
import re
from dataclasses import fields, replace
from typing import Any

import pytest
from sqlalchemy import update

from tests.ui.fake_views import mid_flight
from tests.unit.service.kit import ADMIN, ALICE, BOB, HERS, HIS, NAMES, OPERATOR, SHARED, VIEWER, World, sha
from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.prediction import Prediction, SubModelPrediction
from unifiednn_core.service.filtering import _TOTALS, WITHHELD, as_seen_by, own_run, share_of
from unifiednn_core.service.ownership import RunOwners, filename_for
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run_query import RunQuery
from unifiednn_core.spec.sharing import PERMISSION, SharingRule
from unifiednn_core.store.schema import RunRow
from unifiednn_core.views.graph import graph_dot
from unifiednn_core.views.memory import Mark, MemoryBreakdown, MemoryLayer
from unifiednn_core.views.run_rows import metrics_csv
from unifiednn_core.views.runs import CommandView, EventView, RunView, Series, Slice
from unifiednn_core.web.api_runs import RunChanges, change_run

MINE, OTHERS = frozenset({"resnet"}), ("lenet", "transformer")
OWNERS = RunOwners(OPERATOR.id, {"resnet": ALICE.id, "lenet": BOB.id, "transformer": BOB.id})
MY_FILES = frozenset({f"sha256:{sha('resnet')}"})


def event(submodel: str | None, message: str, code: str = "entered", **more: Any) -> EventView:
    return EventView(**{"at_s": 1.0, "submodel": submodel, "kind": "state", "code": code, "message": message, **more})


def full_view() -> RunView:
    """A run of three in mid-flight, with everything in it that could tell one person of another."""
    view = mid_flight()
    sizes = ("weights", "gradients", "optimizer", "transient", "data", "paper")
    part = {f"{kind}_bytes": 1 for kind in sizes}
    names = [submodel.name for submodel in view.submodels]
    start = {"file": f"sha256:{sha('start')}", "take": "weights"}
    files = {"train_data": f"sha256:{sha('digits')}", "start_from": start}
    parts = [{"name": name, "model": f"sha256:{sha(name)}", **files} for name in names]
    spec = {"name": "demo", "policy": {"name": "round_robin"}, "submodels": parts}
    return replace(
        view,
        spec=spec,
        now_reason="resnet has been in line longest of 3 with lenet.",
        waits_for="memory: other processes hold 5 GiB",
        cause="lenet failed; the results of the others are kept.",
        queue_position=3,
        energy_j=7.0,
        utilisation=Series((1.0,), (0.5,)),
        memory_notes=("transformer is not measured",),
        waiting_commands=(
            CommandView(submodel=None, text="order lenet, resnet, transformer", issued_at_s=1.0),
            CommandView(submodel="lenet", text="pause for lenet", issued_at_s=1.0),
            CommandView(submodel="resnet", text="epochs 3 for resnet", issued_at_s=1.0),
        ),
        events=(
            *view.events,
            event(
                None, "It died.", "worker_lost", kind="recovery", fields={"cause": "The worker died at transformer."}
            ),
            event("resnet", "resnet is running.", state=State.RUNNING),
            event("resnet", "Not lenet.", "refused", kind="refused"),
            event("resnet", "lenet made way for resnet.", "legacy"),
            event("lenet", "lenet is running."),
        ),
        schedule=(
            Slice(submodel="lenet", start_s=0.0, end_s=1.0, steps=1, reason="lenet is the smallest of 3."),
            Slice(submodel="resnet", start_s=1.0, end_s=2.0, steps=1, reason="resnet waited longer than lenet."),
        ),
        marks=(
            Mark(1.0, "switch", "resnet", "resnet takes over from lenet."),
            Mark(1.0, "load", "resnet", "resnet is running."),
            Mark(1.0, "load", "lenet", "lenet is running."),
        ),
        breakdown=MemoryBreakdown(
            at_s=(0.0, 1.0),
            total_bytes=(100.0, 200.0),
            layers=(
                MemoryLayer("context", None, (50.0, 50.0)),
                MemoryLayer("weights", "resnet", (10.0, 20.0)),
                MemoryLayer("gradients", "resnet", (1.0, None)),
                MemoryLayer("weights", "lenet", (30.0, 30.0)),
            ),
            source="PSS",
        ),
        prediction=Prediction(
            peak_bytes=1,
            context_bytes=1,
            paper_bytes=1,
            by_policy={"fcfs": 1},
            submodels=tuple(SubModelPrediction(name=name, measured=True, **part) for name in names),
        ),
    )


def test_nothing_of_the_others_is_left_in_the_view() -> None:
    seen = share_of(full_view(), MINE, MY_FILES)
    text = repr(seen)
    assert "resnet" in text
    for name in OTHERS:
        assert not re.search(name, text), name
        assert sha(name) not in text
    assert [(part.name, part.number, part.arrival) for part in seen.submodels] == [("resnet", 0, 0)]
    assert seen.submodels[0].loss.x, "its curves are there"
    assert [turn.reason for turn in seen.schedule] == ["It is the turn of resnet."]
    assert [mark.kind for mark in seen.marks] == ["load"]
    assert [command.text for command in seen.waiting_commands] == ["epochs 3 for resnet"]
    assert [event.message for event in seen.events if event.at_s == 1.0] == ["resnet is running."]


def test_totals_of_the_whole_are_withheld_and_ones_own_memory_is_shown() -> None:
    seen = share_of(full_view(), MINE, MY_FILES)
    assert (seen.prediction, seen.queue_position, seen.energy_j, seen.cpu_s, seen.peak_memory_bytes) == (None,) * 5
    assert (seen.memory, seen.utilisation, seen.memory_notes, seen.fingerprint) == (Series(), Series(), (), "")
    assert seen.breakdown.total_bytes == (11.0, None)
    assert {layer.submodel for layer in seen.breakdown.layers} == {"resnet"}
    assert seen.actions == frozenset()
    [part] = seen.spec["submodels"]  # type: ignore[misc]
    assert (part["model"], part["train_data"], part["start_from"]["file"]) == (
        f"sha256:{sha('resnet')}",
        WITHHELD,
        WITHHELD,
    )


_UNCHANGED = (
    "run_id name policy policy_text device mode threads created_at_s launched_at_s started_at_s checkpoint_text "
    "recovery shared"
)
_MADE = (
    "state submodels ended_at_s elapsed_s makespan_s cause remedy now_reason waits_for waiting_commands breakdown "
    "marks schedule events spec stays"
)
UNCHANGED, MADE = set(_UNCHANGED.split()), set(_MADE.split())


def test_every_field_of_a_run_is_known_to_the_filter() -> None:
    """A new field of the view must be put on this list, or be withheld."""
    secret = {field.name: object() for field in fields(RunView)}
    known = {name: getattr(full_view(), name) for name in secret.keys() - UNCHANGED - set(_TOTALS)}
    secret["shared"] = False
    view = RunView(**secret | known)  # type: ignore[arg-type]
    seen = share_of(view, MINE, MY_FILES)
    assert {name for name, value in secret.items() if getattr(seen, name) is value} == UNCHANGED
    assert set(known) == MADE


@pytest.mark.parametrize(
    ("mine", "run_state", "shown"),
    [
        (State.COMPLETED, State.RUNNING, State.COMPLETED),
        (State.COMPLETED, State.FAILED, State.COMPLETED),
        (State.FAILED, State.RUNNING, State.FAILED),
        (State.STOPPED, State.COMPLETED, State.STOPPED),
        (State.RUNNING, State.RUNNING, State.RUNNING),
    ],
)
def test_how_others_end_does_not_show(mine: State, run_state: State, shown: State) -> None:
    view = full_view()
    ended = 50.0 if mine is not State.RUNNING else None
    parts = tuple(
        replace(part, state=mine, ended_at_s=ended) if part.name == "resnet" else part for part in view.submodels
    )
    seen = share_of(replace(view, state=run_state, submodels=parts, ended_at_s=99.0, started_at_s=10.0), MINE, MY_FILES)
    assert (seen.state, seen.ended_at_s) == (shown, ended)
    assert ended is None or seen.elapsed_s == 40.0
    assert "lenet" not in f"{seen.cause}"


def test_why_a_run_failed_as_a_whole_is_not_told_by_the_part_that_failed_with_it() -> None:
    view, cause = full_view(), "his-secrets.npz holds no tensors."
    failed = tuple(replace(part, state=State.FAILED, cause=cause, remedy="Look at it.") for part in view.submodels)
    told = (event("resnet", f"resnet is failed. {cause}", fields={"cause": cause}),)
    seen = share_of(replace(view, state=State.FAILED, cause=cause, submodels=failed, events=told), MINE, MY_FILES)
    assert "his-secrets" not in repr(seen) and "Ask an operator" in f"{seen.submodels[0].remedy}"
    own = replace(view.submodels[0], name="resnet", state=State.FAILED, cause="Its loss is infinite.", remedy="Retry.")
    seen = share_of(replace(view, submodels=(own,)), MINE, MY_FILES)
    assert (seen.submodels[0].cause, seen.submodels[0].remedy) == (own.cause, own.remedy)


def test_a_file_is_called_beside_a_model_as_its_owner_calls_it() -> None:
    names = {"alice": "hers.npz", "bob": "his.npz"}
    assert [filename_for(names, who, "otto", sha("d")) for who in ("alice", "bob")] == ["hers.npz", "his.npz"]
    assert filename_for(names, "carol", "otto", sha("d")) == f"{sha('d')[:12]}.npz"
    assert filename_for(names | {"otto": "everybodys.npz"}, "carol", "otto", sha("d")) == "everybodys.npz"


def test_of_ones_own_run_only_other_runs_are_withheld() -> None:
    view = full_view()
    strata = replace(view.breakdown, layers=(*view.breakdown.layers, MemoryLayer("others", None, (7.0, 7.0))))
    seen = own_run(replace(view, breakdown=strata), MY_FILES)
    assert seen.submodels == view.submodels and seen.prediction == view.prediction
    assert (seen.queue_position, seen.waits_for) == (3, view.waits_for), "placement tells of devices only"
    assert seen.breakdown.total_bytes == (91.0, None) and all(layer.kind != "others" for layer in seen.breakdown.layers)


def test_a_run_that_waits_for_an_admin_says_so_and_not_whose_networks_may_not_meet() -> None:
    view = replace(full_view(), waits_for=SharingRule().permission_for(["alice@example.org", "bob@example.org"]))
    for seen in (share_of(view, MINE, MY_FILES), own_run(view, MY_FILES), as_seen_by(VIEWER, view, OWNERS, MY_FILES)):
        assert seen.waits_for == PERMISSION
    assert "bob@example.org" in (as_seen_by(OPERATOR, view, OWNERS, MY_FILES).waits_for or "")
    memory = replace(view, waits_for="memory: 5 GiB")
    assert as_seen_by(VIEWER, memory, OWNERS, MY_FILES).waits_for == memory.waits_for


GRAPH = [
    {"name": "lenet", "labels": ["Conv2d"], "edges": []},
    {"name": "resnet", "labels": ["Linear", 'a "quoted" one'], "edges": [[0, 1]]},
]


def test_the_graph_shows_a_persons_clusters_counted_from_the_first() -> None:
    whole, mine = graph_dot(json.dumps(GRAPH)), graph_dot(json.dumps(GRAPH), {"resnet"})
    assert 'm0_0 [label="Conv2d"]' in whole and "m1_0 -> m1_1;" in whole
    assert graph_dot(json.dumps(GRAPH[1:])) == mine and "lenet" not in mine and "m0_0 -> m0_1;" in mine
    assert graph_dot(json.dumps(GRAPH), {"lenet", "resnet"}) == whole


def test_everything_that_the_service_tells_of_a_shared_run_is_filtered(here: World) -> None:
    here.store.hybrids.update(SHARED, graph=json.dumps(GRAPH).replace("lenet", "bravo").replace("resnet", "alpha"))
    for actor, own, other in ((ALICE, "alpha", "bravo"), (BOB, "bravo", "alpha")):
        service, runs = here.of(actor), here.of(actor).runs
        told = [
            runs.runs(),
            runs.current(),
            runs.observe(SHARED),
            runs.document(SHARED),
            runs.graph_dot(SHARED),
            runs.trained(),
            runs.spec_document(SHARED),
            service.comparisons.comparable(SHARED),
            service.library.files(),
        ]
        for thing in map(repr, told):
            assert own in thing and other not in thing and sha(f"{other}-model") not in thing
            assert NAMES[other] not in thing
        assert {view.run_id for view in service.runs.runs()} == {
            SHARED,
            HERS if own == "alpha" else "20260101-000002-cccc",
        }
        assert service.runs.observe(SHARED).now_reason == (None if own == "alpha" else "It is the turn of bravo.")


def test_whether_a_deadline_will_hold_depends_on_others_and_is_withheld() -> None:
    def shown(deadline: str) -> str | None:
        view = full_view()
        parts = tuple(replace(part, deadline=deadline, due_in_s=9.0) for part in view.submodels)
        [part] = share_of(replace(view, submodels=parts), MINE, MY_FILES).submodels
        assert part.due_in_s == 9.0
        return part.deadline

    assert [shown(word) for word in ("met", "missed", "holds", "late")] == ["met", "missed", None, None]


def test_the_load_of_others_is_withheld_from_the_owner_of_a_run() -> None:
    view = replace(full_view(), others_share=0.37)
    assert own_run(view, MY_FILES).others_share is None
    assert as_seen_by(OPERATOR, view, OWNERS, MY_FILES).others_share == 0.37, "the control: it is there"


def test_downloads_of_a_selection_are_in_the_audit_log_and_safe_in_spreadsheets(here: World) -> None:
    with here.store._database.write() as session:
        session.execute(update(RunRow).where(RunRow.id == HERS).values(name="=1+1"))
    desk = here.of(OPERATOR).comparisons
    desk.side_by_side_csv([HERS, SHARED])
    [line, *_] = here.of(ADMIN).people.audit(1)
    assert line.action == "side_by_side_csv" and HERS in line.subject and SHARED in line.subject
    part = replace(full_view().submodels[0], name="=1+1 · net", loss=Series((1.0,), (0.5,)))
    rows = metrics_csv(replace(full_view(), submodels=(part,))).splitlines()[1:]
    assert rows and all(row.startswith("'=") for row in rows)


def test_a_list_tells_nothing_of_equal_runs_of_others(here: World) -> None:
    with here.store._database.write() as session:
        session.execute(update(RunRow).values(fingerprint="same", ended_at_s=990.0))
    hers, everything = (here.store.run_lists.page(RunQuery(), person).arms["same"] for person in (ALICE.id, None))
    assert hers.split() == [HERS] and set(everything.split()) == {HERS, SHARED, HIS}


def test_a_wrong_change_of_a_run_changes_nothing(here: World) -> None:
    for wrong in ({"policy": "none"}, {"order": ("alpha",)}):
        with pytest.raises(BadInput):
            change_run(here.of(OPERATOR), SHARED, RunChanges(**{"policy": "fcfs", "moves": "any", **wrong}))
    assert here.store.commands.open(SHARED) == []
