"""The command that offers the devices of another machine to a server: `unifiednn agent --join URL`."""

import os
import platform
import signal
import threading
from typing import Annotated

import typer

from unifiednn_core.base.files import set_private_umask
from unifiednn_core.base.garbage import collect_rarely
from unifiednn_core.base.paths import DATABASE_SETTING, DEVICES_SETTING, Home, cpu_devices
from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import refusing
from unifiednn_core.machine.devices import devices_of_host
from unifiednn_core.preflight import client
from unifiednn_core.runtime.agent import Agent, host_named, offered, warnings_of
from unifiednn_core.runtime.carrier import Carrier
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.store import Store

Join = Annotated[
    str,
    typer.Option(
        "--join", metavar="URL", envvar=DATABASE_SETTING, help="Database: postgresql://USER:PASSWORD@HOST/NAME"
    ),
]
HostName = Annotated[str | None, typer.Option("--host", help="Name of this host; by default that of the machine.")]
Offered = Annotated[str | None, typer.Option("--devices", help="Devices to offer: cuda:0,cuda:1. By default all.")]
Idle = Annotated[float | None, typer.Option("--until-idle", metavar="S", help="End after so many idle seconds.", min=0)]


def agent(join: Join, host: HostName = None, offer: Offered = None, until_idle: Idle = None) -> None:
    """Offer the devices of this machine to a server. SIGTERM gives them back: what trains here goes on elsewhere."""
    set_private_umask()
    os.environ[DATABASE_SETTING] = join  # for the workers, too
    if offer is not None:
        os.environ[DEVICES_SETTING] = offer
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    with refusing(as_json=False):
        name = host_named(host or platform.node())
        cpu_devices()
        offered(devices_of_host)
        home = Home.default().create()
        store = Store.open(home)
        for sentence in warnings_of(store.hosts.all()):
            terminal.say(f"{sentence} Results may have other bits.", to=terminal.err)
        client.start()
        terminal.say(f"Host {name} offers {', '.join(one.text for one in devices_of_host())}.", to=terminal.err)
        supervisor, carrier = (
            Supervisor(store, LocalLauncher(home), store.clock, host=name),
            Carrier(home, store, store.clock, host=name),
        )
        carrier.start()
        collect_rarely()
        try:
            raise typer.Exit(Agent(store, supervisor, store.clock, until_idle).run(asked))
        finally:
            carrier.stop()
            store.close()
            client.stop()
