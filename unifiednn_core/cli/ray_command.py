"""The command for Ray clusters. Ray itself is imported only when it runs."""

import logging
import signal
import threading
from contextlib import closing
from typing import Annotated

import typer

from unifiednn_core.base.errors import BadInput
from unifiednn_core.cli import terminal
from unifiednn_core.cli.agent import Join
from unifiednn_core.cli.shared import refusing
from unifiednn_core.runtime.ray_watch import RayWatch
from unifiednn_core.store import Store

Address = Annotated[str, typer.Option(help="Address of the Ray cluster.")]
Idle = Annotated[float, typer.Option(help="Minutes after which a device without work is given back.", min=0.1)]
Cpus = Annotated[bool, typer.Option("--cpus", help="Train on the CPUs of nodes, not on their GPUs.")]
Scale = Annotated[bool, typer.Option("--scale", help="Tell Ray's autoscaler what waits in the line.")]
End = Annotated[bool, typer.Option("--end", help="Park everything, end all agents, give all devices back.")]


def ray(
    join: Join,
    address: Address = "auto",
    idle_minutes: Idle = 10.0,
    cpus: Cpus = False,
    scale: Scale = False,
    end: End = False,
) -> None:
    """Train on the nodes of a Ray cluster, as long as this runs; agents and trainings go on without it."""
    with refusing(as_json=False):
        try:
            from unifiednn_core.runtime.ray_cluster import RayCluster
        except ModuleNotFoundError as error:
            if error.name != "ray":
                raise
            message, remedy = "Ray is not installed.", "Install it: pip install 'unifiednn[ray]'"
            raise BadInput.of("Ray", "ray", message, remedy) from None
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        stop = threading.Event()
        with closing(RayCluster(address)) as cluster:
            for number in (signal.SIGTERM, signal.SIGINT):  # after Ray, which sets its own
                signal.signal(number, lambda *_: stop.set())
            if end:
                cluster.end()
                return
            with closing(Store(join)) as store:
                watch = RayWatch(store, join, cluster, store.clock, idle_s=60 * idle_minutes, cpus=cpus, scales=scale)
                terminal.say(f"Watching the Ray cluster at {address}. Ctrl-C ends this; agents go on.", to=terminal.err)
                watch.run(stop)
