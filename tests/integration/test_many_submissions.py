"""Many people submit at random times, and memory is short: it is never exceeded, nobody starves, no bit changes."""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.pooled import PEOPLE, Net, Pool, readable
from unifiednn_core.base.paths import Home
from unifiednn_core.preflight import client
from unifiednn_core.preflight.report import CheckReport, Tell
from unifiednn_core.runtime import supervisor
from unifiednn_core.runtime.placing import Fleet
from unifiednn_core.scheduling.line import FleetView, Plan
from unifiednn_core.scheduling.placement import MEMORY_SHARE, decide, hybrid_bytes
from unifiednn_core.spec.run import RunSpec

COUNT, AT_ONCE = 20, 3
KINDS = tuple(Net(f"net-{place}", seed=place, epochs=epochs, hidden=20_000) for place, epochs in enumerate((4, 8, 12)))
"""A step keeps the weights three times, of 1.5 MiB each."""
TEAMS = ("red", "red", "blue", "blue")


@dataclass
class Watcher:
    """Stands where the supervisor asks placement, and keeps all that both said."""

    pool: Pool
    views: list[FleetView] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    predicted: list[int] = field(default_factory=list)
    """Peaks that workers predicted for their hybrids."""

    def decide(self, view: FleetView) -> Plan:
        plan = decide(view)
        self.views.append(view)
        self.plans.append(plan)
        known = (hybrid.prediction.get("peak_bytes") for hybrid, _ in self.pool.store.hybrids.listed())
        self.predicted += [peak_bytes for peak_bytes in known if peak_bytes is not None]
        return plan

    @property
    def together(self) -> list[tuple[int, int]]:
        """Members and predicted bytes of each hybrid at each look."""
        found = []
        for view in self.views:
            context_bytes = {device.name: device.context_bytes for device in view.devices}
            for hybrid in view.hybrids:
                needs = [member.need for member in hybrid.members]
                known = [need for need in needs if need is not None]
                assert len(known) == len(needs)
                lanes = view.lanes if len(known) > 1 else 1
                found.append((len(known), hybrid_bytes(known, context_bytes[hybrid.device], lanes=lanes)))
        return found


@pytest.fixture
def pool(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    monkeypatch.setattr(supervisor, "NOTE_AGAIN_S", 0.2)
    check, known = client.check, dict[str, CheckReport]()

    def checked(spec: RunSpec, base: Path, home: Home, tell: Tell) -> CheckReport:
        """Of the same files it says the same."""
        if (text := spec.to_json()) not in known:
            known[text] = check(spec, base, home, tell)
        return known[text]

    monkeypatch.setattr(client, "check", checked)
    pool = Pool(home, sharing="team")
    for person, team in zip(PEOPLE, TEAMS, strict=True):
        pool.service.people.give_team(person.id, team)
    yield pool
    pool.close()


def limit_for(pool: Pool, fleet: Fleet) -> int:
    """Memory that so many of these networks need at once, and no more."""
    [device] = fleet.view.devices
    needs = [entry.need for entry in fleet.view.waiting if entry.need is not None] * AT_ONCE
    room_bytes = hybrid_bytes(needs[:AT_ONCE], device.context_bytes, lanes=fleet.view.lanes)
    return int(room_bytes / MEMORY_SHARE) + 2**20


def crowd(pool: Pool, monkeypatch: pytest.MonkeyPatch, seed: int, count: int) -> None:
    numbers, watcher = random.Random(seed), Watcher(pool)
    monkeypatch.setattr(supervisor, "decide", watcher.decide)
    runs = [pool.submit(PEOPLE[0], KINDS[0])]
    fleet = pool.supervisor.fleet()
    limit_bytes = limit_for(pool, fleet)
    [device] = pool.store.devices.all()
    pool.service.devices.limit_device(device.name, limit_bytes)
    pool.start()
    for _ in range(count - 1):
        time.sleep(numbers.choice((0.0, 0.0, 0.1, 0.4)))
        runs.append(pool.submit(numbers.choice(PEOPLE), numbers.choice(KINDS)))
    pool.finish()
    assert pool.wrong() == {}

    hybrids = pool.hybrids()
    assert max(members for members, _ in watcher.together) == AT_ONCE, "the room is used"
    assert all(
        predicted_bytes <= (limit_bytes if members < 2 else MEMORY_SHARE * limit_bytes)
        for members, predicted_bytes in watcher.together
    )
    assert max(watcher.predicted) <= limit_bytes
    assert max(hybrid.peak_memory_bytes or 0 for hybrid in hybrids) <= limit_bytes, "as measured, too"

    assert sorted(runs, key=lambda run_id: pool.row(run_id).placed_at_s or 0.0) == runs, (
        "nobody overtakes on one device"
    )
    sentences = {text for plan in watcher.plans for text in plan.waits.values()}
    kinds = {text.partition(";")[0].partition(" on ")[2] or text for text in sentences}
    assert len(kinds) > 1 and not [text for text in sentences if not readable(text)]
    names = [*runs, *(hybrid.id for hybrid in hybrids), *(person.name for person in PEOPLE), *TEAMS, "net-"]
    assert not [text for text in sentences for name in names if name in text]
    for hybrid in hybrids:
        circles = {
            TEAMS[[one.id for one in PEOPLE].index(pool.row(run_id).owner)]
            for run_id in runs
            if pool.row(run_id).hybrid_id == hybrid.id
        }
        assert len(circles) == 1


@pytest.mark.slow
def test_twenty_submissions_at_random_times_keep_within_the_memory_of_their_device(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(pool, monkeypatch, seed=1, count=COUNT)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_any_of_many_crowds_keeps_within_the_memory_of_its_device(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    crowd(pool, monkeypatch, seed, count=2 * COUNT)
