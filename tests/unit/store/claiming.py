"""What each of many supervisors does, as the main function of a process; the tests themselves take long to import."""

import threading
from multiprocessing import Queue
from pathlib import Path

from unifiednn_core.base.paths import Home
from unifiednn_core.store import Store


def claim(root: str, start: threading.Event, won: "Queue[str | None]") -> None:
    """Claim the next run as soon as all may."""
    store = Store.open(Home(Path(root)))
    start.wait()
    won.put(store.workers.claim_next("cpu"))
