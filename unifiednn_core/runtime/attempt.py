"""The driver's end of one attempt: an actor on a node, whose worker it serves until that has ended or is lost."""

import hashlib
import logging
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, OutOfMemoryError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from sqlalchemy.exc import OperationalError

from unifiednn_core.base.errors import BadInput, NotFound, cause_of
from unifiednn_core.base.files import atomic_replace, file_sha256, is_plain, sync
from unifiednn_core.base.paths import Home
from unifiednn_core.base.trouble import log_error
from unifiednn_core.runtime.calls import BRING, KEEP, Call, Desk, answered, failed
from unifiednn_core.runtime.launchers import opened_log
from unifiednn_core.runtime.relay import PART_BYTES, Relay
from unifiednn_core.spec.devices import CUDA, host_of, type_named
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.spec.split import waits_for
from unifiednn_core.store import Store
from unifiednn_core.store.hybrids import Resident
from unifiednn_core.store.library import files_of
from unifiednn_core.store.schema import HYBRID, HybridRow

AGAIN_S, ANSWER_S, START_S, HASH_S = 0.5, 60.0, 90.0, 1800.0
RESUME = "Resume it: it goes on from its last checkpoint, on a device of the same kind."
_KEPT = re.compile(r"checkpoints/[^/]+/step-\d+\.safetensors|models/[^/.][^/]*")
_log = logging.getLogger(__name__)


class Lost(Exception):
    """An attempt has ended with its node, its actor or its worker."""

    def __init__(self, cause: str, *, died_at: str | None = None, counts: bool = False):
        super().__init__(cause)
        self.died_at, self.counts = died_at, counts


@dataclass(frozen=True, slots=True)
class Site:
    """What all attempts of a driver share."""

    home: Home
    store: Store
    namespace: str
    """Name under which the actors of this server are known in the cluster."""
    look: Callable[[], None]
    """Looks at the nodes at once, for an attempt that has lost one."""
    locks: defaultdict[tuple[str, str], threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    """By node and file: it is sent once, whoever needs it."""


@dataclass(frozen=True, slots=True)
class Room:
    """A node as an actor is placed on it."""

    node_id: str
    cpus: float

    def on(self) -> NodeAffinitySchedulingStrategy:
        """For the options of a task or an actor that runs on this node alone."""
        return NodeAffinitySchedulingStrategy(self.node_id, soft=False)


def kill(name: str, namespace: str) -> None:
    """End an actor, and its worker with it; nothing if it is gone."""
    with suppress(ValueError, RayError):
        ray.kill(ray.get_actor(name, namespace), no_restart=True)


def number_of(hybrid: HybridRow) -> int:
    """Number of the attempt on a hybrid that holds a device: until its worker registers, that is to come."""
    return hybrid.attempt + (hybrid.worker_pid is None)


def name_of(hybrid: HybridRow) -> str:
    """Name of the actor of this attempt."""
    return f"{hybrid.id}.{number_of(hybrid)}@{host_of(hybrid.device)}"


class Attempt:
    """Serves a worker in a thread of its own."""

    def __init__(self, site: Site, hybrid: HybridRow, room: Room | None):
        """Begin. `room` is the node of its device; None if that is gone."""
        self._site, self._store, self._hybrid, self._room = site, site.store, hybrid, room
        self._name, self._number, self._host = name_of(hybrid), number_of(hybrid), host_of(hybrid.device)
        self._desk = Desk(site.store, hybrid.id, self._number)
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="files")
        self._known: set[int] = set()
        """Calls that are being carried out."""
        self._logged_bytes: int | None = None
        self._actor: Any = None
        self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it is not over."""
        return self._thread.is_alive()

    def _serve(self) -> None:
        try:
            self._open()
            while not self._poll():
                pass
            kill(self._name, self._site.namespace)
        except Lost as lost:
            self._give_up(lost)
        except Exception as error:  # a defect must not keep a device for ever
            log_error(_log, "The attempt %s could not be served.", self._name)
            self._give_up(Lost(f"The driver could not serve its worker: {cause_of(error)}."))
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _give_up(self, lost: Lost) -> None:
        """End the actor, then record that the attempt is over: the next one begins after that."""
        kill(self._name, self._site.namespace)
        self._pool.shutdown(wait=True, cancel_futures=True)
        with suppress(RayError, OperationalError):
            self._site.look()
        for hybrid in self._store.workers.held():
            if name_of(hybrid) == self._name:
                lose = self._store.workers.lose
                lose(hybrid.id, str(lost), RESUME, seen=hybrid, died_at=lost.died_at, counts=lost.counts)

    def _open(self) -> None:
        """Find the actor of this attempt, or make it. Raises `Lost`."""
        with suppress(ValueError):
            self._actor = ray.get_actor(self._name, self._site.namespace)
        if self._actor is None:
            if self._room is None or self._hybrid.worker_pid is not None:
                raise Lost(f"Its worker on {self._host} ended with its Ray process or its node.")
            self._actor = self._made(self._room)
        try:
            self._got(self._actor.start.remote(self._hybrid.threads, self._hybrid.mode), START_S)
        except ActorUnavailableError:
            time.sleep(AGAIN_S)
            self._open()
        except GetTimeoutError as error:
            raise Lost(f"It did not start on {self._host} in {START_S:g} s: others may use that node.") from error
        except OSError as error:
            raise Lost(f"Its worker on {self._host} could not be started: {error}.", counts=True) from error

    def _made(self, room: Room) -> Any:
        on_gpu = type_named(self._hybrid.device or "") == CUDA
        return (
            ray.remote(Relay)
            .options(
                name=self._name,
                namespace=self._site.namespace,
                lifetime="detached",
                num_gpus=1 + len(self._hybrid.also) if on_gpu else 0,
                num_cpus=0 if on_gpu else min(float(self._hybrid.threads), room.cpus),
                max_concurrency=8,
                scheduling_strategy=room.on(),
            )
            .remote(f"nodes/{self._site.namespace}/{self._host}", self._hybrid.id)
        )

    def _poll(self) -> bool:
        """Carry out what the worker asks for; True once it has ended and nothing is open. Raises `Lost`."""
        try:
            news = self._got(self._actor.poll.remote(list(self._known), self._logged_bytes))
        except (ActorUnavailableError, GetTimeoutError):  # it comes back, or Ray says that it is dead
            time.sleep(AGAIN_S)
            return False
        self._write_log(news.log_from, news.log)
        for number, frame in news.calls:
            self._known.add(number)
            call = Call.decoded(frame)
            if call.name in (BRING, KEEP):
                self._pool.submit(self._carry_file, number, call)
            else:
                self._answer(number, self._desk_answer(call))
        if news.exit_code is None:
            return False
        if news.calls or news.log or self._known:
            time.sleep(AGAIN_S)  # its last files are on their way
            return False
        if any(name_of(hybrid) == self._name for hybrid in self._store.workers.held()):
            log = f"Its log is {'hybrids' if self._hybrid.shared else 'runs'}/{self._hybrid.id}/worker.log in the home."
            cause = f"The worker on {self._host} ended with exit code {news.exit_code}. {log}"
            raise Lost(cause, died_at=news.died_at, counts=True)
        return True

    def _desk_answer(self, call: Call) -> bytes:
        """The answer of the store, as soon as that can be written."""
        while True:
            try:
                return self._desk.answer(call)
            except OperationalError:
                log_error(_log, "The store could not take a call; it is tried again.")
                time.sleep(AGAIN_S)

    def _answer(self, number: int, answer: bytes) -> None:
        """Give an answer. If it does not arrive, the call comes again, and is answered as before."""
        with suppress(RayError):
            self._got(self._actor.answer.remote(number, answer))
        self._known.discard(number)

    def _got(self, reference: Any, patience_s: float = ANSWER_S) -> Any:
        """What a method of the actor gives; an error there is one here. Raises `Lost`, and `RayError` for now."""
        try:
            return ray.get(reference, timeout=patience_s)
        except (ActorUnavailableError, GetTimeoutError):
            raise
        except OutOfMemoryError as error:
            raise Lost(f"Ray ended its worker: the memory of {self._host} was full.", counts=True) from error
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except RayError as error:
            raise Lost(f"Its worker on {self._host} ended with its Ray process or its node.") from error

    def _write_log(self, start: int, text: bytes) -> None:
        if text:
            path = self._site.home.log(self._hybrid.id)
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                with opened_log(path.parent, path.name) as log:
                    log.write(text)
        self._logged_bytes = start + len(text)

    # -- files

    def _carry_file(self, number: int, call: Call) -> None:
        try:
            key, *names = call.arguments
            member = self._member(str(key))
            self._bring(member) if call.name == BRING else self._keep(member, [str(name) for name in names[0]])
            answer = answered(None)
        except (RayError, OperationalError):
            self._known.discard(number)  # it comes again
            return
        except Lost:  # the next poll says so, too
            return
        except Exception as error:
            answer = failed(error)
        with suppress(Lost):
            self._answer(number, answer)

    def _member(self, key: str) -> Resident:
        """A sub-model that trains here. Raises `NotFound`."""
        for member in self._store.hybrids.get(self._hybrid.id)[1]:
            if member.key == key:
                return member
        raise NotFound(f"{key} is not trained there any more.")

    def _bring(self, member: Resident) -> None:
        """Let the node have what a sub-model needs: files by content, once per node, and its checkpoints."""
        run, row = member
        [part] = [part for part in run.spec["submodels"] if part["name"] == row.name]
        for sha256 in dict.fromkeys(files_of(part).values()):
            with self._site.locks[self._host, sha256]:
                if not self._got(self._actor.has.remote(sha256)):
                    self._send(self._site.home.file(sha256), sha256)
        if run.mode != HYBRID:
            return
        self._got(self._actor.empty.remote(run.id, row.name))
        folder = self._site.home.run(run.id)
        parts = [f"models/{name}.safetensors" for name in waits_for(SubModelSpec.model_validate(part))]
        for name in (*self._checkpoints(member), *parts):
            self._send(self._own(folder, name), file_sha256(folder / name), (run.id, name))

    def _send(self, path: Path, sha256: str, place: tuple[str, str] | None = None) -> None:
        offset = 0
        try:
            file = path.open("rb")
        except FileNotFoundError as error:
            message, remedy = f"The file {path.name[:12]} is gone.", "Import it again, or restore it from a backup."
            raise BadInput.of("File lost", "file", message, remedy) from error
        with file:
            while part := file.read(PART_BYTES):
                self._got(self._actor.write.remote(sha256, offset, part, place))
                offset += len(part)
        self._got(self._actor.write.remote(sha256, offset, b"", place), HASH_S)

    def _keep(self, member: Resident, names: Sequence[str]) -> None:
        """Let the server have files of a sub-model. Its checkpoints here are then those of the node."""
        folder, own = self._site.home.run(member.run.id), f"checkpoints/{member.row.name}/"
        for name in names:
            if not _KEPT.fullmatch(name) or (name.startswith("checkpoints/") and not name.startswith(own)):
                raise NotFound(f"{name} is no file of {member.key}.")
            self._fetch(member.run.id, name, self._own(folder, name))
        if not names or names[0].startswith(own):
            for name in set(self._checkpoints(member)) - set(names):
                (folder / name).unlink(missing_ok=True)

    def _checkpoints(self, member: Resident) -> list[str]:
        """Names of the checkpoints that the server has, by their place in the folder of the run."""
        folder = self._own(self._site.home.run(member.run.id), f"checkpoints/{member.row.name}")
        return sorted(f"checkpoints/{member.row.name}/{path.name}" for path in folder.glob("step-*.safetensors"))

    def _own(self, folder: Path, name: str) -> Path:
        """A place in the folder of a run. Raises `NotFound` for a link, which a worker may have put there."""
        if not is_plain(folder, name):
            raise NotFound(f"{name} is a link.")
        return folder / name

    def _fetch(self, run_id: str, name: str, target: Path) -> None:
        """Copy a file of the worker. It counts once it is whole: its hash is checked before it has its name."""
        sha256 = self._got(self._actor.describe.remote(run_id, name), HASH_S)
        if target.is_file() and file_sha256(target) == sha256:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        found, size_bytes = hashlib.sha256(), 0
        with atomic_replace(target) as temporary:
            with temporary.open("wb") as file:
                while part := self._got(self._actor.read.remote(run_id, name, size_bytes)):
                    file.write(part)
                    found.update(part)
                    size_bytes += len(part)
            if found.hexdigest() != sha256:
                raise OSError(None, f"{name} changed while it was copied")
        sync(target.parent)
