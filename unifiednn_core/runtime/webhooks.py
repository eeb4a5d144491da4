"""The thread that tells webhooks of the ends of runs and sub-models, in the process of the supervisor.

Each webhook has a cursor in the store, which moves once the receiver has taken an event: after a restart nothing is
lost, and what is sent twice has the same `id`. Events of one webhook are sent in order; after a failure it waits longer
and longer, and gives an event up after a day.
"""

import json
import logging
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.trouble import log_error
from unifiednn_core.runtime.delivery import Undelivered, deliver
from unifiednn_core.store.webhooks import MOST_AT_ONCE, READY, End, WebhookRow, Webhooks

ROUND_S = 1.0
LEASE_S = 60.0
"""Longer than a delivery lasts."""
FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 600.0
GIVEN_UP_S = 86_400.0
BEHIND = 200
"""A cursor is moved past events that nobody asked for when there are so many: a write for each look costs more."""
URL_VARIABLE = "UNIFIEDNN_URL"
LOCAL_URL = "http://127.0.0.1:8501"
Deliver = Callable[[str, str, str, float, bytes], None]
_log = logging.getLogger(__name__)


def payload(end: End) -> dict[str, Any]:
    """The document of an event. `text` is what Slack and its like show."""
    what = f"Run {end.run_name}" if end.submodel is None else f"{end.submodel} of run {end.run_name}"
    link = f"{os.environ.get(URL_VARIABLE, LOCAL_URL).rstrip('/')}/run?run={end.run_id}"
    cause = f": {end.cause.rstrip('.')}." if end.cause else "."
    return {
        "id": f"event-{end.id}",
        "event": end.event,
        "run": end.run_id,
        "name": end.run_name,
        "mode": end.mode,
        **({} if end.submodel is None else {"submodel": end.submodel}),
        "state": end.state,
        "cause": end.cause,
        "at": datetime.fromtimestamp(end.at_s, UTC).isoformat(timespec="milliseconds"),
        "link": link,
        "text": f"{what} {'can be downloaded' if end.state == READY else f'is {end.state}'}{cause} {link}",
    }


class WebhookSender:
    """Sends what webhooks have not heard of. `start` begins the thread, `round` is one look."""

    def __init__(self, webhooks: Webhooks, clock: Clock, send: Deliver = deliver):
        self._webhooks, self._clock, self._send = webhooks, clock, send
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start sending; idempotent."""
        if self._thread is None or not self._thread.is_alive():
            self._stop.clear()
            self._thread = threading.Thread(target=self._watch, name="webhooks", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop sending; a delivery that goes on is finished, or repeated by the next process."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(ROUND_S)

    def round(self) -> None:
        """Send to each webhook what is due, one event of each at a time: a slow one delays others by one delivery."""
        while self._pass():
            pass

    def _pass(self) -> bool:
        """Send each webhook its next event; returns whether one took it."""
        taken = False
        now_s, newest = self._clock.utc_s(), None
        for hook in self._webhooks.all():
            if hook.next_at_s > now_s or self._stop.is_set():
                continue
            newest = self._webhooks.newest_event() if newest is None else newest
            if newest <= hook.cursor:
                continue
            ends = self._webhooks.ends(hook.cursor)
            asked = next((end for end in ends if end.event in hook.events), None)
            if asked is not None:
                taken = self._tell(hook, asked) or taken
                continue
            past = ends[-1].id if len(ends) == MOST_AT_ONCE else newest
            if past - hook.cursor >= BEHIND:
                self._webhooks.update(hook.id, cursor=past)
        return taken

    def _tell(self, hook: WebhookRow, end: End) -> bool:
        """Send one event, and note what came of it; returns whether the receiver has taken it."""
        if self._stop.is_set() or not self._webhooks.claim(hook.id, hook, self._clock.utc_s() + LEASE_S):
            return False
        document = payload(end)
        try:
            self._send(hook.url, hook.secret, document["id"], self._clock.utc_s(), json.dumps(document).encode())
        except Undelivered as error:
            now_s, failures = self._clock.utc_s(), hook.failures + 1
            over = now_s - end.at_s > GIVEN_UP_S
            wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(failures, 30))
            told = f"{error} {'This event was given up after a day.' if over else ''}".rstrip()
            self._webhooks.update(
                hook.id, failures=failures, error=told, next_at_s=now_s + wait_s, cursor=end.id if over else hook.cursor
            )
        else:
            now_s = self._clock.utc_s()
            hook.failures, hook.cursor, hook.next_at_s = 0, end.id, 0.0
            self._webhooks.update(hook.id, failures=0, error=None, next_at_s=0.0, cursor=end.id, answered_at_s=now_s)
            return True
        return False

    def _watch(self) -> None:
        while not self._stop.wait(ROUND_S):
            try:
                self.round()
            except Exception:  # a full disk or a locked store must not end it
                log_error(_log, "Webhooks could not be told; the server tries again.")
