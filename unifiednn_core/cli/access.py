"""Commands for tokens, people, who may share a process, and the audit log, for the local operator and admins."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from unifiednn_core.base.units import memory_bytes
from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import AsJson, bad_option, opened
from unifiednn_core.service.facade import Service
from unifiednn_core.service.roles import NO_ROLE, Role
from unifiednn_core.spec.run import person_id
from unifiednn_core.spec.sharing import Sharing

NO_QUOTA = "none"
TokenId = Annotated[str, typer.Argument(help="Id of the token; list them with: unifiednn token list")]
Person = Annotated[str, typer.Argument(help="E-mail address.")]
RoleName = Annotated[str, typer.Option("--role", help=f"One of {', '.join(Role)}.")]
AnyRole = Annotated[str | None, typer.Option("--role", help=f"One of {', '.join((*Role, NO_ROLE))}.")]
Team = Annotated[str | None, typer.Option("--team", help="People of one team may share a process; '' means no team.")]
Tickets = Annotated[
    int | None, typer.Option("--tickets", help="Share of the device under the policy fair; 1 is usual.")
]
Quota = Annotated[
    str | None, typer.Option("--quota", help="Most that their files may take, such as 4GiB; 'none' removes it.")
]
AnySharing = Annotated[str | None, typer.Argument(help=f"One of {', '.join(Sharing)}; by default it is only shown.")]

token = typer.Typer(help="Create, list and revoke tokens for terminals and routes.", no_args_is_help=True)
people = typer.Typer(help="Give roles, teams and tickets to people who sign in.", no_args_is_help=True)


@token.command("create")
def create_token(
    person: Annotated[str, typer.Option("--for", help="E-mail address or name of the owner.")],
    role: RoleName,
    days: Annotated[float, typer.Option(help="Days until it expires.")] = 30,
) -> None:
    """Create a token and print it once. Set UNIFIEDNN_TOKEN to it, or send it as Authorization: Bearer."""
    with opened() as service:
        terminal.say(service.people.create_token(person, role, days))


@token.command("list")
def list_tokens(as_json: AsJson = False) -> None:
    """List all tokens, newest first, without their secrets."""
    with opened(as_json) as service:
        found = service.people.tokens()
        rows = [
            (
                one.token_id,
                one.person,
                one.role,
                _moment(one.created_at_s),
                one.created_by,
                "revoked" if one.revoked_at_s is not None else f"until {_moment(one.expires_at_s)}",
            )
            for one in found
        ]
        terminal.print_found(found, as_json, ("token", "owner", "role", "created", "by", "valid"), rows)


@token.command("revoke")
def revoke_token(token_id: TokenId) -> None:
    """Revoke a token at once."""
    with opened() as service:
        service.people.revoke_token(token_id)
        terminal.say(f"{token_id} is revoked.")


@people.command("list")
def list_people(as_json: AsJson = False) -> None:
    """List people with an assigned role, team or tickets."""
    with opened(as_json) as service:
        found = service.people.people()
        rows = [
            (
                one.person,
                one.role or "-",
                one.team or "-",
                str(one.tickets or 1),
                _moment(one.changed_at_s),
                one.changed_by,
            )
            for one in found
        ]
        terminal.print_found(found, as_json, ("person", "role", "team", "tickets", "given", "by"), rows)


@people.command("give")
def give(person: Person, role: AnyRole = None, team: Team = None, tickets: Tickets = None, quota: Quota = None) -> None:
    """Give a person a role, which overrides the identity provider, a team, tickets, or a quota."""
    quota_bytes = None if quota is None or quota == NO_QUOTA else memory_bytes(quota)
    with opened() as service:
        if (role, team, tickets, quota) == (None, None, None, None):
            raise bad_option("--role", "Nothing is given.", "Give --role, --team, --tickets, --quota, or several.")
        if quota not in (None, NO_QUOTA) and quota_bytes is None:
            raise bad_option("--quota", f"'{quota}' is no size.", f"Give a size such as 4GiB, or {NO_QUOTA}.")
        if role is not None:
            service.people.give_role(person, role)
        if team is not None:
            service.people.give_team(person, team)
        if tickets is not None:
            service.people.give_tickets(person, tickets)
        if quota is not None:
            service.people.set_quota(quota_bytes, person)
        _say(service, person)


@people.command("forget")
def forget_person(person: Person) -> None:
    """Remove an assigned role; the identity provider decides again."""
    with opened() as service:
        service.people.forget_person(person)
        _say(service, person)


@people.command("sharing")
def sharing(allowed: AnySharing = None, as_json: AsJson = False) -> None:
    """Show or set whose networks may share a process."""
    with opened(as_json) as service:
        if allowed is not None:
            service.people.set_sharing(allowed)
        now = service.people.sharing()
        if as_json:
            terminal.print_json(asdict(now))
        else:
            terminal.say(f"{now.sharing}: {now.meaning}")


def audit(
    last: Annotated[int, typer.Option(help="Number of entries.", min=1, max=100_000)] = 50, as_json: AsJson = False
) -> None:
    """Show who did what and when, newest first."""
    with opened(as_json) as service:
        lines = service.people.audit(last)
        rows = [(_moment(line.at_s), line.person, line.role, line.action, line.subject, line.outcome) for line in lines]
        terminal.print_found(lines, as_json, ("time", "person", "role", "action", "subject", "outcome"), rows)


def _say(service: Service, person: str) -> None:
    given = {one.person: (one.role, one.team, one.tickets) for one in service.people.people()}
    role, team, tickets = given.get(person_id(person), ("", None, None))
    words = [role or "as the identity provider says", f"team {team}" if team else "no team"]
    terminal.say(f"{person}: {', '.join([*words, f'{tickets} tickets'] if tickets else words)}")


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
