import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.unit.service.kit import ADMIN, ALICE, EVERYBODY, HERS, HIS, NOWHERE, OPERATOR, SHARED, VIEWER, World, sha
from unifiednn_core.base.errors import BadInput, Forbidden, NotFound, UnifiedNNError
from unifiednn_core.service.comparisons import ComparisonService
from unifiednn_core.service.devices import DeviceService
from unifiednn_core.service.exports import ExportService
from unifiednn_core.service.facade import PERMISSIONS, Service
from unifiednn_core.service.forecasts import RunChange
from unifiednn_core.service.library import LibraryService
from unifiednn_core.service.logs import LogService
from unifiednn_core.service.monitoring import MonitoringService
from unifiednn_core.service.notifications import NotificationService
from unifiednn_core.service.people import PeopleService
from unifiednn_core.service.permissions import Guard, Own, Permission, permissions_of
from unifiednn_core.service.queue import QueueService
from unifiednn_core.service.retention import RetentionService
from unifiednn_core.service.roles import Role
from unifiednn_core.service.runs import RunService
from unifiednn_core.spec.run import PolicySpec, SubModelSpec, parse_run

KINDS = {
    "runs": RunService,
    "library": LibraryService,
    "comparisons": ComparisonService,
    "people": PeopleService,
    "devices": DeviceService,
    "queue": QueueService,
    "notifications": NotificationService,
    "monitoring": MonitoringService,
    "logs": LogService,
    "exports": ExportService,
    "retention": RetentionService,
}
PART = SubModelSpec(name="new", model=f"sha256:{sha('alpha-model')}", train_data=f"sha256:{sha('alpha-data')}")

# How each action on a run is called; `name` is a sub-model.
ON_RUNS: dict[str, Callable[[Service, str, str], Any]] = {
    "observe": lambda s, run, name: s.runs.observe(run),
    "graph_dot": lambda s, run, name: s.runs.graph_dot(run),
    "why_no_baseline": lambda s, run, name: s.comparisons.why_no_baseline(run),
    "comparable": lambda s, run, name: s.comparisons.comparable(run),
    "comparison": lambda s, run, name: s.comparisons.comparison(run),
    "comparison_document": lambda s, run, name: s.comparisons.comparison_document(run),
    "report": lambda s, run, name: s.comparisons.report(run),
    "document": lambda s, run, name: s.runs.document(run),
    "metrics_csv": lambda s, run, name: s.runs.metrics_csv(run),
    "spec_document": lambda s, run, name: s.runs.spec_document(run),
    "worker_log": lambda s, run, name: s.logs.worker_log(run),
    "log_text": lambda s, run, name: s.logs.log_text(run),
    "start_baseline": lambda s, run, name: s.comparisons.start_baseline(run, "concurrent"),
    "add_submodel": lambda s, run, name: s.runs.add_submodel(run, PART),
    "reorder": lambda s, run, name: s.runs.reorder(run, [name]),
    "set_policy": lambda s, run, name: s.runs.set_policy(run, PolicySpec(name="fcfs")),
    "forecast_change": lambda s, run, name: s.runs.forecast_change(run, RunChange()),
    "set_moves": lambda s, run, name: s.runs.set_moves(run, "any"),
    "set_priority": lambda s, run, name: s.runs.set_priority(run, name, 1),
    "set_devices": lambda s, run, name: s.runs.set_devices(run, name, 2),
    "set_deadline": lambda s, run, name: s.runs.set_deadline(run, name, 9.0),
    "set_epochs": lambda s, run, name: s.runs.set_epochs(run, name, 3),
    "pause": lambda s, run, name: s.runs.pause(run, name),
    "resume": lambda s, run, name: s.runs.resume(run, name),
    "save": lambda s, run, name: s.runs.save(run, name),
    "stop": lambda s, run, name: s.runs.stop(run, name),
    "discard": lambda s, run, name: s.runs.discard(run, name),
    "retry": lambda s, run, name: s.runs.retry(run, name),
    "finished": lambda s, run, name: s.runs.finished(run),
    "export": lambda s, run, name: s.exports.export(run, "tensorboard", "/nowhere"),
    "tensorboard_zip": lambda s, run, name: s.exports.tensorboard_zip(run),
    "deletion": lambda s, run, name: s.runs.deletion(run),
    "delete_run": lambda s, run, name: s.runs.delete_run(run),
    "lineage": lambda s, run, name: s.library.lineage(run, name),
    "take": lambda s, run, name: s.library.take(run, name, "model"),
    "artifact": lambda s, run, name: s.runs.artifact(run, name),
    "clone_run": lambda s, run, name: s.library.clone_run(run, name),
    "checkpoint": lambda s, run, name: s.runs.checkpoint(run, name),
    "download": lambda s, run, name: s.runs.download(run, name, Path("/nowhere")),
    "see": lambda s, run, name: s.queue.see(run),
    "download_checkpoint": lambda s, run, name: s.runs.download_checkpoint(run, name, Path("/nowhere")),
}
GRANTED: dict[tuple[Role, Own, bool], str] = {
    (Role.VIEWER, Own.ANYTHING, False): (
        "architecture_defaults architectures cards compared ends figures line listing policies require_figures "
        "run_choices seen side_by_side"
    ),
    (Role.VIEWER, Own.RUN, False): "comparison",
    (Role.VIEWER, Own.SHARE, False): "comparable current graph_dot observe runs see why_no_baseline",
    (Role.SUBMITTER, Own.ANYTHING, False): (
        "append_upload check checked delete device_choices document_in draft drafts file_uses files files_used_by "
        "finish_draft forecast inspect kept quota run_of_draft save_draft server_files shelf trained upload"
    ),
    (Role.SUBMITTER, Own.ANYTHING, True): (
        "begin_upload delete_draft delete_file drop_upload finish_upload import_file prepare_samples rename_file "
        "side_by_side_csv side_by_side_document side_by_side_report split_data submit submit_arm"
    ),
    (Role.SUBMITTER, Own.PART, False): "lineage",
    (Role.SUBMITTER, Own.PART, True): (
        "artifact checkpoint clone_run discard download download_checkpoint pause resume retry save set_epochs "
        "stop take"
    ),
    (Role.SUBMITTER, Own.RUN, False): "deletion forecast_change",
    (Role.SUBMITTER, Own.RUN, True): (
        "add_submodel comparison_document delete_run reorder report set_deadline set_devices set_moves set_policy "
        "set_priority start_baseline"
    ),
    (Role.SUBMITTER, Own.SHARE, False): "finished worker_log",
    (Role.SUBMITTER, Own.SHARE, True): "document export log_text metrics_csv spec_document tensorboard_zip",
    (Role.OPERATOR, Own.ANYTHING, False): "cluster devices hybrid hybrids pooling",
    (Role.OPERATOR, Own.ANYTHING, True): ("drain_device import_server_file limit_device move ready_device set_pooling"),
    (Role.ADMIN, Own.ANYTHING, False): (
        "audit audit_lines audited_names default_quota disk_use doctor health owned people planned protections "
        "retention sharing tokens webhooks"
    ),
    (Role.ADMIN, Own.ANYTHING, True): (
        "add_webhook apply_retention audit_csv create_token forget_person give_role give_team give_tickets "
        "remove_webhook revoke_token set_quota set_retention set_sharing test_webhook"
    ),
}
"""Who may do what: the least role, whose runs it is about, whether the audit log hears of it; a table of its own."""
HERE = {"download", "download_checkpoint", "export"}
OF_PARTS = {"pause", "resume", "save", "stop", "discard"}


def refusal(call: Callable[[], Any]) -> UnifiedNNError | None:
    """What is raised because of who asks; None where it gets as far as the service."""
    try:
        call()
    except (Forbidden, NotFound) as error:
        return error
    except UnifiedNNError:
        return None
    return None


@pytest.mark.parametrize("kind", KINDS.values())
def test_every_public_method_declares_its_permission(kind: type) -> None:
    public = {name for name in vars(kind) if not name.startswith("_")}
    assert public == set(permissions_of(kind))


def test_no_action_has_two_permissions() -> None:
    assert len(PERMISSIONS) == sum(len(permissions_of(kind)) for kind in KINDS.values())


def test_permissions_are_those_of_the_table() -> None:
    expected = {name: granted for granted, names in GRANTED.items() for name in names.split()}
    assert {name: (rule.least, rule.own, rule.audited) for name, rule in PERMISSIONS.items()} == expected
    assert {name for name, rule in PERMISSIONS.items() if rule.here} == HERE | {"inspect"}


class Asked(Exception):
    """A method asked for its permission."""


def test_every_method_asks_for_permission_before_anything_else(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(guard: Guard, rule: Permission, action: str, *about: object) -> None:
        raise Asked(action)

    monkeypatch.setattr(Guard, "allowing", refuse)
    for part, kind in KINDS.items():
        for name in permissions_of(kind):
            method = getattr(getattr(here.of(EVERYBODY[-1]), part), name)
            needed = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty]
            with pytest.raises(Asked, match=f"^{name}$"):
                method(*(MagicMock() for _ in needed))


def test_the_table_of_actions_on_runs_is_whole() -> None:
    takes_run = {
        name
        for kind in KINDS.values()
        for name in permissions_of(kind)
        if "run_id" in inspect.signature(getattr(kind, name)).parameters
    }
    assert takes_run == set(ON_RUNS)
    assert {name for name in PERMISSIONS if PERMISSIONS[name].own is not Own.ANYTHING} == takes_run | {
        "runs",
        "current",
    }


@pytest.mark.parametrize("role", Role)
def test_a_role_may_what_the_table_says_and_nothing_more(here: World, role: Role) -> None:
    [actor, *_] = [actor for actor in EVERYBODY if actor.role is role]
    guard = here.of(actor).runs.guard
    for rule in PERMISSIONS.values():
        if role.rank < rule.least.rank:
            with pytest.raises(Forbidden, match=f"has the role {role}; this needs the role {rule.least}"):
                guard.require_role(rule)
        else:
            guard.require_role(rule)
    for action, call in ON_RUNS.items():
        error = refusal(lambda call=call: call(here.of(replace(actor, here=True)), NOWHERE, "alpha"))
        expected = Forbidden if role.rank < PERMISSIONS[action].least.rank else NotFound
        assert type(error) is expected, f"{action} as {role}: {error!r}"


def test_viewers_see_all_runs_and_get_no_file(here: World) -> None:
    service = here.of(VIEWER)
    assert {view.run_id for view in service.runs.runs()} == {SHARED, HERS, HIS}
    view = service.runs.observe(SHARED)
    assert [part.name for part in view.submodels] == ["alpha", "bravo"]
    assert not any(part.artifact or part.checkpoint_step or part.actions for part in view.submodels)
    assert "sha256:" not in repr(view)
    for call in (
        service.library.files,
        service.runs.trained,
        lambda: service.runs.artifact(SHARED, "alpha"),
        lambda: service.runs.checkpoint(SHARED, "alpha"),
        lambda: service.comparisons.report(SHARED),
    ):
        with pytest.raises(Forbidden):
            call()


@pytest.mark.parametrize("action", sorted(ON_RUNS))
def test_runs_and_files_of_other_owners_are_not_found(here: World, action: str) -> None:
    service, call = here.of(ALICE), ON_RUNS[action]
    foreign = refusal(lambda: call(service, HIS, "bravo"))
    nowhere = refusal(lambda: call(service, NOWHERE, "bravo"))
    assert type(foreign) is type(nowhere) is NotFound
    assert str(foreign).replace(HIS, NOWHERE) == str(nowhere)
    if PERMISSIONS[action].own is Own.PART:
        other = refusal(lambda: call(service, SHARED, "bravo"))
        missing = refusal(lambda: call(service, SHARED, "zulu"))
        assert type(other) is type(missing) is NotFound
        assert str(other).replace("bravo", "zulu") == str(missing)


@pytest.mark.parametrize("action", sorted(ON_RUNS))
def test_what_is_ones_own_can_be_asked_for(here: World, action: str) -> None:
    error = refusal(lambda: ON_RUNS[action](here.of(ALICE), HERS, "alpha"))
    if action in HERE:
        assert "terminal" in str(error), "who signs in has no folders on the server"
    else:
        assert error is None, repr(error)
    lines = [(line.person, line.subject) for line in here.of(ADMIN).people.audit() if line.action == action]
    assert bool(lines) == PERMISSIONS[action].audited, (
        "what changes anything and what is downloaded is in the audit log"
    )
    assert all(person == ALICE.id and subject.startswith(HERS) for person, subject in lines)


@pytest.mark.parametrize("action", sorted(set(ON_RUNS) - HERE))
def test_of_a_shared_run_a_submitter_steers_his_own_part_alone(here: World, action: str) -> None:
    service, rule = here.of(ALICE), PERMISSIONS[action]
    error = refusal(lambda: ON_RUNS[action](service, SHARED, "alpha"))
    if rule.own is Own.RUN:
        assert type(error) is Forbidden
        assert "bravo" not in str(error) and "bob" not in str(error)
    else:
        assert error is None, repr(error)
    if action in OF_PARTS:
        with pytest.raises(Forbidden):
            getattr(service.runs, action)(SHARED)


@pytest.mark.parametrize("actor", [OPERATOR, EVERYBODY[-1]], ids=lambda actor: actor.name)
def test_operators_act_on_what_is_anybodys(here: World, actor: Any) -> None:
    service = here.of(actor)
    assert {view.run_id for view in service.runs.runs()} == {SHARED, HERS, HIS}
    assert {file.filename for file in service.library.files()} == {
        f"{n}-{k}.pt" for n in ("alpha", "bravo") for k in ("model", "data")
    }
    assert service.runs.artifact(HIS, "bravo").read_text() == "zip of bravo"
    service.runs.pause(SHARED, "bravo")


def test_only_an_operator_says_whose_a_sub_model_is(here: World) -> None:
    spec = parse_run({"submodels": [PART.model_dump(exclude_none=True) | {"owner": "bob@example.org"}]})
    with pytest.raises(BadInput) as raised:
        here.of(ALICE).runs.submit(spec)
    assert [finding.field for finding in raised.value.findings] == ["submodels.new.owner"]


def test_a_person_who_signs_in_names_no_path_of_the_server(here: World) -> None:
    spec = parse_run({"submodels": [PART.model_dump(exclude_none=True) | {"model": "/etc/passwd"}]})
    for actor in (ALICE, OPERATOR):
        for call in (here.of(actor).runs.check, here.of(actor).runs.submit):
            with pytest.raises(BadInput, match="cannot name paths on the server"):
                call(spec)
    with pytest.raises(Forbidden):
        here.of(ALICE).library.inspect(Path("/etc/passwd"))


def test_uploads_of_others_do_not_exist(here: World) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"abc"

    bobs = here.of(EVERYBODY[2]).library.begin_upload("his.pt", 3)
    unknown = "0" * 32
    alice = here.of(ALICE).library

    def append(upload_id: str) -> object:
        return asyncio.run(alice.append_upload(upload_id, 0, chunks()))

    for call in (alice.upload, alice.finish_upload, alice.drop_upload, append):
        said = [str(refusal(lambda call=call, one=one: call(one))) for one in (bobs.upload_id, unknown)]
        assert said[0] == said[1] and "no such upload" in said[0]
    assert here.of(EVERYBODY[2]).library.upload(bobs.upload_id).offset_bytes == 0
