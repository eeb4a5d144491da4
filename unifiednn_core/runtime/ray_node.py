"""The agent of one node of a Ray cluster, inside an actor. Imports nothing of Ray; `ray_cluster` makes the actor."""

import os
import threading
from collections.abc import Iterable, Sequence

from unifiednn_core.base.paths import DATABASE_SETTING, Home, warm_start_is_on
from unifiednn_core.machine.devices import Device, devices_of_host
from unifiednn_core.preflight import client
from unifiednn_core.runtime.agent import Agent
from unifiednn_core.runtime.carrier import Carrier
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.spec.devices import CPU, CUDA, on_host, own_name
from unifiednn_core.store import Store

_VISIBLE = "CUDA_VISIBLE_DEVICES"


class NodeAgent:
    """Serves one host as `unifiednn agent` does. It offers nothing until it is told which devices are reserved.

    Its workers are processes with sessions of their own: they outlive the actor, and the next one finds them.
    """

    def __init__(self, url: str, host: str, device_type: str):
        os.environ[DATABASE_SETTING] = url  # for the workers, too
        self._host, self._type, self._offered = host, device_type, frozenset[str]()
        self._asked = threading.Event()
        home = Home(Home.default().root / "hosts" / host).create()  # nodes may have one home folder
        self._store = Store.open(home)
        clock = self._store.clock
        if warm_start_is_on():
            client.start()
        self._carrier = Carrier(home, self._store, clock, host=host)
        self._carrier.start()
        supervisor = Supervisor(self._store, LocalLauncher(home), clock, host=host, devices=self._devices)
        supervisor.lease.enter()
        known = (on_host(one, host) for one in self._all())  # people can ask for what is not offered yet
        self._store.devices.write(known, host)
        supervisor.start()
        self._agent = Agent(self._store, supervisor, clock)
        self._thread = threading.Thread(target=self._serve, name="agent", daemon=True)
        self._thread.start()

    def names(self, ids: Sequence[str]) -> list[str]:
        """What the store calls these GPUs, given as Ray names them; `cpu` is all CPU devices of the node."""
        return [on_host(one, self._host).name for one in self._all() if is_one_of(one, ids)]

    def offer(self, names: Iterable[str]) -> None:
        """Offer these devices and no others; what trains on others goes on there."""
        self._offered = frozenset(map(own_name, names))

    def park(self) -> None:
        """Have all that trains here leave; returns once it has."""
        self._asked.set()
        self._thread.join()
        self._carrier.stop()
        client.stop()

    def _devices(self) -> list[Device]:
        return [one for one in self._all() if one.name in self._offered]

    def _all(self) -> list[Device]:
        return [one for one in devices_of_host() if one.type == self._type]

    def _serve(self) -> None:
        if code := self._agent.run(self._asked):  # another agent has this host: the watch starts this one again
            os._exit(code)


def is_one_of(device: Device, ids: Sequence[str]) -> bool:
    """Whether a device of this process is one of those that Ray names."""
    if device.type == CPU:
        return CPU in ids
    visible = os.environ.get(_VISIBLE)
    names = [] if visible is None else [name.strip() for name in visible.split(",")]
    return device.name in {f"{CUDA}:{names.index(one) if one in names else one}" for one in ids}
