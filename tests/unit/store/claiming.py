"""What each of many supervisors does, as the main function of a process; the tests themselves take long to import."""

import threading
from multiprocessing import Queue
from pathlib import Path

from unifiednn_core.base.paths import Home
from unifiednn_core.spec.run import HybridSettings
from unifiednn_core.store import Store
from unifiednn_core.store.schema import RunRow
from unifiednn_core.store.workers import Berth


def claim(root: str, start: threading.Event, won: "Queue[bool]", mine: str) -> None:
    """Place what waits as soon as all may: in `mine`, if that is the id of a shared hybrid."""
    store, at = Store.open(Home(Path(root))), Berth(device="cpu", kind="", threads=1)
    waiting = [(run, [(run.id, row.name) for row in rows]) for run, rows in store.workers.waiting()]
    start.wait(60)
    won.put(any(_place(store, run, members, at, mine) for run, members in waiting))


def _place(store: Store, run: RunRow, members: list[tuple[str, str]], at: Berth, mine: str) -> bool:
    if not run.shared:
        return store.workers.claim(run.id, at)
    return store.workers.open_shared(mine, members, at, HybridSettings())
