"""Writes captured states to disk in its own thread, while training continues."""

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import OperationalError

from unifiednn_core.base.errors import NotFound
from unifiednn_core.base.trouble import log_error
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.checkpoint_file import CheckpointStore

RETRY_S = 2.0

_log = logging.getLogger(__name__)
_Task = Checkpoint | Callable[[], object]


class CheckpointWriter:
    """Carries out tasks in order: writes checkpoints, and calls actions once everything before them is on disk.

    On a full disk or a locked store it retries until it succeeds; only a newer checkpoint replaces an older one.
    """

    def __init__(
        self,
        store_of: Callable[[str], CheckpointStore],
        record: Callable[[Checkpoint, Path], object],
        on_done: Callable[[str], object],
        warn: Callable[[str, str], object],
    ):
        """Start the thread.

        `record` gets each written checkpoint and its path, `on_done` the sub-model after each write or skip, `warn` a
        sub-model and a message if its checkpoint cannot be written.
        """
        self._store_of, self._record, self._on_done, self._warn = store_of, record, on_done, warn
        self._dropped: set[str] = set()
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._waiting: Counter[str] = Counter()
        """Checkpoints of each sub-model that wait, including the one in progress."""
        self._open_tasks = 0
        self.stalled = False
        """Whether a task failed and is being retried."""
        self._written: Path | None = None
        """The checkpoint of the present task, once it is on disk."""
        self._lock = threading.Lock()
        threading.Thread(target=self._work, name="checkpoints", daemon=True).start()

    def put(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint."""
        self._dropped.discard(checkpoint.submodel)
        with self._lock:
            self._waiting[checkpoint.submodel] += 1
        self.after(checkpoint)

    def drop(self, submodel: str) -> None:
        """Skip the waiting checkpoints of a sub-model."""
        self._dropped.add(submodel)

    def after(self, task: _Task) -> None:
        """Carry out a task once everything before it is done."""
        with self._lock:
            self._open_tasks += 1
        self._tasks.put(task)

    def is_writing(self, submodel: str) -> bool:
        """Whether checkpoints of a sub-model wait to be written."""
        return self._waiting[submodel] > 0

    @property
    def idle(self) -> bool:
        """Whether everything is done."""
        return self._open_tasks == 0

    def _work(self) -> None:
        while True:
            self._finish(self._tasks.get())  # held by no variable here: a checkpoint is large

    def _finish(self, task: _Task) -> None:
        self._written = None
        while not self._done(task):
            self.stalled = True
            time.sleep(RETRY_S)
        self.stalled = False
        if isinstance(task, Checkpoint):
            with self._lock:
                self._waiting[task.submodel] -= 1
            self._on_done(task.submodel)
        with self._lock:
            self._open_tasks -= 1

    def _done(self, task: _Task) -> bool:
        """Whether the task is done or skipped; False if it has to be retried."""
        try:
            if not isinstance(task, Checkpoint):
                task()
            elif task.submodel not in self._dropped:
                self._written = self._written or self._store_of(task.submodel).put(task)
                self._record(task, self._written)
        except NotFound:
            if not isinstance(task, Checkpoint):
                self._complain(task, "; the log says why.")
            return True  # a checkpoint of a sub-model that has ended or left meanwhile: nobody needs it
        except (OSError, OperationalError) as error:
            if isinstance(task, Checkpoint) and self._waiting[task.submodel] > 1:
                return True
            if not self.stalled:
                reason = error.strerror if isinstance(error, OSError) else "the store cannot be written now"
                self._complain(task, f": {reason}. It is tried again every {RETRY_S:g} s; training goes on.")
            return False
        except Exception:  # a defect must not end this thread
            self._complain(task, "; the log says why.")
        return True

    def _complain(self, task: _Task, reason: str) -> None:
        log_error(_log, "A task after a checkpoint failed.")
        if isinstance(task, Checkpoint):
            failed = f"The checkpoint of {task.submodel} at step {task.step} could not be written"
            self._warn(task.submodel, failed + reason)
