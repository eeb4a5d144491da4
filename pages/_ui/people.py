"""Tables of the page People: who has which role, tokens, and the ledger. HTML."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pages._ui import frame, markup, wording

if TYPE_CHECKING:
    from unifiednn_core.access.scoped import LedgerView, PersonView
    from unifiednn_core.access.tokens import TokenView


def people_table(people: "Iterable[PersonView]") -> str:
    """Everybody to whom a role was given."""
    rows = [
        (
            markup.bold(one.person),
            markup.text(one.role),
            markup.faint(frame.ago(one.changed_at_s)),
            markup.text(one.changed_by),
        )
        for one in people
    ]
    return markup.table(wording.count_text(len(rows), "given role"), ("Person", "Role", "Given", "By"), rows)


def tokens_table(tokens: "Iterable[TokenView]") -> str:
    """All tokens, without their secrets."""
    rows = [
        (
            f'<span class="u-mono">{markup.text(one.token_id)}</span>',
            markup.bold(one.person),
            markup.text(one.role),
            markup.faint(frame.ago(one.created_at_s)),
            markup.text(one.created_by),
            markup.text("revoked" if one.revoked_at_s is not None else f"until {moment(one.expires_at_s)}"),
        )
        for one in tokens
    ]
    heads = ("Token", "Acts as", "Role", "Made", "By", "Counts")
    return markup.table(wording.count_text(len(rows), "token"), heads, rows)


def ledger_table(lines: "Iterable[LedgerView]") -> str:
    """The newest lines of the ledger."""
    rows = [
        (
            markup.faint(moment(line.at_s)),
            markup.bold(line.person),
            markup.text(line.role),
            markup.text(line.action.replace("_", " ")),
            markup.text(line.subject or "-"),
            markup.text(line.outcome),
        )
        for line in lines
    ]
    heads = ("Time", "Who", "Role", "Did", "On", "Outcome")
    return f'<div class="u-log">{markup.table("Newest first", heads, rows)}</div>'


def moment(at_s: float) -> str:
    """Moment (UTC seconds) as date and time in UTC, in which a ledger is kept."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
