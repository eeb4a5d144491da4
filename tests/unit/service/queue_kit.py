"""A server whose one CPU trains a shared hybrid of two people, with a line behind it."""

from dataclasses import dataclass

from sqlalchemy import update

from tests.unit.rows import part_of
from tests.unit.service.kit import ALICE, BOB, World, sha
from unifiednn_core.spec.devices import Device
from unifiednn_core.spec.run import HybridSettings, PolicySpec
from unifiednn_core.store.schema import RunRow, SubModelRow
from unifiednn_core.store.telemetry import TelemetryRows
from unifiednn_core.store.workers import Berth, WorkerIdentity

HYBRID = "h20260101-000009-abcd"
CPU = Device(name="cpu", type="cpu", host="h", index=0, kind="EPYC, AVX2, 7 threads", total_bytes=2**35, threads=7)


@dataclass(frozen=True)
class Submitted:
    run_id: str
    owner: str
    name: str


HERS = Submitted("s20260101-000001-aaaa", ALICE.id, "lenet")
HIS = Submitted("s20260101-000002-bbbb", BOB.id, "secretnet")
HIS_NEXT = Submitted("s20260101-000003-cccc", BOB.id, "secondnet")
HER_NEXT = Submitted("s20260101-000004-dddd", ALICE.id, "resnet")
EARLIER = Submitted("s20260101-000000-eeee", ALICE.id, "oldnet")
ALL = (HERS, HIS, HIS_NEXT, HER_NEXT)


def submit(here: World, one: Submitted, at_s: float) -> None:
    files = {"model": f"sha256:{sha(one.name)}", "train_data": f"sha256:{sha('d')}"}
    part = {"name": one.name, **files, "hyperparameters": {"epochs": 2}}
    spec = {"name": f"{one.name}-run", "hybrid": "shared", "submodels": [part]}
    who = {"id": one.run_id, "name": spec["name"], "submitter": one.owner, "state": "queued", "shared": True}
    asked = {"device": "auto", "spec": spec, "threads": 7, "created_at_s": at_s}
    run = RunRow(**who, **asked, prediction={}, environment={})
    row = part_of(run_id=one.run_id, name=one.name, owner=one.owner, epochs=2, steps_total=20, memory_key="same")
    for word in (one.name, "d"):
        here.store.library.add_file(
            sha256=sha(word), filename=word, owner=one.owner, kind="model", format="pt2", size_bytes=1
        )
    here.store.runs.add((run, [row]))


def training(here: World) -> None:
    """Hers and his train in one hybrid, and two more wait behind them."""
    for at_s, one in enumerate(ALL):
        submit(here, one, 800.0 + at_s)
    submit(here, EARLIER, 700.0)
    with here.store._database.write() as session:  # an earlier training of the same network took 1 s a step
        done = {"state": "completed", "ended_at_s": 750.0}
        session.execute(update(RunRow).where(RunRow.id == EARLIER.run_id).values(**done))
        earlier = update(SubModelRow).where(SubModelRow.run_id == EARLIER.run_id)
        session.execute(earlier.values(**done, steps_done=20, service_s=20.0))
    workers, members = here.store.workers, [(one.run_id, one.name) for one in (HERS, HIS)]
    berth, settings = Berth(device="cpu", kind=CPU.kind, threads=7), HybridSettings(policy=PolicySpec(name="fair"))
    here.store.devices.write((CPU,))
    assert workers.open_shared(HYBRID, members, berth, settings)
    workers.register(HYBRID, WorkerIdentity(1, 1.0, "boot"), 890.0)
    here.store.hybrids.begin(HYBRID)
    workers.begin(HYBRID, {f"{run_id}/{name}": {"steps_done": 0} for run_id, name in members})
    hers, his = (f"{run_id}/{name}" for run_id, name in members)
    turn = {"start_s": 1.0, "end_s": 6.0, "steps": 5, "from_step": 0, "lane": 1, "attempt": 1}
    strata = {"weights": {hers: 80808, his: 90909}, "context": 50}
    here.store.telemetry.write(
        HYBRID,
        TelemetryRows(
            slices=[{**turn, "submodel": hers, "reason": f"{hers} has had less than {his}."}],
            memory=[{"at_s": 1.0, "source": "PSS", "size_bytes": 84711}],
            strata=[{"at_s": 1.0, "source": "PSS", "total_bytes": 84711, "strata": strata}],
            submodels={
                hers: {"steps_done": 5, "service_s": 5.0, "peak_memory_bytes": 5111},
                his: {
                    "steps_done": 10,
                    "service_s": 10.0,
                    "lane": 1,
                    "turn_since_s": 2.0,
                    "turn_reason": f"{his} has waited longer than {hers}.",
                },
            },
            hybrid={"memory_source": "PSS", "peak_memory_bytes": 84712, "now_reason": f"{his} has waited longest."},
        ),
    )
