"""Cookies, websockets, sign-ins and tokens of attackers, tried against one real server with sign-in."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tests.hostile.signed import COOKIE, SECRET, SignedHouse, signed_house
from tests.unit.service.kit import ADMIN, ALICE, BOB, HERS, HIS, OPERATOR, SHARED, VIEWER, World, world
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home

HER_FILES = tuple(f"/files/{path}" for path in (f"models/{HERS}/alpha", f"runs/{HERS}.json", f"metrics/{HERS}.csv"))
HOUR_S = 3600
DOOR = b"Sign in to see and control yours."


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = world(Home(tmp_path_factory.mktemp("sessions") / "home").create(), Clock())  # type: ignore[arg-type]
    made.of(ADMIN).people.give_role(OPERATOR.id, "operator")
    yield made
    made.service.close()


@pytest.fixture(scope="module")
def house(here: World) -> Iterator[SignedHouse]:
    with signed_house(here.home, {"learners": "submitter", "auditors": "viewer", "staff": "operator"}) as house:
        yield house


def cookie(house: SignedHouse, person: str = ALICE.id, **claims: Any) -> str:
    return house.cookie(person, **{"groups": ["learners"]} | claims)


def statuses(house: SignedHouse, cookie: str | None, **headers: str) -> set[int]:
    return {house.ask("GET", path, cookie, **headers)[0] for path in HER_FILES}


def test_only_a_cookie_that_this_server_signed_a_while_ago_opens_anything(house: SignedHouse) -> None:
    now_s = int(time.time())
    good = cookie(house)
    body, _, signature = good.rpartition(".")
    forged = {
        "none": None,
        "empty": "",
        "noise": "e30",
        "not ASCII": "\xff\xfe" * 20,
        "another signature": f"{body}.{signature[::-1]}",
        "another body": f"{cookie(house, BOB.id).rpartition('.')[0]}.{signature}",
        "another secret": cookie(house, secret=SECRET + "x"),
        "no secret": cookie(house, secret=""),
        "the other cookie's": cookie(house, signed_as=f"{COOKIE}_tokens"),
        "a list of chunks": cookie(house, signed_as=f"{COOKIE}__1"),
        "not signed in": cookie(house, is_logged_in=False),
        "of another site": cookie(house, origin="http://evil.example"),
        "too old": cookie(house, iat=now_s - 13 * HOUR_S),
        "of the future": cookie(house, iat=now_s + 2 * HOUR_S),
        "of no time": cookie(house, iat=None),
        "of a text": cookie(house, iat="now"),
        "of no number": cookie(house, iat=float("nan")),
    }
    for what, value in forged.items():
        assert statuses(house, value) == {401}, what
        sent = {"Content_Type": "application/json", "Sec_Fetch_Site": "same-origin"}
        assert house.ask("POST", "/files/uploads", value, '{"filename": "a", "size_bytes": 1}', **sent)[0] == 401, what
    for value in (None, forged["another signature"], forged["of another site"]):
        told = house.visit(f"run?run={HERS}", value).told
        assert DOOR in told and b"alpha" not in told
    old = house.visit("now", forged["too old"]).told
    assert b"This sign-in has expired" in old and b"alpha" not in old
    assert statuses(house, good) == {200}, "the same paths, with a true cookie"
    assert b"alpha" in house.visit(f"run?run={HERS}", good).told
    unverified = cookie(house, email_verified=False, sub="17", groups=["auditors"])
    assert statuses(house, unverified) == {403}, "an address that was not verified is nobody's"


def test_a_session_is_nobodys_who_only_knows_its_id(house: SignedHouse) -> None:
    signed = cookie(house)
    hers = house.visit("now", signed)
    assert hers.session and b"alpha" in hers.told
    for thief in (None, cookie(house, BOB.id), cookie(house, VIEWER.id, groups=[])):
        stolen = house.visit("now", thief, session=hers.session)
        assert stolen.session != hers.session and b"alpha" not in stolen.told
    fixed = house.visit("now", cookie(house, BOB.id), session="11111111-2222-4333-8444-555555555555")
    assert fixed.session != "11111111-2222-4333-8444-555555555555", "nobody chooses the id of a session"
    assert house.visit("now", signed, session=hers.session).session == hers.session, "she goes on where she was"


def test_pages_of_other_sites_open_no_websocket_and_change_nothing(house: SignedHouse) -> None:
    host, port = house.host, house.server.port
    other = [f"http://{name}:{port + 1}" for name in ("localhost", "127.0.0.1", "0.0.0.0")]
    almost = [
        f"http://localhost:{port}",
        "http://127.0.0.1",
        f"http://{host}@evil.example",
        f"http://{host}.evil.example",
    ]
    foreign = ["http://evil.example", "null", "//", *other, *almost]
    body = '{"filename": "a.pt", "size_bytes": 3}'
    for origin in foreign:
        with pytest.raises(InvalidStatus, match="403"):
            house.visit("now", cookie(house), Origin=origin)
        for signed in (cookie(house), None):
            assert house.ask("POST", "/files/uploads", signed, body, Origin=origin)[0] in (401, 403), origin
            assert house.ask("DELETE", f"/files/uploads/{'0' * 32}", signed, Origin=origin)[0] in (401, 403), origin
    for site in ("cross-site", "same-site"):
        assert house.ask("POST", "/files/uploads", cookie(house), body, Sec_Fetch_Site=site)[0] == 403
    assert house.ask("POST", "/files/uploads", cookie(house), body)[0] == 403, "a cookie alone does not say who asks"
    assert house.ask("POST", "/files/uploads", cookie(house), body, Origin=house.origin)[0] == 201
    for name in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[::1]", ""):
        assert house.ask("GET", HER_FILES[0], cookie(house), Host=name)[0] == 400, (
            "a name that was bound to this address"
        )
        with pytest.raises(InvalidStatus, match=r"400|403"):
            house.visit("now", cookie(house), Host=name, Origin=f"http://{name}")
    headers = house.ask("GET", "/", None, Origin="http://evil.example")[1]
    assert headers["Access-Control-Allow-Origin"] is None and headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_a_sign_in_that_somebody_else_began_is_not_finished(house: SignedHouse) -> None:
    for query in ("code=x&state=y", "code=x", "state=_state_default_y", "error=x&error_description=<script>"):
        status, headers, content = house.ask("GET", f"/oauth2callback?{query}", cookie(house, BOB.id))
        assert status == 302 and headers["Location"] == "/" and b"<script>" not in content
        assert not any(one.startswith(f"{COOKIE}=") for one in headers.get_all("Set-Cookie") or ())
    assert house.ask("GET", "/auth/login?provider=x&next=http://evil.example")[1]["Location"] == "/"


def test_several_sign_ins_of_one_person_end_one_by_one_and_all_at_once_with_the_role(
    house: SignedHouse, here: World
) -> None:
    desk, laptop = (cookie(house, iat=int(time.time()) - ago) for ago in (60, 0))
    status, headers, _ = house.ask("GET", "/auth/logout", desk)
    assert status == 302
    gone = [one for one in headers.get_all("Set-Cookie") or () if one.startswith(f"{COOKIE}=")]
    assert len(gone) == 1 and "Max-Age=0" in gone[0], "this browser forgets it"
    assert statuses(house, laptop) == {200}, "the other stays"
    tags = {path: house.ask("GET", path, laptop)[1] for path in HER_FILES}
    assert all("private" in one["Cache-Control"] and "no-cache" in one["Cache-Control"] for one in tags.values())
    here.of(ADMIN).people.give_role(ALICE.id, "none")
    try:
        for signed in (desk, laptop):
            for path, known in tags.items():
                assert house.ask("GET", path, signed, If_None_Match=known["ETag"])[0] == 403, "not even 'not modified'"
            told = house.visit(f"run?run={HERS}", signed).told
            assert b"has no role here" in told and b"alpha" not in told
    finally:
        here.of(ADMIN).people.forget_person(ALICE.id)
    assert statuses(house, laptop) == {200}


def test_a_token_does_what_its_role_and_the_role_of_its_person_allow(house: SignedHouse, here: World) -> None:
    people = here.of(ADMIN).people
    weak = {"Authorization": f"Bearer {people.create_token(OPERATOR.id, 'viewer', 1)}"}
    strong = {"Authorization": f"Bearer {people.create_token(ALICE.id, 'admin', 1)}"}
    path, spec = f"/files/models/{HIS}/bravo", f"/files/specs/{SHARED}.json"

    def answers(bearer: dict[str, str], cookie: str | None = None) -> list[int]:
        return [house.ask("GET", one, cookie, **bearer)[0] for one in (path, spec)]

    assert answers(weak) == [403, 403], "a token of a viewer, of somebody who is more"
    assert answers(weak, house.cookie(OPERATOR.id)) == [403, 403], "the cookie beside it adds nothing"
    assert answers({}, house.cookie(OPERATOR.id)) == [200, 200]
    seen = {}
    for role in ("viewer", "submitter", "operator", "none"):
        people.give_role(ALICE.id, role)
        seen[role] = answers(strong)
    people.forget_person(ALICE.id)
    assert seen == {"viewer": [403, 403], "submitter": [404, 200], "operator": [200, 200], "none": [401, 401]}
    token = strong["Authorization"].removeprefix("Bearer ")
    wrong = [token[:-1], f"{token}x", token.swapcase(), token.replace("unn_", "UNN_"), f"{token}\t", f" {token}", "é"]
    wrong = [one for one in wrong if one.strip() != token]
    assert {
        house.ask("GET", spec, None, Authorization=f"Bearer {one}".encode().decode("latin-1"))[0] for one in wrong
    } == {401}
    assert house.ask("GET", f"{spec}?token={token}")[0] == 401, "no token in an address, which is logged"
    for scheme in ("Basic", "Token", ""):
        assert house.ask("GET", spec, cookie(house), Authorization=f"{scheme} {token}")[0] == 401


def test_cookies_of_https_are_for_https_alone(house: SignedHouse) -> None:
    plain, secure = (
        house.ask("GET", path, cookie(house), **more)[1].get_all("Set-Cookie") or []
        for path in ("/auth/logout",)
        for more in ({}, {"X_Forwarded_Proto": "https"})
    )
    assert len(plain) == len(secure) > 0
    assert not any("Secure" in one for one in plain) and all(one.endswith("; Secure") for one in secure)


def test_the_server_hands_out_none_of_its_own_files(house: SignedHouse, here: World) -> None:
    marks = (SECRET.encode(), b"cookie_secret", b"SQLite format", b"[theme]", b"root:")
    inside = ("secrets.toml", "unifiednn.sqlite3", ".streamlit/config.toml", "app.py", "etc/passwd")
    for folder in (
        "/",
        "/static/",
        "/app/static/",
        "/media/",
        "/component/",
        "/_stcore/bidi-components/",
        "/files/",
        "/files/models/",
        "/assets/",
    ):
        for up in ("", "../" * 8, "..%2f" * 8, "%2e%2e/" * 8, "..\\" * 4, "%00", "/" + str(here.home.root) + "/"):
            for name in inside:
                content = house.ask("GET", f"{folder}{up}{name}".replace(" ", "%20"))[2]
                assert not any(mark in content for mark in marks), (folder, up, name)
    log = (here.home.root / "server.log").read_text()
    assert "Traceback" not in log and SECRET not in log
