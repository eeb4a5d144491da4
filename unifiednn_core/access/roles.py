"""Roles, and people who act in them."""

from dataclasses import dataclass
from enum import StrEnum

from unifiednn_core.errors import BadInput
from unifiednn_core.spec import SUBJECT, person_id

__all__ = ["LOCAL_OPERATOR", "NO_ROLE", "SUBJECT", "Actor", "Role", "person_id"]


class Role(StrEnum):
    """What a person is here, from the least to the most.

    A viewer sees the runs and figures of all, but no file. A submitter sees and steers his own alone, also inside a
    hybrid that an operator arranged of several people's networks. An operator sees and does all but what is about
    people, which an admin does.
    """

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Place among the roles, from 0."""
        return list(Role).index(self)

    @classmethod
    def of(cls, name: str, field: str = "role") -> "Role":
        """The role of a name; raises `BadInput` with the names that there are."""
        try:
            return cls(name)
        except ValueError:
            raise BadInput.of(
                "Role", field=field, message=f"'{name}' is no role.", remedy=f"Take one of {', '.join(cls)}."
            ) from None


NO_ROLE = "none"
"""In place of a role: this person may do nothing, whatever the identity provider says."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody who acts. `id` is the e-mail address in lower case, or what else this person is known by."""

    id: str
    name: str
    role: Role
    here: bool = False
    """Whether a person at the machine itself acts: paths of the machine are read and written as he could himself."""

    @property
    def sees_own_alone(self) -> bool:
        """Whether what belongs to others does not exist for this person."""
        return self.role is Role.SUBMITTER

    @property
    def sees_files(self) -> bool:
        """Whether files of runs are shown and handed out at all."""
        return self.role is not Role.VIEWER


LOCAL_OPERATOR = Actor(id="", name="local operator", role=Role.ADMIN, here=True)
"""Who works at the machine itself, where nobody has to sign in."""
