"""The database: runs, commands, measurements, files and people."""

from pathlib import Path

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home
from unifiednn_core.store.calls import Calls
from unifiednn_core.store.commands import Commands
from unifiednn_core.store.database import Database, Fence
from unifiednn_core.store.devices import Devices, DeviceSamples
from unifiednn_core.store.hybrids import Hybrids
from unifiednn_core.store.kept import Holdings
from unifiednn_core.store.library import Library, Measured
from unifiednn_core.store.nodes import Nodes
from unifiednn_core.store.people import People, Requests
from unifiednn_core.store.removals import Removals
from unifiednn_core.store.run_lists import RunLists
from unifiednn_core.store.runs import Runs, Seen
from unifiednn_core.store.speeds import Speeds
from unifiednn_core.store.telemetry import Monitoring, Telemetry
from unifiednn_core.store.webhooks import Webhooks
from unifiednn_core.store.workers import Workers


class Store:
    """All parts of the store over one database."""

    def __init__(self, database: Path, clock: Clock | None = None, fence: Fence | None = None):
        """`fence` is what has to hold for each write, of a worker."""
        self._database = Database(database, clock)
        self.clock = self._database.clock
        self._database.fence = fence
        self.runs = Runs(self._database)
        self.hybrids = Hybrids(self._database)
        self.workers = Workers(self._database, self.runs)
        self.commands = Commands(self._database, self.runs)
        self.telemetry = Telemetry(self._database)
        self.library = Library(self._database)
        self.kept = Holdings(self._database)
        self.people = People(self._database)
        self.removals = Removals(self._database)
        self.run_lists = RunLists(self._database)
        self.measured = Measured(self._database)
        self.speeds = Speeds(self._database)
        self.devices = Devices(self._database)
        self.nodes = Nodes(self._database)
        self.requests = Requests(self._database)
        self.monitoring = Monitoring(self._database)
        self.calls = Calls(self._database)
        self.webhooks = Webhooks(self._database)
        self.seen = Seen(self._database)
        self.device_samples = DeviceSamples(self._database)

    @classmethod
    def open(cls, home: Home, clock: Clock | None = None) -> "Store":
        """Open the store of a home; creates missing folders."""
        return cls(home.create().database, clock)

    def raise_fence(self, fence: Fence) -> None:
        """From now on each write needs this to hold, and raises `Fenced` otherwise."""
        self._database.fence = fence

    def close(self) -> None:
        """Close all connections."""
        self._database.close()
