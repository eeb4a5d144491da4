"""Webhooks: what is sent, that nothing is lost, and where nothing is ever sent to."""

import base64
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.clock import SimulatedClock
from tests.integration.receiver import Receiver, receiving
from tests.unit.service.kit import ADMIN, HERS, HIS, OPERATOR, SHARED, World, world
from tests.waiting import wait_until
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import HOSTS_SETTING, Home
from unifiednn_core.cli.main import app
from unifiednn_core.runtime import webhooks
from unifiednn_core.runtime.webhooks import LASTS_S, LEASE_S, WAITS_S, WebhookSender, address_of, deliver
from unifiednn_core.service.roles import LOCAL_OPERATOR
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store.events import Code
from unifiednn_core.store.webhooks import EVENTS, OF_RUNS, WebhookRow

NOW_S = 1_000_000.0


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock(NOW_S)


@pytest.fixture
def here(tmp_path: Path, clock: SimulatedClock) -> Iterator[World]:
    made = world(Home(tmp_path / "home").create(), clock)
    yield made
    made.service.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


def hook(here: World, receiver: Receiver, *events: str) -> tuple[str, str]:
    """Id and secret of a webhook for these events, which somebody at the machine added."""
    made = here.of(LOCAL_OPERATOR).notifications.add_webhook(receiver.url, events or OF_RUNS)
    return made.webhook_id, made.secret


def sender(here: World, clock: SimulatedClock) -> WebhookSender:
    return WebhookSender(here.store.webhooks, clock)


def told(receiver: Receiver, field: str = "event") -> list[str]:
    return [json.loads(body).get(field) for _, _, body in receiver.taken]


def end(here: World, run: str, event: Event = Event.COMPLETE, cause: str | None = None) -> None:
    here.store.runs.transition(run, None, event, cause=cause)


def test_what_is_sent_is_signed_and_says_what_happened(
    here: World, clock: SimulatedClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOSTS_SETTING, "train.example.org, other.example.org")
    _, secret = hook(here, receiver)
    end(here, HERS, Event.FAIL, "The loss of alpha is nan.")
    sender(here, clock).round()
    [(path, headers, body)] = receiver.taken
    document = json.loads(body)
    assert path == "/hook" and headers["host"] == f"127.0.0.1:{receiver.port}"
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == (document["id"], str(int(NOW_S)))
    key = base64.b64decode(secret.removeprefix("whsec_"))  # as the specification of Standard Webhooks says
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    link = f"https://train.example.org/run?run={HERS}"
    assert document == {
        "id": document["id"],
        "event": "run.failed",
        "run": HERS,
        "name": "together",
        "mode": "hybrid",
        "state": "failed",
        "cause": "The loss of alpha is nan.",
        "at": "1970-01-12T13:46:40.000+00:00",
        "link": link,
        "text": f"Run together is failed: The loss of alpha is nan. {link}",
    }


def test_each_hears_of_what_it_asked_for_in_order_and_once(
    here: World, clock: SimulatedClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "BEHIND", 1)
    end(here, SHARED, Event.FAIL)  # before anybody asked
    hook(here, receiver, *EVENTS)
    hook(here, receiver, "run.failed")
    one = sender(here, clock)
    with here.store._database.write() as session:
        here.store.runs.note(session, HERS, "alpha", Code.SEPARATED, archive="alpha.zip")
    here.store.runs.transition(HERS, "alpha", Event.COMPLETE)
    end(here, HERS)
    one.round()
    assert told(receiver) == ["submodel.ready", "submodel.completed", "run.completed"]
    assert told(receiver, "submodel") == ["alpha", "alpha", None]
    here.store.runs.transition(HIS, "bravo", Event.FAIL, cause="It diverged.")
    end(here, HIS, Event.FAIL)
    one.round()
    one.round()
    assert sorted(told(receiver)[3:]) == ["run.failed", "run.failed", "submodel.failed"]


def test_an_interruption_that_is_over_is_not_told(here: World, clock: SimulatedClock, receiver: Receiver) -> None:
    hook(here, receiver, "run.interrupted")
    end(here, HERS, Event.LOSE)
    end(here, HERS, Event.RESUME)
    end(here, HIS, Event.LOSE)
    sender(here, clock).round()
    assert told(receiver, "run") == [HIS]


def test_events_after_a_deletion_are_told_though_their_ids_come_again(
    here: World, clock: SimulatedClock, receiver: Receiver
) -> None:
    hook(here, receiver)
    one = sender(here, clock)
    end(here, HERS)
    end(here, HIS)
    one.round()
    for run in (HERS, HIS):
        here.store.hybrids.update(run, heartbeat_at_s=None)
        here.of(OPERATOR).runs.delete_run(run)
    end(here, SHARED)
    one.round()
    assert told(receiver, "run") == [HERS, HIS, SHARED]


def test_an_event_is_tried_three_times_with_the_same_id_and_then_the_next_is_sent(
    here: World, clock: SimulatedClock, receiver: Receiver
) -> None:
    hook(here, receiver)
    receiver.status = 500
    end(here, HERS)
    for tries, wait_s in enumerate(WAITS_S, start=1):
        sender(here, clock).round()
        clock.advance(wait_s - 1)
        sender(here, clock).round()  # another process, and not yet
        assert len(receiver.taken) == tries
        [view] = here.of(ADMIN).notifications.webhooks()
        assert view.error == "It answered 500." and here.store.monitoring.counts().webhooks_failing == 1
        clock.advance(1)
    end(here, HIS)
    sender(here, clock).round()
    [view] = here.of(ADMIN).notifications.webhooks()
    assert view.error == "Given up: It answered 500." and told(receiver, "run") == [HERS] * 3
    assert len({headers["webhook-id"] for _, headers, _ in receiver.taken}) == 1
    receiver.status = 204
    sender(here, clock).round()
    [view] = here.of(ADMIN).notifications.webhooks()
    assert told(receiver, "run")[3:] == [HIS] and view.error is None


class Killed(BaseException):
    """The process ends here."""


def test_a_kill_loses_nothing_and_what_comes_twice_has_one_id(
    here: World, clock: SimulatedClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook(here, receiver)
    end(here, HERS)

    def killed_before(*_: object) -> None:
        raise Killed

    def killed_after(*given: object) -> None:
        deliver(*given)  # type: ignore[arg-type]
        raise Killed

    for die in (killed_before, killed_after):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(webhooks, "deliver", die)
            sender(here, clock).round()
        sender(here, clock).round()
        assert len(receiver.taken) == (die is killed_after), "the lease of the dead sender still holds"
        clock.advance(LEASE_S + 1)
    for _ in range(2):
        sender(here, clock).round()
        clock.advance(LEASE_S + 1)
    assert told(receiver) == ["run.completed"] * 2
    assert len({headers["webhook-id"] for _, headers, _ in receiver.taken}) == 1


def test_the_process_of_the_supervisor_sends_and_a_receiver_that_never_ends_is_cut_off(
    here: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LASTS_S < LEASE_S
    monkeypatch.setattr(webhooks, "LASTS_S", 0.2)
    receiver.drip = threading.Event()
    hook(here, receiver)
    looks: list[float] = []
    monkeypatch.setattr(here.service._supervisor, "tick", lambda: looks.append(0.0))
    here.service.start_supervisor()
    end(here, HERS)
    wait_until(lambda: receiver.taken)
    before = len(looks)
    wait_until(lambda: len(looks) > before + 1)
    wait_until(lambda: "No answer" in str(here.of(ADMIN).notifications.webhooks()[0].error))
    receiver.drip.set()


PRIVATE = (
    "127.0.0.1 localhost [::1] 0.0.0.0 10.1.2.3 169.254.169.254 2130706433 0x7f.1 [::ffff:127.0.0.1] "
    "[64:ff9b::7f00:1] [2002:7f00:1::] [fe80::1] 100.64.0.1 224.0.0.1"
)
IN_THE_CLEAR = ("http://127.0.0.1:1/x", "http://93.184.216.34/x")
MALFORMED = (
    "",
    "x",
    "ftp://93.184.216.34/",
    "file:///etc/passwd",
    "https://",
    "https://93.184.216.34/\r\nX: y",
    "https://[/",
)


def test_an_admin_over_the_network_cannot_reach_an_address_inside(here: World) -> None:
    for url in (*(f"https://{host}/x" for host in PRIVATE.split()), *IN_THE_CLEAR, *MALFORMED):
        with pytest.raises(BadInput):
            here.of(ADMIN).notifications.add_webhook(url)
        with pytest.raises(BadInput):
            deliver(WebhookRow(url=url, secret="whsec_AAAA", private=False), {"id": "x"}, NOW_S)
    for url in MALFORMED:
        with pytest.raises(BadInput):
            here.of(LOCAL_OPERATOR).notifications.add_webhook(url)
    assert here.of(ADMIN).notifications.webhooks() == ()
    assert address_of("https://93.184.216.34/hook?a=b", private=False) == "93.184.216.34"


def test_a_name_that_moves_inside_after_it_was_added_is_not_followed(
    here: World, clock: SimulatedClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = {"address": "93.184.216.34"}

    def resolved(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (at["address"], port))]

    with monkeypatch.context() as patch:
        patch.setattr(webhooks.socket, "getaddrinfo", resolved)
        here.of(ADMIN).notifications.add_webhook(f"https://hooks.example.org:{receiver.port}/")
        at["address"] = "127.0.0.1"
        end(here, HERS)
        sender(here, clock).round()
    [view] = here.of(ADMIN).notifications.webhooks()
    assert "private network" in str(view.error)


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    receiver.status, receiver.location = 307, f"http://127.0.0.1:{receiver.port}/inside"
    with pytest.raises(BadInput, match="It answered 307"):
        deliver(WebhookRow(url=receiver.url, secret="whsec_AAAA", private=True), {"id": "x"}, NOW_S)
    assert [path for path, _, _ in receiver.taken] == ["/hook"]


def test_the_terminal_manages_webhooks(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIFIEDNN_HOME", str(tmp_path / "cli"))
    run = CliRunner().invoke
    made = json.loads(run(app, ["webhooks", "add", receiver.url, "--event", "run.failed", "--json"]).stdout)
    [listed] = json.loads(run(app, ["webhooks", "list", "--json"]).stdout)
    assert listed["webhook_id"] == made["webhook_id"] and listed["events"] == ["run.failed"]
    assert made["secret"] not in json.dumps(listed)
    assert run(app, ["webhooks", "test", made["webhook_id"]]).exit_code == 0 and told(receiver) == ["test"]
