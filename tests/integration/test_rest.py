"""The routes of /api/v1 over a real server: equal to the command line, and closed to whoever may not."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from typer.testing import CliRunner

from tests.integration.web_server import WebServer
from tests.unit.service.kit import ADMIN, ALICE, BOB, HERS, HIS, NOWHERE, OPERATOR, SHARED, VIEWER, sha, world
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.cli.main import app
from unifiednn_core.service.facade import Service
from unifiednn_core.service.roles import Actor
from unifiednn_core.web import openapi, rest
from unifiednn_core.web.action import ROOT, Action
from unifiednn_core.web.api_runs import OfSubModel

JSON = {"Content_Type": "application/json"}
SAME = ("runs", "policies", "queue", "devices", "people list", "people sharing", "token list", "doctor", "audit")
"""Commands whose `--json` a GET answers alike."""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """A server where people sign in, over a home with Alice's, Bob's and a common run."""
    home = Home(tmp_path_factory.mktemp("rest") / "home").create()
    made = world(home, Clock())  # type: ignore[arg-type]
    server = WebServer(home, login=True)
    server.tokens = {actor.id: made.of(ADMIN).people.create_token(actor.id, actor.role, 1) for actor in PEOPLE}  # type: ignore[attr-defined]
    made.of(ADMIN).people.give_team(ALICE.id, "one")
    made.service.close()
    server.start()
    yield server
    server.kill()


PEOPLE = (VIEWER, ALICE, BOB, OPERATOR, ADMIN)


def ask(web: WebServer, by: Actor | None, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and document of an answer to a person's token."""
    token = {} if by is None else {"Authorization": f"Bearer {web.tokens[by.id]}"}  # type: ignore[attr-defined]
    sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    told = {**(JSON if sent is not None else {}), **token, **headers}
    status, _, content = web.ask(method, f"{ROOT}{path}", sent, **told)
    return status, json.loads(content)


def filled(action: Action, run: str = SHARED) -> str:
    names = {
        "run": run,
        "submodel": "alpha",
        "name": "cpu",
        "host": "server",
        "person": "bob@example.org",
        "token_id": "0",
        "hook": "0",
    }
    return action.path.format(**{**names, "upload": "0" * 32, "sha256": "0" * 64})


def test_a_get_answers_what_the_command_prints(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIFIEDNN_HOME", str(web.home.root))
    monkeypatch.setenv("UNIFIEDNN_TOKEN", web.tokens[ADMIN.id])  # type: ignore[attr-defined]
    tried = set()
    for action in rest.TABLE:
        if action.method == "GET" and action.command in SAME and action.does is not None:
            printed = CliRunner().invoke(app, [*action.command.split(), "--json"])
            told, answered = json.loads(printed.stdout), ask(web, ADMIN, "GET", action.path)
            assert answered == (200, _without_ages(told, answered[1])), action.path
            tried.add(action.command)
    assert tried == set(SAME)


def _without_ages(told: Any, answered: Any) -> Any:
    """A document, with the ages of another: they grow between two looks."""
    if isinstance(told, dict) and isinstance(answered, dict):
        ages = ("elapsed_s", "heartbeat_age_s", "seen_at_s", "now")
        return {
            name: answered.get(name) if name in ages else _without_ages(one, answered.get(name))
            for name, one in told.items()
        }
    if isinstance(told, list) and isinstance(answered, list) and len(told) == len(answered):
        return [_without_ages(*pair) for pair in zip(told, answered, strict=True)]
    return told


def test_answers_are_as_the_openapi_document_says(web: WebServer) -> None:
    document, tried = openapi.document(), 0
    for action in rest.TABLE:
        if action.method == "GET" and action.does is not None:
            status, answer = ask(web, ADMIN, "GET", filled(action))
            operation = document["paths"][action.address]["get"]
            [kind] = operation["responses"][str(status)]["content"].values()
            schema = {**kind["schema"], "components": document["components"]}
            jsonschema.Draft202012Validator(schema).validate(answer)
            tried += status == 200
    assert tried > 12


def test_each_role_may_what_the_table_says_and_nobody_anything(web: WebServer) -> None:
    for action in rest.TABLE:
        if action.does is None:
            continue
        body = None if action.method in ("GET", "DELETE") else b"{}"
        assert ask(web, None, action.method, filled(action), body)[0] == 401, action
        for actor in (VIEWER, ALICE, OPERATOR):
            if actor.role.rank < action.least.rank:
                status, problem = ask(web, actor, action.method, filled(action, NOWHERE), _least_body(action))
                assert status in (403, 404), (action.method, action.path, actor.role, problem)
                assert problem["status"] == status and problem["findings"][0]["remedy"]


def _least_body(action: Action) -> Any:
    """A body that the table accepts."""
    spec = {
        "submodels": [
            {"name": "a", "model": f"sha256:{sha('alpha-model')}", "train_data": f"sha256:{sha('alpha-data')}"}
        ]
    }
    known = {
        "spec": spec,
        "network": spec,
        "submodel": "alpha",
        "limit_bytes": None,
        "sharing": "own",
        "person": "x",
        "mode": "pooled" if "pooling" in action.path else "concurrent",
        "role": "viewer",
        "policy": "fcfs",
        "priority": 1,
        "place": 1,
        "filename": "x",
        "url": "https://x.example",
    }
    if action.given is None or action.method in ("GET", "DELETE"):
        return None
    return {name: value for name, value in known.items() if name in action.given.model_fields}


def test_work_of_others_is_as_work_that_does_not_exist(web: WebServer) -> None:
    for action in rest.TABLE:
        if "{run}" in action.path and action.does is not None and action.least.rank <= ALICE.role.rank:
            answers = [
                ask(web, ALICE, action.method, filled(action, run), _least_body(action)) for run in (HIS, NOWHERE)
            ]
            assert [status for status, _ in answers] == [404, 404], (action.path, answers)
            assert json.dumps(answers[0][1]).replace(HIS, NOWHERE) == json.dumps(answers[1][1])
    mine = ask(web, ALICE, "GET", "/runs")[1]
    assert {run["run_id"] for run in mine} == {HERS, SHARED}
    assert {run["run_id"] for run in ask(web, OPERATOR, "GET", "/runs")[1]} == {HERS, HIS, SHARED}


def test_pages_of_other_sites_change_nothing(web: WebServer) -> None:
    for headers in (
        {"Origin": "http://evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        status, problem = ask(web, OPERATOR, "POST", "/devices/cpu/drain", {}, **headers)
        assert status == 403 and "another site" in problem["detail"]
    assert ask(web, OPERATOR, "GET", "/devices")[1][0]["state"] == "ready"
    own = {"Origin": f"http://127.0.0.1:{web.port}"}
    assert ask(web, OPERATOR, "POST", "/devices/cpu/drain", {}, **own)[1]["state"] == "draining"
    assert ask(web, OPERATOR, "POST", "/devices/cpu/ready", {})[1]["state"] == "ready"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"\xff", {}, 400),
        (b'{"submodel": "a", "submodel": "b"}', {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'"text"', {}, 422),
        (b'{"other": 1}', {}, 422),
        (b'{"submodel": 7}', {}, 422),
        (b'{"submodel": "alpha"}', {"Content_Type": "text/plain"}, 415),
        (b'{"submodel": "alpha"}', {"Content_Type": ""}, 415),
        (b" " * (rest.LONGEST_BODY_BYTES + 1), {}, 413),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_finding(web: WebServer, body: bytes, headers: Any, status: int) -> None:
    answered, problem = ask(web, ALICE, "POST", f"/runs/{HERS}/pause", body, **headers)
    assert answered == status == problem["status"]
    [found] = problem["findings"]
    assert found["field"] and found["message"] and found["remedy"]


def test_a_device_of_another_host_has_a_slash_in_its_name(web: WebServer) -> None:
    for name in ("gpu-7/cuda:0", "gpu-7%2Fcuda:0"):
        status, problem = ask(web, OPERATOR, "POST", f"/devices/{name}/drain", {})
        assert status == 404 and "There is no device 'gpu-7/cuda:0'" in json.dumps(problem)


def test_a_state_that_does_not_allow_it_is_a_conflict(web: WebServer) -> None:
    status, problem = ask(web, ALICE, "POST", f"/runs/{HERS}/retry", {"submodel": "alpha"})
    assert status == 409 and "does not allow 'retry'" in problem["findings"][0]["message"]


def test_commands_arrive(web: WebServer) -> None:
    assert ask(web, ALICE, "PATCH", f"/runs/{HERS}/submodels/alpha", {"priority": 3}) == (
        200,
        {"run_id": HERS, "submodel": "alpha", "status": "running"},
    )
    assert ask(web, BOB, "POST", f"/runs/{HIS}/pause", {})[1] == {"run_id": HIS, "status": "pausing"}
    status, problem = ask(web, ALICE, "PATCH", f"/runs/{HERS}", {})
    assert status == 422 and "policy" in problem["findings"][0]["remedy"]


def test_nobody_names_paths_of_the_server(web: WebServer) -> None:
    spec = {"submodels": [{"name": "a", "model": "/etc/passwd", "train_data": "/etc/passwd"}]}
    for actor in (ALICE, OPERATOR, ADMIN):
        status, problem = ask(web, actor, "POST", "/runs", {"spec": spec})
        assert status == 422 and "cannot name paths" in problem["findings"][0]["message"]
    told = json.dumps(ask(web, ADMIN, "GET", f"/runs/{HERS}"))
    assert "/srv/home" not in told


def test_a_token_is_made_and_revoked(web: WebServer) -> None:
    made = ask(web, ADMIN, "POST", "/tokens", {"person": "x@example.org", "role": "viewer", "days": 1})
    assert made[0] == 201
    headers = {"Authorization": f"Bearer {made[1]['token']}"}
    assert web.ask("GET", f"{ROOT}/runs", **headers)[0] == 200
    assert ask(web, ADMIN, "DELETE", f"/tokens/{made[1]['token'].split('_')[1]}")[0] == 200
    assert web.ask("GET", f"{ROOT}/runs", **headers)[0] == 401


def test_a_person_is_given_and_loses_a_role(web: WebServer) -> None:
    path = "/people/eve@example.org"
    assert ask(web, ADMIN, "PATCH", path, {"role": "operator", "team": "two"})[1][0]["team"] == "two"
    assert ask(web, ADMIN, "DELETE", f"{path}/role")[1][0]["role"] == ""
    assert ask(web, ADMIN, "PATCH", path, {"role": "king"})[0] == 422


def test_a_request_with_a_key_is_carried_out_once(tmp_path: Path) -> None:
    made = world(Home(tmp_path / "home").create(), Clock())  # type: ignore[arg-type]
    done: list[str] = []

    def submit(service: Service, given: OfSubModel) -> dict[str, object]:
        if given.submodel is None:
            raise BadInput.of("Spec", "spec", "It is wrong.", "Correct it.")
        done.append(given.submodel)
        return {"run_id": f"r-{len(done)}"}

    row = Action(
        method="POST", path="/try", about="", calls=("submit",), does=submit, given=OfSubModel, status=201, once=True
    )
    client = TestClient(Starlette(routes=rest.routes(lambda asked: made.of(ALICE), [row])))

    def answer(key: str, submodel: str | None) -> tuple[int, object]:
        told = client.post(f"{ROOT}/try", json={"submodel": submodel}, headers={"Idempotency-Key": key})
        return told.status_code, told.json().get("run_id")

    with ThreadPoolExecutor(4) as several:
        answers = list(several.map(lambda _: answer("night-1", "a"), range(8)))
    assert done == ["a"] and set(answers) <= {(201, "r-1"), (409, None)}
    assert answer("night-1", "a") == (201, "r-1") and done == ["a"]
    assert answer("night-1", "b")[0] == 422, "the key of another request"
    assert answer("night-2", None)[0] == 422
    assert answer("night-2", "b") == (201, "r-2"), "a refused request does not use up its key"
    assert [answer(key, "c")[0] for key in ("", "k" * 201)] == [422, 422]
    made.service.close()


def test_the_pages_of_the_routes_are_served_to_everybody(web: WebServer) -> None:
    status, headers, content = web.ask("GET", ROOT)
    assert status == 200 and headers["Content-Type"].startswith("text/html") and b"<script" not in content
    status, _, content = web.ask("GET", f"{ROOT}/openapi.json")
    assert status == 200 and json.loads(content) == json.loads(json.dumps(openapi.document()))


def test_a_slow_body_holds_up_nobody(web: WebServer) -> None:
    slow = web.connection()
    slow.putrequest("POST", f"{ROOT}/runs/{HERS}/pause")
    for name, value in (("Content-Length", "100"), ("Content-Type", "application/json")):
        slow.putheader(name, value)
    slow.putheader("Authorization", f"Bearer {web.tokens[ALICE.id]}")  # type: ignore[attr-defined]
    slow.endheaders(b"{")
    done = threading.Event()
    asking = threading.Thread(target=lambda: (ask(web, ALICE, "GET", "/policies"), done.set()))
    asking.start()
    asking.join(30)
    slow.close()
    assert done.is_set()
