"""Roles and actors."""

from dataclasses import dataclass
from enum import StrEnum

from unifiednn_core.base.errors import BadInput


class Role(StrEnum):
    """Roles, in ascending order of their rights.

    A viewer sees all runs and figures, but no files. A submitter sees and steers only their own work, also inside a
    hybrid that an operator arranged from several people's networks. An operator sees and does everything except
    managing people, which is for admins.
    """

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Position among the roles, from 0."""
        return list(Role).index(self)

    @classmethod
    def of(cls, name: str, field: str = "role") -> "Role":
        """The role of this name; raises `BadInput` that lists the valid names."""
        try:
            return cls(name)
        except ValueError:
            raise BadInput.of("Role", field, f"'{name}' is not a role.", f"Choose one of {', '.join(cls)}.") from None


NO_ROLE = "none"
"""Given instead of a role: the person may do nothing, whatever the identity provider says."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The person a service acts for. `id` is the lower-case e-mail address or another id; "" is the local operator."""

    id: str
    name: str
    role: Role
    here: bool = False
    """Whether the person is at the machine itself and may name paths on it."""

    @property
    def sees_only_own(self) -> bool:
        """Whether other people's work is hidden from this person."""
        return self.role is Role.SUBMITTER

    @property
    def sees_files(self) -> bool:
        """Whether this person may see and download files of runs."""
        return self.role is not Role.VIEWER

    @property
    def label(self) -> str:
        """How the audit log names this person."""
        return self.id or self.name


LOCAL_OPERATOR = Actor(id="", name="local operator", role=Role.ADMIN, here=True)
"""The person at the machine itself, without a sign-in."""
