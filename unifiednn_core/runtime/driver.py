"""The driver: the process beside the server that offers the nodes of a Ray cluster and runs workers there.

Ray places, starts, watches and transports; what happens is decided and written here, on the server's machine. Ray ends
a process that misses its head for a minute, so the server itself never imports Ray, and `runtime.cluster` starts this
process again. All that it knows stands in the store and in the actors, which have names: `HYBRID.ATTEMPT`.
"""

import hashlib
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from platform import node as machine
from typing import Any

import ray
import ray._private.worker as _worker
from ray.autoscaler.sdk import request_resources
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from sqlalchemy.exc import SQLAlchemyError

from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.base.files import atomic_replace, folder_lock, set_private_umask, sync
from unifiednn_core.base.paths import Home
from unifiednn_core.base.trouble import log_error
from unifiednn_core.base.visible import keep_log_visible
from unifiednn_core.machine.versions import differences
from unifiednn_core.runtime.calls import BRING, KEEP, Call, Desk, answered, failed
from unifiednn_core.runtime.cluster import LOCAL
from unifiednn_core.runtime.confinement import die_with_parent
from unifiednn_core.runtime.relay import PART_BYTES, NodeFacts, Relay, probe
from unifiednn_core.spec.devices import AUTO, CPU, CUDA, HOST_NAME, SERVER, Device, host_of, on_host, type_named
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.spec.split import waits_for
from unifiednn_core.store import Store
from unifiednn_core.store.hybrids import Resident
from unifiednn_core.store.library import files_of
from unifiednn_core.store.nodes import CLUSTER, NodeRow
from unifiednn_core.store.schema import HYBRID, HybridRow

TICK_S, NODES_S, ANSWER_S, START_S = 0.5, 5.0, 60.0, 90.0
RESUME = "It goes on from its last checkpoint, on a device of the same kind."
_KEPT = re.compile(r"checkpoints/[^/]+/step-\d+\.safetensors|models/[^/.][^/]*")
_log = logging.getLogger(__name__)


class Lost(Exception):
    """An attempt has ended with its node, its actor or its worker."""

    def __init__(self, cause: str, *, died_at: str | None = None, counts: bool = False):
        super().__init__(cause)
        self.died_at, self.counts = died_at, counts


@dataclass(slots=True)
class Node:
    """A node of the cluster, as the driver found it."""

    id: str
    name: str
    cpus: float
    gpus: int
    asked: Any = None
    """The probe that is under way."""
    facts: NodeFacts | None = None
    refused: str = ""
    """Why it is not used."""

    @property
    def devices(self) -> list[Device]:
        """What it offers, as the fleet knows it."""
        found = [] if self.facts is None or self.refused else self.facts.devices
        return [on_host(device, self.name) for device in found]

    def row(self, now_s: float) -> NodeRow:
        """How it is shown."""
        state = "refused" if self.refused else "ready"
        facts = {} if self.facts is None else {"versions": self.facts.versions, "devices": len(self.facts.devices)}
        return NodeRow(name=self.name, state=state, why=self.refused, facts=facts, seen_at_s=now_s)


class Driver:
    """Watches a cluster and a store. `tick` is one look; each attempt has a thread of its own."""

    def __init__(self, home: Home, store: Store, *, namespace: str, alone: bool):
        """`alone` offers the node of this very machine, too, which the server otherwise offers itself."""
        self.home, self.store, self.namespace, self._alone = home, store, namespace, alone
        self.locks: dict[tuple[str, str], threading.Lock] = {}
        """By node and file: it is sent once, whoever needs it."""
        self.nodes: dict[str, Node] = {}
        """Those that live, by name."""
        self._looked_at_s = -NODES_S
        self._looking = threading.Lock()
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._demand: list[dict[str, float]] = []
        self._own = ray.get_runtime_context().get_node_id()

    def tick(self) -> None:
        """Look at the nodes and at the hybrids that hold devices there."""
        if time.monotonic() - self._looked_at_s >= NODES_S:
            self.look_at_nodes()
        held = [hybrid for hybrid in self.store.workers.held() if host_of(hybrid.device) != SERVER]
        for hybrid in held:
            attempt = hybrid.attempt + (hybrid.worker_pid is None)
            if (hybrid.id, attempt) not in self._attempts:
                self._attempts[hybrid.id, attempt] = Attempt(self, hybrid, attempt).start()
        self._attempts = {key: one for key, one in self._attempts.items() if one.alive}
        self._end_others()
        self._ask_for(held)

    def look_at_nodes(self) -> None:
        """Ask Ray which nodes live, probe new ones, and record what they offer. Safe in any thread."""
        with self._looking:
            self._looked_at_s = time.monotonic()
            living = {_named(one): one for one in _nodes() if one["Alive"]}
            own = {name for name, one in living.items() if one["NodeID"] == self._own and not self._alone}
            for name in self.nodes.keys() - (living.keys() - own):
                self.nodes.pop(name)
                self.store.devices.write([], name)
            for name in living.keys() - own:
                one = living[name]
                if name not in self.nodes or self.nodes[name].id != one["NodeID"]:
                    self.nodes[name] = _node(one, name)
                self._probe(self.nodes[name])
            now_s = self.store.clock.utc_s()
            for node in self.nodes.values():
                self.store.devices.write(node.devices, node.name)
            head = NodeRow(name=CLUSTER, state="ready", why="", facts=_facts_of_cluster(), seen_at_s=now_s)
            gone = [row for row in self.store.nodes.all() if row.name not in (*self.nodes, CLUSTER)]
            for row in gone:
                row.state, row.why = "away", "Ray says that it is gone."
            self.store.nodes.write([head, *(node.row(now_s) for node in self.nodes.values()), *gone])

    def _probe(self, node: Node) -> None:
        """Learn what a node has. Its answer comes with a later look."""
        if node.facts is not None or node.refused:
            return
        if node.asked is None:
            node.asked = ray.remote(num_cpus=0)(probe).options(scheduling_strategy=_on(node.id)).remote(node.gpus)
        if not ray.wait([node.asked], timeout=0.5)[0]:
            return
        try:
            node.facts = ray.get(node.asked)
            node.refused = " ".join([*differences(node.facts.versions), *node.facts.problems])
        except RayError as error:
            last = str(error).strip().splitlines()[-1]
            node.refused = f"UnifiedNN does not start there: {last[:200]}"

    def _end_others(self) -> None:
        """End the actors of attempts that are over."""
        for one in ray.util.list_named_actors(all_namespaces=True):
            hybrid_id, _, attempt = one["name"].rpartition(".")
            if one["namespace"] == self.namespace and (hybrid_id, int(attempt)) not in self._attempts:
                kill(one["name"], self.namespace)

    def _ask_for(self, held: Sequence[HybridRow]) -> None:
        """Tell Ray what is held and what waits, so that its autoscaler can bring nodes and give idle ones back."""
        wanted = [_bundle(hybrid.device or "", hybrid.threads) for hybrid in held]
        waiting = [run for run, _ in self.store.workers.waiting()]
        wanted += [_bundle(run.device, run.threads or 1) for run in waiting if self.nodes or run.device != "cpu"]
        if wanted != self._demand:
            request_resources(bundles=wanted)
            self._demand = wanted


class Attempt:
    """One attempt on a hybrid: serves its relay in a thread until the worker has ended or is lost."""

    def __init__(self, driver: Driver, hybrid: HybridRow, attempt: int):
        self._driver, self._store, self._hybrid, self._attempt = driver, driver.store, hybrid, attempt
        self._name = f"{hybrid.id}.{attempt}"
        self._desk = Desk(driver.store, hybrid.id, attempt)
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="files")
        self._known: set[int] = set()
        """Calls that are being carried out."""
        self._logged_bytes = 0
        self._node: Node | None = None
        self._actor: Any = None
        self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)

    def start(self) -> "Attempt":
        """Begin to serve."""
        self._thread.start()
        return self

    @property
    def alive(self) -> bool:
        """Whether it is not over."""
        return self._thread.is_alive()

    def _serve(self) -> None:
        try:
            self._open()
            while not self._poll():
                pass
        except Lost as lost:
            self._give_up(lost)
        except Exception as error:  # a defect must not keep a device for ever
            log_error(_log, "The attempt %s could not be served.", self._name)
            self._give_up(Lost(f"The driver could not serve its worker: {type(error).__name__}."))
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _open(self) -> None:
        """Find the actor of this attempt, or make it. Raises `Lost`."""
        host = host_of(self._hybrid.device)
        self._node = self._driver.nodes.get(host)
        with suppress(ValueError):
            self._actor = ray.get_actor(self._name, self._driver.namespace)
        if self._actor is None and self._hybrid.worker_pid is not None:
            raise Lost(f"Its worker on {host} ended with its actor.")
        if self._actor is None:
            if self._node is None:
                raise Lost(f"The node {host} is gone.")
            self._actor = self._made(self._node)
        try:
            with _watching(self._hybrid):
                ray.get(self._actor.start.remote(self._hybrid.threads, self._hybrid.mode), timeout=START_S)
        except GetTimeoutError as error:
            raise Lost(f"Ray gave it no room on {host} for {START_S:g} s: others use that node, too.") from error

    def _made(self, node: Node) -> Any:
        on_gpu = type_named(self._hybrid.device or "") == CUDA
        folder = f"nodes/{self._driver.namespace}/{node.name}"
        return (
            ray.remote(Relay)
            .options(
                name=self._name,
                namespace=self._driver.namespace,
                lifetime="detached",
                num_gpus=1 + len(self._hybrid.also) if on_gpu else 0,
                num_cpus=0 if on_gpu else min(float(self._hybrid.threads), node.cpus),
                max_concurrency=8,
                scheduling_strategy=_on(node.id),
            )
            .remote(folder, self._hybrid.id)
        )

    def _poll(self) -> bool:
        """Carry out what the worker asks for; True once it has ended and nothing is open. Raises `Lost`."""
        try:
            with _watching(self._hybrid):
                news = ray.get(self._actor.poll.remote(list(self._known), self._logged_bytes), timeout=ANSWER_S)
        except (ActorUnavailableError, GetTimeoutError):  # it comes back, or Ray says that it is dead
            time.sleep(TICK_S)
            return False
        self._log(news.log)
        for number, frame in news.calls:
            self._known.add(number)
            call = _decoded(frame)
            if call.name in (BRING, KEEP):
                self._pool.submit(self._carry_file, number, call)
            else:
                self._answer(number, self._desk_answer(call))
        if news.exit_code is None:
            return False
        if news.calls or self._known:
            time.sleep(TICK_S)  # its last files are on their way
            return False
        hybrid, _ = self._store.hybrids.get(self._hybrid.id)
        if (hybrid.attempt, hybrid.heartbeat_at_s is None) == (self._attempt, True) or hybrid.attempt > self._attempt:
            return True  # it ended in order
        cause = f"The worker on {host_of(self._hybrid.device)} ended with exit code {news.exit_code}. {_log_of(hybrid)}"
        raise Lost(cause, died_at=news.died_at, counts=True)

    def _desk_answer(self, call: Call) -> bytes:
        """The answer of the store, as soon as that can be written."""
        while True:
            try:
                return self._desk.answer(call)
            except SQLAlchemyError:
                log_error(_log, "The store could not take a call; it is tried again.")
                time.sleep(TICK_S)

    def _answer(self, number: int, answer: bytes) -> None:
        """Give an answer. If it does not arrive, the worker's call is carried out and answered once more."""
        try:
            with suppress(ActorUnavailableError, GetTimeoutError), _watching(self._hybrid):
                ray.get(self._actor.answer.remote(number, answer), timeout=ANSWER_S)
        finally:
            self._known.discard(number)

    def _log(self, text: bytes) -> None:
        if text:
            with suppress(OSError):
                path = self._driver.home.log(self._hybrid.id)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("ab") as log:
                    log.write(text)
                self._logged_bytes += len(text)

    def _give_up(self, lost: Lost) -> None:
        """End the actor, then record that the attempt is over: the next one begins after that."""
        kill(self._name, self._driver.namespace)
        with suppress(RayError):
            self._driver.look_at_nodes()
        lose = self._store.workers.lose
        hybrid = next((one for one in self._store.workers.held() if one.id == self._hybrid.id), None)
        if hybrid is not None and self._attempt == hybrid.attempt + (hybrid.worker_pid is None):
            lose(hybrid.id, str(lost), RESUME, seen=hybrid, died_at=lost.died_at, counts=lost.counts)

    # -- files

    def _carry_file(self, number: int, call: Call) -> None:
        try:
            key, *names = call.arguments
            member = self._member(str(key))
            self._bring(member) if call.name == BRING else self._keep(member, names[0])
            answer = answered(None)
        except (ActorUnavailableError, GetTimeoutError, SQLAlchemyError):
            self._known.discard(number)  # it is asked again
            return
        except (RayActorError, Lost):  # the next poll says so
            return
        except Exception as error:
            answer = failed(error)
        with suppress(Lost):
            self._answer(number, answer)

    def _member(self, key: str) -> Resident:
        """A sub-model that trains here. Raises `NotFound`."""
        for member in self._store.hybrids.get(self._hybrid.id)[1]:
            if member.key == key and State(member.row.state) not in ENDED:
                return member
        raise NotFound(f"{key} is not trained there any more.")

    def _bring(self, member: Resident) -> None:
        """Let the node have what a sub-model needs: files by content, once per node, and its checkpoints."""
        run, row = member
        [part] = [part for part in run.spec["submodels"] if part["name"] == row.name]
        wanted = list(dict.fromkeys(files_of(part).values()))
        for sha256 in wanted:
            with self._driver.locks.setdefault((host_of(self._hybrid.device), sha256), threading.Lock()):
                if self._got(self._actor.missing.remote([sha256])):
                    self._send(self._driver.home.file(sha256), sha256)
        if run.mode != HYBRID:
            return
        self._got(self._actor.empty.remote(run.id, row.name))
        folder = self._driver.home.run(run.id)
        checkpoints = sorted(self._driver.home.checkpoints(run.id, row.name).glob("step-*.safetensors"))
        parts = [folder / f"models/{name}.safetensors" for name in waits_for(SubModelSpec.model_validate(part))]
        for path in (*checkpoints, *parts):
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            self._send(path, sha256, (run.id, str(path.relative_to(folder))))

    def _send(self, path: Path, sha256: str, place: tuple[str, str] | None = None) -> None:
        try:
            with path.open("rb") as file:
                offset = 0
                while part := file.read(PART_BYTES):
                    self._got(self._actor.write.remote(sha256, offset, part, place))
                    offset += len(part)
        except FileNotFoundError as error:
            message, remedy = f"The file {path.name[:12]} is gone.", "Import it again, or restore it from a backup."
            raise BadInput.of("File lost", "file", message, remedy) from error
        self._got(self._actor.write.remote(sha256, offset, b"", place))

    def _keep(self, member: Resident, names: Sequence[str]) -> None:
        """Let the server have files of a sub-model. Its checkpoints here are then those of the node."""
        folder = self._driver.home.run(member.run.id)
        own = f"checkpoints/{member.row.name}/"
        for name in names:
            if not _KEPT.fullmatch(name) or (name.startswith("checkpoints/") and not name.startswith(own)):
                raise NotFound(f"{name} is no file of {member.key}.")
            self._fetch(member.run.id, name, folder / name)
        if not names or names[0].startswith(own):
            for path in self._driver.home.checkpoints(member.run.id, member.row.name).glob("step-*.safetensors"):
                if f"{own}{path.name}" not in names:
                    path.unlink(missing_ok=True)

    def _fetch(self, run_id: str, name: str, target: Path) -> None:
        """Copy a file of the worker. It counts once it is whole: its hash is checked before it has its name."""
        sent = self._got(self._actor.describe.remote(run_id, name))
        if target.is_file() and target.stat().st_size == sent.size_bytes:
            with target.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == sent.sha256:
                    return
        target.parent.mkdir(parents=True, exist_ok=True)
        found, size_bytes = hashlib.sha256(), 0
        with atomic_replace(target) as temporary:
            with temporary.open("wb") as file:
                while size_bytes < sent.size_bytes:
                    part = self._got(self._actor.read.remote(run_id, name, size_bytes))
                    if not part:
                        break
                    file.write(part)
                    found.update(part)
                    size_bytes += len(part)
            if found.hexdigest() != sent.sha256:
                raise OSError(None, f"{name} changed while it was copied")
        sync(target.parent)

    def _got(self, reference: Any) -> Any:
        """What an actor's method gives; an `OSError` there is one here."""
        try:
            return ray.get(reference, timeout=ANSWER_S)
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None


@contextmanager
def _watching(hybrid: HybridRow) -> Iterator[None]:
    """Turn the death of an actor, and an error in it, into `Lost`."""
    host = host_of(hybrid.device)
    try:
        yield
    except ActorUnavailableError:
        raise
    except RayActorError as error:
        raise Lost(f"Its worker on {host} ended with its actor or its node.") from error
    except RayTaskError as error:
        raise Lost(f"Its worker on {host} could not be started: {error.cause}.", counts=True) from error


def kill(name: str, namespace: str) -> None:
    """End an actor, and its worker with it; nothing if it is gone."""
    with suppress(ValueError, RayError):
        ray.kill(ray.get_actor(name, namespace), no_restart=True)


def run(home: Home, address: str) -> None:
    """Watch a cluster until Ray ends this process, because the head is gone. Raises what Ray does if it never was."""
    store = Store.open(home)
    with folder_lock(home.database.parent, exclusive=True):  # one driver, also while the last one still ends
        dashboard = False if address == LOCAL else None
        ray.init(address=address, include_dashboard=dashboard, log_to_driver=False, logging_level=logging.WARNING)
        driver = Driver(home, store, namespace=_namespace(home), alone=address == LOCAL)
        while True:
            try:
                driver.tick()
            except (SQLAlchemyError, OSError, RayError):  # a full disk, a locked store, a head that is slow
                log_error(_log, "The driver could not look; it tries again.")
            time.sleep(TICK_S)


def _namespace(home: Home) -> str:
    """Name under which this server's actors are known in the cluster."""
    return hashlib.sha256(f"{machine()} {home.root}".encode()).hexdigest()[:12]


def _named(node: Mapping[str, Any]) -> str:
    """Name of a node, as devices carry it: its own one, or its address."""
    name = re.sub(r"[^a-z0-9._-]+", "-", str(node["NodeName"]).lower()).strip("-._")[:64]
    return name if HOST_NAME.fullmatch(name) and name not in (SERVER, AUTO, CPU, CUDA) else f"node-{node['NodeID'][:8]}"


def _nodes() -> list[dict[str, Any]]:
    return list(ray.nodes())  # type: ignore[no-untyped-call]


def _node(found: Mapping[str, Any], name: str) -> Node:
    has = found["Resources"]
    return Node(found["NodeID"], name, float(has.get("CPU", 0.0)), int(has.get("GPU", 0)))


def _facts_of_cluster() -> dict[str, Any]:
    """Where the head is, and Ray's own dashboard, if it runs."""
    context: Any = ray.get_runtime_context()
    shown = _worker.global_worker.node.webui_url if _worker.global_worker.node else ""
    return {"address": context.gcs_address, "dashboard": shown}


def _on(node_id: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def _bundle(device: str, threads: int) -> dict[str, float]:
    return {"CPU": float(threads)} if type_named(device) == CPU else {"GPU": 1.0}


def _decoded(frame: bytes) -> Call:
    try:
        return Call.decoded(frame)
    except NotFound:
        return Call("", [], {})


def _log_of(hybrid: HybridRow) -> str:
    return f"Its log is {'hybrids' if hybrid.shared else 'runs'}/{hybrid.id}/worker.log in the home folder."


def main() -> None:
    """Drive a cluster for the server of a home: `python -m unifiednn_core.runtime.driver HOME ADDRESS`."""
    die_with_parent()
    set_private_umask()
    failpoints.arm_from_environment()
    keep_log_visible()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    run(Home(Path(sys.argv[1])), sys.argv[2])


if __name__ == "__main__":
    main()
