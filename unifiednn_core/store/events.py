"""Structured events in the history of a run: a code, the state entered, and fields. `views` makes the sentence."""

from enum import StrEnum
from typing import Any, Final


class Code(StrEnum):
    """What happened. Each comment names the fields."""

    ENTERED = "entered"  # name of the run or sub-model, cause; the state is a column
    ASKED = "asked"  # `commands.brief_of`: verb and essential argument
    APPLIED = "applied"  # the same, and step
    DECLINED = "declined"  # verb, reason
    UNDONE = "undone"  # verb, by: the later command
    OBSOLETE = "obsolete"  # verb, name, found: the state that made it obsolete
    DONE = "done"  # verb; the target ended as asked
    CONTINUED = "continued"  # step, lost_steps
    RESTARTED = "restarted"  # a baseline begins again
    PLACED = "placed"  # device
    LEFT = "left"  # device, reason
    WORKER_LOST = "worker_lost"  # cause, wait_s
    WARNED = "warned"  # text
    REFUSED = "refused"  # text: the policy's decision that the engine did not enact
    FAILED = "failed"  # cause, remedy
    ILLEGAL_MOVE = "illegal_move"  # text
    NOT_LEARNING = "not_learning"  # the fields of `SubModelRow.not_learning`; or over: True
    UNRECORDED = "unrecorded"  # error: type of the exception
    DATA_CHANGED = "data_changed"  # data: name of the data set, as the sub-model calls it
    PROCESS_CHANGED = "process_changed"  # settings of the process, which were put back
    RECORDED = "recorded"  # gain: how many times faster replayed steps are; or refused: why none are
    GANGED = "ganged"  # others: how many, and gain of stepping together; or parted: why it steps by itself
    CHECKPOINT = "checkpoint"  # step
    SEPARATED = "separated"  # archive
    CERTIFIED = "certified"  # nothing more: the certificate of the separated model holds
    UNCERTIFIED = "uncertified"  # findings: why the certificate does not hold


KINDS: Final[dict[Code, str]] = {
    Code.ENTERED: "state",
    Code.ASKED: "command",
    **dict.fromkeys((Code.APPLIED, Code.DECLINED, Code.UNDONE, Code.OBSOLETE, Code.DONE), "applied"),
    **dict.fromkeys((Code.CONTINUED, Code.RESTARTED, Code.WORKER_LOST, Code.PLACED, Code.LEFT), "recovery"),
    **dict.fromkeys((Code.WARNED, Code.PROCESS_CHANGED, Code.NOT_LEARNING), "warning"),
    Code.REFUSED: "refused",
    **dict.fromkeys((Code.FAILED, Code.DATA_CHANGED), "error"),
    **dict.fromkeys((Code.ILLEGAL_MOVE, Code.UNRECORDED), "defect"),
    Code.RECORDED: "graph",
    Code.GANGED: "gang",
    Code.CHECKPOINT: "checkpoint",
    **dict.fromkeys((Code.SEPARATED, Code.CERTIFIED), "separated"),
    Code.UNCERTIFIED: "error",
}
"""Group of each code on pages and in documents."""


def event_columns(
    at_s: float, submodel: str | None, code: Code, *, state: str | None = None, **fields: Any
) -> dict[str, Any]:
    """Columns of an `EventRow`, except the run. Fields that are None are left out."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {
        "submodel": submodel,
        "at_s": at_s,
        "kind": KINDS[code],
        "code": code.value,
        "state": state,
        "fields": given,
    }
