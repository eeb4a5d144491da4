"""The facade of the service, used by pages, command line and routes."""

from collections.abc import Sequence

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home, cpu_devices
from unifiednn_core.machine.devices import Device, devices_of_host
from unifiednn_core.runtime.certifier import Certifier
from unifiednn_core.runtime.cluster import LOCAL, Cluster, address_in
from unifiednn_core.runtime.housekeeping import Housekeeper
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.service.comparisons import ComparisonService
from unifiednn_core.service.devices import DeviceService
from unifiednn_core.service.exports import ExportService
from unifiednn_core.service.importing import FileImporter
from unifiednn_core.service.library import LibraryService
from unifiednn_core.service.line import Line
from unifiednn_core.service.logs import LogService
from unifiednn_core.service.monitoring import MonitoringService, health_of
from unifiednn_core.service.notifications import NotificationService
from unifiednn_core.service.people import PeopleService
from unifiednn_core.service.permissions import Guard, permissions_of
from unifiednn_core.service.queue import QueueService
from unifiednn_core.service.quotas import Room
from unifiednn_core.service.reading import RunReader
from unifiednn_core.service.recent import Recent
from unifiednn_core.service.retention import RetentionService
from unifiednn_core.service.roles import LOCAL_OPERATOR, Actor
from unifiednn_core.service.runs import RunService
from unifiednn_core.service.submission import Submissions
from unifiednn_core.store import Store
from unifiednn_core.views.monitoring import Health

PERMISSIONS = permissions_of(
    RunService,
    LibraryService,
    ComparisonService,
    PeopleService,
    DeviceService,
    QueueService,
    LogService,
    RetentionService,
    ExportService,
    NotificationService,
    MonitoringService,
)
"""Permission of each action, by name."""
HOSTS_S = 5.0
"""How old the list of devices of other hosts may be."""


class Service:
    """All actions of one person, in several parts. Safe to share between threads."""

    def __init__(
        self,
        home: Home,
        store: Store,
        supervisor: Supervisor,
        clock: Clock,
        actor: Actor = LOCAL_OPERATOR,
        line: Line | None = None,
        recent: Recent | None = None,
        certifier: Certifier | None = None,
    ):
        """`line`, `recent` and `certifier` are those of the same store, so that all people share them."""
        self._certifier = certifier or Certifier(home, store, clock)
        self.home, self.store, self.clock, self.actor = home, store, clock, actor
        self._supervisor, self._line = supervisor, line or Line(supervisor.fleet, clock, store.speeds.turns)
        self._recent = recent or Recent()
        guard = Guard(actor, store.runs, store.people, self._recent, self._devices_elsewhere)
        room = Room(home, store, actor, self._recent)
        importer = FileImporter(home, store.library, actor, room)
        reader = RunReader(home, store, clock, actor, importer.references, self._line, self._recent)
        submissions = Submissions(home, store, clock, actor, importer, reader)
        self.runs = RunService(guard, home, store, clock, reader, submissions)
        self.library = LibraryService(guard, home, store, importer, submissions, room)
        self.comparisons = ComparisonService(guard, store, clock, reader, submissions, self._recent)
        self.people = PeopleService(guard, home, store.people, clock)
        self.devices = DeviceService(guard, store, clock, self._recent)
        self.logs = LogService(guard, home, store, reader)
        self.queue = QueueService(guard, store, clock, self._line)
        self.exports = ExportService(guard, home, store, actor)
        self.notifications = NotificationService(guard, store.webhooks, clock)
        self.monitoring = MonitoringService(guard, home, store, clock, supervisor)
        self.retention = RetentionService(guard, home, store, clock, room)

    @classmethod
    def open(cls, home: Home | None = None, arguments: Sequence[str] = ()) -> "Service":
        """Open a home, by default the one of the environment, for the local operator.

        With `--ray ADDRESS` among the `arguments` of a server, the nodes of that cluster are offered, too.
        """
        ray = address_in(arguments)
        home = (home or Home.default()).create()
        store = Store.open(home)
        if arguments and ray is None:  # a server without a cluster, maybe after one with it
            store.nodes.clear()
        clock = store.clock
        chores = Housekeeper(home, store, clock)
        certifier = Certifier(home, store, clock)
        supervisor = Supervisor(
            store,
            LocalLauncher(home),
            clock,
            devices=tuple if ray == LOCAL else devices_of_host,
            chores=chores,
            verifying=lambda: certifier.busy,
            cluster=None if ray is None else Cluster(home, store, clock, ray),
        )
        return cls(home, store, supervisor, clock, certifier=certifier)

    def _devices_elsewhere(self) -> Sequence[Device]:
        """Devices of other hosts, as of a moment ago."""
        return self._recent.within(HOSTS_S, ("devices elsewhere",), self.store.devices.of_others)

    def acting_as(self, actor: Actor) -> "Service":
        """The same service for another person, who owns what they submit and sees what their role allows."""
        return Service(
            self.home, self.store, self._supervisor, self.clock, actor, self._line, self._recent, self._certifier
        )

    def start_supervisor(self) -> None:
        """Start queued runs and watch for dead workers from now on; idempotent. Raises `BadInput` for a bad setting."""
        cpu_devices()  # the thread could tell nobody
        self._supervisor.start()
        self._certifier.start()

    def settle_certificates(self, run_id: str) -> None:
        """Make the certificates of a run that are due, now, where they can be made."""
        self._certifier.settle(run_id)

    @property
    def supervisor_alive(self) -> bool:
        """Whether queued runs are started."""
        return self._supervisor.alive

    def health(self) -> Health:
        """Whether the parts of the server work; anyone may ask."""
        return health_of(self.home, self.store, self._supervisor)

    def close(self) -> None:
        """Stop watching and close the store. Training continues."""
        self._certifier.stop()
        self._supervisor.stop()
        self.store.close()
