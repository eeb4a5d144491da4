"""Commands for webhooks, for the local operator and admins."""

from dataclasses import asdict
from typing import Annotated

import typer

from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import AsJson, opened
from unifiednn_core.store.webhooks import EVENTS, OF_RUNS

Url = Annotated[str, typer.Argument(help="Address that gets a JSON document for each event.")]
Events = Annotated[
    list[str] | None, typer.Option("--event", help=f"Repeatable, from {', '.join(EVENTS)}; by default those of runs.")
]
WebhookId = Annotated[str, typer.Argument(help="Id of the webhook; list them with: unifiednn webhooks list")]

webhooks = typer.Typer(help="Tell other programs of the ends of runs (docs/OPERATE.md).", no_args_is_help=True)


@webhooks.command("add")
def add(url: Url, event: Events = None, as_json: AsJson = False) -> None:
    """Send events to an address from now on. The secret that signs them is shown once."""
    with opened(as_json) as service:
        made = service.notifications.add_webhook(url, event or OF_RUNS)
        if as_json:
            terminal.print_json(asdict(made))
        else:
            terminal.say(f"Webhook {made.webhook_id}. Events are sent while a dashboard or a train command runs.")
            terminal.say(f"Secret, shown once: {made.secret}")


@webhooks.command("list")
def listed(as_json: AsJson = False) -> None:
    """List the webhooks, and how their last delivery went."""
    with opened(as_json) as service:
        found = service.notifications.webhooks()
        rows = [(one.webhook_id, one.shown, one.events, one.error or "did not fail") for one in found]
        terminal.print_found(found, as_json, ("webhook", "address", "events", "last delivery"), rows)


@webhooks.command("remove")
def remove(webhook_id: WebhookId) -> None:
    """Send nothing more to an address."""
    with opened() as service:
        service.notifications.remove_webhook(webhook_id)
        terminal.say(f"{webhook_id} is removed.")


@webhooks.command("test")
def test(webhook_id: WebhookId) -> None:
    """Send a test to an address now."""
    with opened() as service:
        service.notifications.test_webhook(webhook_id)
        terminal.say("The test was taken.")
