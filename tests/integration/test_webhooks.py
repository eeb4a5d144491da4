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
from unifiednn_core.base.paths import Home
from unifiednn_core.cli.main import app
from unifiednn_core.runtime import delivery
from unifiednn_core.runtime.delivery import HOSTS_VARIABLE, Undelivered, deliver, require_allowed
from unifiednn_core.runtime.webhooks import GIVEN_UP_S, LONGEST_WAIT_S, WebhookSender
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store.webhooks import EVENTS

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
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv(HOSTS_VARIABLE, "127.0.0.1")
    with receiving() as one:
        yield one


def hook(here: World, receiver: Receiver, *events: str) -> tuple[str, str]:
    """Id and secret of a webhook for these events."""
    made = here.of(ADMIN).notifications.add_webhook(receiver.url, events or ("run.completed", "run.failed"))
    return made.webhook_id, made.secret


def sender(here: World, clock: SimulatedClock) -> WebhookSender:
    return WebhookSender(here.store.webhooks, clock)


def told(receiver: Receiver) -> list[str]:
    return [json.loads(body)["event"] for _, _, body in receiver.taken]


def end(here: World, run: str, event: Event = Event.COMPLETE, cause: str | None = None) -> None:
    here.store.runs.transition(run, None, event, cause=cause)


def test_what_is_sent_is_signed_and_says_what_happened(
    here: World, clock: SimulatedClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNIFIEDNN_URL", "https://train.example.org/")
    _, secret = hook(here, receiver)
    end(here, HERS, Event.FAIL, "The loss of alpha is nan.")
    sender(here, clock).round()
    [(path, headers, body)] = receiver.taken
    document = json.loads(body)
    assert path == "/hook"
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
    here: World, clock: SimulatedClock, receiver: Receiver
) -> None:
    end(here, SHARED, Event.FAIL)  # before anybody asked
    hook(here, receiver, *EVENTS)
    one = sender(here, clock)
    here.store.runs.transition(HERS, "alpha", Event.COMPLETE)
    end(here, HERS)
    here.store.runs.transition(HIS, "bravo", Event.FAIL, cause="It diverged.")
    end(here, HIS, Event.FAIL)
    one.round()
    one.round()
    assert told(receiver) == ["submodel.completed", "run.completed", "submodel.failed", "run.failed"]
    assert [json.loads(body).get("submodel") for _, _, body in receiver.taken] == ["alpha", None, "bravo", None]


def test_a_run_that_recovers_by_itself_is_not_interrupted(
    here: World, clock: SimulatedClock, receiver: Receiver
) -> None:
    hook(here, receiver, "run.interrupted")
    end(here, HERS, Event.LOSE)
    end(here, HERS, Event.RESUME)  # in the same moment
    end(here, HIS, Event.LOSE)
    clock.advance(60)
    end(here, HIS, Event.RESUME)  # by a person, a minute later
    sender(here, clock).round()
    assert [json.loads(body)["run"] for _, _, body in receiver.taken] == [HIS]


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
    assert [json.loads(body)["run"] for _, _, body in receiver.taken] == [HERS, HIS, SHARED]


def test_a_failure_is_tried_again_later_and_later_with_the_same_id(
    here: World, clock: SimulatedClock, receiver: Receiver
) -> None:
    webhook, _ = hook(here, receiver)
    one = sender(here, clock)
    receiver.status = 500
    end(here, HERS)
    waits = []
    for _ in range(12):
        one.round()
        one.round()  # not again at once
        waits.append(here.store.webhooks.get(webhook).next_at_s - clock.utc_s())
        clock.advance(waits[-1])
    assert len(receiver.taken) == 12 and waits == sorted(waits) and waits[-1] == LONGEST_WAIT_S
    [view] = here.of(ADMIN).notifications.webhooks()
    assert view.failures == 12 and view.error == "It answered 500."
    receiver.status = 200
    one.round()
    assert len({headers["webhook-id"] for _, headers, _ in receiver.taken}) == 1
    [view] = here.of(ADMIN).notifications.webhooks()
    assert (view.failures, view.error, view.answered_at_s) == (0, None, clock.utc_s())


def test_after_a_day_an_event_is_given_up_and_the_next_one_sent(
    here: World, clock: SimulatedClock, receiver: Receiver
) -> None:
    webhook, _ = hook(here, receiver)
    receiver.status = 500
    end(here, HERS)
    clock.advance(GIVEN_UP_S + 1)
    end(here, HIS)
    one = sender(here, clock)
    one.round()
    assert "given up" in str(here.store.webhooks.get(webhook).error)
    receiver.status = 204
    clock.advance(LONGEST_WAIT_S)
    one.round()
    assert [json.loads(body)["run"] for _, _, body in receiver.taken] == [HERS, HIS]


class Killed(BaseException):
    """The process ends here."""


def test_a_kill_loses_nothing_and_what_comes_twice_has_one_id(
    here: World, clock: SimulatedClock, receiver: Receiver
) -> None:
    hook(here, receiver)
    end(here, HERS)

    def killed_before(*_: object) -> None:
        raise Killed

    def killed_after(*given: object) -> None:
        deliver(*given)  # type: ignore[arg-type]
        raise Killed

    for die in (killed_before, killed_after):
        with pytest.raises(Killed):
            WebhookSender(here.store.webhooks, clock, die).round()
        sender(here, clock).round()
        assert len(receiver.taken) == (die is killed_after), "the lease of the dead sender still holds"
        clock.advance(61)
    sender(here, clock).round()
    assert told(receiver) == ["run.completed"] * 2
    assert len({headers["webhook-id"] for _, headers, _ in receiver.taken}) == 1
    clock.advance(61)
    sender(here, clock).round()
    assert len(receiver.taken) == 2


def test_the_process_of_the_supervisor_sends_and_goes_on_while_a_receiver_is_silent(
    here: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.drip = threading.Event()  # it never ends its answer
    hook(here, receiver)
    looks: list[float] = []
    supervisor = here.service._supervisor
    monkeypatch.setattr(supervisor, "tick", lambda: looks.append(0.0))
    here.service.start_supervisor()
    end(here, HERS)
    wait_until(lambda: receiver.taken)
    before = len(looks)
    wait_until(lambda: len(looks) > before + 1)
    assert len(receiver.taken) == 1
    receiver.drip.set()


def test_of_two_processes_one_sends(here: World, clock: SimulatedClock, receiver: Receiver) -> None:
    hook(here, receiver)
    end(here, HERS)
    other = sender(here, clock)

    def meanwhile(*given: object) -> None:
        other.round()
        deliver(*given)  # type: ignore[arg-type]

    WebhookSender(here.store.webhooks, clock, meanwhile).round()
    other.round()
    assert told(receiver) == ["run.completed"]


def test_a_test_is_sent_at_once_and_a_removed_one_hears_nothing(
    here: World, clock: SimulatedClock, receiver: Receiver
) -> None:
    webhook, _ = hook(here, receiver)
    desk = here.of(ADMIN).notifications
    assert desk.test_webhook(webhook).taken and told(receiver) == ["test"]
    receiver.status = 404
    assert desk.test_webhook(webhook).error == "It answered 404."
    desk.remove_webhook(webhook)
    end(here, HERS)
    sender(here, clock).round()
    assert len(receiver.taken) == 2


PRIVATE = [
    "http://127.0.0.1:1/x",
    "https://127.0.0.1/x",
    "https://localhost/x",
    "https://[::1]/x",
    "https://0.0.0.0/x",
    "https://10.1.2.3/x",
    "https://192.168.1.1/x",
    "https://169.254.169.254/latest/meta-data",
    "https://2130706433/",
    "https://0x7f.1/",
    "https://[::ffff:127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[fe80::1]/",
    "https://100.64.0.1/",
    "https://224.0.0.1/",
    "http://93.184.216.34/in-the-clear",
]
MALFORMED = [
    "",
    "x",
    "ftp://93.184.216.34/",
    "file:///etc/passwd",
    "https://",
    "https://a b/",
    "https://93.184.216.34:0/",
    "https://user:word@93.184.216.34/",
    "https://93.184.216.34/\r\nX: y",
    "https://[/",
    "https://x/" + "a" * 3000,
]


def test_an_address_inside_is_refused_when_it_is_added_and_when_something_is_sent(here: World) -> None:
    for url in (*PRIVATE, *MALFORMED):
        with pytest.raises(BadInput):
            here.of(ADMIN).notifications.add_webhook(url)
        with pytest.raises(Undelivered):
            deliver(url, "whsec_AAAA", "id", NOW_S, b"{}")
    assert here.of(ADMIN).notifications.webhooks() == ()


def test_public_addresses_and_named_hosts_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    require_allowed("https://93.184.216.34/hook?a=b")
    monkeypatch.setenv(HOSTS_VARIABLE, "10.1.2.3, LOCALHOST")
    require_allowed("http://10.1.2.3/x")
    require_allowed("http://localhost:9/x")
    with pytest.raises(BadInput):
        require_allowed("http://10.1.2.4/x")


def test_a_name_that_moves_inside_after_it_was_added_is_not_followed(
    here: World, clock: SimulatedClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook, _ = hook(here, receiver)
    end(here, HERS)
    monkeypatch.delenv(HOSTS_VARIABLE)
    one = sender(here, clock)
    one.round()
    assert receiver.taken == [] and "private network" in str(here.store.webhooks.get(webhook).error)
    monkeypatch.setenv(HOSTS_VARIABLE, "127.0.0.1")
    clock.advance(LONGEST_WAIT_S)
    one.round()
    assert len(receiver.taken) == 1, "the control: it was the rule that held it back"


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    receiver.status, receiver.location = 307, f"http://127.0.0.1:{receiver.port}/inside"
    with pytest.raises(Undelivered, match="redirects are not followed"):
        deliver(receiver.url, "whsec_AAAA", "id", NOW_S, b"{}")
    assert [path for path, _, _ in receiver.taken] == ["/hook"]


def test_a_receiver_that_drips_bytes_is_cut_off(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LASTS_S", 0.2)
    receiver.drip = threading.Event()
    with pytest.raises(Undelivered, match="No answer"):
        deliver(receiver.url, "whsec_AAAA", "id", NOW_S, b"{}")
    receiver.drip.set()


def test_a_webhook_with_much_to_hear_delays_others_by_one_delivery(here: World, clock: SimulatedClock) -> None:
    for name in ("one", "two"):
        here.store.webhooks.add(webhook_id=name, url=name, secret="x", events=EVENTS, by="")
    for run in (HERS, HIS):
        end(here, run)
    order: list[str] = []
    WebhookSender(here.store.webhooks, clock, lambda url, *_: order.append(url)).round()
    assert order == ["one", "two", "one", "two"]


def test_a_receiver_that_never_ends_its_handshake_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTS_VARIABLE, "127.0.0.1")
    monkeypatch.setattr(delivery, "LASTS_S", 0.2)
    monkeypatch.setattr(delivery, "SILENT_S", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Undelivered) as told:
        deliver(f"https://127.0.0.1:{silent.getsockname()[1]}/", "whsec_AAAA", "id", NOW_S, b"{}")
    assert "TimeoutError" not in str(told.value), "its silence ended it, not the limit of the whole"


def test_the_terminal_manages_webhooks(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIFIEDNN_HOME", str(tmp_path / "cli"))
    run = CliRunner().invoke
    made = json.loads(run(app, ["webhooks", "add", receiver.url, "--event", "run.failed", "--json"]).stdout)
    [listed] = json.loads(run(app, ["webhooks", "list", "--json"]).stdout)
    assert listed["webhook_id"] == made["webhook_id"] and listed["events"] == ["run.failed"]
    assert made["secret"] not in json.dumps(listed)
    assert run(app, ["webhooks", "test", made["webhook_id"]]).exit_code == 0
    receiver.status = 500
    assert run(app, ["webhooks", "test", made["webhook_id"]]).exit_code == 2
    assert run(app, ["webhooks", "remove", made["webhook_id"]]).exit_code == 0
    assert run(app, ["webhooks", "add", "http://10.0.0.1/x"]).exit_code == 2
    assert run(app, ["webhooks", "add", receiver.url, "--event", "party"]).exit_code == 2
    assert run(app, ["webhooks", "list"]).exit_code == 0
