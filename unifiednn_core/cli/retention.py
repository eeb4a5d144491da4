"""The command that shows and sets what the server deletes by itself, for the local operator and admins."""

from dataclasses import asdict
from typing import Annotated

import typer

from unifiednn_core.base.units import memory_text
from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import AsJson, bad_option, opened
from unifiednn_core.spec.retention import Retention, retention_of, shortfall

OFF = "off"
Days = Annotated[str | None, typer.Option(help=f"Days after the end of a run, or {OFF}.")]


def retention(
    keep_runs: Days = None,
    keep_checkpoints: Days = None,
    home_limit: Annotated[str | None, typer.Option(help=f"Size of the home folder in GiB, or {OFF}.")] = None,
    now: Annotated[bool, typer.Option("--now", help="Delete now what is due, instead of within an hour.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show or set how long ended runs stay, and list what is due to be deleted. Everything stays by default."""
    given = {"keep_runs_days": keep_runs, "keep_checkpoints_days": keep_checkpoints, "home_limit_gib": home_limit}
    with opened(as_json) as service:
        if any(value is not None for value in given.values()):
            known = service.retention.retention().model_dump()
            changed = {name: _number(name, text) for name, text in given.items() if text is not None}
            service.retention.set_retention(retention_of(known | changed))
        rules, due = service.retention.retention(), service.retention.planned()
        gone = service.retention.apply_retention() if now else ()
        if as_json:
            rows = [
                one.run._asdict() | {"what": one.what, "why": one.why, "frees_bytes": one.size_bytes} for one in due
            ]
            document = {"retention": rules.model_dump(), "due": rows, "deleted": len(gone)}
            terminal.print_json({**document, "disk": asdict(service.retention.disk_use())})
            return
        terminal.say(_sentence(rules))
        if due:
            terminal.print_table(
                ("run", "name", "goes", "frees", "why"),
                [(one.run.run_id, one.run.name, one.what, memory_text(one.size_bytes), one.why) for one in due],
            )
        if said := shortfall(rules, due, service.retention.disk_use().home if rules.home_limit_gib else 0):
            terminal.say(said)
        terminal.say(f"{len(gone)} deleted." if now else f"{len(due)} due." if due else "Nothing is due.")


def _number(name: str, text: str) -> float | None:
    if text.strip().lower() == OFF:
        return None
    try:
        return float(text)
    except ValueError:
        raise bad_option(name, f"'{text}' is no number.", f'Give a number, or "{OFF}".') from None


def _sentence(rules: Retention) -> str:
    words = {
        "ended runs stay {:g} days": rules.keep_runs_days,
        "their checkpoints stay {:g} days": rules.keep_checkpoints_days,
        "the home folder holds at most {:g} GiB": rules.home_limit_gib,
    }
    said = "; ".join(text.format(value) for text, value in words.items() if value is not None)
    return f"{said[0].upper()}{said[1:]}." if said else "Everything stays: no retention is set."
