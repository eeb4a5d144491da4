"""Who may share a process, because torch's kernels are no security boundary. Pure.

Whoever puts networks into one hybrid asks here: the submission, the command `add`, and the supervisor before a start.
Different people meet in one process only through an operator, who may arrange the files of others, name another owner,
add to the runs of others, and let a network use the data or the weights of others. So the people of a sub-model are its
owner, who by default owns the model file, and everyone else whose files it uses. Files of the operator who arranges it
do not count: they are lent on purpose.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from unifiednn_core.base.errors import BadInput, Finding

NOT_IN_ONE_PROCESS = "Not in one process"
PERMISSION = "permission to share a process"


class Sharing(StrEnum):
    """The setting of an installation."""

    OWN = "own"
    TEAM = "team"
    EVERYONE = "everyone"

    @property
    def meaning(self) -> str:
        """One sentence for admins."""
        return _MEANINGS[self]

    @classmethod
    def of(cls, name: str) -> "Sharing":
        """The setting of this name; raises `BadInput` that lists the valid names."""
        try:
            return cls(name)
        except ValueError:
            message, remedy = f"'{name}' is not a sharing setting.", f"Choose one of {', '.join(cls)}."
            raise BadInput.of("Sharing", "sharing", message, remedy) from None


_MEANINGS = {
    Sharing.OWN: "A process trains the networks of one person only.",
    Sharing.TEAM: "A process trains networks of one team only. A person without a team shares with nobody.",
    Sharing.EVERYONE: "A process may train the networks of everyone.",
}
# Also without sign-in, where all work belongs to one person: nothing but the server knows whether people sign in.
DEFAULT = Sharing.TEAM


class Party(NamedTuple):
    """A person with a part in a hybrid, and the entry of the spec that brings this person in."""

    person: str
    field: str


@dataclass(frozen=True, slots=True)
class SharingRule:
    """The setting, and the team of each person who has one."""

    sharing: Sharing = DEFAULT
    teams: Mapping[str, str] = field(default_factory=dict)

    def circle(self, person: str) -> tuple[str, ...]:
        """Key of the people with whom this person may share a process; they all have the same."""
        if self.sharing is Sharing.EVERYONE:
            return ()
        team = self.teams.get(person) if self.sharing is Sharing.TEAM else None
        return ("person", person) if team is None else ("team", team)

    def may_share(self, people: Iterable[str]) -> bool:
        """Whether these people may share a process."""
        return len({self.circle(person) for person in people}) <= 1

    def require(self, parties: Sequence[Party]) -> None:
        """Raise `BadInput` with a finding for each party that may not share a process with the first one."""
        if self.may_share(party.person for party in parties):
            return
        first = parties[0].person
        others = {other.field: other for other in parties if not self.may_share((first, other.person))}
        remedy = "Submit it as a run of its own, or ask an admin to change the teams or who may share a process."
        raise BadInput(
            [
                Finding(
                    title=NOT_IN_ONE_PROCESS,
                    field=other.field,
                    remedy=remedy,
                    message=f"{self._named(other.person)} and {self._named(first)} may not share a process. "
                    f"{self.sharing.meaning}",
                )
                for other in others.values()
            ]
        )

    def permission_for(self, people: Iterable[str]) -> str | None:
        """What a run of these people waits for, as text after "waits for"; None if they may share a process."""
        people = sorted(set(people))
        if self.may_share(people):
            return None
        named = ", ".join(map(self._named, people))
        return f"{PERMISSION} between {named}: an admin gives it on the page Admin or with 'unifiednn people'"

    def _named(self, person: str) -> str:
        name = person or "the local operator"
        return name if self.sharing is not Sharing.TEAM else f"{name} ({_team_text(self.teams.get(person))})"


def _team_text(team: str | None) -> str:
    return "no team" if team is None else f"team {team}"
