"""Commands about people: tokens, roles, and the ledger. They are for the machine's owner and for admins."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table

from unifiednn_core.access.roles import NO_ROLE, Role, person_id
from unifiednn_core.access.scoped import ScopedService
from unifiednn_core.commands import terminal
from unifiednn_core.commands.shared import AsJson, opened_scoped

TokenId = Annotated[str, typer.Argument(help="Id of the token; list them with: unifiednn token list")]
Person = Annotated[str, typer.Argument(help="E-mail address.")]
RoleName = Annotated[str, typer.Option("--role", help=f"One of {', '.join(Role)}.")]

token = typer.Typer(help="Make, list and revoke tokens for terminals and routes.", no_args_is_help=True)
people = typer.Typer(help="Give roles to people who sign in.", no_args_is_help=True)


@token.command("create")
def create_token(
    person: Annotated[str, typer.Option("--for", help="E-mail address or name of who acts by it.")],
    role: RoleName,
    days: Annotated[float, typer.Option(help="For how long it counts.")] = 30,
) -> None:
    """Make a token and print it, this once. Set UNIFIEDNN_TOKEN to it, or send it as Authorization: Bearer."""
    with opened_scoped() as service:
        terminal.out.print(service.create_token(person, role, days), soft_wrap=True, markup=False, highlight=False)


@token.command("list")
def list_tokens(as_json: AsJson = False) -> None:
    """List all tokens, the newest first; nobody can see their secrets again."""
    with opened_scoped(as_json) as service:
        found = service.tokens()
        if as_json:
            terminal.print_json([asdict(one) for one in found])
            return
        table = Table("token", "acts as", "role", "made", "by", "counts")
        for one in found:
            counts = "revoked" if one.revoked_at_s is not None else f"until {_moment(one.expires_at_s)}"
            table.add_row(one.token_id, one.person, one.role, _moment(one.created_at_s), one.created_by, counts)
        terminal.out.print(table)


@token.command("revoke")
def revoke_token(token_id: TokenId) -> None:
    """Let a token count no longer, from this moment on."""
    with opened_scoped() as service:
        service.revoke_token(token_id)
        terminal.out.print(f"{token_id} counts no longer.", highlight=False)


@people.command("list")
def list_people(as_json: AsJson = False) -> None:
    """List everybody to whom a role was given."""
    with opened_scoped(as_json) as service:
        found = service.people()
        if as_json:
            terminal.print_json([asdict(one) for one in found])
            return
        table = Table("person", "role", "given", "by")
        for one in found:
            table.add_row(one.person, one.role, _moment(one.changed_at_s), one.changed_by)
        terminal.out.print(table)


@people.command("give")
def give_role(
    person: Person, role: Annotated[str, typer.Option("--role", help=f"One of {', '.join((*Role, NO_ROLE))}.")]
) -> None:
    """Give a role to a person; it goes before what the identity provider says."""
    with opened_scoped() as service:
        service.give_role(person, role)
        _say(service, person)


@people.command("forget")
def forget_person(person: Person) -> None:
    """Take a given role back, so that the identity provider's word counts again."""
    with opened_scoped() as service:
        service.forget_person(person)
        _say(service, person)


def ledger(
    last: Annotated[int, typer.Option(help="So many lines.", min=1, max=100_000)] = 50, as_json: AsJson = False
) -> None:
    """Show who did what, and when; the newest first."""
    with opened_scoped(as_json) as service:
        lines = service.ledger(last)
        if as_json:
            terminal.print_json([asdict(line) for line in lines])
            return
        table = Table("time", "who", "role", "did", "on", "outcome")
        for line in lines:
            table.add_row(_moment(line.at_s), line.person, line.role, line.action, line.subject, line.outcome)
        terminal.out.print(table, markup=False)


def _say(service: ScopedService, person: str) -> None:
    given = {one.person: one.role for one in service.people()}
    role = given.get(person_id(person), "what the identity provider says")
    terminal.out.print(f"{person}: {role}", markup=False, highlight=False)


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
