"""What a server of many runs, devices and people costs, on SQLite and on PostgreSQL. No training.

Figures are processor time, counts, and ratios of what was measured side by side: other programs may be at work.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.many_runs import Size, ratio, size_bytes
from tools import postgres
from tools.bench import scale_reads, scale_store
from tools.bench.scale_pages import Place
from tools.bench.scale_reads import Cost
from tools.bench.scale_store import Rate
from tools.machine import ToolFailed
from unifiednn_core.base.garbage import collect_rarely
from unifiednn_core.base.paths import DATABASE_SETTING, Home
from unifiednn_core.service.facade import Service

ENDED = (100, 1_000, 10_000)
FLEET = (10, 100, 1_000)
WRITERS = (1, 4, 16)
REMOVED = 1_000
DETAILED = 100
MOST_GROWTH = 1.5
"""Pages: time with 10,000 ended runs by that with 100. Repeated questions: steps of the database."""
LIVE = Size(waiting=10, devices=4, samples=300)
DURABLE = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "256MB"}
"""Settings of the server, as an operator would have them."""
PATIENCE_S = 3600
_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Found:
    """All of one database."""

    history: Mapping[str, Mapping[int, Cost]]
    fleet: Mapping[str, Mapping[int, Cost]]
    writers: Sequence[Rate]
    claims: Rate
    single: Mapping[str, Mapping[str, float]]
    removals: Mapping[str, float]
    pages: Mapping[str, Mapping[str, Any]]
    memory: Mapping[int, Sequence[int]]
    """Of a process before and after it drew each page once, by ended runs."""
    run_bytes: Mapping[str, float]
    """Of the database, per run with all its records and per run without curves; empty on PostgreSQL."""


def measure(repeats: int, *, postgresql: bool, ended: Sequence[int] = ENDED, fleet: Sequence[int] = FLEET) -> Found:
    """Measure one kind of database in temporary homes."""
    with tempfile.TemporaryDirectory(prefix="unifiednn-bench-") as folder, _server(postgresql) as server:
        places = _Places(Path(folder), server)
        homes: dict[int, Home] = {}
        for count in ended:
            homes[count] = places.new()
            places.use(homes[count])
            scale_reads.made(homes[count], replace(LIVE, ended=count, in_full=1, folders=True)).store.close()
        history = scale_reads.history({count: partial(places.opened, home) for count, home in homes.items()}, repeats)
        at = [Place(str(home.root), places.url(home), count) for count, home in homes.items()]
        pages, memory = _drawn(at, repeats), {one.ended: _drawn([one]) for one in at}
        places.use(homes[ended[-1]])
        removed = scale_store.removals(homes[ended[-1]], min(REMOVED, ended[-1]))
        return Found(
            history=history,
            fleet=scale_reads.fleet(lambda size: scale_reads.made(places.used(), size), tuple(fleet), repeats),
            writers=[scale_store.writers(places.used(), count, places.pid) for count in WRITERS],
            claims=scale_store.claims(places.used(), places.pid),
            single=scale_store.single(places.used()),
            removals=removed,
            pages=pages,
            memory=memory,
            run_bytes={} if postgresql else _run_bytes(places),
        )


class _Places:
    """Homes, each with a database of its own."""

    def __init__(self, folder: Path, server: postgres.Server | None):
        self._folder, self._server, self._count = folder, server, 0
        self._urls: dict[Home, str] = {}
        self.pid = None if server is None else server.pid

    def new(self) -> Home:
        """A new home."""
        self._count += 1
        home = Home(self._folder / f"home{self._count}")
        if self._server is not None:
            self._urls[home] = self._server.create(f"scale{self._count}")
        return home

    def use(self, home: Home) -> None:
        """Open its database from now on."""
        os.environ.pop(DATABASE_SETTING, None)
        if home in self._urls:
            os.environ[DATABASE_SETTING] = self._urls[home]

    def url(self, home: Home) -> str | None:
        """URL of its database; None with SQLite."""
        return self._urls.get(home)

    def opened(self, home: Home) -> Service:
        """The service of a home."""
        self.use(home)
        return scale_reads.opened(home)

    def used(self) -> Home:
        """A new home whose database is opened from now on."""
        home = self.new()
        self.use(home)
        return home


@contextmanager
def _server(postgresql: bool) -> Iterator[postgres.Server | None]:
    before = os.environ.pop(DATABASE_SETTING, None)
    try:
        if postgresql:
            with postgres.serving(**DURABLE) as server:
                yield server
        else:
            yield None
    finally:
        os.environ.pop(DATABASE_SETTING, None)
        if before is not None:
            os.environ[DATABASE_SETTING] = before


def _drawn(places: Sequence[Place], repeats: int = 1) -> Any:
    command = [sys.executable, "-m", "tools.bench.scale_pages", json.dumps(places), str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=_REPOSITORY, check=False)
    if done.returncode:
        raise ToolFailed(f"The pages could not be drawn: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _run_bytes(places: _Places) -> dict[str, float]:
    sizes = {}
    for name, in_full in (("in full", DETAILED), ("without curves", 0)):
        home = places.used()
        before = scale_reads.made(home, Size())
        before.store.close()
        empty = size_bytes(home.database)
        home = places.used()
        scale_reads.made(home, Size(ended=DETAILED, in_full=in_full)).store.close()
        sizes[name] = (size_bytes(home.database) - empty) / DETAILED
    return sizes


# -- the result


def described(found: Mapping[str, Found]) -> dict[str, Any]:
    """Tables and figures, by database."""
    tables = [table for database, one in found.items() for table in _tables(database, one) if table["rows"]]
    growths = [page["growth"] for one in found.values() for page in one.pages.values()]
    return {
        "about": "What ended runs, devices, waiting runs, writers and viewers cost the store and the pages.",
        "passed": all(growth <= MOST_GROWTH for growth in growths),
        "thresholds": [],
        "notes": [
            "Processor milliseconds of one core, median of the repeats, while other programs were at work. "
            "Rates per second are of that machine at that moment: compare them with each other alone.",
            "Ended runs have three sub-models, 14 events, 3 attempts, 9 uses of files, a command, a draft and three "
            "lines of the audit log each, and files on the disk; one has curves.",
            f"Promised: a page drawn again costs at most {MOST_GROWTH:g} times as much with most ended runs as with "
            "least.",
        ],
        "tables": tables,
        "measured": {database: asdict(one) for database, one in found.items()},
    }


def _tables(database: str, one: Found) -> Iterator[dict[str, Any]]:
    sizes = sorted(next(iter(one.history.values())))
    yield _table(
        f"{database}: a page drawn again, by the number of ended runs (CPU ms):",
        ("page", *(f"{size:,}" for size in sizes), "growth, drawn by turns", "statements", "holds"),
        [
            (
                name,
                *(f"{ms:.0f}" for ms in page["cpu_ms"].values()),
                f"{page['growth']:.2f}",
                str(list(page["statements"].values())[-1]),
                "yes" if page["growth"] <= MOST_GROWTH else "**no**",
            )
            for name, page in one.pages.items()
        ],
    )
    yield _table(
        f"{database}: calls, by the number of ended runs (CPU ms):",
        ("call", *(f"{size:,}" for size in sizes), "statements", "growth of database steps"),
        [_cost_row(name, costs, sizes) for name, costs in one.history.items()],
    )
    devices = sorted({size for costs in one.fleet.values() for size in costs})
    yield _table(
        f"{database}: calls, by devices that train and runs that wait (CPU ms):",
        ("call", *(f"{size:,}" for size in devices), "statements", "growth of database steps"),
        [_cost_row(name, costs, devices) for name, costs in one.fleet.items()],
    )
    yield _table(
        f"{database}: written at once:",
        ("what", "processes", "per second", "CPU ms of the process", "CPU ms of the server", "lost races"),
        [_rate_row("telemetry batches", rate) for rate in one.writers] + [_rate_row("claims", one.claims)],
    )
    singles = {**one.single, **({"deletion of an ended run": one.removals} if one.removals else {})}
    yield _table(
        f"{database}: written by one process:",
        ("what", "CPU ms", "statements"),
        [(name, f"{cost['cpu_ms']:.1f}", f"{cost['statements']:.0f}") for name, cost in singles.items()],
    )
    memory = [
        (f"{size:,}", *(f"{bytes_ / 2**20:.0f} MiB" for bytes_ in one.memory[size])) for size in sorted(one.memory)
    ]
    yield _table(
        f"{database}: memory of a process that draws each page once:", ("ended runs", "before", "after"), memory
    )
    if one.run_bytes:
        rows = [(name, f"{size / 1024:.0f} KiB") for name, size in one.run_bytes.items()]
        yield _table(f"{database}: size of the database per run of three sub-models:", ("run", "size"), rows)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Any]:
    return {"title": title, "heads": heads, "rows": rows}


def _cost_row(name: str, costs: Mapping[int, Cost], sizes: Sequence[int]) -> tuple[str, ...]:
    first, last = costs[min(costs)], costs[max(costs)]
    steps = f"{ratio(last.steps, first.steps):.1f}" if first.steps and last.steps else "-"
    known = [f"{costs[size].cpu_ms:.1f}" if size in costs else "-" for size in sizes]
    return (name, *known, str(last.statements), steps)


def _rate_row(name: str, rate: Rate) -> tuple[str, ...]:
    server = "-" if rate.server_cpu_ms is None else f"{rate.server_cpu_ms:.2f}"
    return (name, str(rate.processes), f"{rate.per_s:.0f}", f"{rate.cpu_ms:.2f}", server, str(rate.lost))


if __name__ == "__main__":
    collect_rarely()  # as the server does
    kinds = {"SQLite": False, "PostgreSQL": True}
    asked = {name: measure(int(sys.argv[1]), postgresql=remote) for name, remote in kinds.items()}
    sys.stdout.write(json.dumps(described(asked)) + "\n")
