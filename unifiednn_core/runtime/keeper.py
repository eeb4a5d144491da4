"""Puts captured states on disk, in a thread of its own, while training goes on."""

import queue
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable

from sqlalchemy.exc import OperationalError

from unifiednn_core.checkpoints.checkpoint import Checkpoint
from unifiednn_core.checkpoints.shelf import Shelf

RETRY_S = 2.0

_Task = Checkpoint | Callable[[], object] | None


class Keeper:
    """Does what it is given in order: a checkpoint is written, anything else called once all before it are on disk.

    A full disk or a locked store holds it up: it tries again until there is room, and drops a checkpoint only for a
    newer one of the same sub-model.
    """

    def __init__(
        self,
        shelf_of: Callable[[str], Shelf],
        record: Callable[[Checkpoint, Shelf], object],
        settled: Callable[[str], object],
        complain: Callable[[str, str], object],
    ):
        """`record` is called after each checkpoint on disk, `complain` (sub-model, message) where one is not, and
        `settled` (sub-model) when one is off the list, either way.
        """
        self._shelf_of, self._record, self._settled, self._complain = shelf_of, record, settled, complain
        self._unwanted: set[str] = set()
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._waiting: Counter[str] = Counter()
        """Checkpoints of each sub-model that wait, the one being written among them."""
        self._undone = 0
        self._stalled = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="keeper", daemon=True)
        self._thread.start()

    def put(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint."""
        self._unwanted.discard(checkpoint.submodel)
        with self._lock:
            self._waiting[checkpoint.submodel] += 1
        self._add(checkpoint)

    def drop(self, submodel: str) -> None:
        """Write no more checkpoints of a sub-model."""
        self._unwanted.add(submodel)

    def busy_with(self, submodel: str) -> bool:
        """Whether checkpoints of a sub-model wait to be written."""
        return self._waiting[submodel] > 0

    def after(self, action: Callable[[], object]) -> None:
        """Call `action` once everything before it is done."""
        self._add(action)

    @property
    def idle(self) -> bool:
        """Whether everything is done."""
        return self._undone == 0

    @property
    def stalled(self) -> bool:
        """Whether something could not be done yet, and is being tried again."""
        return self._stalled

    def _add(self, task: _Task) -> None:
        with self._lock:
            self._undone += 1
        self._tasks.put(task)

    def _work(self) -> None:
        while True:
            task: _Task = self._tasks.get()
            while not self._done(task, complained=self._stalled):
                self._stalled = True
                time.sleep(RETRY_S)
            self._stalled = False
            with self._lock:
                self._undone -= 1
                if isinstance(task, Checkpoint):
                    self._waiting[task.submodel] -= 1
            if isinstance(task, Checkpoint):
                self._settled(task.submodel)
            task = None  # a checkpoint is large, and the next task may be long in coming

    def _done(self, task: _Task, *, complained: bool) -> bool:
        """Whether the task is off the list; False where it is to be tried again."""
        try:
            if isinstance(task, Checkpoint) and task.submodel in self._unwanted:
                return True
            if isinstance(task, Checkpoint):
                shelf = self._shelf_of(task.submodel)
                shelf.put(task)
                self._record(task, shelf)
            elif task is not None:
                task()
        except (OSError, OperationalError) as error:
            if isinstance(task, Checkpoint) and self._waiting[task.submodel] > 1:
                return True
            if not complained:
                traceback.print_exc()
                if isinstance(task, Checkpoint):
                    reason = error.strerror if isinstance(error, OSError) else "the store is locked"
                    said = f"The checkpoint of {task.submodel} at step {task.step} could not be written: {reason}."
                    self._complain(task.submodel, f"{said} It is tried again every {RETRY_S:g} s; training goes on.")
            return False
        except Exception:  # a defect must not silence the keeper for good
            traceback.print_exc()
            if isinstance(task, Checkpoint):
                said = f"The checkpoint of {task.submodel} at step {task.step} could not be written; the log says why."
                self._complain(task.submodel, said)
        return True
