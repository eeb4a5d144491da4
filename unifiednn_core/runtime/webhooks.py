"""Webhooks: a signed JSON document to an address outside for each end of a run or sub-model that it asked for.

A thread in the process of the supervisor sends them. Each webhook has a cursor in the store, which moves once the
receiver has taken an event or has refused it three times: a restart loses nothing, and what is sent twice has the same
`id`. Public addresses are reached by HTTPS. Addresses of private networks and of this machine are only for webhooks
that somebody at the machine added: an admin who signs in over the network could otherwise reach what only this machine
can. Names are resolved once, and the connection goes to that very address.
"""

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import json
import logging
import secrets
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput, first_line
from unifiednn_core.base.paths import named_hosts
from unifiednn_core.base.trouble import log_error
from unifiednn_core.runtime.background import Background
from unifiednn_core.store.schema import EventRow, RunRow
from unifiednn_core.store.webhooks import WebhookRow, Webhooks, name_of

ROUND_S = 1.0
WAITS_S = (30.0, 600.0)
"""Before the second and the third try."""
LASTS_S, LEASE_S = 20.0, 60.0
"""Longest time of a delivery, and for how long other processes leave it to this one."""
BEHIND = 200
"""A cursor is moved past events that nobody asked for when there are so many: a write for each look costs more."""
SECRET_PREFIX = "whsec_"
LOCAL_URL = "http://127.0.0.1:8501"
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052
_log = logging.getLogger(__name__)


def new_secret() -> str:
    """A secret for signatures, in the form of Standard Webhooks."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def address_of(url: str, *, private: bool) -> str:
    """The address to connect to for a URL; raises `BadInput` for one to which nothing is sent."""
    import httpx  # takes a tenth of a second, and few servers have webhooks

    try:
        asked = httpx.URL(url)
        found = socket.getaddrinfo(asked.host, asked.port or asked.scheme, type=socket.SOCK_STREAM)
    except (httpx.InvalidURL, OSError, UnicodeError):
        found = []
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    if not addresses or asked.scheme not in ("http", "https"):
        raise _refused("This is no address, or its host is unknown.", "Give one such as https://example.org/hook.")
    if not private and not (asked.scheme == "https" and all(map(_is_public, addresses))):
        remedy = "Somebody at the machine can add it: unifiednn webhooks add URL"
        raise _refused("It is in a private network, is this machine, or is not reached by HTTPS.", remedy)
    return addresses[0]


def deliver(hook: WebhookRow, document: Mapping[str, Any], now_s: float) -> None:
    """Send a document once; raises `BadInput` unless the receiver answers 2xx. Redirects are not followed."""
    import httpx

    address, url = address_of(hook.url, private=hook.private), httpx.URL(hook.url)
    body, at_s = json.dumps(document).encode(), str(int(now_s))
    key = base64.b64decode(hook.secret.removeprefix(SECRET_PREFIX))
    signed = hmac.new(key, f"{document['id']}.{at_s}.".encode() + body, hashlib.sha256).digest()
    headers = {
        "Host": url.netloc.decode(),
        "Content-Type": "application/json",
        "User-Agent": "UnifiedNN",
        "webhook-id": document["id"],  # these three as Standard Webhooks define them
        "webhook-timestamp": at_s,
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
    to, name = url.copy_with(host=address), {"sni_hostname": url.host}

    async def post() -> int:
        async with (
            asyncio.timeout(LASTS_S),
            httpx.AsyncClient(trust_env=False, timeout=LASTS_S / 2) as client,
            client.stream("POST", to, content=body, headers=headers, extensions=name) as answer,
        ):
            return answer.status_code

    try:
        status = asyncio.run(post())
    except (httpx.HTTPError, OSError) as error:
        raise _refused(f"No answer: {first_line(error)}.", "Correct the address or the receiver.") from None
    if not 200 <= status < 300:
        raise _refused(f"It answered {status}.", "Correct the address or the receiver.")


def payload(event: EventRow, run: RunRow) -> dict[str, Any]:
    """The document of an event. `text` is what Slack and its like show."""
    name, host = name_of(event), next(iter(named_hosts()), None)
    state = name.partition(".")[2]
    link = f"{f'https://{host}' if host else LOCAL_URL}/run?run={run.id}"
    what = f"Run {run.name}" if event.submodel is None else f"{event.submodel} of run {run.name}"
    cause = event.fields.get("cause")
    why = f": {cause.rstrip('.')}" if cause else ""
    return {
        "id": f"event-{event.id}",
        "event": name,
        "run": run.id,
        "name": run.name,
        "mode": run.mode,
        **({} if event.submodel is None else {"submodel": event.submodel}),
        "state": state,
        "cause": cause,
        "at": datetime.fromtimestamp(event.at_s, UTC).isoformat(timespec="milliseconds"),
        "link": link,
        "text": f"{what} is {state}{why}. {link}",
    }


class WebhookSender(Background):
    """Sends what webhooks have not heard of. `start` begins the thread, `round` is one look."""

    name = "webhooks"
    patience_s = ROUND_S

    def __init__(self, webhooks: Webhooks, clock: Clock):
        self._webhooks, self._clock = webhooks, clock
        super().__init__()

    def round(self) -> None:
        """Send to each webhook what is due, one event of each at a time: a slow one delays others by one delivery."""
        while sum(self._send(hook) for hook in self._webhooks.all()):
            pass

    def _send(self, hook: WebhookRow) -> bool:
        """Send a webhook its next event, and note what came of it; returns whether the receiver has taken it."""
        now_s = self._clock.utc_s()
        if hook.next_at_s > now_s or self._stop.is_set():
            return False
        newest = self._webhooks.newest_event()
        found = self._webhooks.next_for(hook)
        if found is None:
            if newest - hook.cursor >= BEHIND:
                self._webhooks.update(hook, cursor=newest)
            return False
        if not self._webhooks.update(hook, next_at_s=now_s + LEASE_S):
            return False
        event, run = found
        try:
            deliver(hook, payload(event, run), now_s)
        except BadInput as error:
            said = error.findings[0].message
            if hook.failures < len(WAITS_S):
                next_at_s = self._clock.utc_s() + WAITS_S[hook.failures]
                self._webhooks.update(hook, failures=hook.failures + 1, next_at_s=next_at_s, error=said)
            else:
                self._webhooks.update(hook, failures=0, next_at_s=0.0, error=f"Given up: {said}", cursor=event.id)
            return False
        self._webhooks.update(hook, failures=0, next_at_s=0.0, error=None, cursor=event.id)
        return True

    def _watch(self) -> None:
        while not self._stop.wait(ROUND_S):
            try:
                self.round()
            except Exception:  # a full disk or a locked store must not end it
                log_error(_log, "Webhooks could not be told; the server tries again.")


def _refused(message: str, remedy: str) -> BadInput:
    return BadInput.of("Webhook", "url", message, remedy)


def _is_public(address: str) -> bool:
    known = ipaddress.ip_address(address)
    hides_ipv4 = known.version == 6 and bool(known.sixtofour or known.teredo or known in _TRANSLATED)
    return known.is_global and not known.is_multicast and not hides_ipv4
