"""The one place where permission is checked and the ledger written."""

from collections.abc import Iterator
from contextlib import contextmanager

from unifiednn_core.access.permissions import Own, Rule, require_role
from unifiednn_core.access.roles import Actor
from unifiednn_core.errors import Forbidden, NotFound
from unifiednn_core.ownership import RunOwners
from unifiednn_core.service import Service
from unifiednn_core.store.people import People


class Guard:
    """A service behind the table of permissions, for one actor."""

    def __init__(self, service: Service, people: People, actor: Actor):
        self.actor = actor
        self._people = people
        self._service = service.acting_for(actor.id, sees_all=not actor.sees_own_alone)

    @contextmanager
    def _may(
        self, action: str, run_id: str | None = None, submodel: str | None = None, about: str = ""
    ) -> Iterator[Service]:
        """The service for one action of the table; raises `Forbidden`, and `NotFound` for what is not the actor's own.

        What is somebody else's raises exactly what is raised where there is no such thing.
        """
        subject = " ".join(filter(None, (run_id, submodel, about)))
        try:
            rule = require_role(self.actor, action)
            if run_id is not None:
                self._require_own(rule, run_id, submodel)
        except Forbidden:
            self._note(action, subject, "forbidden")
            raise
        except NotFound:
            if rule.told:
                self._note(action, subject, "not found")
            raise
        if rule.told:  # first, so that nothing is done of which the ledger does not know
            self._note(action, subject, "allowed")
        try:
            yield self._service
        except Exception as error:
            if rule.told:
                self._note(action, subject, f"failed: {type(error).__name__}")
            raise

    def _require_own(self, rule: Rule, run_id: str, submodel: str | None) -> None:
        if rule.own is Own.ANYTHING or not self.actor.sees_own_alone:
            return
        owners = self._owners_of(run_id)
        own = owners.names_of(self.actor.id)
        if submodel is not None and submodel not in own:
            known = ", ".join(name for name in owners.submodels if name in own)
            raise NotFound(f"Run '{run_id}' has no sub-model '{submodel}'. It has: {known}.")
        whole = rule.own is Own.RUN or (rule.own is Own.PART and submodel is None)
        if whole and not owners.wholly_of(self.actor.id):
            raise Forbidden(
                f"An operator arranged run '{run_id}'; the whole of it is not for one person to change or compare. "
                "Name one of your sub-models, or ask an operator."
            )

    def _owners_of(self, run_id: str) -> RunOwners:
        """Owners in a run of which a part is the actor's; raises `NotFound` for any other, as for one that is not."""
        try:
            owners = self._service.owners_of(run_id)
        except NotFound:
            owners = RunOwners("", {})
        if not owners.names_of(self.actor.id):
            raise NotFound(f"There is no run '{run_id}'. List the known ones with: unifiednn runs")
        return owners

    def _note(self, action: str, subject: str, outcome: str) -> None:
        self._people.note(
            person=self.actor.id or self.actor.name,
            role=self.actor.role,
            action=action,
            subject=subject,
            outcome=outcome,
        )
