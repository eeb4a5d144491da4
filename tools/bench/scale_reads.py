"""What supervisors and pages ask, at several sizes of a store: processor time, statements, steps of the database."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from tests.counted import counted
from tests.many_runs import Size, fill, key_of_kind, run_id
from unifiednn_core.base.clock import RealClock
from unifiednn_core.base.paths import Home
from unifiednn_core.machine.budget import Budget
from unifiednn_core.machine.devices import Device
from unifiednn_core.runtime.placing import fleet_of
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.scheduling.line import FleetView
from unifiednn_core.scheduling.placement import decide
from unifiednn_core.service.facade import Service
from unifiednn_core.service.roles import Actor, Role
from unifiednn_core.spec.run_query import NEWEST_ROWS, KeptQuery, RunQuery
from unifiednn_core.store import Store

LONGEST_S = 20.0
"""A call that takes longer is measured once."""
SUBMITTER = Actor(id="p02@example.org", name="p02", role=Role.SUBMITTER)
Call = Callable[[Service], object]


class NoLauncher:
    """Starts nothing."""

    def start(self, hybrid_id: str, threads: int, mode: str) -> int | None:
        """No process."""
        return None

    def exit_code(self, hybrid_id: str) -> int | None:
        """Nothing ended."""
        return None

    def forget_ended(self, held: Collection[str]) -> None:
        """Nothing was started."""

    def last_mark(self, hybrid_id: str) -> str | None:
        """Nothing was marked."""
        return None

    def close(self) -> None:
        """Nothing to close."""


class Resting(Service):
    """A service whose supervisor is never started."""

    @property
    def supervisor_alive(self) -> bool:
        """Pages show no warning."""
        return True

    def start_supervisor(self) -> None:
        """Nothing is started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one call costs."""

    cpu_ms: float
    """Of this process, median; on PostgreSQL without the server's."""
    statements: int
    steps: int
    """Of SQLite's virtual machine; 0 on PostgreSQL."""


def opened(home: Home) -> Resting:
    """A service over a home, for the local operator; its devices are those of its rows."""
    clock = RealClock()
    store = Store.open(home.create(), clock)

    def devices() -> list[Device]:
        return [row.device for row in store.devices.all()]

    supervisor = Supervisor(store, NoLauncher(), clock, budget=lambda device: Budget(2**37, 2**36), devices=devices)
    return Resting(home, store, supervisor, clock)


def made(home: Home, size: Size) -> Resting:
    """A new home of this size."""
    service = opened(home)
    fill(home, service.store, size, service.clock.utc_s())
    return service


def cost(service: Service, call: Call, repeats: int) -> Cost:
    """What a call costs once what is kept is known."""
    begun_s = time.process_time()
    call(service)
    if time.process_time() - begun_s > LONGEST_S:
        return Cost(cpu_ms=1e3 * (time.process_time() - begun_s), statements=0, steps=0)
    with counted(service.store._database._engine) as found:
        call(service)
    return Cost(cpu_ms=cpu_ms(lambda: call(service), repeats), statements=found.statements, steps=found.steps)


def cpu_ms(call: Callable[[], object], repeats: int) -> float:
    """Processor time of a call: the median over repeats."""
    found = []
    for _ in range(repeats):
        begun_s = time.process_time()
        call()
        found.append(1e3 * (time.process_time() - begun_s))
    return median(found)


def _tick(service: Service) -> None:
    service._supervisor.tick()


def _fleet(service: Service) -> Any:
    store = service.store
    budget = service._supervisor._budget
    return fleet_of(store, budget, service.clock, store.hybrids.listed(), store.workers.waiting())


def _decide(view: FleetView, _service: Service) -> object:
    return decide(view)


def of_history(ended: int) -> Mapping[str, Call]:
    """Calls that must not grow with the number of ended runs."""
    last, found = run_id(ended - 1), RunQuery(text=f"run {ended - 7}")
    return {
        "supervisor: tick": _tick,
        "supervisor: view of the fleet": _fleet,
        "worker: commands (`open_in`)": lambda service: service.store.commands.open_in(run_id(0, "t")),
        "Now: current runs": lambda service: service.runs.current(),
        "Now: of a submitter": lambda service: service.acting_as(SUBMITTER).runs.current(),
        "Now and Queue: line": lambda service: service.queue.line(),
        "Queue: hybrids": lambda service: service.queue.hybrids(),
        "devices": lambda service: service.devices.cards(),
        "Runs: filters": lambda service: service.runs.run_choices(),
        "Runs: first page": lambda service: service.runs.listing(RunQuery()),
        "Runs: by name": lambda service: service.runs.listing(RunQuery(sort="name", descending=False)),
        "Runs: by accuracy": lambda service: service.runs.listing(RunQuery(sort="accuracy")),
        "Runs: by device": lambda service: service.runs.listing(RunQuery(sort="device")),
        "Runs: search": lambda service: service.runs.listing(found),
        "Runs: of a submitter": lambda service: service.acting_as(SUBMITTER).runs.listing(RunQuery()),
        "Run: with curves": lambda service: service.runs.observe(last),
        "Compare: chooser": lambda service: service.runs.compared(),
        "Compare: a comparison": lambda service: service.comparisons.comparison(last),
        "Library: files": lambda service: service.library.shelf(),
        "Library: trained models": lambda service: service.library.kept(KeptQuery("model", rows=50)),
        "Library: quota": lambda service: service.library.quota(),
        "Admin: audit log": lambda service: (service.people.audit(), service.people.audited_names()),
        "Admin: files of people": lambda service: service.retention.owned(),
        "Admin: what is due": lambda service: service.retention.planned(),
        "forecast: earlier trainings": lambda service: service.store.speeds.trained(
            map(key_of_kind, range(3)), least_steps=1, threads=1, device_kind="H200"
        ),
        "browser: news": lambda service: service.notifications.news(service.notifications.news().cursor),
        "monitoring: figures": lambda service: service.monitoring.figures(),
        "terminal: newest runs (`unifiednn runs`)": lambda service: service.runs.listing(RunQuery(rows=NEWEST_ROWS)),
        "terminal: all runs (`unifiednn runs --all`)": lambda service: service.runs.runs(),
    }


def history(places: Mapping[int, Callable[[], Service]], repeats: int) -> dict[str, dict[int, Cost]]:
    """Each call in stores with so many ended runs, by turns, so that all see the same machine."""
    services = {ended: place() for ended, place in places.items()}
    calls = {ended: of_history(ended) for ended in services}
    found = {
        name: {ended: cost(service, calls[ended][name], repeats) for ended, service in services.items()}
        for name in of_history(1)
    }
    for service in services.values():
        service.store.close()
    return found


FLEET: Mapping[str, Call] = {
    "`workers.waiting()`": lambda service: service.store.workers.waiting(),
    "`hybrids.listed()`": lambda service: service.store.hybrids.listed(),
    "`telemetry.memory_now()`": lambda service: service.store.telemetry.memory_now(),
    "view of the fleet, made": _fleet,
    "page Queue: hybrids": lambda service: service.queue.hybrids(),
    "page Queue: cards of devices": lambda service: service.devices.cards(),
}


def fleet(make: Callable[[Size], Service], sizes: tuple[int, ...], repeats: int) -> dict[str, dict[int, Cost]]:
    """What grows with devices that train and runs that wait, as many of each."""
    found: dict[str, dict[int, Cost]] = {}
    for size in sizes:
        busy = make(Size(devices=size))
        found.setdefault("supervisor tick, all train and nothing waits", {})[size] = cost(busy, _tick, repeats)
        busy.store.close()
        service = make(Size(devices=size, waiting=size, shared=True))
        try:
            for name, call in FLEET.items():
                found.setdefault(name, {})[size] = cost(service, call, repeats)
            deciding = partial(_decide, _fleet(service).view)
            found.setdefault("`decide` (pure)", {})[size] = cost(service, deciding, repeats)
            found.setdefault("supervisor tick, all train and as many wait", {})[size] = cost(service, _tick, repeats)
        finally:
            service.store.close()
    return found
