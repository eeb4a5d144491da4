"""People for an admin: roles, tokens, and the audit log."""

from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.service.permissions import Guard, permission
from unifiednn_core.service.roles import NO_ROLE, Role
from unifiednn_core.service.tokens import Tokens
from unifiednn_core.spec.run import person_id
from unifiednn_core.store.people import People
from unifiednn_core.views.people import AuditView, PersonView, TokenView, view_of

SHOWN_LINES = 500


class PeopleService:
    """Manages who may do what."""

    def __init__(self, guard: Guard, people: People, tokens: Tokens):
        self.guard = guard
        self._people, self._tokens = people, tokens

    @permission(Role.ADMIN, audited=False)
    def people(self) -> tuple[PersonView, ...]:
        """Everyone who was given a role."""
        return tuple(view_of(PersonView, row, person=row.id) for row in self._people.all())

    @permission(Role.ADMIN, about="{person} {role}")
    def give_role(self, person: str, role: str) -> None:
        """Give a role, or "none", to the person of an e-mail address; raises `BadInput`, also for one's own role."""
        if not person.strip():
            raise BadInput.of("Person", "person", "The address is empty.", "Give an e-mail address.")
        given = role if role == NO_ROLE else Role.of(role).value
        self._require_another(person)
        self._people.give_role(person_id(person), given, self.guard.actor.label)

    @permission(Role.ADMIN, about="{person}")
    def forget_person(self, person: str) -> None:
        """Remove a given role, so that the identity provider decides again; raises `NotFound`."""
        self._require_another(person)
        if not self._people.forget(person_id(person)):
            raise NotFound(f"'{person}' was given no role. List the given ones with: unifiednn people list")

    @permission(Role.ADMIN, audited=False)
    def tokens(self) -> tuple[TokenView, ...]:
        """All tokens, the newest first."""
        return tuple(view_of(TokenView, row, token_id=row.id) for row in self._people.tokens())

    @permission(Role.ADMIN, about="{person} {role}, {days:g} days")
    def create_token(self, person: str, role: str, days: float) -> str:
        """Create a token for a person and return it; it cannot be read again. Raises `BadInput`."""
        return self._tokens.create(person, Role.of(role), days, self.guard.actor.label)

    @permission(Role.ADMIN, about="{token_id}")
    def revoke_token(self, token_id: str) -> None:
        """Revoke a token; raises `NotFound`."""
        if not self._people.revoke(token_id):
            raise NotFound(f"There is no token '{token_id}'. List them with: unifiednn token list")

    @permission(Role.ADMIN, audited=False)
    def audit(self, last: int = SHOWN_LINES) -> tuple[AuditView, ...]:
        """The newest lines of the audit log, the newest first."""
        return tuple(view_of(AuditView, row) for row in self._people.audit_log(last))

    def _require_another(self, person: str) -> None:
        """Nobody can change their own role, so that the last admin stays one."""
        if person_id(person) == self.guard.actor.id:
            remedy = "Ask another admin, or run on the server: unifiednn people give"
            raise BadInput.of("Person", "person", "This is your own role.", remedy)
