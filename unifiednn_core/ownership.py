"""Whose a sub-model is, told from whose its model file is. People are ids; "" works at the machine itself."""

from collections.abc import Mapping
from dataclasses import dataclass

from unifiednn_core.errors import BadInput
from unifiednn_core.spec import RunSpec, person_id
from unifiednn_core.store.library import Library


@dataclass(frozen=True, slots=True)
class RunOwners:
    """Who handed a run in, and whose its sub-models are."""

    submitter: str
    submodels: Mapping[str, str]
    """Owner by name, in order of arrival."""

    def names_of(self, person: str) -> frozenset[str]:
        """Sub-models of one person."""
        return frozenset(name for name, owner in self.submodels.items() if owner == person)

    def wholly_of(self, person: str) -> bool:
        """Whether a person handed the run in, and all of it is this person's own."""
        return {self.submitter, *self.submodels.values()} == {person}


def owners_in(spec: RunSpec, library: Library, submitter: str) -> dict[str, str]:
    """Owner of each sub-model of a spec whose files are named by content; raises `BadInput` where that is not clear.

    A model file of the submitter's own makes the sub-model the submitter's.
    """
    owners: dict[str, str] = {}
    for part in spec.submodels:
        known = library.names_by_owner(part.model.removeprefix("sha256:"))
        if part.owner is not None:
            owners[part.name] = person_id(part.owner)
        elif submitter in known or not known:
            owners[part.name] = submitter
        elif len(known) == 1:
            owners[part.name] = next(iter(known))
        else:
            raise BadInput.of(
                "Whose is it",
                field=f"submodels.{part.name}.owner",
                message=f"This model file belongs to several people: {', '.join(sorted(known))}.",
                remedy="Say whose sub-model this is to be.",
            )
    return owners


def without_owners(spec: RunSpec) -> RunSpec:
    """The spec as it is kept: what is trained does not depend on whose it is."""
    parts = tuple(part.model_copy(update={"owner": None}) for part in spec.submodels)
    return spec.model_copy(update={"submodels": parts})


def filename_for(names_by_owner: Mapping[str, str], owner: str, submitter: str, sha256: str) -> str:
    """What a file is called beside a trained model of `owner`: as he calls it, else as the submitter does.

    Where it is only somebody else's, it has a neutral name.
    """
    name = names_by_owner.get(owner, names_by_owner.get(submitter))
    if name is not None:
        return name
    suffixes = {name.rpartition(".")[2] for name in names_by_owner.values()}
    return f"{sha256[:12]}.{next(iter(suffixes))}" if len(suffixes) == 1 else sha256[:12]
