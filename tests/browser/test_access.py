"""Two people in one hybrid, and the operator who arranged it, in the browser: what each sees, fetches, and must not."""

import http.client
import json
import re
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Playwright, expect

from tests.browser.house import House, Visitor
from tests.browser.house import opened as house_of_people
from tests.unit.formats import kit
from tests.unit.service.kit import HIS, NOWHERE, add_files, add_run
from tests.waiting import wait_until
from unifiednn_core.base.paths import Home
from unifiednn_core.service.roles import LOCAL_OPERATOR, Actor, Role
from unifiednn_core.spec.lifecycle import ENDED, State

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.timeout(200)]
ALICE, BOB, OTTO = "alice@example.org", "bob@example.org", "otto@example.org"
PARTS = {ALICE: "alpha", BOB: "bravo"}


@pytest.fixture(scope="module")
def house(playwright: Playwright, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    home = Home(tmp_path_factory.mktemp("access") / "home").create()
    groups = {ALICE: "learners", BOB: "learners", OTTO: "staff"}
    with house_of_people(playwright, home, groups, {"learners": "submitter", "staff": "operator"}) as house:
        yield house


@pytest.fixture(scope="module")
def visitors(house: House) -> dict[str, Visitor]:
    return {person: house.sign_in(person) for person in (ALICE, BOB, OTTO)}


@pytest.fixture(scope="module")
def shared(house: House, visitors: dict[str, Visitor]) -> str:
    """A run that the operator arranged of what both had uploaded; both have the same data, under their own names."""
    data, answers = BytesIO(), {}
    for person in PARTS:
        house.acting(LOCAL_OPERATOR).people.give_team(person, "learners")
    numbers = np.random.default_rng(0)
    np.savez(data, inputs=numbers.random((24, 16), dtype=np.float32), targets=np.arange(24) % 3)
    parts = []
    for seed, (person, name) in enumerate(PARTS.items()):
        model = house.keep_model(person, f"net-{name}.pt", kit.file_of(lambda: kit.linear(16, 3), seed))
        answers[person] = visitors[person].send(f"data-{name}.npz", data.getvalue())
        assert [status for status, _ in answers[person]] == [201, 204, 200]
        parts.append(
            {
                "name": name,
                "model": f"sha256:{model}",
                "train_data": f"sha256:{answers[person][-1][1]['sha256']}",
                "hyperparameters": {"epochs": 2, "batch_size": 8, "optimizer": "sgd", "learning_rate": 0.1},
            }
        )
    hers, his = (_alike(answers[person], name) for person, name in PARTS.items())
    assert hers == his, "that somebody else has the same bytes does not show"
    operator = house.acting(Actor(id=OTTO, name="Otto", role=Role.OPERATOR))
    draft = {"name": "together", "device": "cpu", "policy": {"name": "round_robin"}, "submodels": parts}
    visitors[OTTO].open(f"build?draft={operator.library.save_draft(draft)}", "alpha", "bravo")
    visitors[OTTO].page.get_by_role("button", name="Start training").click()
    visitors[OTTO].page.get_by_role("button", name="Start anyway").click(timeout=60_000)  # there are no test data
    visitors[OTTO].page.wait_for_url("**/run?*")
    visitors[OTTO].page.goto("about:blank")  # nobody looks on, which would cost more than the training
    wait_until(lambda: house.service.runs.runs()[0].state in ENDED)
    [run] = house.service.runs.runs()
    assert run.state is State.COMPLETED
    return run.run_id


def _alike(answers: list[tuple[int, dict[str, Any]]], name: str) -> str:
    """What was answered, without what tells two uploads of one person apart."""
    own = [(status, {k: v for k, v in told.items() if k != "upload_id"}) for status, told in answers]
    own[-1][1].pop("created_at_s")
    return json.dumps(own).replace(name, "NAME")


@pytest.mark.parametrize("person", PARTS)
def test_in_one_hybrid_nobody_is_told_of_the_other(
    house: House, visitors: dict[str, Visitor], shared: str, person: str
) -> None:
    me, mine, [other] = visitors[person], PARTS[person], [name for one, name in PARTS.items() if one != person]
    parts = {part.name: part for part in house.service.runs.observe(shared).submodels}
    models = {file.filename: file.sha256 for file in house.service.library.files()}
    foreign = [other, next(one for one in PARTS if one != person).partition("@")[0]]
    foreign += [models[f"net-{other}.json"][:12], parts[other].state_sha256 or "?"]
    me.go("Now", "together", "1 sub-model")
    me.go("together", mine, "1 of 1 sub-models completed")
    for tab, text in {"Values": mine, "Memory": "", "Graph": "", "Spec and command": mine}.items():
        me.page.get_by_role("tab", name=tab, exact=True).click()
        expect(me.page.get_by_role("tabpanel").last).to_contain_text(text)
    me.go("Compare", "no baseline yet")
    me.go("together", "from the work of several people")
    me.go("Library", f"net-{mine}.json", f"data-{mine}.npz", "Download " + mine)
    me.go("Build", "Add the first network")

    for kind in ("models", "checkpoints"):
        own = me.ask("GET", f"files/{kind}/{shared}/{mine}")
        assert own.status == 200
        me.told.append(own.body())
        refused = [me.ask("GET", f"files/{kind}/{shared}/{name}") for name in (other, "zulu")]
        assert [answer.status for answer in refused] == [404, 404]
        assert refused[0].text().replace(other, "zulu") == refused[1].text()
    with zipfile.ZipFile(BytesIO(me.ask("GET", f"files/models/{shared}/{mine}").body())) as archive:
        assert {"spec.json", "metrics.csv", "load.py"} <= set(archive.namelist())
        assert f"data-{mine}.npz" in archive.read("spec.json").decode()
        me.told += [archive.read(name) for name in archive.namelist()]
    for path in (f"runs/{shared}.json", f"specs/{shared}.json"):
        document = me.ask("GET", f"files/{path}")
        assert document.status == 200 and mine in document.text()
        me.told.append(document.body())
    for path in (f"reports/{shared}.html", f"comparisons/{shared}.json"):
        refused = me.ask("GET", f"files/{path}")
        assert refused.status == 403
        me.told.append(refused.body())
    told = b"\n".join(me.told)
    assert mine.encode() in told and shared.encode() in told
    for word in foreign:
        assert word.encode() not in told, re.findall(rb".{80}" + word.encode() + rb".{80}", told, re.DOTALL)[:3]


def test_what_is_somebody_elses_is_nowhere(house: House, visitors: dict[str, Visitor], shared: str) -> None:
    store = house.service.store
    add_files(store, {"bravo": BOB})
    add_run(store, house.server.home, HIS, BOB, {"bravo": BOB})
    store.runs.update(HIS, state="completed", ended_at_s=1000.0)
    begun = visitors[BOB].ask("POST", "files/uploads", data={"filename": "his.npz", "size_bytes": 9})
    upload = begun.json()["upload_id"]
    paths = [f"{kind}/RUN/bravo" for kind in ("models", "checkpoints")]
    paths += ["runs/RUN.json", "specs/RUN.json", "comparisons/RUN.json", "reports/RUN.html"]
    for path in paths:
        refused = [visitors[ALICE].ask("GET", f"files/{path.replace('RUN', run)}") for run in (HIS, NOWHERE)]
        assert [answer.status for answer in refused] == [404, 404], path
        assert refused[0].text().replace(HIS, NOWHERE) == refused[1].text()
    assert visitors[BOB].ask("GET", f"files/models/{HIS}/bravo").text() == "zip of bravo"
    for method, path in (("GET", ""), ("PATCH", ""), ("POST", "/finish"), ("DELETE", "")):
        refused = [
            visitors[ALICE].ask(method, f"files/uploads/{one}{path}", data=b"1", Upload_Offset="0")
            for one in (upload, "0" * 32)
        ]
        assert [answer.status for answer in refused] == [404, 404], method
        assert refused[0].text() == refused[1].text()
    for site in ("http://evil.example", "null"):
        assert visitors[BOB].ask("DELETE", f"files/uploads/{upload}", Origin=site).status == 401
    unsaid = visitors[BOB].context.request.delete(f"{visitors[BOB].url}/files/uploads/{upload}")
    assert unsaid.status == 403, "a cookie alone changes nothing"
    for path, text in {f"run?run={HIS}": f"There is no run '{HIS}'.", "people": "Not for your role"}.items():
        visitors[ALICE].open(path, text)
    assert visitors[BOB].ask("DELETE", f"files/uploads/{upload}").status == 204


def test_nobody_gets_no_further_than_the_door(house: House, visitors: dict[str, Visitor], shared: str) -> None:
    nobody = house.enter()
    nobody.open(f"run?run={shared}", "Sign in to see and control yours.")
    expect(nobody.page.get_by_test_id("stSidebar")).to_have_count(0)
    assert nobody.told and not any(b"together" in told or b"alpha" in told for told in nobody.told)
    paths = [f"models/{shared}/alpha", f"checkpoints/{shared}/alpha", f"uploads/{'0' * 32}"]
    paths += [f"{path}" for path in (f"runs/{shared}.json", f"specs/{shared}.json", f"reports/{shared}.html")]
    cookies = {cookie["name"]: cookie["value"] for cookie in visitors[ALICE].context.cookies()}
    signed = cookies["_streamlit_user"]
    body, _, signature = signed.rpartition(".")
    forged = ["", f"{body}.{signature[::-1]}", "e30", cookies["_streamlit_user_tokens"]]
    for cookie in (None, *forged):
        sent = {} if cookie is None else {"Cookie": f"_streamlit_user={cookie}"}
        assert [nobody.ask("GET", f"files/{path}", **sent).status for path in paths] == [401] * len(paths)
        assert nobody.ask("POST", "files/uploads", data={"filename": "a", "size_bytes": 1}, **sent).status == 401
    assert nobody.ask("GET", f"files/models/{shared}/alpha", Cookie=f"_streamlit_user={signed}").status == 200
    connection = http.client.HTTPConnection("127.0.0.1", house.server.port)
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    upgrade |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Origin": "http://evil.example"}
    connection.request("GET", "/_stcore/stream", headers=upgrade | {"Cookie": f"_streamlit_user={signed}"})
    assert connection.getresponse().status == 403, "a page of another site opens no websocket in somebody's name"
    connection.close()


def test_who_is_shut_out_is_out_at_once_by_cookie_by_token_and_on_the_open_page(
    house: House, visitors: dict[str, Visitor], shared: str
) -> None:
    admin, bob = house.acting(LOCAL_OPERATOR), visitors[BOB]
    token, path = admin.people.create_token(BOB, "submitter", 1), f"files/models/{shared}/bravo"
    bearer = {"Authorization": f"Bearer {token}"}
    assert bob.ask("GET", path).status == house.enter().ask("GET", path, **bearer).status == 200
    bob.go("Now", "together")
    admin.people.give_role(BOB, "none")
    expect(bob.page.get_by_text(f"{BOB} has no role here.")).to_be_visible()
    expect(bob.page.get_by_text("together")).to_have_count(0)
    assert (bob.ask("GET", path).status, house.enter().ask("GET", path, **bearer).status) == (403, 401)
    admin.people.forget_person(BOB)
    assert house.enter().ask("GET", path, **bearer).status == 200
    admin.people.revoke_token(token.split("_")[1])
    assert house.enter().ask("GET", path, **bearer).status == 401
    assert Path(house.server.home.root / "server.log").read_text().count("Traceback") == 0
