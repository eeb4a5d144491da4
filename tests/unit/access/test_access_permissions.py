import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.unit.access.kit import ADMIN, ALICE, EVERYBODY, HERS, HIS, NOWHERE, OPERATOR, SHARED, VIEWER, World, sha
from unifiednn_core.access.guard import Guard
from unifiednn_core.access.permissions import RULES, Own, require_role
from unifiednn_core.access.roles import Role
from unifiednn_core.access.scoped import ScopedService
from unifiednn_core.errors import BadInput, Forbidden, NotFound, UnifiedNNError
from unifiednn_core.service import Service
from unifiednn_core.spec import PolicySpec, SubModelSpec, parse_run

# Of the process that serves people, not of a person.
OF_THE_PROCESS = {"open", "close", "home", "acting_for", "clock", "people_store", "owners", "owners_of"}
OF_ADMINS = {"people", "give_role", "forget_person", "tokens", "create_token", "revoke_token", "ledger"}
PART = SubModelSpec(name="new", model=f"sha256:{sha('alpha-model')}", train_data=f"sha256:{sha('alpha-data')}")

# How each action on a run is called; `name` is a sub-model.
ON_RUNS: dict[str, Callable[[ScopedService, str, str], Any]] = {
    "observe": lambda s, run, name: s.observe(run),
    "graph_dot": lambda s, run, name: s.graph_dot(run),
    "comparable": lambda s, run, name: s.comparable(run),
    "comparison": lambda s, run, name: s.comparison(run),
    "comparison_document": lambda s, run, name: s.comparison_document(run),
    "report": lambda s, run, name: s.report(run),
    "document": lambda s, run, name: s.document(run),
    "spec_document": lambda s, run, name: s.spec_document(run),
    "start_baseline": lambda s, run, name: s.start_baseline(run, "concurrent"),
    "add_submodel": lambda s, run, name: s.add_submodel(run, PART),
    "reorder": lambda s, run, name: s.reorder(run, [name]),
    "set_policy": lambda s, run, name: s.set_policy(run, PolicySpec(name="fcfs")),
    "set_priority": lambda s, run, name: s.set_priority(run, name, 1),
    "set_epochs": lambda s, run, name: s.set_epochs(run, name, 3),
    "pause": lambda s, run, name: s.pause(run, name),
    "resume": lambda s, run, name: s.resume(run, name),
    "save": lambda s, run, name: s.save(run, name),
    "stop": lambda s, run, name: s.stop(run, name),
    "discard": lambda s, run, name: s.discard(run, name),
    "retry": lambda s, run, name: s.retry(run, name),
    "artifact": lambda s, run, name: s.artifact(run, name),
    "checkpoint": lambda s, run, name: s.checkpoint(run, name),
    "download": lambda s, run, name: s.download(run, name, Path("/nowhere")),
    "download_checkpoint": lambda s, run, name: s.download_checkpoint(run, name, Path("/nowhere")),
}
OF_PARTS = {"pause", "resume", "save", "stop", "discard"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def refusal(call: Callable[[], Any]) -> UnifiedNNError | None:
    """What is raised because of who asks; None where it gets as far as the service."""
    try:
        call()
    except (Forbidden, NotFound) as error:
        return error
    except UnifiedNNError:
        return None
    return None


def test_every_method_of_the_service_has_a_rule_and_is_wrapped() -> None:
    assert public(Service) - OF_THE_PROCESS == set(RULES) - OF_ADMINS
    assert public(ScopedService) == set(RULES), "and nothing is there beside the table"
    for name in public(Service) - OF_THE_PROCESS:
        inner, outer = inspect.getattr_static(Service, name), inspect.getattr_static(ScopedService, name)
        if not isinstance(inner, property):
            assert list(inspect.signature(inner).parameters) == list(inspect.signature(outer).parameters), name


class Asked(Exception):
    """A method asked for its rule."""


def test_every_method_asks_for_its_own_rule_before_anything_else(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def may(guard: Guard, action: str, *about: object, **more: object) -> Iterator[Service]:
        raise Asked(action)
        yield guard._service

    monkeypatch.setattr(Guard, "_may", may)
    service = here.of(EVERYBODY[-1])
    for name in RULES:
        with pytest.raises(Asked, match=f"^{name}$"):
            method = getattr(service, name)
            needed = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty]
            called = method(*(1.0 if p.name == "days" else MagicMock() for p in needed))
            if inspect.iscoroutine(called):
                asyncio.run(called)


def test_the_table_of_actions_on_runs_is_whole() -> None:
    takes_run = {name for name in RULES if name not in OF_ADMINS and _takes_run(name)}
    assert takes_run == set(ON_RUNS)
    assert {name for name in RULES if RULES[name].own is not Own.ANYTHING} == takes_run | {"runs"}


def _takes_run(name: str) -> bool:
    method = inspect.getattr_static(ScopedService, name)
    return not isinstance(method, property) and "run_id" in inspect.signature(method).parameters


@pytest.mark.parametrize("role", Role)
def test_a_role_may_what_the_table_says_and_nothing_more(here: World, role: Role) -> None:
    [actor, *_] = [actor for actor in EVERYBODY if actor.role is role]
    for action, rule in RULES.items():
        if role.rank < rule.least.rank:
            with pytest.raises(Forbidden, match=f"has the role {role}, and this takes the role {rule.least}"):
                require_role(actor, action)
        else:
            assert require_role(actor, action) is rule
    for action, call in ON_RUNS.items():
        error = refusal(lambda call=call: call(here.of(replace(actor, here=True)), NOWHERE, "alpha"))
        expected = Forbidden if role.rank < RULES[action].least.rank else NotFound
        assert type(error) is expected, f"{action} as {role}: {error!r}"


def test_viewers_see_all_runs_and_get_no_file(here: World) -> None:
    service = here.of(VIEWER)
    assert {view.run_id for view in service.runs()} == {SHARED, HERS, HIS}
    view = service.observe(SHARED)
    assert [part.name for part in view.submodels] == ["alpha", "bravo"]
    assert not any(part.artifact or part.checkpoint_step or part.actions for part in view.submodels)
    assert "sha256:" not in repr(view)
    for call in (service.files, service.trained, lambda: service.artifact(SHARED, "alpha"),
                 lambda: service.checkpoint(SHARED, "alpha"), lambda: service.report(SHARED)):  # fmt: skip
        with pytest.raises(Forbidden):
            call()


@pytest.mark.parametrize("action", sorted(ON_RUNS))
def test_what_is_somebody_elses_does_not_exist(here: World, action: str) -> None:
    service, call = here.of(ALICE), ON_RUNS[action]
    foreign = refusal(lambda: call(service, HIS, "bravo"))
    nowhere = refusal(lambda: call(service, NOWHERE, "bravo"))
    assert type(foreign) is type(nowhere) is NotFound
    assert str(foreign).replace(HIS, NOWHERE) == str(nowhere)
    if RULES[action].own is Own.PART:
        other = refusal(lambda: call(service, SHARED, "bravo"))
        missing = refusal(lambda: call(service, SHARED, "zulu"))
        assert type(other) is type(missing) is NotFound
        assert str(other).replace("bravo", "zulu") == str(missing)


@pytest.mark.parametrize("action", sorted(ON_RUNS))
def test_what_is_ones_own_can_be_asked_for(here: World, action: str) -> None:
    error = refusal(lambda: ON_RUNS[action](here.of(ALICE), HERS, "alpha"))
    if action in ("download", "download_checkpoint"):
        assert "terminal" in str(error), "who signs in has no folders on the server"
    else:
        assert error is None, repr(error)
    lines = [(line.person, line.subject) for line in here.of(ADMIN).ledger() if line.action == action]
    assert bool(lines) == RULES[action].told, "what changes anything and what is downloaded is in the ledger"
    assert all(person == ALICE.id and subject.startswith(HERS) for person, subject in lines)


@pytest.mark.parametrize("action", sorted(set(ON_RUNS) - {"download", "download_checkpoint"}))
def test_of_a_shared_run_a_submitter_steers_his_own_part_alone(here: World, action: str) -> None:
    service, rule = here.of(ALICE), RULES[action]
    error = refusal(lambda: ON_RUNS[action](service, SHARED, "alpha"))
    if rule.own is Own.RUN:
        assert type(error) is Forbidden
        assert "bravo" not in str(error) and "bob" not in str(error)
    else:
        assert error is None, repr(error)
    if action in OF_PARTS:
        with pytest.raises(Forbidden):
            getattr(service, action)(SHARED)


@pytest.mark.parametrize("actor", [OPERATOR, EVERYBODY[-1]], ids=lambda actor: actor.name)
def test_operators_act_on_what_is_anybodys(here: World, actor: Any) -> None:
    service = here.of(actor)
    assert {view.run_id for view in service.runs()} == {SHARED, HERS, HIS}
    assert {file.filename for file in service.files()} == {
        f"{n}-{k}.pt" for n in ("alpha", "bravo") for k in ("model", "data")
    }
    assert service.artifact(HIS, "bravo").read_text() == "zip of bravo"
    service.pause(SHARED, "bravo")


def test_only_an_operator_says_whose_a_sub_model_is(here: World) -> None:
    spec = parse_run({"submodels": [PART.model_dump(exclude_none=True) | {"owner": "bob@example.org"}]})
    with pytest.raises(BadInput) as raised:
        here.of(ALICE).submit(spec)
    assert [finding.field for finding in raised.value.findings] == ["submodels.new.owner"]


def test_a_person_who_signs_in_names_no_path_of_the_server(here: World) -> None:
    spec = parse_run({"submodels": [PART.model_dump(exclude_none=True) | {"model": "/etc/passwd"}]})
    for actor in (ALICE, OPERATOR):
        for call in (here.of(actor).check, here.of(actor).submit):
            with pytest.raises(BadInput, match="Paths of the server are not read"):
                call(spec)
    with pytest.raises(Forbidden):
        here.of(ALICE).inspect(Path("/etc/passwd"))


def test_uploads_of_others_do_not_exist(here: World) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"abc"

    bobs = here.of(EVERYBODY[2]).begin_upload("his.pt", 3)
    unknown = "0" * 32
    alice = here.of(ALICE)

    def append(upload_id: str) -> object:
        return asyncio.run(alice.append_upload(upload_id, 0, chunks()))

    for call in (alice.upload, alice.finish_upload, alice.drop_upload, append):
        said = [str(refusal(lambda call=call, one=one: call(one))) for one in (bobs.upload_id, unknown)]
        assert said[0] == said[1] and "no such upload" in said[0]
    assert here.of(EVERYBODY[2]).upload(bobs.upload_id).offset_bytes == 0
