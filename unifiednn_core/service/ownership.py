"""Owners of sub-models, which are the owners of their model files, and people who lend them files. People are ids; ""
is the local operator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unifiednn_core.base.errors import BadInput
from unifiednn_core.spec.run import RunSpec, SubModelSpec, person_id
from unifiednn_core.spec.sharing import Party
from unifiednn_core.store.library import Library


@dataclass(frozen=True, slots=True)
class RunOwners:
    """Submitter of a run, and owners of its sub-models."""

    submitter: str
    submodels: Mapping[str, str]
    """Owner by name, in order of arrival."""

    def names_of(self, person: str) -> frozenset[str]:
        """Sub-models of one person."""
        return frozenset(name for name, owner in self.submodels.items() if owner == person)

    def wholly_of(self, person: str) -> bool:
        """Whether one person submitted the run and owns all of it."""
        return {self.submitter, *self.submodels.values()} == {person}


def owners_of(run: Any, rows: Sequence[Any]) -> RunOwners:
    """Owners in a run; also takes the light rows of `store.runs.listed`."""
    return RunOwners(run.submitter, {row.name: row.owner for row in rows})


def owners_in(spec: RunSpec, library: Library, submitter: str) -> dict[str, str]:
    """Owner of each sub-model of a spec with files named by content; raises `BadInput` if ambiguous.

    If the submitter is among the owners of the model file, the sub-model is theirs.
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
            message = f"This model file belongs to several people: {', '.join(sorted(known))}."
            raise BadInput.of("Owner", f"submodels.{part.name}.owner", message, "Name the owner of this sub-model.")
    return owners


def lenders_in(spec: RunSpec, library: Library, owners: Mapping[str, str], submitter: str) -> dict[str, list[Party]]:
    """People whose files each sub-model uses though its owner does not have them; what the submitter has is given."""

    def lenders(part: SubModelSpec) -> list[Party]:
        found: dict[str, Party] = {}
        for entry, reference in references(part):
            known = library.names_by_owner(reference.removeprefix("sha256:"))
            if not known.keys() & {owners[part.name], submitter}:
                found |= {person: Party(person, f"submodels.{part.name}.{entry}") for person in sorted(known)}
        return list(found.values())

    return {part.name: lenders(part) for part in spec.submodels}


def references(part: SubModelSpec) -> list[tuple[str, str]]:
    """Files that a sub-model names, by the entry that names them."""
    start = None if part.start_from is None else part.start_from.file
    named = (("model", part.model), ("train_data", part.train_data), ("test_data", part.test_data))
    return [(entry, name) for entry, name in (*named, ("start_from.file", start)) if name is not None]


def without_owners(spec: RunSpec) -> RunSpec:
    """The spec as stored: owners do not affect the training."""
    parts = tuple(part.model_copy(update={"owner": None}) for part in spec.submodels)
    return spec.model_copy(update={"submodels": parts})


def filename_for(names_by_owner: Mapping[str, str], owner: str, submitter: str, sha256: str) -> str:
    """Name of a file in the results of `owner`: the owner's name for it, else the submitter's, else a neutral one."""
    name = names_by_owner.get(owner, names_by_owner.get(submitter))
    if name is not None:
        return name
    suffixes = {name.rpartition(".")[2] for name in names_by_owner.values()}
    return f"{sha256[:12]}.{next(iter(suffixes))}" if len(suffixes) == 1 else sha256[:12]
