"""Carries files between this host and where several hosts keep theirs: for its workers, in threads of its own.

A worker asks by its spool (`runtime.spool`). Beside that the carrier writes the ends of its workers' logs into the
store, deletes blobs that are to go, and the copies of files and runs that are gone. On one machine it does nothing.
"""

import logging
import re
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput, BlobLost, BlobsUnreachable, NotFound, UnifiedNNError
from unifiednn_core.base.files import is_plain, last_lines
from unifiednn_core.base.paths import Home
from unifiednn_core.base.trouble import log_error
from unifiednn_core.runtime import spool
from unifiednn_core.runtime.background import Background
from unifiednn_core.spec.devices import SERVER, host_of
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.spec.split import waits_for
from unifiednn_core.store import Store
from unifiednn_core.store.hybrids import Resident
from unifiednn_core.store.library import files_of
from unifiednn_core.store.schema import HYBRID

AT_ONCE = 4
"""Transfers at once."""
LOOK_S, LIVE_S, LOGS_S, SWEEP_S, TIDY_S = 0.1, 1.0, 2.0, 10.0, 600.0
LOG_BYTES = 64 * 1024
_PLACE = re.compile(r"checkpoints/[^/]+/step-\d+\.safetensors|models/[^/.][^/]*")
_log = logging.getLogger(__name__)


class Carrier(Background):
    """Serves the workers of a home. One process of a host does so; several do no harm."""

    name = "carrier"

    def __init__(self, home: Home, store: Store, clock: Clock, *, host: str = ""):
        """`host` names a host that is not the server's, as an agent calls it."""
        self._home, self._store, self._clock, self._host = home, store, clock, host
        self._depot = store.depot(home)
        self._transfers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="carrier")
        self._under_way: dict[tuple[str, ...], Future[None]] = {}
        """By hybrid, and what is done for which sub-model: one at once, also if its worker asks again."""
        self._live: set[str] = set()
        """Hybrids with a worker on this host."""
        self._told: dict[tuple[str, str], int] = {}
        """Bytes of each log when it was last told."""
        self._due_s: dict[str, float] = {}
        self._chores: Future[None] | None = None
        super().__init__()

    def start(self) -> None:
        """Begin to carry, if several hosts share files; idempotent. Raises `BadInput` if this host cannot."""
        if not self._depot.is_shared or self.alive:
            return
        try:
            self._depot.require_place()
        except BlobsUnreachable as error:  # workers wait
            _log.warning("%s. Files are carried as soon as it can be reached.", error)
        super().start()

    def stop(self) -> None:
        """Stop; what is asked meanwhile waits for the next carrier of this host."""
        super().stop()
        self._transfers.shutdown(wait=False, cancel_futures=True)

    def tick(self) -> None:
        """Look at what is asked, and begin to do it."""
        if self._is_due("live", LIVE_S):
            live = {hybrid.id for hybrid in self._store.workers.held() if self._home.spool(hybrid.id).is_dir()}
            for ended in self._live - live:
                self._tell_logs(ended)
            self._live = live
            for hybrid_id in live:
                spool.show_life(self._home.spool(hybrid_id))
        self._under_way = {key: future for key, future in self._under_way.items() if not future.done()}
        for hybrid_id in self._live:
            for name, asked in spool.questions(self._home.spool(hybrid_id)).items():
                what = (hybrid_id, *(str(asked.get(part)) for part in ("do", "run", "submodel")))
                if what not in self._under_way:
                    self._under_way[what] = self._transfers.submit(self._serve, hybrid_id, name, asked)
        if self._is_due("logs", LOGS_S):
            for hybrid_id in self._live:
                self._tell_logs(hybrid_id)
        if self._chores is None or self._chores.done():
            if self._is_due("sweep", SWEEP_S):
                self._chores = self._transfers.submit(_quietly, self._depot.sweep)
            elif self._is_due("tidy", TIDY_S):
                self._chores = self._transfers.submit(_quietly, self.tidy)

    def tidy(self) -> None:
        """Keep what has no blob yet, and delete the copies of files and runs that are gone."""
        if not self._host:  # a host that joined has nothing from before
            self._depot.keep_what_is_here()
        self._store.blobs.leave_unnamed()
        self._depot.tidy_cache(self._store.removals.known_files())
        folders = [path.parent for path in self._home.root.glob(f"*/*/{self._home.spool('').name}")]
        known = self._store.removals.known_ids() if folders else frozenset()
        for folder in folders:
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)

    def _watch(self) -> None:
        self._tell_logs_of_the_dead()
        while not self._stop.wait(LOOK_S if self._live else LIVE_S):
            try:
                self.tick()
            except Exception:  # a full disk or a database that is away must not end the watch
                log_error(_log, "The carrier could not look at what workers ask; it tries again.")
                self._stop.wait(LIVE_S)

    def _is_due(self, what: str, every_s: float) -> bool:
        now_s = self._clock.monotonic_s()
        due = now_s >= self._due_s.get(what, 0.0)
        if due:
            self._due_s[what] = now_s + every_s
        return due

    # -- what workers ask

    def _serve(self, hybrid_id: str, name: str, asked: dict[str, Any]) -> None:
        place = f"submodels.{asked.get('submodel')}"
        try:
            answer = self._answer(hybrid_id, asked)
        except BlobLost as error:
            answer = {"failed": ["File lost", place, str(error), error.remedy]}
        except BadInput as error:
            found = error.findings[0]
            answer = {"failed": [found.title, place, found.message, found.remedy]}
        except (OSError, SQLAlchemyError) as error:
            answer = {"again": getattr(error, "strerror", None) or f"{type(error).__name__}"}
        except Exception as error:
            log_error(_log, "A file of %s could not be carried.", hybrid_id)
            remedy = "This is a defect of UnifiedNN; the log of this host's agent has the whole trace."
            answer = {"failed": ["Not carried", place, f"An unexpected error: {type(error).__name__}.", remedy]}
        with suppress(OSError):  # the worker asks again
            spool.tell(self._home.spool(hybrid_id), name, answer)

    def _answer(self, hybrid_id: str, asked: dict[str, Any]) -> dict[str, Any]:
        hybrid, members = self._store.hybrids.get(hybrid_id)
        if host_of(hybrid.device) != (self._host or SERVER):  # it goes on elsewhere, and this was asked before
            return {"gone": f"The hybrid {hybrid_id} is not on this host."}
        member = next((m for m in members if [m.run.id, m.row.name] == [asked.get("run"), asked.get("submodel")]), None)
        if member is None:  # it ended or left while its worker asked
            return {"gone": f"The hybrid {hybrid_id} does not train that."}
        if asked.get("do") == "bring":
            self._bring(member)
            return {}
        names = [self._checked(member, name) for name in asked.get("names", ())]
        return {"keys": self._depot.keep(member.run.id, member.row.name, names)}

    def _checked(self, member: Resident, name: object) -> str:
        """A place in the folder of a run, where a file has to be. A worker may write links there."""
        if not isinstance(name, str) or not _PLACE.fullmatch(name) or not is_plain(self._home.run(member.run.id), name):
            raise NotFound("There is no such file.")
        return name

    def _bring(self, member: Resident) -> None:
        run, row = member
        self._home.spool(run.id).mkdir(parents=True, exist_ok=True)  # this folder is a copy
        [part] = [part for part in run.spec["submodels"] if part["name"] == row.name]
        for sha256 in dict.fromkeys(files_of(part).values()):
            self._depot.bring_file(sha256)
        if run.mode != HYBRID:
            return
        parts = waits_for(SubModelSpec.model_validate(part))
        models = {name: f"models/{name}.safetensors" for name in parts}
        if not all(is_plain(self._home.run(run.id), place) for place in (f"checkpoints/{row.name}", *models.values())):
            raise NotFound("A folder of this run was replaced by a link.")
        for name, place in models.items():
            self._depot.bring_to_folder(run.id, name, place)
        lost = self._depot.bring_checkpoints(run.id, row.name, row.checkpoint, row.attempt)
        if lost:
            self._store.runs.warn(run.id, row.name, lost)

    # -- logs

    def _tell_logs(self, hybrid_id: str) -> None:
        folder = self._home.run(hybrid_id)
        for file in (self._home.log(hybrid_id), *sorted((folder / "baseline").glob("*.log"))):
            with suppress(OSError):
                name = str(file.relative_to(folder))
                place = f"{self._host}/{name}"
                if file.lstat().st_size != self._told.get((hybrid_id, place), 0):
                    text, size_bytes = last_lines(folder, name, LOG_BYTES)
                    self._store.worker_logs.write(
                        hybrid_id,
                        place,
                        text.replace(str(self._home.root), "HOME"),
                        size_bytes=size_bytes,
                        is_cut=size_bytes > LOG_BYTES,
                    )
                    self._told[hybrid_id, place] = size_bytes

    def _tell_logs_of_the_dead(self) -> None:
        """Tell the logs of workers that ended while nobody watched."""
        try:
            ids = {path.parent.name for path in self._home.root.glob(f"*/*/{self._home.spool('').name}")}
            self._told = self._store.worker_logs.sizes()
            for hybrid_id in ids & self._store.removals.known_ids():
                self._tell_logs(hybrid_id)
        except Exception:
            log_error(_log, "The logs of earlier workers could not be read.")


def _quietly(work: Callable[[], object]) -> None:
    """Do a chore that is done again later."""
    try:
        work()
    except UnifiedNNError as error:
        _log.warning("%s It is tried again.", error)
    except Exception:
        log_error(_log, "A chore of the carrier failed; it is tried again.")
