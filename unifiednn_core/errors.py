"""Everything that can go wrong, and how it is told to a person.

UnifiedNNError
├── BadInput           (ValueError)    carries findings: what was asked for cannot be done
├── BadCheckpoint      (ValueError)    a checkpoint is damaged, of another model, or of a newer version
├── BenchFailed        (RuntimeError)  a bench could not be carried out
├── Diverged           (ArithmeticError)  a loss is infinite or no number
├── DrillFailed        (RuntimeError)  the fault drill itself could not be carried out
├── NotFound           (LookupError)   a run, sub-model or file that the store does not know
├── IllegalTransition  (RuntimeError)  a state does not allow the event; carries the history
├── Forbidden          the role of who asks does not allow it
├── HostileFile        (ValueError)    an uploaded file asks for something no model needs
├── IntakeFailed       (RuntimeError)  the process that reads uploaded files died or ran out of its limits
├── SamplesFailed      (RuntimeError)  the script that writes the sample models failed
├── SeparationFailed   (RuntimeError)  a trained model could not be written, or read back differently
├── Unauthorised       who asks is not known, or no longer
├── UploadConflict     (RuntimeError)  an upload has another writer, or another length than its sender thinks
└── WrongSchema        (RuntimeError)  the database was written by another version of this program

A message says what is wrong, where, and what to do. A `Finding` is the same three things as a value, so that a
page, the command line and a JSON document can each show them in their own way.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict


class Finding(BaseModel):
    """One thing that a check found.

    `field` is the path of the entry in the spec (`submodels.lenet.hyperparameters.learning_rate`) or the name of
    the file that is meant. Errors forbid the start; warnings can be overridden.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    severity: Literal["error", "warning"] = "error"
    title: str
    field: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message} {self.remedy}"


class UnifiedNNError(Exception):
    """Base of all errors that this project raises on purpose."""


class BadInput(UnifiedNNError, ValueError):
    """What was asked for cannot be done; `findings` say why and what to do."""

    def __init__(self, findings: Sequence[Finding]):
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))

    @classmethod
    def of(cls, title: str, *, field: str, message: str, remedy: str) -> "BadInput":
        """One error finding, raised as an exception."""
        return cls([Finding(title=title, field=field, message=message, remedy=remedy)])


class BadCheckpoint(UnifiedNNError, ValueError):
    """A checkpoint cannot be used. The message says what is wrong with it and what still is possible."""


class BenchFailed(UnifiedNNError, RuntimeError):
    """A bench could not be carried out; nothing is said about the product."""


class Diverged(UnifiedNNError, ArithmeticError):
    """The loss of a sub-model is infinite or no number; what it learns from there is worth nothing."""

    def __init__(self, submodel: str, step: int, loss: float):
        self.submodel, self.step, self.loss = submodel, step, loss
        super().__init__(f"The loss of {submodel} is {loss} at or before step {step}.")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.submodel, self.step, self.loss)


class DrillFailed(UnifiedNNError, RuntimeError):
    """The drill itself could not be carried out; nothing is said about the product."""


class NotFound(UnifiedNNError, LookupError):
    """The store does not know a thing of this name. List the known ones with `unifiednn runs`."""


class Forbidden(UnifiedNNError):
    """The role of who asks does not allow it. What belongs to somebody else is not forbidden but `NotFound`."""


class HostileFile(UnifiedNNError, ValueError):
    """An uploaded file asks for something that no model needs; it is refused before anything of it is used."""


class IntakeFailed(UnifiedNNError, RuntimeError):
    """The process that reads uploaded files died or ran out of its limits; nothing was taken in."""


class SamplesFailed(UnifiedNNError, RuntimeError):
    """The script that writes the sample models failed. Run `make samples` and read what it says."""


class SeparationFailed(UnifiedNNError, RuntimeError):
    """A separated model could not be written, or what was read back differs from what was trained."""


class Unauthorised(UnifiedNNError):
    """Who asks is not known: not signed in, or with a token that expired or was revoked."""


class UploadConflict(UnifiedNNError, RuntimeError):
    """An upload has another writer, or another length than its sender thinks; `offset_bytes` is where to go on."""

    def __init__(self, message: str, offset_bytes: int):
        self.offset_bytes = offset_bytes
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.offset_bytes)


class WrongSchema(UnifiedNNError, RuntimeError):
    """The database was written by another version of UnifiedNN."""


class IllegalTransition(UnifiedNNError, RuntimeError):
    """A state does not allow an event. `history` holds the states before, oldest first."""

    def __init__(self, what: str, state: str, event: str, allowed: Sequence[str], history: Sequence[str] = ()):
        self.what, self.state, self.event = what, state, event
        self.allowed, self.history = tuple(allowed), tuple(history)
        possible = ", ".join(self.allowed) or "nothing: this state is final"
        past = f" Before: {' → '.join(self.history)}." if self.history else ""
        super().__init__(f"{what} is {state}, which does not allow '{event}'. Possible now: {possible}.{past}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.what, self.state, self.event, self.allowed, self.history)
