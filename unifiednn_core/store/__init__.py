"""The database: runs, commands, measurements, files and people."""

from unifiednn_core.base.clock import Clock, RealClock
from unifiednn_core.base.paths import Home
from unifiednn_core.store.commands import Commands
from unifiednn_core.store.database import Database
from unifiednn_core.store.device_samples import DeviceSamples
from unifiednn_core.store.devices import Devices
from unifiednn_core.store.hybrids import Hybrids
from unifiednn_core.store.library import Library, Measured
from unifiednn_core.store.monitoring import Monitoring
from unifiednn_core.store.people import People
from unifiednn_core.store.removals import Removals
from unifiednn_core.store.requests import Requests
from unifiednn_core.store.run_lists import RunLists
from unifiednn_core.store.runs import Runs
from unifiednn_core.store.seen import Seen
from unifiednn_core.store.speeds import Speeds
from unifiednn_core.store.telemetry import Telemetry
from unifiednn_core.store.webhooks import Webhooks
from unifiednn_core.store.workers import Workers


class Store:
    """All parts of the store over one database."""

    def __init__(self, database_url: str, clock: Clock | None = None):
        clock = clock or RealClock()
        self._database = Database(database_url)
        self.runs = Runs(self._database, clock)
        self.hybrids = Hybrids(self._database, clock)
        self.workers = Workers(self._database, self.runs, clock)
        self.commands = Commands(self._database, self.runs, clock)
        self.telemetry = Telemetry(self._database, clock)
        self.library = Library(self._database, clock)
        self.people = People(self._database, clock)
        self.removals = Removals(self._database, clock)
        self.run_lists = RunLists(self._database)
        self.measured = Measured(self._database, clock)
        self.speeds = Speeds(self._database)
        self.devices = Devices(self._database, clock)
        self.requests = Requests(self._database, clock)
        self.monitoring = Monitoring(self._database)
        self.webhooks = Webhooks(self._database, clock)
        self.seen = Seen(self._database, clock)
        self.device_samples = DeviceSamples(self._database, clock)

    @classmethod
    def open(cls, home: Home, clock: Clock | None = None) -> "Store":
        """Open the store of a home; creates missing folders."""
        return cls(home.create().database_url, clock)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()
