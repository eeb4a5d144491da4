"""Permissions: declared on each method with `@permission`, enforced and audited by `Guard` alone."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, cast

from sqlalchemy.exc import DatabaseError

from unifiednn_core.base.errors import DiskFull, Forbidden, NotFound
from unifiednn_core.base.trouble import is_disk_full
from unifiednn_core.machine.devices import Device, knowing
from unifiednn_core.service.ownership import RunOwners, owners_of
from unifiednn_core.service.recent import Recent
from unifiednn_core.service.roles import Actor, Role
from unifiednn_core.store.people import People
from unifiednn_core.store.runs import Runs


class Own(StrEnum):
    """What a submitter must own for an action. Higher roles need not own anything."""

    ANYTHING = "anything"
    """No condition: the action concerns no existing run."""
    SHARE = "share"
    """At least one sub-model of the run; the submitter sees only their own part."""
    PART = "part"
    """The named sub-model; without a name, the whole run."""
    RUN = "run"
    """The whole run: submitted by this person, and every sub-model is theirs."""


@dataclass(frozen=True, slots=True)
class Permission:
    """Who may call a method, and whether the audit log records it."""

    least: Role
    own: Own = Own.ANYTHING
    audited: bool = True
    here: bool = False
    """Whether the method takes paths of the server, which only people at the machine may name."""


Method = TypeVar("Method", bound=Callable[..., Any])


def permission(
    least: Role, own: Own = Own.ANYTHING, *, audited: bool = True, here: bool = False, about: str = ""
) -> Callable[[Method], Method]:
    """Restrict a method to actors who may call it. Its class has a `guard`, which checks and audits the calls.

    The parameters `run_id` and `submodel` name what must be owned. `about` is a format string over the arguments that
    completes the subject in the audit log. The method raises `Forbidden` for a role that is too low, and the same
    `NotFound` for work of others as for work that does not exist.
    """
    rule = Permission(least, own, audited, here)

    def declare(method: Method) -> Method:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def guarded(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(self, *args, **kwargs)
            arguments.apply_defaults()
            with self.guard.allowing(rule, method.__name__, arguments.arguments, about):
                return method(self, *args, **kwargs)

        guarded.permission = rule  # type: ignore[attr-defined]
        return cast(Method, guarded)

    return declare


def permissions_of(*kinds: type) -> Mapping[str, Permission]:
    """Permission of each public method of these classes, by name, in the order of their declaration."""
    members = {name: member for kind in kinds for name, member in vars(kind).items()}
    return {name: member.permission for name, member in members.items() if hasattr(member, "permission")}


class Guard:
    """Checks permissions and writes the audit log, for one actor."""

    def __init__(
        self,
        actor: Actor,
        runs: Runs,
        people: People,
        recent: Recent,
        elsewhere: Callable[[], Sequence[Device]] = tuple,
    ):
        """`elsewhere` finds the devices of other hosts, for which a spec can ask, too."""
        self.actor, self._elsewhere = actor, elsewhere
        self._runs, self._people, self._recent = runs, people, recent

    @contextmanager
    def allowing(self, rule: Permission, action: str, arguments: Mapping[str, Any], about: str = "") -> Iterator[None]:
        """Check one call and record it with its outcome; raises `Forbidden` and `NotFound`."""
        run_id, submodel = arguments.get("run_id"), arguments.get("submodel")
        submodel = submodel if isinstance(submodel, str) else None
        text = about.format(**{**arguments, "names": " ".join(arguments.get("names") or ())})
        actor, subject = self.actor, " ".join(filter(None, (run_id, submodel, text)))
        note = functools.partial(self._people.note, person=actor.label, role=actor.role, action=action, subject=subject)
        try:
            self.require_role(rule)
            if run_id is not None:
                self._require_own(rule, run_id, submodel)
            if rule.here and not actor.here:
                raise Forbidden("Folders of the server can only be used from its own terminal.")
        except Forbidden:
            note(outcome="forbidden")
            raise
        except NotFound:
            if rule.audited:
                note(outcome="not found")
            raise
        if rule.audited:  # before the action, so every action is in the log
            note(outcome="allowed")
        try:
            with knowing(self._elsewhere):
                yield
        except Exception as error:
            if rule.audited:
                note(outcome=f"failed: {type(error).__name__}")
            if isinstance(error, DatabaseError) and is_disk_full(error):
                raise DiskFull from error
            raise
        finally:
            if rule.audited:
                self._recent.forget()

    def require_role(self, rule: Permission) -> None:
        """Raise `Forbidden` if the actor's role is too low."""
        if self.actor.role.rank < rule.least.rank:
            raise Forbidden(
                f"{self.actor.name} has the role {self.actor.role}; this needs the role {rule.least}. Ask an admin."
            )

    def require_part(self, run_id: str, submodel: str | None) -> None:
        """Raise `NotFound` for a run, or a sub-model of one, of which the actor may see nothing."""
        self._require_own(Permission(Role.VIEWER, Own.SHARE, audited=False), run_id, submodel)

    def _require_own(self, rule: Permission, run_id: str, submodel: str | None) -> None:
        if rule.own is Own.ANYTHING or not self.actor.sees_only_own:
            return
        owners = self._owners(run_id)
        own = owners.names_of(self.actor.id)
        if submodel is not None and submodel not in own:
            known = ", ".join(name for name in owners.submodels if name in own)
            raise NotFound(f"Run '{run_id}' has no sub-model '{submodel}'. It has: {known}.")
        whole = rule.own is Own.RUN or (rule.own is Own.PART and submodel is None)
        if whole and not owners.wholly_of(self.actor.id):
            raise Forbidden(
                f"An operator arranged run '{run_id}' from the work of several people, so you cannot change or "
                "compare it as a whole. Name one of your sub-models, or ask an operator."
            )

    def _owners(self, run_id: str) -> RunOwners:
        """Owners in a run that the actor has a part in; raises `NotFound` for any other, as for an unknown run."""
        try:
            owners = owners_of(*self._runs.get(run_id))
        except NotFound:
            owners = RunOwners("", {})
        if not owners.names_of(self.actor.id):
            raise NotFound(f"There is no run '{run_id}'. List the known ones with: unifiednn runs")
        return owners
