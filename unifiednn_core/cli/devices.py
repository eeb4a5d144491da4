"""Commands for devices, which submitters can list and operators change."""

from typing import Annotated

import typer
from rich.table import Column

from unifiednn_core.base.units import NOT_AVAILABLE, memory_bytes, memory_text, percent_text
from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import AsJson, bad_option, opened
from unifiednn_core.service.facade import Service
from unifiednn_core.service.roles import Role
from unifiednn_core.views import device_text
from unifiednn_core.views.devices import DeviceCard, device_document

ALL = "none"
DeviceName = Annotated[str, typer.Argument(help="Name of the device; list them with: unifiednn devices")]
Limit = Annotated[str, typer.Argument(help=f"Size such as 4GiB or 512MiB, or {ALL}.")]

devices = typer.Typer(help="List devices, drain them, and limit their memory.", invoke_without_command=True)


@devices.callback()
def list_devices(context: typer.Context, as_json: AsJson = False) -> None:
    """List the devices and their use now. Operators can drain them, and limit their memory."""
    if context.invoked_subcommand is not None:
        return
    with opened(as_json) as service:
        if service.actor.role.rank < Role.OPERATOR.rank:
            found = service.devices.device_choices()
            terminal.print_found(found, as_json, ("device", "kind"), ((one.name, one.kind) for one in found))
        else:
            _print_devices(service, as_json)


@devices.command("drain")
def drain(name: DeviceName) -> None:
    """Place nothing new on a device, and let what trains there go on elsewhere."""
    with opened() as service:
        service.devices.drain_device(name)
        terminal.say(f"{name} drains. Use it again with: unifiednn devices ready {name}")


@devices.command("ready")
def ready(name: DeviceName) -> None:
    """Use a device again."""
    with opened() as service:
        service.devices.ready_device(name)
        terminal.say(f"{name} is ready.")


@devices.command("limit")
def limit(name: DeviceName, most: Limit) -> None:
    """Limit the memory that may be used on a device, or lift the limit."""
    with opened() as service:
        limit_bytes = None if most.lower() == ALL else memory_bytes(most)
        if limit_bytes is None and most.lower() != ALL:
            raise bad_option("limit", f"'{most}' is no size.", f'Give a size such as 4GiB, or "{ALL}".')
        service.devices.limit_device(name, limit_bytes)
        used = "all of its memory" if limit_bytes is None else f"at most {memory_text(limit_bytes)}"
        terminal.say(f"{name}: {used} may be used.")


def _print_devices(service: Service, as_json: bool) -> None:
    found, cards = service.devices.devices(), {card.name: card for card in service.devices.cards()}
    if as_json:
        terminal.print_json([device_document(one, cards.get(one.name)) for one in found])
        return
    rows = (
        (
            one.name,
            one.state,
            one.kind,
            memory_text(one.total_bytes),
            _memory(cards.get(one.name)),
            _busy(cards.get(one.name)),
            "none" if one.limit_bytes is None else memory_text(one.limit_bytes),
            str(one.threads),
            ", ".join(map(str, one.cpus)) or "all",
        )
        for one in found
    )
    words = (Column("device", no_wrap=True), Column("state", no_wrap=True), "kind")
    figures = (Column(head, no_wrap=head in ("memory", "limit")) for head in ("memory", "in use", "busy", "limit"))
    terminal.print_table((*words, *figures, "threads", "cores"), rows)
    others = ((card.name, one) for card in cards.values() for one in card.others)
    processes = [
        (name, str(one.pid), one.user or NOT_AVAILABLE, one.name or NOT_AVAILABLE, device_text.used_by(one))
        for name, one in others
    ]
    if processes:
        terminal.say("Processes of others:")
        terminal.print_table(("device", "PID", "user", "program", "uses"), processes)


def _memory(card: DeviceCard | None) -> str:
    return memory_text(None if card is None else card.used_bytes)


def _busy(card: DeviceCard | None) -> str:
    return percent_text(None if card is None else card.utilisation)
