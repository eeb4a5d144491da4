"""Commands for hosts: operators list them, drain a whole one, and forget one that is gone."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Column

from unifiednn_core.base.units import duration_text
from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import AsJson, opened

HostName = Annotated[str, typer.Argument(help="Name of the host; list them with: unifiednn hosts")]

hosts = typer.Typer(help="List the machines that offer devices, drain and forget them.", invoke_without_command=True)


@hosts.callback()
def list_hosts(context: typer.Context, as_json: AsJson = False) -> None:
    """List the machines that offer devices. A new one joins with: unifiednn agent --join URL."""
    if context.invoked_subcommand is not None:
        return
    with opened(as_json) as service:
        found = service.devices.hosts()
        if as_json:
            terminal.print_json([asdict(one) for one in found])
            return
        columns = (Column("host", no_wrap=True), "machine", "state", "heard of", "devices", "hybrids")
        rows = (
            (
                one.name,
                one.machine,
                one.state,
                f"{duration_text(one.silent_s)} ago",
                ", ".join(one.devices) or "none",
                str(one.hybrids),
            )
            for one in found
        )
        terminal.print_table(columns, rows)
        for one in found:
            for sentence in one.differences:
                terminal.say(f"{one.name}: {sentence}")
        at = service.retention.places()
        terminal.say(f"Home of this host: {at.home}. Files: {at.files or 'in the home'}. Database: {at.database}.")


@hosts.command("drain")
def drain(name: HostName) -> None:
    """Place nothing new on a host, and let what trains there go on elsewhere."""
    with opened() as service:
        service.devices.drain_host(name)
        terminal.say(f"{name} drains. Use it again with: unifiednn hosts ready {name}")


@hosts.command("ready")
def ready(name: HostName) -> None:
    """Use a host again."""
    with opened() as service:
        service.devices.ready_host(name)
        terminal.say(f"{name} is ready.")


@hosts.command("forget")
def forget(name: HostName) -> None:
    """Forget a host that is away and does not return. Its agent may join again."""
    with opened() as service:
        service.devices.forget_host(name)
        terminal.say(f"{name} is forgotten.")
