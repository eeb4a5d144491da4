import hashlib
import hmac
import sqlite3

import pytest

from tests.clock import SimulatedClock
from tests.unit.service.kit import ADMIN, ALICE, BOB, HIS, LOCAL_OPERATOR, SHARED, VIEWER, World, world
from unifiednn_core.base.errors import BadInput, Forbidden, NotFound, Unauthorised
from unifiednn_core.base.paths import Home
from unifiednn_core.service import people
from unifiednn_core.service.gate import HOUR_S, Gate, Settings
from unifiednn_core.service.roles import Role

SETTINGS = Settings(
    login=True, roles={"learners": Role.SUBMITTER, "staff": Role.OPERATOR}, admins=frozenset({ADMIN.id})
)


@pytest.fixture
def signed(home: Home, clock: SimulatedClock) -> World:
    return world(home, clock, SETTINGS)


def claims(clock: SimulatedClock, **more: object) -> dict[str, object]:
    return {"is_logged_in": True, "iat": clock.utc_s(), "email": ALICE.id, "groups": ["learners"]} | more


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_token_acts_as_its_person_until_it_expires(signed: World, clock: SimulatedClock) -> None:
    token = signed.of(ADMIN).people.create_token("Alice@example.org", "submitter", 1)
    service = signed.gate.admit(bearer(token), {})
    assert (service.actor.id, service.actor.role, service.actor.here) == (ALICE.id, Role.SUBMITTER, False)
    with pytest.raises(NotFound):
        service.runs.observe(HIS)
    with pytest.raises(Forbidden):
        service.people.tokens()
    clock.advance(86_399)
    signed.gate.admit(bearer(token), {})
    clock.advance(1)
    with pytest.raises(Unauthorised, match="expired"):
        signed.gate.admit(bearer(token), {})


def test_a_revoked_token_counts_no_longer_and_a_wrong_one_never_did(signed: World) -> None:
    admin = signed.of(ADMIN)
    token, other = (admin.people.create_token(ALICE.id, "submitter", 1) for _ in range(2))
    [view] = [one for one in admin.people.tokens() if one.token_id == token.split("_")[1]]
    admin.people.revoke_token(view.token_id)
    mixed = "_".join([*other.split("_")[:2], token.split("_", 2)[2]])
    for wrong in (token, token[:-1], mixed, "", "unn", "unn__", "unn_x_y", "é"):
        with pytest.raises(Unauthorised):
            signed.gate.admit(bearer(wrong), {})
    with pytest.raises(Unauthorised):
        signed.gate.admit({"authorization": f"Basic {other}"}, {})
    signed.gate.admit(bearer(other), {})
    with pytest.raises(NotFound):
        admin.people.revoke_token("nothing")


def test_every_token_is_compared_in_constant_time_with_some_hash(
    signed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = signed.of(ADMIN).people.create_token(ALICE.id, "submitter", 1)
    compared: list[tuple[str, str]] = []
    same = hmac.compare_digest
    monkeypatch.setattr(people.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or same(a, b))
    for wrong in (f"{token[:-1]}x", "unn_000000000000_x", "unn", ""):
        with pytest.raises(Unauthorised):
            signed.gate.admit(bearer(wrong), {})
    assert len(compared) == 4 and all(len(a) == len(b) == 64 for a, b in compared), "of unknown tokens, too"


def test_of_a_token_only_the_hash_is_kept(signed: World, home: Home) -> None:
    token = signed.of(ADMIN).people.create_token(ALICE.id, "submitter", 1)
    secret = token.split("_", 2)[2]
    kept = b"".join(path.read_bytes() for path in home.database.parent.iterdir())
    assert secret.encode() not in kept
    assert hashlib.sha256(secret.encode()).hexdigest().encode() in kept
    assert len(secret) == 43, "256 bits"


def test_a_token_gives_no_more_than_its_person_was_given(signed: World) -> None:
    admin = signed.of(ADMIN)
    token = admin.people.create_token(ALICE.id, "operator", 1)
    admin.people.give_role(ALICE.id, "viewer")
    assert signed.gate.admit(bearer(token), {}).actor.role is Role.VIEWER
    admin.people.give_role(ALICE.id, "none")
    with pytest.raises(Unauthorised):
        signed.gate.admit(bearer(token), {})
    for wrong in ({"days": 0}, {"days": float("nan")}, {"role": "king"}, {"person": " "}):
        with pytest.raises(BadInput):
            admin.people.create_token(**{"person": "x", "role": "viewer", "days": 1} | wrong)


def test_a_role_comes_from_the_settings_the_table_or_the_claim(signed: World, clock: SimulatedClock) -> None:
    gate = signed.gate
    assert gate.actor_of(claims(clock)).role is Role.SUBMITTER
    assert gate.actor_of(claims(clock, groups=["learners", "staff"])).role is Role.OPERATOR
    assert gate.actor_of(claims(clock, groups="staff")).role is Role.OPERATOR
    assert gate.actor_of(claims(clock, email=ADMIN.id.upper(), groups=[])).role is Role.ADMIN
    signed.of(ADMIN).people.give_role(ALICE.id, "viewer")
    assert gate.actor_of(claims(clock, groups=["staff"])).role is Role.VIEWER
    signed.of(ADMIN).people.give_role(ALICE.id, "none")
    for nobody in (claims(clock, groups=["staff"]), claims(clock, email="new@example.org", groups=["others"])):
        with pytest.raises(Forbidden, match="has no role here"):
            gate.actor_of(nobody)
    signed.of(ADMIN).people.forget_person(ALICE.id)
    assert gate.actor_of(claims(clock)).role is Role.SUBMITTER


def test_an_address_that_was_not_verified_is_nobodys(signed: World, clock: SimulatedClock) -> None:
    with pytest.raises(Unauthorised):
        signed.gate.actor_of(claims(clock, email=ADMIN.id, email_verified=False))
    actor = signed.gate.actor_of(claims(clock, email=ADMIN.id, email_verified=False, sub=ADMIN.id))
    assert (actor.id, actor.role) == (f"sub:{ADMIN.id}", Role.SUBMITTER)


def test_a_sign_in_ends(signed: World, clock: SimulatedClock) -> None:
    mine = claims(clock)
    for wrong in ({}, claims(clock, is_logged_in=False), claims(clock, iat=None), claims(clock, iat=float("nan"))):
        with pytest.raises(Unauthorised):
            signed.gate.actor_of(wrong)
    clock.advance(12 * HOUR_S - 1)
    signed.gate.actor_of(mine)
    clock.advance(1)
    with pytest.raises(Unauthorised, match="expired"):
        signed.gate.actor_of(mine)


def test_a_person_without_an_address_is_known_by_the_subject_as_it_is_written(
    signed: World, clock: SimulatedClock
) -> None:
    admin = signed.of(ADMIN)
    admin.people.give_role("sub:AbC", "viewer")
    assert signed.gate.actor_of(claims(clock, email=None, sub="AbC")).role is Role.VIEWER
    assert signed.gate.admit(bearer(admin.people.create_token("sub:AbC", "operator", 1)), {}).actor.role is Role.VIEWER
    for address in ("sub:AbC", "sub:alice@example.org", "AbC"):  # no address, whatever it says
        assert signed.gate.actor_of(claims(clock, email=address, sub="other")).id == "sub:other"


def test_nobody_changes_his_own_role_so_that_an_admin_is_left(signed: World) -> None:
    admin = signed.of(ADMIN)
    for call in (
        lambda: admin.people.give_role(ADMIN.id.upper(), "none"),
        lambda: admin.people.forget_person(f" {ADMIN.id}"),
    ):
        with pytest.raises(BadInput, match="your own role"):
            call()
    signed.of(LOCAL_OPERATOR).people.give_role(ADMIN.id, "none")  # the machine's owner can, and can give it back


def test_a_team_and_a_role_are_given_and_taken_each_by_itself(signed: World, clock: SimulatedClock) -> None:
    admin = signed.of(ADMIN).people

    def given() -> list[tuple[str, str, str | None]]:
        return [(one.person, one.role, one.team) for one in admin.people()]

    admin.give_team("Alice@example.org", " Red  PANDAS ")
    assert given() == [(ALICE.id, "", "red pandas")]
    assert signed.gate.actor_of(claims(clock)).role is Role.SUBMITTER, "the claim still decides"
    assert signed.gate.admit(bearer(admin.create_token(ALICE.id, "operator", 1)), {}).actor.role is Role.OPERATOR
    with pytest.raises(NotFound):
        admin.forget_person(ALICE.id)
    admin.give_role(ALICE.id, "viewer")
    admin.give_team(ALICE.id, "blue")
    assert given() == [(ALICE.id, "viewer", "blue")]
    admin.forget_person(ALICE.id)
    assert given() == [(ALICE.id, "", "blue")]
    admin.give_team(ALICE.id, "")
    assert given() == []
    for wrong in ((" ", "red"), (ALICE.id, "x" * 101)):
        with pytest.raises(BadInput):
            admin.give_team(*wrong)


def test_tickets_are_given_by_an_admin_alone(signed: World) -> None:
    admin, tickets = signed.of(ADMIN).people, signed.store.people.tickets_of
    admin.give_tickets("Alice@example.org", 3)
    assert [(one.person, one.tickets) for one in admin.people()] == [(ALICE.id, 3)]
    assert (tickets(ALICE.id), tickets(BOB.id)) == (3, 1)
    admin.give_tickets(ALICE.id, 1)
    assert admin.people() == ()
    for wrong in ((" ", 2), (ALICE.id, 0), (ALICE.id, 1001)):
        with pytest.raises(BadInput):
            admin.give_tickets(*wrong)
    for other in (ALICE, BOB, VIEWER):
        with pytest.raises(Forbidden):
            signed.of(other).people.give_tickets(other.id, 9)


def test_nobody_acts_as_the_machines_owner_where_others_can_reach_it(here: World) -> None:
    assert here.gate.admit({}, {}).actor == LOCAL_OPERATOR
    open_to_all = Gate(here.service, Settings(reachable=True))
    for gate in (open_to_all, Gate(here.service, SETTINGS)):
        with pytest.raises(Unauthorised):
            gate.admit({}, {})
        with pytest.raises(Unauthorised):
            gate.local()


def test_the_audit_log_shows_who_did_what_and_what_was_refused(here: World) -> None:
    here.of(ALICE).runs.pause(SHARED, "alpha")
    here.of(BOB).runs.artifact(HIS, "bravo")
    with pytest.raises(Forbidden):
        here.of(VIEWER).library.files()
    with pytest.raises(Forbidden):
        here.of(ALICE).runs.reorder(SHARED, ["alpha"])
    with pytest.raises(NotFound):
        here.of(ALICE).runs.stop(HIS, "bravo")
    lines = [(line.person, line.action, line.subject, line.outcome) for line in here.of(ADMIN).people.audit()]
    assert lines[::-1] == [
        (ALICE.id, "pause", f"{SHARED} alpha", "allowed"),
        (BOB.id, "artifact", f"{HIS} bravo", "allowed"),
        (VIEWER.id, "files", "", "forbidden"),
        (ALICE.id, "reorder", f"{SHARED} alpha", "forbidden"),
        (ALICE.id, "stop", f"{HIS} bravo", "not found"),
    ]
    with pytest.raises(Forbidden):
        here.of(ALICE).people.audit()


@pytest.mark.parametrize(
    "order",
    [
        "DELETE FROM ledger",
        "UPDATE ledger SET person = 'x'",
        "INSERT OR REPLACE INTO ledger SELECT id, at_s, 'x', role, action, subject, outcome FROM ledger",
        "REPLACE INTO ledger (id, at_s, person, role, action, subject, outcome) VALUES (1, 0, 'x', '', '', '', '')",
    ],
)
def test_the_audit_log_only_grows(here: World, home: Home, order: str) -> None:
    here.of(ALICE).runs.pause(SHARED, "alpha")
    connection = sqlite3.connect(home.database)
    try:
        with pytest.raises(sqlite3.IntegrityError, match="only grows"):
            connection.execute(order)
    finally:
        connection.close()
    assert [line.person for line in here.of(ADMIN).people.audit()] == [ALICE.id]


def test_drafts_are_ones_own(here: World) -> None:
    hers = here.of(ALICE).library.save_draft({"name": "hers"})
    for draft_id in (hers, "00000000"):
        with pytest.raises(NotFound, match=f"There is no draft '{draft_id}'"):
            here.of(BOB).library.draft(draft_id)
        assert here.of(BOB).library.save_draft({"name": "his"}, draft_id) != draft_id
        here.of(BOB).library.delete_draft(draft_id)
    assert here.of(ALICE).library.draft(hers)["name"] == "hers"
