"""The exceptions of this project. Each message says what is wrong, where, and what to do.

A `Finding` holds these as values; pages, command line and JSON documents each show them in their own way.
"""

import errno
from collections.abc import Sequence
from inspect import signature
from typing import Literal

from pydantic import BaseModel, ConfigDict


class Fix(BaseModel):
    """A change of the entry that a finding names, which a page offers as a button."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    """Such as "Use 1/255"."""
    value: str | int | float
    verb: Literal["set", "rename", "remove", "split"] = "set"
    """`set` gives the entry this value, `rename` this name; `remove` takes what has this name out of its list; `split`
    holds this share of the training data for tests."""


class Finding(BaseModel):
    """One problem found by a check.

    `field` is the path of the entry in the spec (`submodels.lenet.hyperparameters.learning_rate`) or a file name.
    Errors prevent the start; warnings can be overridden.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    severity: Literal["error", "warning"] = "error"
    title: str
    field: str
    message: str
    remedy: str
    fix: Fix | None = None

    def __str__(self) -> str:
        return f"{self.field}: {self.message} {self.remedy}"


class UnifiedNNError(Exception):
    """Base class of all errors that this project raises. One that passes between processes is made again."""

    def __reduce__(self) -> tuple[object, ...]:
        asked = signature(type(self).__init__).parameters  # each is kept under its name
        return type(self), self.args if "args" in asked else tuple(getattr(self, name) for name in [*asked][1:])


def cause_of(error: Exception) -> str:
    """What an error says; with its type, unless it is one of this project."""
    return str(error) if isinstance(error, UnifiedNNError) else f"{type(error).__name__}: {error}"


class NoBatchedForm(UnifiedNNError, ValueError):
    """Networks cannot train fused; the message names the operator and says why."""


class BadInput(UnifiedNNError, ValueError):
    """The request cannot be carried out; `findings` say why and what to do."""

    def __init__(self, findings: Sequence[Finding]):
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))

    @classmethod
    def of(cls, title: str, field: str, message: str, remedy: str) -> "BadInput":
        """Build the exception from a single error finding."""
        return cls([Finding(title=title, field=field, message=message, remedy=remedy)])


class BadCheckpoint(UnifiedNNError, ValueError):
    """A checkpoint cannot be used. The message says what is wrong and what is still possible."""


class OtherKind(BadCheckpoint):
    """A sub-model may not go on here: it would not be bit-identical to the device kind it was trained on."""

    remedy = (
        "Allow it with: unifiednn edit RUN --moves any. Then retry it: it goes on from its checkpoint, and its result "
        "says that it was trained on several kinds."
    )

    def __init__(self, differences: Sequence[str]):
        self.differences = tuple(differences)
        super().__init__(f"The checkpoint is of another kind of device. {' '.join(self.differences)}")


class DiskFull(UnifiedNNError, OSError):
    """The disk of the home folder is full: what was asked for has not been done."""

    def __init__(self) -> None:
        super().__init__(errno.ENOSPC, "The disk of the home folder is full, so this was not done")

    def __str__(self) -> str:
        return f"{self.strerror}. Make room there, then try again; what trains goes on."


class ContractBroken(UnifiedNNError, RuntimeError):
    """A network calls an operator in a way that its contract does not allow; the operator did not run."""

    remedy = "Correct the network and export it again; docs/generated/OPERATORS.md says what each operator takes."

    def __init__(self, operator: str, problem: str, node: str = ""):
        self.operator, self.problem, self.node = operator, problem, node
        place = f" at '{node}'" if node else ""
        super().__init__(f"The operator {operator}{place} does not allow this call: {problem}.")


class NotApplicable(UnifiedNNError, RuntimeError):
    """A technique does not work for a network."""

    def __init__(self, technique: str, problem: str):
        self.technique, self.problem = technique, problem
        super().__init__(f"The technique {technique} does not work here: {problem}.")

    @property
    def remedy(self) -> str:
        """What to do."""
        return f"Leave {self.technique} out, or choose another technique."


class Diverged(UnifiedNNError, ArithmeticError):
    """The loss of a sub-model is infinite or NaN; further training is pointless."""

    def __init__(self, submodel: str, step: int, loss: float):
        self.submodel, self.step, self.loss = submodel, step, loss
        super().__init__(f"The loss of {submodel} is {loss} at or before step {step}.")


class DamagedData(UnifiedNNError, RuntimeError):
    """A data set in memory no longer has the bytes that it was read with, so results from it cannot be trusted."""

    def __init__(self, submodel: str, data: str):
        self.submodel, self.data = submodel, data
        super().__init__(f"The data set '{data}' changed in memory while {submodel} used it.")


class NotFound(UnifiedNNError, LookupError):
    """An unknown run, sub-model or file. `unifiednn runs` lists the known runs."""


class Forbidden(UnifiedNNError):
    """The role of this person does not allow the action. Other people's runs and files raise `NotFound` instead."""


class HostileFile(UnifiedNNError, ValueError):
    """An uploaded file contains something that no model needs; it is refused before any of it is used."""


class Infeasible(UnifiedNNError, ValueError):
    """No placement of a model was found within the memory limits of its devices."""


class IntakeFailed(UnifiedNNError, RuntimeError):
    """The intake process died or exceeded its limits; nothing was imported."""


class SamplesFailed(UnifiedNNError, RuntimeError):
    """The script that writes the sample models failed. Run `make samples` and read its output."""


class SeparationFailed(UnifiedNNError, RuntimeError):
    """A separated model could not be written now: no room, no permission."""


class SeparationCorrupt(UnifiedNNError, RuntimeError):
    """The file of a separated model reads back differently from the trained weights."""


class Unauthorised(UnifiedNNError):
    """The person is not signed in, or the token expired or was revoked."""


class UploadConflict(UnifiedNNError, RuntimeError):
    """An upload has another writer, or another length than expected; continue at `offset_bytes`."""

    def __init__(self, message: str, offset_bytes: int):
        self.message, self.offset_bytes = message, offset_bytes
        super().__init__(message)


class Fenced(UnifiedNNError, RuntimeError):
    """A worker wrote for a hybrid it no longer owns: it ended, or another worker has it."""

    def __init__(self, hybrid_id: str, attempt: int):
        self.hybrid_id, self.attempt = hybrid_id, attempt
        super().__init__(f"Attempt {attempt} has lost the hybrid {hybrid_id}. It writes nothing more, and ends.")


class WrongSchema(UnifiedNNError, RuntimeError):
    """The database was written by a version of UnifiedNN with other tables."""


class IllegalTransition(UnifiedNNError, RuntimeError):
    """A state does not allow an event. `history` holds the states before, oldest first."""

    def __init__(self, what: str, state: str, event: str, allowed: Sequence[str], history: Sequence[str] = ()):
        self.what, self.state, self.event = what, state, event
        self.allowed, self.history = tuple(allowed), tuple(history)
        possible = ", ".join(self.allowed) or "nothing: this state is final"
        past = f" Before: {' → '.join(self.history)}." if self.history else ""
        super().__init__(f"{what} is {state}, which does not allow '{event}'. Possible now: {possible}.{past}")


def first_line(error: Exception) -> str:
    """The first line of an error's message, without a full stop; the name of its type if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:300]
