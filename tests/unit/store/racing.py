"""What each of several supervisors does in a race for one device, as the main function of a process."""

import threading
from multiprocessing import Queue
from pathlib import Path

from sqlalchemy import delete, update

from unifiednn_core.store import Store
from unifiednn_core.store.schema import EventRow, HybridRow, RunRow
from unifiednn_core.store.workers import Berth

PATIENCE_S = 120.0


def race(database: Path, me: int, rounds: int, together: threading.Barrier, won: "Queue[list[int]]") -> None:
    """Claim the same device for the run of this racer, at the same moment as all others, in each of so many rounds."""
    store, at, mine = Store(database), Berth(device="cpu", kind="", threads=1), []
    for number in range(rounds):
        together.wait(PATIENCE_S)
        if store.workers.claim(f"r{me}", at):
            mine.append(number)
        together.wait(PATIENCE_S)
        if me == 0:
            give_back(store)
    won.put(mine)
    store.close()


def give_back(store: Store) -> None:
    """Let all wait again, and nobody hold the device."""
    with store._database.write() as session:
        session.execute(update(RunRow).values(state="queued"))
        session.execute(update(HybridRow).values(device=None, heartbeat_at_s=None))
        session.execute(delete(EventRow))
