"""A store with the runs of two people, one of them shared, and one actor of each role."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tests.clock import SimulatedClock
from tests.unit.rows import of_hybrid, part_of, run_of
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.service.facade import Service
from unifiednn_core.service.gate import Gate, Settings
from unifiednn_core.service.roles import LOCAL_OPERATOR, Actor, Role
from unifiednn_core.store import Store

ALICE = Actor(id="alice@example.org", name="Alice", role=Role.SUBMITTER)
BOB = Actor(id="bob@example.org", name="Bob", role=Role.SUBMITTER)
VIEWER = Actor(id="vera@example.org", name="Vera", role=Role.VIEWER)
OPERATOR = Actor(id="otto@example.org", name="Otto", role=Role.OPERATOR)
ADMIN = Actor(id="ada@example.org", name="Ada", role=Role.ADMIN)
EVERYBODY = (VIEWER, ALICE, BOB, OPERATOR, ADMIN, LOCAL_OPERATOR)
SHARED, HERS, HIS = "20260101-000000-aaaa", "20260101-000001-bbbb", "20260101-000002-cccc"
NOWHERE = "20260101-000003-dddd"
NAMES = {"alpha": ALICE.id, "bravo": BOB.id}


def sha(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()


@dataclass
class World:
    home: Home
    store: Store
    service: Service
    gate: Gate

    def of(self, actor: Actor) -> Service:
        return self.service.acting_as(actor)


def world(home: Home, clock: SimulatedClock, settings: Settings | None = None) -> World:
    """Alice's run, Bob's run, and one that the operator arranged of both; each sub-model has a zip and a checkpoint."""
    store = Store.open(home, clock)
    service = Service(home, store, Supervisor(store, LocalLauncher(home), clock), clock)
    add_files(store, NAMES)
    add_run(store, home, SHARED, OPERATOR.id, NAMES)
    add_run(store, home, HERS, ALICE.id, {"alpha": ALICE.id})
    add_run(store, home, HIS, BOB.id, {"bravo": BOB.id})
    return World(home, store, service, Gate(service, settings or Settings()))


def add_files(store: Store, owners: dict[str, str]) -> None:
    """Put the networks and data sets of these sub-models into the library."""
    for name, owner in owners.items():
        for kind in ("model", "data"):
            word = f"{name}-{kind}"
            store.library.add_file(
                sha256=sha(word), kind=kind, filename=f"{word}.pt", format="pt", size_bytes=1, facts={}, owner=owner
            )


def add_run(store: Store, home: Home, run_id: str, submitter: str, owners: dict[str, str]) -> None:
    holder = list(owners)[-1]
    hyper = {"epochs": 2, "batch_size": 8, "optimizer": "sgd", "learning_rate": 0.1}
    files = {"model": "model", "train_data": "data"}
    parts = [
        {"name": name, "hyperparameters": hyper}
        | {entry: f"sha256:{sha(f'{name}-{word}')}" for entry, word in files.items()}
        for name in owners
    ]
    spec = {"name": "together", "policy": {"name": "round_robin"}, "submodels": parts}
    who = {"id": run_id, "name": "together", "submitter": submitter, "fingerprint": sha(submitter), "device": "cpu"}
    told = {"state": "running", "now_reason": f"{holder} has been in line longest of {len(owners)}."}
    times = {"created_at_s": 900.0, "started_at_s": 910.0, "heartbeat_at_s": 1000.0}
    plain = {"spec": spec, "threads": 1, "prediction": {}, "environment": {}}
    columns = {**who, **told, **times, **plain, "peak_memory_bytes": 4711, "memory_source": "PSS"}
    kept = {"checkpoint": "step-5.safetensors", "checkpoint_step": 5, "checkpoint_bytes": 4}
    trains = {"state": "running", "epochs": 2, "steps_total": 20, "steps_done": 5}
    made = {"artifact_bytes": 3, "artifact_at_s": 950.0}
    rows = [
        part_of(
            **{"run_id": run_id, "name": name, "owner": owner, "arrival": place, **trains, **kept, **made},
            artifact=f"{name}.zip",
            model_path=f"/srv/home/{name}.pt2",
            lane=1 if name == holder else None,
        )
        for place, (name, owner) in enumerate(owners.items())
    ]
    store.runs.add((run_of(**columns), rows))
    store.hybrids.update(run_id, **of_hybrid(**columns))
    for name in owners:
        write(home.run(run_id) / "models" / f"{name}.zip", f"zip of {name}")
        write(home.checkpoints(run_id, name) / "step-5.safetensors", f"checkpoint of {name}")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
