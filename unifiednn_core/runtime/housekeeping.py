"""What the server deletes by itself: once an hour, in a thread of its own."""

import json
import logging
import threading

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.base.paths import Home
from unifiednn_core.base.trouble import log_error
from unifiednn_core.machine.disk import disk_use, size_of
from unifiednn_core.runtime import removal
from unifiednn_core.spec.retention import Due, Kept, Retention, due, shortfall
from unifiednn_core.store import Store

PERIOD_S = 3600.0
SETTING = "retention"
WHO = "retention"
"""Person of its lines in the audit log."""
ROLE = "server"

_log = logging.getLogger(__name__)


class Housekeeper:
    """Finishes interrupted deletions and applies the retention. Call it often; it works once an hour."""

    def __init__(self, home: Home, store: Store, clock: Clock):
        self._home, self._store, self._clock = home, store, clock
        self._last_s: float | None = None
        self._thread: threading.Thread | None = None

    def __call__(self) -> None:
        """Begin a pass if none is under way and the last one began an hour ago."""
        now_s = self._clock.monotonic_s()
        busy = self._thread is not None and self._thread.is_alive()
        if busy or (self._last_s is not None and now_s - self._last_s < PERIOD_S):
            return
        self._last_s = now_s
        self._thread = threading.Thread(target=self._pass, name="housekeeper", daemon=True)
        self._thread.start()

    def _pass(self) -> None:
        try:
            removal.finish(self._home, self._store)
            apply(self._home, self._store, self._clock)
        except Exception:  # a full disk or a locked store must not end the server
            log_error(_log, "Old runs could not be deleted; it is tried again in an hour.")


def retention_in(store: Store) -> Retention:
    """What an admin set; off by default."""
    row = store.people.setting(SETTING)
    return Retention() if row is None else Retention.model_validate(json.loads(row.value))


def planned(home: Home, store: Store, clock: Clock, retention: Retention) -> tuple[Due, ...]:
    """What a pass would delete now under these settings."""
    if retention.is_off:
        return ()
    now_s, limit_bytes = clock.utc_s(), retention.home_limit_bytes
    kept = [
        Kept(run_id, name, ended_s, size_of(home.run(run_id) / "checkpoints"), size_of(home.run(run_id)))
        for run_id, name, ended_s in store.removals.removable()
        if limit_bytes is not None or ended_s < now_s - retention.least_age_s  # to measure them all takes a while
    ]
    home_bytes = 0 if limit_bytes is None else disk_use(home).home
    return due(retention, kept, home_bytes, now_s)


def apply(home: Home, store: Store, clock: Clock) -> tuple[Due, ...]:
    """Delete what is due, with a line in the audit log each; returns what went."""
    gone, rules = [], retention_in(store)
    found = planned(home, store, clock, rules)
    if said := shortfall(rules, found, 0 if rules.home_limit_bytes is None else disk_use(home).home):
        store.people.note(person=WHO, role=ROLE, action="home_limit", subject=said, outcome="failed: BadInput")
    for one in found:
        run_id = one.run.run_id
        action = "delete_run" if one.what == "run" else "delete_checkpoints"
        try:
            if one.what == "run":
                removal.remove_run(home, store, run_id)
            else:
                removal.remove_checkpoints(home, store, run_id)
                store.runs.remark(run_id, f"Its checkpoints were deleted. {one.why}")
        except UnifiedNNError as error:  # it was resumed or deleted meanwhile
            outcome = f"failed: {type(error).__name__}"
        else:
            outcome = "allowed"
            gone.append(one)
        store.people.note(person=WHO, role=ROLE, action=action, subject=f"{run_id} {one.why}", outcome=outcome)
    return tuple(gone)
