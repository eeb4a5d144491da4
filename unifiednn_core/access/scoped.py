"""The service as one person may use it: the same methods, each behind the table of permissions."""

from dataclasses import dataclass

from unifiednn_core.access.roles import NO_ROLE, Actor, Role, person_id
from unifiednn_core.access.scoped_orders import ScopedOrders
from unifiednn_core.access.tokens import Tokens, TokenView
from unifiednn_core.errors import BadInput, NotFound
from unifiednn_core.service import Service
from unifiednn_core.store.people import People

SHOWN_LINES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonView:
    """Somebody to whom an admin gave a role, or "none"."""

    person: str
    role: str
    changed_at_s: float
    changed_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """One line of the ledger."""

    at_s: float
    person: str
    role: str
    action: str
    subject: str
    outcome: str


class ScopedService(ScopedOrders):
    """What `Service` offers, for one actor, and for admins what is about people. Safe to share between threads.

    Raises `Forbidden` where the role is too low, `NotFound` for what is somebody else's.
    """

    def __init__(self, service: Service, people: People, tokens: Tokens, actor: Actor):
        super().__init__(service, people, actor)
        self._tokens = tokens

    def people(self) -> tuple[PersonView, ...]:
        """Everybody to whom a role was given."""
        with self._may("people"):
            return tuple(
                PersonView(person=row.id, role=row.role, changed_at_s=row.changed_at_s, changed_by=row.changed_by)
                for row in self._people.all()
            )

    def give_role(self, person: str, role: str) -> None:
        """Give a role, or "none", to a person known by e-mail address; raises `BadInput`, also for oneself."""
        with self._may("give_role", about=f"{person} {role}"):
            if not person.strip():
                message, remedy = "Nobody is named.", "Give an e-mail address."
                raise BadInput.of("Person", field="person", message=message, remedy=remedy)
            given = role if role == NO_ROLE else Role.of(role).value
            self._require_another(person)
            self._people.give_role(person_id(person), given, self._who)

    def forget_person(self, person: str) -> None:
        """Take a given role back, so that the identity provider's word counts again; raises `NotFound`."""
        with self._may("forget_person", about=person):
            self._require_another(person)
            if not self._people.forget(person_id(person)):
                raise NotFound(f"No role was given to '{person}'. List the given ones with: unifiednn people list")

    def tokens(self) -> tuple[TokenView, ...]:
        """All tokens, the newest first."""
        with self._may("tokens"):
            return self._tokens.all()

    def create_token(self, person: str, role: str, days: float) -> str:
        """A new token for a person; it is told this once. Raises `BadInput`."""
        with self._may("create_token", about=f"{person} {role}, {days:g} days"):
            return self._tokens.create(person, Role.of(role), days, self._who)

    def revoke_token(self, token_id: str) -> None:
        """Let a token count no longer; raises `NotFound`."""
        with self._may("revoke_token", about=token_id):
            self._tokens.revoke(token_id)

    def ledger(self, last: int = SHOWN_LINES) -> tuple[LedgerView, ...]:
        """The newest lines of the ledger, the newest first."""
        with self._may("ledger"):
            return tuple(
                LedgerView(
                    at_s=row.at_s,
                    person=row.person,
                    role=row.role,
                    action=row.action,
                    subject=row.subject,
                    outcome=row.outcome,
                )
                for row in self._people.ledger(last)
            )

    def _require_another(self, person: str) -> None:
        """Nobody changes his own role, so that the last admin stays one."""
        if person_id(person) == self.actor.id:
            remedy = "Ask another admin, or give it in the server's terminal: unifiednn people give"
            raise BadInput.of("Person", field="person", message="This is your own role.", remedy=remedy)

    @property
    def _who(self) -> str:
        return self.actor.id or self.actor.name
