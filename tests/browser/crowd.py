"""A server full of runs, files and people, seeded without training: 14 sub-models, long names, 300 runs."""

import time
from dataclasses import replace

import pytest
from sqlalchemy import update

from tests.hostile.test_names import data_set
from tests.ui import fake_arms, fake_views
from tests.ui.fake_views import NAMES, demo_spec, run, submodel
from tests.ui.seed import Seeded
from unifiednn_core.base.paths import Home
from unifiednn_core.base.units import GIB, MIB
from unifiednn_core.preflight.report import Certificate, CertificateCheck
from unifiednn_core.runtime.launchers import identity_of
from unifiednn_core.service.roles import Role
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.device_samples import DeviceSampleRow
from unifiednn_core.store.schema import HybridRow
from unifiednn_core.views.runs import EventView, RunView, SubModelView

COUNT = 14
LONG = "a-residual-network-with-a-name-of-sixty-four-characters-as-usual"
CROWD = tuple(
    {0: "cnn_tiny", 1: "vision_transformer_small"}.get(at % 3, f"{LONG[:61]}-{at:02}")[: 64 if at % 3 else 8]
    + (f"_{at}" if at % 3 != 2 else "")
    for at in range(COUNT)
)
"""Names of about 8, 24 and 64 characters in turn."""
LIVE, MANY, DONE, HYBRID, FAILED = "r-live", "r-many", "r-ended", "r-hybrid", "r-failed"
BEAT_S = -6000.0
"""A beat in the future stays fresh, however long the pages take."""
NAN = "The loss is nan at step 46."
LOWER = "Retry it with a smaller learning rate; it goes on from its last checkpoint, which is before that."


def seed(home: Home, monkeypatch: pytest.MonkeyPatch, worker_pid: int, ended: int = 300) -> None:
    """Fill a home; `ended` is how many runs have ended beside the few that differ.

    The process of `worker_pid` stands for the worker of all that trains: while it lives, no supervisor steps in.
    """
    seeded = Seeded(home, monkeypatch)
    seeded.listed = [*_runs(), *_old(ended)]
    files = list(fake_views.library())
    seeded.held = [
        *files,
        replace(files[0], sha256=fake_views.sha("long"), filename=f"{LONG}.pt2", size_bytes=92 * MIB),
        replace(data_set("of everything"), filename=f"{LONG}.csv"),
        *(
            replace(files[at % 5], sha256=fake_views.sha(f"copy{at}"), filename=f"{at}-{files[at % 5].filename}")
            for at in range(30)
        ),
    ]
    _drafts(seeded)
    for person, role in (("ada@example.org", Role.ADMIN), (f"{LONG}@example.org", Role.SUBMITTER)):
        seeded.people.give_role(person, role)
        seeded.people.create_token(person, role, 30)
    _samples(seeded)
    worker = identity_of(worker_pid)
    alive = {"worker_pid": worker.pid, "worker_started_at_s": worker.started_at_s, "worker_boot_id": worker.boot_id}
    lives = HybridRow.id.in_((LIVE, MANY))
    with seeded.store._database.write() as session:
        session.execute(update(HybridRow).where(lives).values(alive))
        session.execute(update(HybridRow).where(~lives).values(device=None, heartbeat_at_s=None))
    for view in (LIVE, MANY):
        folder = home.run(view)
        folder.mkdir(parents=True, exist_ok=True)
        lines = (
            f"2026-11-23 04:50:{at % 60:02} INFO engine: {name} begins epoch {at}" for at in range(8) for name in NAMES
        )
        (folder / "worker.log").write_text("\n".join((*lines, "2026-11-23 04:51:00 WARNING engine: " + "long " * 60)))
    seeded.close()


def _runs() -> list[RunView]:
    now_s = time.time()

    def since(minutes: float) -> dict[str, float]:
        at_s = now_s - 60 * minutes
        return {"created_at_s": at_s, "started_at_s": at_s + 1, "launched_at_s": at_s + 0.5}

    live = replace(
        fake_views.mid_flight(), name="vision trio", heartbeat_age_s=BEAT_S, breakdown=fake_arms.breakdown(), **since(1)
    )
    waits = replace(
        fake_views.queued(),
        device="cuda:7",
        submodels=tuple(submodel(at, name, 0, State.QUEUED) for at, name in enumerate(CROWD)),
    )
    failed = replace(fake_views.failed(), run_id=FAILED, **since(30), ended_at_s=now_s - 1700)
    lost = replace(fake_views.interrupted(), **since(50), ended_at_s=now_s - 2900)
    ended = replace(fake_views.ended(), run_id=DONE, name="digits, all done", **since(20), ended_at_s=now_s - 1100)
    ended = replace(ended, submodels=tuple(_certified(part, at != 1) for at, part in enumerate(ended.submodels)))
    compared = [
        replace(fake_arms.hybrid(), name="hybrid of three", **since(90), ended_at_s=now_s - 5300),
        replace(fake_arms.baseline("concurrent"), **since(80), ended_at_s=now_s - 4700),
        replace(fake_arms.baseline("sequential"), **since(80), ended_at_s=now_s - 4600),
    ]
    return [
        live,
        replace(_many(), **since(3)),
        replace(waits, run_id="r-waits-1", name=LONG, **since(2)),
        replace(fake_views.queued(), run_id="r-waits-2", name="second", device="cuda:7", **since(1.5)),
        replace(fake_views.queued(), run_id="r-waits-3", name="small one", device="cuda:7", **since(1)),
        ended,
        failed,
        lost,
        *compared,
    ]


def _many() -> RunView:
    """14 sub-models in each of their states, with long names."""
    states = [State.RUNNING, State.QUEUED, State.COMPLETED, State.FAILED, State.STOPPED, State.PAUSED]
    states += [State.QUEUED] * (COUNT - len(states))
    done = [10 if state is State.COMPLETED else 2.4 + at / 4 for at, state in enumerate(states)]
    parts = [submodel(at, CROWD[at], done[at], states[at], holds_device=at == 0) for at in range(COUNT)]
    parts[2] = _certified(replace(parts[2], artifact="model.zip"), holds=True)
    parts[3] = replace(parts[3], cause=NAN, remedy=LOWER)
    events = tuple(
        EventView(
            at_s=time.time() - 60 + at, submodel=CROWD[at % COUNT], kind="state", message=f"{CROWD[at % COUNT]} waits."
        )
        for at in range(40)
    )
    return run(
        MANY,
        State.RUNNING,
        tuple(parts),
        name=LONG,
        heartbeat_age_s=BEAT_S,
        events=events,
        now_reason=f"{CROWD[0]} has been in line longest; one epoch each.",
        breakdown=fake_arms.breakdown(CROWD),
    )


def _certified(part: SubModelView, holds: bool) -> SubModelView:
    outputs = CertificateCheck(
        what="outputs", outcome="equal" if holds else "differs", text="Outputs of 8 probes: equal."
    )
    compared = (CertificateCheck(what="weights", outcome="equal", text="All 9 tensors."), outputs)
    made = Certificate(
        submodel=part.name,
        model=f"{part.name}.pt2",
        made_at_s=time.time() - 100,
        holds=holds,
        state_sha256="ab" * 32,
        compared=compared,
        versions={"torch": "2.13", "python": "3.11"},
        snippet=f"net = torch.export.load('{part.name}.pt2').module()",
    )
    return replace(part, certificate=made)


def _old(count: int) -> list[RunView]:
    """Ended runs of one small sub-model."""
    now_s, names = time.time(), (*NAMES, LONG)
    found = []
    for at in range(count):
        name = names[at % 4]
        part = replace(submodel(0, name[:24], 1, State.COMPLETED), artifact=None, state_sha256=None)
        ended_at_s = now_s - 7200 - 400 * at
        found.append(
            run(
                f"r-old-{at}",
                State.COMPLETED,
                (part,),
                name=f"{name} {at}"[-60:],
                created_at_s=ended_at_s - 60,
                started_at_s=ended_at_s - 59,
                ended_at_s=ended_at_s,
                heartbeat_age_s=None,
                events=(),
            )
        )
    return found


def _drafts(seeded: Seeded) -> None:
    document = demo_spec().model_dump(mode="json", exclude_none=True)
    seeded.drafts["trio"] = document | {"name": "three small networks"}
    first = document["submodels"][0]
    seeded.drafts["crowd"] = document | {"name": LONG, "submodels": [first | {"name": name} for name in CROWD]}


def _samples(seeded: Seeded) -> None:
    """Ten minutes of the CPU."""
    now_s = time.time()
    with seeded.store._database.write() as session:
        session.add_all(
            DeviceSampleRow(
                at_s=now_s - 2 * at,
                device="cpu",
                total_bytes=8 * GIB,
                own_bytes=(400 + at % 60) * MIB,
                free_bytes=5 * GIB,
                utilisation=0.35 + 0.3 * (at % 23) / 23,
                temperature_c=None,
                power_w=None,
                load=1.4,
                others=[{"pid": 17, "user": "ben", "name": "python", "size_bytes": 700 * MIB}],
            )
            for at in range(2, 300)
        )
