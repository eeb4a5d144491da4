"""Every route and every command in a terminal, tried as each role, as nobody, and by tokens that count no longer."""

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click.testing
import httpx
import pytest
import typer.testing
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.clock import SimulatedClock
from tests.unit.service.kit import (
    ADMIN,
    ALICE,
    BOB,
    HERS,
    HIS,
    LOCAL_OPERATOR,
    NOWHERE,
    OPERATOR,
    SHARED,
    VIEWER,
    World,
    sha,
    world,
)
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home
from unifiednn_core.cli import main as cli
from unifiednn_core.service.gate import Settings
from unifiednn_core.service.people import Tokens
from unifiednn_core.service.roles import Actor
from unifiednn_core.web.action import ROOT
from unifiednn_core.web.guard import middleware
from unifiednn_core.web.routes import CHARTS, PLOTLY, routes

UPLOAD = "/files/uploads/{upload}"
# Status for a viewer, a submitter who has a part, an operator; by method, address, and what fills it in.
SHARED_RUN: dict[tuple[str, str], tuple[int, int, int]] = {
    ("GET", "/files/models/{run}/{submodel}"): (403, 200, 200),
    ("GET", "/files/models/{run}"): (403, 200, 200),
    ("GET", "/files/tensorboard/{run}.zip"): (403, 200, 200),
    ("GET", "/files/checkpoints/{run}/{submodel}"): (403, 200, 200),
    ("GET", "/files/runs/{run}.json"): (403, 200, 200),
    ("GET", "/files/specs/{run}.json"): (403, 200, 200),
    ("GET", "/files/metrics/{run}.csv"): (403, 200, 200),
    ("GET", "/files/logs/{run}.txt"): (403, 200, 200),
    ("GET", "/files/comparisons/{run}.json"): (403, 403, 200),
    ("GET", "/files/reports/{run}.html"): (403, 403, 200),
}
SELECTIONS = tuple(f"/files/selections.{kind}" for kind in ("json", "csv", "html"))
UPLOADS: dict[tuple[str, str], tuple[int, int, int]] = {
    ("POST", "/files/uploads"): (403, 201, 201),
    ("GET", UPLOAD): (403, 404, 404),
    ("PATCH", UPLOAD): (403, 404, 404),
    ("DELETE", UPLOAD): (403, 404, 404),
    ("POST", f"{UPLOAD}/finish"): (403, 404, 404),
}


@dataclass
class Web:
    """The routes over a home where people have to sign in."""

    world: World
    client: TestClient
    tokens: dict[str, str] = field(default_factory=dict)

    def token(self, actor: Actor, days: float = 1) -> str:
        return self.world.of(ADMIN).people.create_token(actor.id, actor.role, days)

    def ask(self, by: Actor | str | None, method: str, path: str, **filled: str) -> httpx.Response:
        """What an actor, or whoever has this token, or nobody, is answered."""
        if isinstance(by, Actor):
            by = self.tokens.setdefault(by.id, self.token(by))
        address = path.format(run=SHARED, submodel="alpha", upload="0" * 32) if not filled else path.format(**filled)
        content = b'{"filename": "a.pt", "size_bytes": 3}' if path == "/files/uploads" else b"123"
        headers = {"Upload-Offset": "0"} | ({} if by is None else {"Authorization": f"Bearer {by}"})
        return self.client.request(method, address, content=content if method != "GET" else None, headers=headers)


@pytest.fixture
def web(home: Home) -> Iterator[Web]:
    made = world(home, Clock(), Settings(login=True))  # type: ignore[arg-type]  # its time is that of tokens
    app = Starlette(
        routes=routes(lambda asked: made.gate.admit(asked.headers, asked.cookies), lambda: made.service),
        middleware=middleware(lambda: False),
    )
    yield Web(made, TestClient(app, base_url="http://localhost"))
    made.service.close()


def test_the_table_of_routes_is_whole() -> None:
    there = {
        (method, route.path) for route in routes(lambda asked: None, lambda: None) for method in route.methods or ()
    }  # type: ignore[arg-type,return-value]
    of_api = {(method, path) for method, path in there if path.startswith(ROOT)}  # tests/integration/test_rest.py
    assert there - of_api - {("HEAD", path) for _, path in there} == set(SHARED_RUN | UPLOADS) | {
        ("GET", path) for path in (PLOTLY, CHARTS, "/metrics", "/health", *SELECTIONS)
    }


def test_each_role_is_answered_as_the_table_says_and_nobody_at_all(web: Web) -> None:
    for (method, path), statuses in (SHARED_RUN | UPLOADS).items():
        answers = [web.ask(actor, method, path) for actor in (VIEWER, ALICE, OPERATOR)]
        assert tuple(answer.status_code for answer in answers) == statuses, (method, path, answers[1].text)
        nobody = web.ask(None, method, path)
        assert nobody.status_code == 401 and "alpha" not in nobody.text, (method, path)
        for answer in (*answers, nobody):
            assert answer.status_code in (200, 201) or json.loads(answer.text)["findings"][0]["remedy"]


def test_all_models_of_a_run_are_those_that_a_person_may_have(web: Web) -> None:
    for actor, names in ((ALICE, ["alpha.zip"]), (OPERATOR, ["alpha.zip", "bravo.zip"])):
        answer = web.ask(actor, "GET", "/files/models/{run}")
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            assert archive.namelist() == names and archive.testzip() is None
            assert archive.read("alpha.zip") == b"zip of alpha"
        events = web.ask(actor, "GET", "/files/tensorboard/{run}.zip")
        with zipfile.ZipFile(io.BytesIO(events.content)) as archive:
            assert [Path(name).parts[1] for name in archive.namelist()] == [name.removesuffix(".zip") for name in names]


def test_a_selection_of_runs_is_only_for_who_may_see_them_all(web: Web) -> None:
    for path in SELECTIONS:
        asked = f"{path}?runs={{run}},{HERS}"
        statuses = [web.ask(actor, "GET", asked, run=HIS).status_code for actor in (None, VIEWER, ALICE, OPERATOR)]
        assert statuses == [401, 403, 404, 200], path


def test_a_foreign_run_is_answered_as_one_that_there_is_not(web: Web) -> None:
    for method, path in SHARED_RUN:
        answers = [web.ask(ALICE, method, path, run=run, submodel="bravo") for run in (HIS, NOWHERE)]
        assert [answer.status_code for answer in answers] == [404, 404], path
        assert answers[0].text.replace(HIS, NOWHERE) == answers[1].text
        assert {k: v for k, v in answers[0].headers.items() if k != "content-length"} == {
            k: v for k, v in answers[1].headers.items() if k != "content-length"
        }
    for path in ("/files/models/{run}/{submodel}", "/files/checkpoints/{run}/{submodel}"):
        parts = [web.ask(ALICE, "GET", path, run=SHARED, submodel=name) for name in ("bravo", "zulu")]
        assert [part.status_code for part in parts] == [404, 404]
        assert parts[0].text.replace("bravo", "zulu") == parts[1].text
        assert web.ask(BOB, "GET", path, run=SHARED, submodel="bravo").status_code == 200
    for path in ("/files/runs/{run}.json", "/files/specs/{run}.json"):
        told = web.ask(ALICE, "GET", path, run=SHARED).text
        assert "alpha" in told and not any(word in told for word in ("bravo", BOB.id, sha("bravo-model"), OPERATOR.id))


def test_where_files_stand_on_the_server_is_told_to_nobody_who_is_not_there(web: Web) -> None:
    for actor in (ALICE, OPERATOR):
        for path in ("/files/runs/{run}.json", "/files/comparisons/{run}.json"):
            told = web.ask(actor, "GET", path, run=HERS)
            assert told.status_code == 200 and "/srv/" not in told.text
    assert "/srv/home/alpha.pt2" in json.dumps(web.world.of(LOCAL_OPERATOR).runs.document(HERS))


def test_a_foreign_upload_is_answered_as_one_that_there_is_not(web: Web) -> None:
    his = web.ask(BOB, "POST", "/files/uploads").json()["upload_id"]
    for method, path in UPLOADS:
        if path == "/files/uploads":
            continue
        answers = [web.ask(ALICE, method, path, upload=one) for one in (his, "0" * 32)]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert answers[0].text == answers[1].text
    assert web.ask(BOB, "GET", UPLOAD, upload=his).json()["offset_bytes"] == 0
    assert web.ask(BOB, "PATCH", UPLOAD, upload=his).status_code == 204


def test_a_token_that_counts_no_longer_opens_nothing(web: Web) -> None:
    past = SimulatedClock(Clock().utc_s() - 2 * 86_400)
    expired = Tokens(web.world.store.people, past).create(ALICE.id, ALICE.role, 1, "test")  # type: ignore[arg-type]
    revoked, of_nobody = web.token(ALICE), web.token(BOB)
    web.world.of(ADMIN).people.revoke_token(revoked.split("_")[1])
    web.world.of(ADMIN).people.give_role(BOB.id, "none")
    for method, path in SHARED_RUN | UPLOADS:
        for token, why in ((expired, "expired"), (revoked, "revoked"), (of_nobody, "has no role"), ("unn_x_y", "")):
            answer = web.ask(token, method, path)
            assert answer.status_code == 401 and why in answer.text, (method, path, token)


def test_what_a_cookie_asks_for_says_where_it_comes_from(web: Web) -> None:
    """A cookie travels with what other sites cause, a token does not; who is known by neither is refused later."""
    body, cookie = '{"filename": "a.pt", "size_bytes": 3}', {"Cookie": "_streamlit_user=x"}
    local = TestClient(
        Starlette(routes=routes(lambda asked: web.world.of(ALICE), lambda: web.world.service)),  # type: ignore[arg-type,return-value]
        base_url="http://localhost",
    )
    said = [{}, {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}]
    assert [local.post("/files/uploads", content=body, headers=cookie | one).status_code for one in said] == [403] * 4
    own = [{"Origin": "http://localhost"}, {"Sec-Fetch-Site": "same-origin"}, {"Authorization": "Bearer x"}]
    assert [local.post("/files/uploads", content=body, headers=cookie | one).status_code for one in own] == [201] * 3


def test_the_terminal_acts_as_the_person_of_its_token(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNIFIEDNN_HOME", str(web.world.home.root))
    runner = typer.testing.CliRunner()

    def typed(*words: str, token: str | None = None) -> click.testing.Result:
        return runner.invoke(cli.app, list(words), env={"UNIFIEDNN_TOKEN": token})

    made = [typed("token", "create", "--for", actor.id, "--role", actor.role) for actor in (ALICE, VIEWER)]
    assert [one.exit_code for one in made] == [0, 0]
    hers, vera = (one.stdout.strip() for one in made)
    everything = {view["run_id"]: view for view in json.loads(typed("runs", "--json").stdout)}
    seen = {view["run_id"]: view for view in json.loads(typed("runs", "--json", token=hers).stdout)}
    assert set(everything) == {SHARED, HERS, HIS} and set(seen) == {SHARED, HERS}
    assert typed("download", SHARED, "alpha", "--to", str(tmp_path), token=hers).exit_code == 0
    assert [path.read_text() for path in tmp_path.glob("*.zip")] == ["zip of alpha"]
    for words in (("download", SHARED, "bravo"), ("download", HIS, "bravo"), ("pause", HIS), ("stop", SHARED, "bravo")):
        refused = typed(*words, token=hers)
        assert refused.exit_code == 2 and "not found" in refused.output.lower(), words
    for words in (
        ("audit",),
        ("token", "list"),
        ("people", "list"),
        ("people", "give", ALICE.id, "--role", "admin"),
        ("people", "give", ALICE.id, "--tickets", "9"),
        ("people", "sharing", "everyone"),
        ("pause", SHARED),
        ("edit", SHARED, "alpha", "--priority", "1"),
    ):
        refused = typed(*words, token=hers)
        assert refused.exit_code == 2 and "not allowed" in refused.output.lower() and "bravo" not in refused.output, (
            words
        )
    assert "not allowed" in typed("download", SHARED, "alpha", "--to", str(tmp_path), token=vera).output.lower()
    assert typed("people", "give", BOB.id, "--team", "Red").stdout == (
        f"{BOB.id}: as the identity provider says, team red\n"
    )
    assert typed("people", "give", BOB.id, "--tickets", "3").stdout == (
        f"{BOB.id}: as the identity provider says, team red, 3 tickets\n"
    )
    assert typed("people", "give", BOB.id).exit_code == 2
    assert typed("people", "sharing", "own").stdout.startswith("own: ")
    assert json.loads(typed("people", "sharing", "--json").stdout)["changed_by"] == "local operator"
    assert "own, team, everyone" in typed("people", "sharing", "friends").output
    assert typed("token", "revoke", hers.split("_")[1]).exit_code == 0
    for wrong in (hers, "", "unn_x_y"):
        refused = typed("runs", token=wrong)
        assert refused.exit_code == 2 and "not signed in" in refused.output.lower()
    lines = json.loads(typed("audit", "--json", "--last", "100").stdout)
    assert [line["outcome"] for line in lines if (line["person"], line["action"]) == (ALICE.id, "give_role")] == [
        "forbidden"
    ]
    assert {"create_token", "revoke_token"} <= {line["action"] for line in lines if line["person"] == "local operator"}
