"""What is asked again and again costs the same with a few ended runs and with many. Counted, not timed."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select, update

from tests import many_runs
from tests.clock import SimulatedClock
from tests.counted import Counted, counted, plans
from tests.many_runs import NAMES, Size, fill, key_of_kind, run_id
from tests.unit.runtime.test_supervisor import Launcher, supervisor_of, unlimited
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime.placing import fleet_of
from unifiednn_core.service.facade import Service
from unifiednn_core.service.roles import Actor, Role
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.spec.run_query import MOST_COUNTED, NEWEST_ROWS, KeptQuery, RunQuery
from unifiednn_core.store import Store, run_lists
from unifiednn_core.store.removals import NEEDS
from unifiednn_core.store.schema import HYBRID, RunRow, SubModelRow

FEW, MANY = 120, 1200
FLEET = Size(waiting=6, devices=4, samples=3)
MOST = 1.5
"""Growth of what a call costs, at ten times as many ended runs."""
LEAST_STEPS = 400
"""Steps of the database that are too few to tell a growth."""
NEW = Actor(id="new@example.org", name="New", role=Role.SUBMITTER)
Call = Callable[[Service], object]


@dataclass(frozen=True)
class Filled:
    service: Service
    ended: int

    @property
    def last(self) -> str:
        """The newest ended run."""
        return run_id(self.ended - 1)

    def ask(self, call: Call) -> Counted:
        """What the second such call costs; the first one fills what is kept."""
        call(self.service)
        with counted(self.service.store._database._engine) as found:
            call(self.service)
        return found


def filled(home: Home, size: Size) -> Service:
    clock = SimulatedClock()
    store = Store.open(home.create(), clock)
    fill(store, size, clock.utc_s())
    return Service(home, store, supervisor_of(store, Launcher(), clock), clock)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Filled, Filled]]:
    """A server with a few ended runs, and one with many; everything else is equal."""
    found = [
        Filled(filled(Home(tmp_path_factory.mktemp("home")), replace(FLEET, ended=ended, in_full=1)), ended)
        for ended in (FEW, MANY)
    ]
    yield found[0], found[1]
    for one in found:
        one.service.store.close()


def fleet(service: Service) -> object:
    store = service.store
    return fleet_of(store, unlimited, service.clock, store.hybrids.listed(), store.workers.waiting())


def tick(service: Service) -> None:
    """One look of a supervisor, with a line that nobody starts."""
    watch = service._supervisor
    watch._devices_at_s = service.clock.monotonic_s()  # the machine of this test has none of these devices
    watch.tick()


TICKS: dict[str, Call] = {
    "a tick of the supervisor": tick,
    "what holds a device": lambda service: service.store.workers.held(),
    "the line": lambda service: service.store.workers.waiting(),
    "hybrids that go on": lambda service: service.store.hybrids.listed(),
    "commands without a worker": lambda service: service.store.commands.settle_unclaimed(),
    "commands of a worker": lambda service: service.store.commands.open_in(run_id(0, "t")),
    "memory now": lambda service: service.store.telemetry.memory_now(),
    "the view of a fleet": fleet,
    "speeds": lambda service: service.store.runs.speeds(map(key_of_kind, range(9))),
    "certificates that are due": lambda service: service.store.runs.uncertified(0.0),
    "shared hybrids of which nobody tells": lambda service: service.store.removals.empty_hybrids(),
}
"""What is asked while nobody looks."""
PAGES: dict[str, Call] = {
    "current runs": lambda service: service.runs.current(),
    "the line": lambda service: service.queue.line(),
    "ends": lambda service: service.queue.ends(),
    "hybrids": lambda service: service.queue.hybrids(),
    "devices": lambda service: service.devices.cards(),
    "filters of the list": lambda service: service.runs.run_choices(),
    "the list of runs": lambda service: service.runs.listing(RunQuery()),
    "the newest runs, as the terminal and REST list them": lambda service: service.runs.listing(
        RunQuery(rows=NEWEST_ROWS)
    ),
    "its last page": lambda service: service.runs.listing(RunQuery(descending=False)),
    "hybrids and their baselines": lambda service: service.runs.compared(),
    "lines of the audit log": lambda service: (service.people.audit(), service.people.audited_names()),
    "drafts": lambda service: service.library.drafts(),
    "files": lambda service: service.library.files(),
    "files and how many runs use each": lambda service: service.library.shelf(),
    "trained models": lambda service: service.library.kept(KeptQuery("model", rows=50)),
    "newest checkpoints": lambda service: service.library.kept(KeptQuery("checkpoint", rows=50)),
    "quota": lambda service: service.library.quota(),
    "earlier trainings": lambda service: service.store.speeds.trained(
        map(key_of_kind, range(3)), least_steps=1, threads=1, device_kind="H200"
    ),
    "overheads": lambda service: service.store.speeds.overheads(),
    "current runs of a new person": lambda service: service.acting_as(NEW).runs.current(),
    "the list of a new person": lambda service: service.acting_as(NEW).runs.listing(RunQuery()),
}
"""What pages ask."""


def require_equal_cost(few: Counted, many: Counted) -> None:
    assert many.statements == few.statements
    assert many.steps <= max(LEAST_STEPS, MOST * few.steps)


@pytest.mark.parametrize("call", [*TICKS.values(), *PAGES.values()], ids=[*TICKS, *(f"page: {name}" for name in PAGES)])
def test_a_call_costs_as_much_with_ten_times_as_many_ended_runs(both: tuple[Filled, Filled], call: Call) -> None:
    require_equal_cost(*(one.ask(call) for one in both))


@pytest.mark.parametrize("text", ["run 7", "nothing has this"])
def test_a_search_looks_at_no_more_than_the_newest_runs(
    both: tuple[Filled, Filled], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = both
    monkeypatch.setattr(run_lists, "SEARCHED", few.ended // 2)

    def search(service: Service, *, everywhere: bool = False) -> object:
        return service.runs.listing(RunQuery(text=text, everywhere=everywhere))

    require_equal_cost(few.ask(search), many.ask(search))
    with pytest.raises(AssertionError):  # the control
        require_equal_cost(*(one.ask(partial(search, everywhere=True)) for one in both))


@pytest.mark.parametrize(
    "call",
    [
        lambda one: one.service.runs.observe(one.last),
        lambda one: one.service.comparisons.comparable(one.last),
        lambda one: one.service.comparisons.comparison(one.last),
        lambda one: one.service.runs.deletion(one.last),
    ],
    ids=["run", "equals", "comparison", "deletion"],
)
def test_the_page_of_a_run_costs_as_much_with_many_others(
    both: tuple[Filled, Filled], call: Callable[[Filled], object]
) -> None:
    few, many = (one.ask(partial(_of_last, call, one)) for one in both)
    require_equal_cost(few, many)


def _of_last(call: Callable[[Filled], object], one: Filled, _service: Service) -> object:
    return call(one)


@pytest.mark.parametrize("call", TICKS.values(), ids=list(TICKS))
def test_nothing_that_a_server_repeats_reads_a_whole_table(both: tuple[Filled, Filled], call: Call) -> None:
    service = both[1].service
    lines = plans(service.store._database._engine, both[1].ask(call))
    whole = [
        line
        for line in lines
        if line.startswith("SCAN ")
        and line.split()[1] in {"runs", "submodels", "hybrids", "commands", "events", "attempts", "slices"}
    ]
    assert all("USING INDEX hybrids_claimed" in line or "USING INDEX commands_waiting" in line for line in whole)


def test_more_devices_ask_no_more_statements(tmp_path_factory: pytest.TempPathFactory) -> None:
    def each(service: Service) -> object:
        """The control: one question for each hybrid."""
        return [service.store.hybrids.get(hybrid.id) for hybrid, _ in service.store.hybrids.listed()]

    calls: tuple[Call, ...] = (lambda one: one.queue.hybrids(), lambda one: one.queue.line(), fleet, each)
    asked = []
    for devices in (2, 9):
        service = filled(Home(tmp_path_factory.mktemp("home")), Size(devices=devices, waiting=2))
        asked.append([Filled(service, 0).ask(call).statements for call in calls])
        service.store.close()
    few, many = asked
    assert few[:-1] == many[:-1] and few[-1] < many[-1]


# -- the cheap questions have the answers of the dear ones


def test_the_speed_of_a_network_is_that_of_its_last_training(both: tuple[Filled, Filled]) -> None:
    store, chance = both[0].service.store, random.Random(3)
    with store._database.write() as session:
        for part in session.scalars(select(SubModelRow).where(SubModelRow.ended_at_s.is_not(None))):
            part.service_s = chance.choice((0.0, 1.0, 2.0, 3.0)) + (part.ended_at_s or 0.0) / 1e9
    rows = [
        (part, run)
        for run, parts in store.runs.listed()
        for part in parts
        if part.ended_at_s is not None and part.service_s > 0 and part.steps_done > 0 and run.mode == HYBRID
    ]
    for owner in (None, many_runs.person(2)):
        mine = sorted((row for row, _ in rows if owner in (None, row.owner)), key=lambda row: row.ended_at_s)
        wanted = {row.memory_key: row.service_s / row.steps_done for row in mine}
        keys = [*map(key_of_kind, range(20)), "unknown", ""]
        assert store.runs.speeds(keys, owner) == {key: wanted[key] for key in keys if key in wanted}
        found = store.speeds.trained(keys, least_steps=1, threads=1, device_kind="H200", owner=owner)
        open_keys = {part.memory_key for _, parts in store.runs.listed() for part in parts if part.ended_at_s is None}
        told = {key: one.service_s / one.steps for key, one in found.items() if key not in open_keys}
        assert told == {key: wanted[key] for key in told} and told.keys() >= (wanted.keys() & set(keys)) - open_keys


def test_what_runs_keep_is_found_a_part_at_a_time(both: tuple[Filled, Filled]) -> None:
    store = both[0].service.store
    with store._database.write() as session:
        session.execute(update(RunRow).where(RunRow.id == run_id(3)).values(removed_at_s=1.0))
    listed = [(run, part) for run, parts in store.runs.listed() for part in parts if run.mode == HYBRID]
    models = [(run, part) for run, part in listed if part.artifact is not None]
    assert run_id(3) not in {run.id for run, _ in models} and len(models) > 100
    keys: dict[str, Callable[..., Any]] = {
        "added": lambda run, part: part.artifact_at_s,
        "name": lambda run, part: part.name,
        "run": lambda run, part: run.name,
        "accuracy": lambda run, part: part.test_accuracy,
    }
    for sort, key in keys.items():
        for down in (False, True):
            found = store.kept.of_runs(KeptQuery("model", sort=sort, descending=down, rows=7))  # type: ignore[arg-type]
            wanted = sorted((key(*one) for one in models), reverse=down)[:7]
            assert [key(row_of(row), row) for row in found.rows] == wanted
            assert (found.total, found.size_bytes) == (MOST_COUNTED, None) and len(models) > MOST_COUNTED
    for words in ("run 11", "RESNET", run_id(5), "nothing of this"):
        found = store.kept.of_runs(KeptQuery("checkpoint", words))
        wanted_ids = {
            (run.id, part.name)
            for run, part in listed
            if any(words.lower() in name.lower() for name in (run.name, run.id, part.name)) and part.checkpoint_at_s
        }
        assert {(row.run_id, row.name) for row in found.rows} == wanted_ids and found.total == len(wanted_ids)
    mine = store.kept.of_runs(KeptQuery("model"), many_runs.person(4))
    assert (mine.total, mine.size_bytes) == (len(mine.rows), sum(row.artifact_bytes for row in mine.rows))
    assert {(row.run_id, row.name) for row in mine.rows} == {
        (run.id, part.name) for run, part in models if part.owner == many_runs.person(4)
    }
    counts = store.kept.use_counts(None, 10**6)
    assert store.kept.use_counts(None, 3) == {sha: min(3, count) for sha, count in counts.items()}
    assert sum(counts.values()) == len(NAMES) * 3 * len({run.id for run, _ in listed if run.state in ENDED})
    some = many_runs.sha(7, "train")
    for sha256, count in counts.items():
        needed = [use.state in NEEDS for use in store.kept.uses(sha256, None, 9 * count)]
        assert needed == sorted(needed, reverse=True) and len(needed) >= count
    uses = store.kept.uses(some, None, 5)
    assert len(uses) == min(5, counts[some]) and [use.run_id for use in uses] == sorted(
        (use.run_id for use in uses), reverse=True
    )
    assert some in store.kept.used_by("run 2", None) and not store.kept.used_by("nothing of this", None)


def row_of(row: object) -> object:
    """A kept row as a run: its name has another label."""

    class Named:
        name = row.run_name  # type: ignore[attr-defined]

    return Named


def test_pages_of_hybrids_hold_each_hybrid_once_with_its_baselines(both: tuple[Filled, Filled]) -> None:
    runs = both[0].service.runs
    first = runs.compared(0, 50)
    pages = [first, *(runs.compared(page, 50) for page in range(1, -(-first.total // 50)))]
    every = {run.run_id: run for run in runs.runs()}
    shown = [run for page in pages for run in page.runs if run.mode == HYBRID]
    assert [run.run_id for run in shown] == [run.run_id for run in every.values() if run.mode == HYBRID]
    assert first.total == len(shown) and runs.compared(99, 50).page == len(pages) - 1
    assert [run for page in pages for run in page.runs] == [every[run.run_id] for page in pages for run in page.runs], (
        "as the list of all runs has them, with their places in the line"
    )
    for page in pages:
        prints = {run.fingerprint for run in page.runs if run.mode == HYBRID}
        baselines = {run.run_id for run in page.runs if run.mode != HYBRID}
        assert baselines == {run.run_id for run in every.values() if run.mode != HYBRID and run.fingerprint in prints}
